"""One shard of the group coordinator: the groups and offsets of one partition of `__consumer_offsets`.

A deterministic state machine: requests come in with the caller's time, appends and answers go out (`take_effects`), and
what the partition's log holds is fed back by `replay`. Rules: GroupCoordinatorShard and OffsetMetadataManager of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.effects import Append, CoordinatorRecord, Effects, Reply
from minikafka.core.group.errors import check_member, coordinator_error
from minikafka.core.group.offsets import (
    CommittedOffset,
    OffsetStore,
    committed_from_value,
    offset_record,
    offset_tombstone,
)
from minikafka.core.group.rebalance import Rebalancer
from minikafka.core.group.transactional import TopicResolver, sort_out
from wire.errors import ApiError, ErrorCode
from wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire.messages.join_group import JoinGroupRequest
from wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from wire.messages.sync_group import SyncGroupRequest
from wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from wire.records.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue


class GroupShard:
    """Groups and committed offsets of one coordinator partition."""

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str], wall_ms: Callable[[int], int]) -> None:
        """`new_uuid` gives the random part of member ids; `wall_ms(now_ms)` gives the wall time of the caller's now."""
        self._config = config
        self._wall_ms = wall_ms
        self._rebalancer = Rebalancer(config, new_uuid, wall_ms)
        self._loaded: dict[str, GroupMetadataValue] = {}
        self.offsets = OffsetStore()

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The groups of this shard by id."""
        return self._rebalancer.groups

    # -- the host's side -------------------------------------------------------------------------------------------

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
        """Apply one record of the log, of a producer's transaction or of none; keys of other kinds of group are left alone."""
        if isinstance(key, OffsetCommitKey):
            if isinstance(value, OffsetCommitValue) and producer_id >= 0:
                self.offsets.put_open(producer_id, key.group, key.topic, key.partition, committed_from_value(value))
            elif isinstance(value, OffsetCommitValue):
                self.offsets.put(key.group, key.topic, key.partition, committed_from_value(value))
            else:
                self.offsets.remove(key.group, key.topic, key.partition)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(value, GroupMetadataValue):
                self._loaded[key.group] = value
            else:
                self._loaded.pop(key.group, None)

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed: bring the groups to life. A group that has only offsets exists as an empty one."""
        for group_id, value in self._loaded.items():
            self._rebalancer.restore(ClassicGroup.from_value(group_id, value), now_ms)
        self._loaded.clear()
        for group_id in [*(group_id for group_id, _ in self.offsets), *self.offsets.open_groups()]:
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, self._wall_ms(now_ms))

    def shutdown(self) -> None:
        """This broker does not lead the partition any more: answer what is parked with NOT_COORDINATOR."""
        self._rebalancer.shutdown(ErrorCode.NOT_COORDINATOR)

    # -- rebalancing -----------------------------------------------------------------------------------------------

    def join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """JoinGroup: answered through the effects."""
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
        code = self._check_commit(request, now_ms)
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
            if error is ErrorCode.NONE:
                for topic, index, committed in accepted:
                    self.offsets.put(group_id, topic, index, committed)
            else:
                for result in pending:
                    result.error_code = coordinator_error(error)
            self._rebalancer.effects.answers.append((reply, response))

        records = [offset_record(group_id, topic, index, committed) for topic, index, committed in accepted]
        self._rebalancer.effects.appends.append(Append(records, stored))

    def _check_commit(self, request: OffsetCommitRequest, now_ms: int) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            self.groups[request.group_id] = ClassicGroup(request.group_id, self._wall_ms(now_ms))
            return ErrorCode.NONE
        if generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE  # a consumer with manual assignment, or an admin resetting offsets
        try:
            if generation >= 0 or request.member_id or request.group_instance_id is not None:
                check_member(group, request.member_id, request.group_instance_id)
                if generation != group.generation_id:
                    return ErrorCode.ILLEGAL_GENERATION
            else:
                return ErrorCode.UNKNOWN_MEMBER_ID
        except ApiError as error:
            return error.code
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalancer.touch(group, request.member_id, now_ms)
        return ErrorCode.NONE

    def commit_transactional(self, reply: Reply, request: TxnOffsetCommitRequest, resolve: TopicResolver, now_ms: int) -> None:
        """TxnOffsetCommit: as `commit`, but the offsets count when the transaction is committed (KIP-98); its consumer is fenced by member
        and generation (KIP-447). Who calls has verified the transaction."""
        code = self._check_transactional(request, now_ms)
        response, commits, pending = sort_out(request, code, resolve, self._wall_ms(now_ms), self._config.offset_metadata_bytes_max)
        if not commits:
            self._rebalancer.effects.answers.append((reply, response))
            return

        def stored(error: ErrorCode, done_ms: int) -> None:
            if error is ErrorCode.NONE:
                for topic, index, committed in commits:
                    self.offsets.put_open(request.producer_id, request.group_id, topic, index, committed)
            else:
                for result in pending:
                    result.error_code = coordinator_error(error)
            self._rebalancer.effects.answers.append((reply, response))

        records = [offset_record(request.group_id, topic, index, committed) for topic, index, committed in commits]
        self._rebalancer.effects.appends.append(Append(records, stored, (request.producer_id, request.producer_epoch)))

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A marker of the producer is committed in this partition."""
        self.offsets.end_transaction(producer_id, commit)

    def _check_transactional(self, request: TxnOffsetCommitRequest, now_ms: int) -> ErrorCode:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            self.groups[request.group_id] = ClassicGroup(request.group_id, self._wall_ms(now_ms))
            return ErrorCode.NONE
        if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.NONE  # a producer that does not tell its consumer
        try:
            check_member(group, request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE if request.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    def check_delete_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
        """Whether OffsetDelete may touch each partition: not while live members subscribe to its topic (KIP-496)."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.members and group.protocol_type != "consumer":
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        subscribed = _subscribed_topics(group)
        return {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed is None or key[0] in subscribed else ErrorCode.NONE
            for key in partitions
        }

    def delete_offsets(
        self, group_id: str, partitions: list[tuple[str, int]], done: Callable[[ErrorCode], None]
    ) -> None:
        """OffsetDelete of partitions that passed the check; `done` follows when the tombstones are committed."""
        held = [key for key in partitions if self.offsets.get(group_id, *key) is not None]
        self._delete(group_id, held, group_too=False, done=done)

    def delete_group(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """DeleteGroups: raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP; `done` follows when it is committed."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        keys = dict.fromkeys([*self.offsets.of_group(group_id), *self.offsets.open_partitions(group_id)])
        self._delete(group_id, list(keys), group_too=True, done=done)

    def _delete(
        self, group_id: str, partitions: list[tuple[str, int]], *, group_too: bool, done: Callable[[ErrorCode], None]
    ) -> None:
        records = [offset_tombstone(group_id, topic, index) for topic, index in partitions]
        if group_too:
            records.append(CoordinatorRecord(GroupMetadataKey(group=group_id), None))

        def stored(error: ErrorCode, done_ms: int) -> None:
            if error is ErrorCode.NONE:
                for topic, index in partitions:
                    self.offsets.remove(group_id, topic, index)
                group = self.groups.get(group_id)
                if group_too and group is not None and group.state is GroupState.EMPTY:
                    del self.groups[group_id]
            done(error if error is ErrorCode.NONE else coordinator_error(error))

        if not records:
            done(ErrorCode.NONE)
            return
        self._rebalancer.effects.appends.append(Append(records, stored))

    def partitions_deleted(self, topics: list[str]) -> None:
        """Topics are gone from the cluster: delete what groups committed for them."""
        gone = set(topics)
        for group_id, offsets in list(self.offsets):
            partitions = [(topic, index) for topic, index in offsets if topic in gone]
            if partitions:
                self._delete(group_id, partitions, group_too=False, done=_ignore)

    def expire_offsets(self, now_ms: int) -> None:
        """Delete offsets of groups that have been empty for `offsets.retention.minutes` (KIP-211)."""
        wall_ms = self._wall_ms(now_ms)
        retention_ms = self._config.offsets_retention_ms
        for group_id, group in list(self.groups.items()):
            if group.state is not GroupState.EMPTY:
                continue
            offsets = self.offsets.of_group(group_id)
            is_open = self.offsets.open_partitions(group_id)
            expired = []
            for (topic, index), committed in offsets.items():
                if (topic, index) in is_open:
                    continue
                since = max(committed.commit_wall_ms, group.state_since_wall_ms if group.protocol_type else 0)
                due = committed.expire_wall_ms if committed.expire_wall_ms >= 0 else since + retention_ms
                if wall_ms >= due:
                    expired.append((topic, index))
            if expired and len(expired) == len(offsets) and not is_open:
                self._delete(group_id, expired, group_too=True, done=_ignore)
            elif expired:
                self._delete(group_id, expired, group_too=False, done=_ignore)


def _subscribed_topics(group: ClassicGroup) -> set[str] | None:
    """Topics that the members' consumer subscriptions name; None when one cannot be read."""
    topics: set[str] = set()
    for member in group.members.values():
        names = parse_subscription(member.metadata_for(group.protocol_name))
        if names is None:
            return None
        topics.update(names)
    return topics


def parse_subscription(metadata: bytes) -> list[str] | None:
    """Topic names of a ConsumerProtocolSubscription (int16 version, array of strings), or None when it is malformed."""
    if len(metadata) < 6:
        return None
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    position, names = 6, []
    if count < 0 or count * 2 > len(metadata) - position:
        return None
    for _ in range(count):
        length = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        position += 2
        if length < 0 or position + length > len(metadata):
            return None
        names.append(metadata[position : position + length].decode(errors="replace"))
        position += length
    return names


def _ignore(error: ErrorCode) -> None:
    """Expiry is tried again at the next check."""
