"""One shard of the group coordinator: the groups and offsets of one partition of `__consumer_offsets`.

A deterministic state machine: requests come in with the caller's time, appends and answers go out (`take_effects`), and what the
partition's log holds is fed back by `replay` as it is committed. Rules: GroupCoordinatorShard and OffsetMetadataManager of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minikafka.core.coordinator.shard import Append, append_error
from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.effects import Effects, Reply
from minikafka.core.group.errors import check_member
from minikafka.core.group.offsets import CommittedOffset, OffsetStore, committed_from_value, offset_record
from minikafka.core.group.rebalance import Rebalancer
from minikafka.core.group.removal import Done, Removals
from minikafka.core.group.subscriptions import subscribed_topics
from minikafka.core.group.transactional import TopicResolver, sort_out
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from minikafka.wire.records.group_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupMetadataKey,
    StreamsGroupMetadataKey,
)

#: From this version on a commit to a group that does not exist is told so, and not ILLEGAL_GENERATION.
UNKNOWN_GROUP_VERSION = 9
#: The record that says that a group is of a type that is not served here.
OTHER_TYPES = {ConsumerGroupMetadataKey: "consumer", ShareGroupMetadataKey: "share", StreamsGroupMetadataKey: "streams"}


class GroupShard:
    """Groups and committed offsets of one coordinator partition.

    Offsets and deletions take effect by `replay` alone. A classic group lives in memory between two records, as in Apache Kafka: it is made
    of its record at the load, and writes one when an assignment is agreed upon. `other_types` are groups of types that are not
    served here, by id: whatever members do with them is refused, and their offsets stay.
    """

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str], wall_ms: Callable[[int], int]) -> None:
        """`new_uuid` gives the random part of member ids; `wall_ms(now_ms)` gives the wall time of the caller's now."""
        self._config = config
        self._wall_ms = wall_ms
        self._rebalancer = Rebalancer(config, new_uuid, wall_ms)
        self._is_loaded = False
        self._loading: dict[str, GroupMetadataValue] = {}
        self.other_types: dict[str, str] = {}
        self.offsets = OffsetStore()
        self._removals = Removals(self.offsets, self._append)

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic groups of this shard by id."""
        return self._rebalancer.groups

    def _append(self, append: Append) -> None:
        self._rebalancer.effects.appends.append(append)

    # -- the host's side: minikafka.core.coordinator.shard.Shard ------------------------------------------------------

    def take_effects(self) -> Effects:
        """What to append and to answer since the last call."""
        effects, self._rebalancer.effects = self._rebalancer.effects, Effects()
        return effects

    def next_deadline(self) -> int | None:
        """When `on_deadline` is due, in the caller's milliseconds."""
        return self._rebalancer.timers.next_deadline()

    def on_deadline(self, now_ms: int) -> None:
        """Expire sessions and phases that are due."""
        self._rebalancer.on_deadline(now_ms)

    def replay(self, key: Any, value: Any, producer_id: int = -1) -> None:
        """Apply one committed record, of a producer's transaction or of none."""
        if isinstance(key, OffsetCommitKey):
            if not isinstance(value, OffsetCommitValue):
                self.offsets.remove(key.group, key.topic, key.partition)
                return
            if producer_id >= 0:
                self.offsets.put_open(producer_id, key.group, key.topic, key.partition, committed_from_value(value))
            else:
                self.offsets.put(key.group, key.topic, key.partition, committed_from_value(value))
            if self._is_loaded:
                self._exists(key.group, value.commit_timestamp)
        elif isinstance(key, GroupMetadataKey):
            self._replay_group(key.group, value)
        elif type(key) in OTHER_TYPES:
            if value is not None:
                self.other_types[key.group_id] = OTHER_TYPES[type(key)]
            else:
                self.other_types.pop(key.group_id, None)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if not self._is_loaded:
            if value is not None:
                self._loading[group_id] = value
            else:
                self._loading.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if value is None and group is not None and group.state is GroupState.EMPTY:
            del self.groups[group_id]

    def _exists(self, group_id: str, wall_ms: int) -> None:
        """Whoever has offsets is a group, if only an empty one."""
        if group_id not in self.groups and group_id not in self.other_types:
            self.groups[group_id] = ClassicGroup(group_id, wall_ms)

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed: bring the groups to life."""
        self._is_loaded = True
        for group_id, value in self._loading.items():
            if group_id not in self.other_types:
                self._rebalancer.restore(ClassicGroup.from_value(group_id, value), now_ms)
        self._loading.clear()
        for group_id in self.offsets.group_ids():
            self._exists(group_id, self._wall_ms(now_ms))

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """A marker of the producer is committed in this partition."""
        self.offsets.end_transaction(producer_id, commit)

    def shutdown(self) -> None:
        """This broker does not lead the partition any more: answer what is parked with NOT_COORDINATOR."""
        self._rebalancer.shutdown(ErrorCode.NOT_COORDINATOR)
        self._removals.shutdown()

    def _check_type(self, group_id: str) -> None:
        """Raises GROUP_ID_NOT_FOUND for a group of a type that is not served, COORDINATOR_LOAD_IN_PROGRESS while one is being deleted."""
        if group_id in self.other_types:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group_id in self._removals.groups:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    # -- rebalancing -----------------------------------------------------------------------------------------------

    def join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """JoinGroup: answered through the effects."""
        if request.group_id in self.other_types:
            self._rebalancer.refuse_join(reply, client, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        elif request.group_id in self._removals.groups:
            self._rebalancer.refuse_join(reply, client, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, request.member_id)
        else:
            self._rebalancer.join(reply, request, client, now_ms)

    def sync(self, reply: Reply, request: SyncGroupRequest, client: Client, now_ms: int) -> None:
        """SyncGroup: answered through the effects."""
        self._rebalancer.sync(reply, request, client, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Heartbeat: answered at once."""
        return self._rebalancer.heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, version: int, now_ms: int) -> LeaveGroupResponse:
        """LeaveGroup: answered at once; others may be answered through the effects."""
        return self._rebalancer.leave(request, version, now_ms)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit(
        self, reply: Reply, request: OffsetCommitRequest, version: int, resolve: TopicResolver, now_ms: int
    ) -> None:
        """OffsetCommit: partitions that can be committed go into one batch; the answer waits for its commit."""
        code = self._check_commit(request, version, now_ms)
        wall_ms = self._wall_ms(now_ms)
        expire = wall_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
        accepted: list[tuple[str, int, CommittedOffset]] = []
        topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = []
        pending: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
        for topic in request.topics:
            results: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
            topics.append(
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=results
                )
            )
            for partition in topic.partitions:
                result = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index)
                results.append(result)
                known = resolve(topic.name, topic.topic_id, partition.partition_index)
                metadata = partition.committed_metadata or ""
                if code is not ErrorCode.NONE:
                    result.error_code = code
                elif known is None:
                    by_id = version >= 10
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif len(metadata.encode()) > self._config.offset_metadata_bytes_max:
                    result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    pending.append(result)
                    committed = CommittedOffset(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_wall_ms=wall_ms,
                        expire_wall_ms=expire,
                        topic_id=known[1],
                    )
                    accepted.append((known[0], partition.partition_index, committed))
        response = OffsetCommitResponse(topics=topics)
        if not accepted:
            self._rebalancer.effects.answers.append((reply, response))
            return
        self._append_commits(reply, request.group_id, accepted, pending, response)

    def _append_commits(
        self,
        reply: Reply,
        group_id: str,
        accepted: list[tuple[str, int, CommittedOffset]],
        pending: list[OffsetCommitResponse.OffsetCommitResponsePartition],
        response: OffsetCommitResponse,
    ) -> None:
        def stored(error: ErrorCode, done_ms: int) -> None:
            if error is not ErrorCode.NONE:
                for result in pending:
                    result.error_code = append_error(error)
            self._rebalancer.effects.answers.append((reply, response))

        records = [offset_record(group_id, topic, index, committed) for topic, index, committed in accepted]
        self._append(Append(records, stored))

    def _check_commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        try:
            self._check_type(request.group_id)
            if group is None:
                if generation < 0:
                    # A consumer with manual assignment, or an admin: the commit makes the group.
                    return ErrorCode.NONE if len(self.groups) < self._config.groups_max else ErrorCode.GROUP_MAX_SIZE_REACHED
                return ErrorCode.GROUP_ID_NOT_FOUND if version >= UNKNOWN_GROUP_VERSION else ErrorCode.ILLEGAL_GENERATION
            if generation < 0 and group.state is GroupState.EMPTY:
                return ErrorCode.NONE
            if generation < 0 and not request.member_id and request.group_instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            check_member(group, request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        if generation != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalancer.touch(group, request.member_id, now_ms)
        return ErrorCode.NONE

    def commit_transactional(self, reply: Reply, request: TxnOffsetCommitRequest, resolve: TopicResolver, now_ms: int) -> None:
        """TxnOffsetCommit: as `commit`, but the offsets count when the transaction is committed (KIP-98); its consumer is fenced by member
        and generation (KIP-447). Who calls has verified the transaction."""
        code = self._check_transactional(request)
        response, commits, pending = sort_out(request, code, resolve, self._wall_ms(now_ms), self._config.offset_metadata_bytes_max)
        if not commits:
            self._rebalancer.effects.answers.append((reply, response))
            return

        def stored(error: ErrorCode, done_ms: int) -> None:
            if error is not ErrorCode.NONE:
                for result in pending:
                    result.error_code = append_error(error)
            self._rebalancer.effects.answers.append((reply, response))

        records = [offset_record(request.group_id, topic, index, committed) for topic, index, committed in commits]
        self._append(Append(records, stored, (request.producer_id, request.producer_epoch)))

    def _check_transactional(self, request: TxnOffsetCommitRequest) -> ErrorCode:
        group = self.groups.get(request.group_id)
        try:
            self._check_type(request.group_id)
            if group is None:
                if request.generation_id >= 0:
                    return ErrorCode.ILLEGAL_GENERATION
                return ErrorCode.NONE if len(self.groups) < self._config.groups_max else ErrorCode.GROUP_MAX_SIZE_REACHED
            if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
                return ErrorCode.NONE  # a producer that does not tell its consumer
            check_member(group, request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE if request.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    # -- removal ---------------------------------------------------------------------------------------------------

    def check_delete_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
        """Whether OffsetDelete may touch each partition: not while live members subscribe to its topic (KIP-496)."""
        self._check_type(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.members and group.protocol_type != "consumer":
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        subscribed = subscribed_topics(group)
        return {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed is None or key[0] in subscribed else ErrorCode.NONE
            for key in partitions
        }

    def delete_offsets(self, group_id: str, partitions: list[tuple[str, int]], done: Done) -> Iterator[None]:
        """OffsetDelete of partitions that passed the check, in steps; `done` follows when the tombstones are committed."""
        held = [key for key in partitions if self.offsets.get(group_id, *key) is not None]
        return self._removals.delete_offsets(group_id, held, done)

    def delete_group(self, group_id: str, done: Done) -> Iterator[None]:
        """DeleteGroups, in steps: raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP; `done` follows when it is committed."""
        if group_id in self.other_types:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        self._check_type(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return self._removals.delete_group(group_id, done)

    def partitions_deleted(self, topics: list[str]) -> Iterator[None]:
        """Topics are gone from the cluster: delete what groups committed for them, in steps."""
        return self._removals.forget_topics(topics)

    def expire_offsets(self, now_ms: int) -> Iterator[None]:
        """Delete offsets that nobody has needed for `offsets.retention.minutes` (KIP-211), in steps."""
        return self._removals.expire(self.groups, self._wall_ms(now_ms), self._config.offsets_retention_ms)
