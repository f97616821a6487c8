"""One shard of the group coordinator: the groups and offsets of one partition of `__consumer_offsets`.

A deterministic state machine. Requests come in with the caller's time. Appends and answers go out (`take_effects`). Committed records of
the partition's log come back through `replay`. Rules: GroupCoordinatorShard and OffsetMetadataManager of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from minikafka.core.coordinator.shard import Append, CoordinatorRecord, append_error, unchecked
from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.config import CONSUMER, SHARE, STREAMS, Client, GroupConfig
from minikafka.core.group.consumer.checks import CommitCheck, check_commit, check_fetch, first_refusal, subscribes
from minikafka.core.group.consumer.classic_requests import ClassicRequests
from minikafka.core.group.consumer.coordinator import ConsumerGroups, Surroundings
from minikafka.core.group.consumer.group import EMPTY
from minikafka.core.group.consumer.records import Records, group_tombstones
from minikafka.core.group.consumer.settings import ConsumerSettings
from minikafka.core.group.consumer.turns import Refusal
from minikafka.core.group.effects import Effects, Reply
from minikafka.core.group.errors import check_member
from minikafka.core.group.expiry import ExpiringGroups
from minikafka.core.group.migrating import MigratingRebalancer
from minikafka.core.group.offsets import CommittedOffset, OffsetStore, committed_from_value, expiry, offset_record
from minikafka.core.group.removal import Done, Removals
from minikafka.core.group.share.coordinator import ShareGroups, ShareSurroundings
from minikafka.core.group.share.settings import ShareSettings
from minikafka.core.group.streams.checks import check_commit as check_streams_commit
from minikafka.core.group.streams.checks import check_fetch as check_streams_fetch
from minikafka.core.group.streams.coordinator import StreamsGroups, StreamsSurroundings
from minikafka.core.group.streams.records import group_tombstones as streams_tombstones
from minikafka.core.group.streams.settings import StreamsSettings
from minikafka.core.group.subscriptions import subscribed_topics
from minikafka.core.group.transactional import IDS_VERSION, Commits, PartitionResult, TopicResolver, is_too_long, select_commits
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minikafka.wire.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from minikafka.wire.uuid import uuid_to_text

#: From this version on, a commit to a group that does not exist is answered GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION.
UNKNOWN_GROUP_VERSION = 9


class GroupShard:
    """Groups and committed offsets of one coordinator partition.

    Offsets and deletions take effect through `replay` alone. A classic group lives in memory between two records, as in Apache Kafka: it is
    built from its record while loading, and writes a record when its members have an assignment.
    """

    def __init__(
        self,
        config: GroupConfig,
        new_uuid: Callable[[], str],
        wall_ms: Callable[[int], int],
        consumer: ConsumerSettings | None = None,
        share: ShareSettings | None = None,
        streams: StreamsSettings | None = None,
    ) -> None:
        """`new_uuid` returns the random part of member ids; `wall_ms(now_ms)` converts the caller's clock to wall time."""
        self._config = config
        self._wall_ms = wall_ms
        self._rebalancer = MigratingRebalancer(config, new_uuid, wall_ms)
        self._is_loaded = False
        self._loading: dict[str, GroupMetadataValue] = {}
        self.offsets = OffsetStore()
        self._removals = Removals(self.offsets, self._append)
        settings = consumer or ConsumerSettings()
        around = Surroundings(
            config=settings.config,
            topics=settings.topics,
            intervals=settings.intervals,
            wall_ms=wall_ms,
            new_member_id=lambda: member_id_of(new_uuid()),
            make_room=self._make_room,
            classics=self._rebalancer,
        )
        self._consumers = ConsumerGroups(around, lambda: self._rebalancer.effects)
        around_shares = ShareSurroundings(share or ShareSettings(), settings.topics, wall_ms, self._check_free)
        #: The share groups (KIP-932).
        self.shares = ShareGroups(around_shares, lambda: self._rebalancer.effects)
        around_streams = StreamsSurroundings(
            streams or StreamsSettings(), settings.topics, wall_ms, self._make_room_for_streams, partial(self.is_other, kind=STREAMS)
        )
        #: The streams groups (KIP-1071).
        self.streams = StreamsGroups(around_streams, lambda: self._rebalancer.effects)
        self._classics = ClassicRequests(self._consumers)

    @property
    def consumers(self) -> ConsumerGroups:
        """The groups of the consumer protocol (KIP-848)."""
        return self._consumers

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic groups of this shard by id."""
        return self._rebalancer.groups

    def _append(self, append: Append) -> None:
        self._rebalancer.effects.appends.append(append)

    # -- the host's side: minikafka.core.coordinator.shard.Shard ------------------------------------------------------

    def take_effects(self) -> Effects:
        """The effects that have accumulated since the last call."""
        return self._rebalancer.take_effects()

    def next_deadline(self) -> int | None:
        """When `on_deadline` is due, in the caller's milliseconds."""
        timers = (self._rebalancer.timers, self._consumers.sessions.timers, self.shares.timers)
        deadlines = [self.streams.next_deadline(), *(queue.next_deadline() for queue in timers)]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_deadline(self, now_ms: int) -> None:
        """End the sessions and phases whose deadlines have passed."""
        self._rebalancer.on_deadline(now_ms)
        self._consumers.on_deadline(now_ms)
        self.shares.on_deadline(now_ms)
        self.streams.on_deadline(now_ms)

    def replay(self, key: Any, value: Any, producer_id: int = -1) -> None:
        """Apply one committed record. `producer_id` is -1 for a record outside of transactions."""
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
        elif self.shares.replay(key, value):
            pass
        elif (self._consumers.replay(key, value) and key.group_id in self._consumers.groups) or (
            self.streams.replay(key, value) and key.group_id in self.streams.groups
        ):
            # The group had offsets before it had members, so it existed as an empty classic group.
            self.groups.pop(key.group_id, None)

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
        """Ensure that the group exists: an id with offsets is at least an empty classic group."""
        if group_id not in self.groups and self._type_of(group_id) is None:
            self.groups[group_id] = ClassicGroup(group_id, wall_ms)

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed: start the groups' timers."""
        self._is_loaded = True
        for group_id, value in self._loading.items():
            if self._type_of(group_id) is None:
                self._rebalancer.restore(ClassicGroup.from_value(group_id, value), now_ms)
        self._loading.clear()
        self._consumers.loaded(now_ms)
        self.shares.loaded(now_ms)
        self.streams.loaded(now_ms)
        for group_id in self.offsets.group_ids():
            self._exists(group_id, self._wall_ms(now_ms))

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """A transaction marker of the producer is committed in this partition."""
        self.offsets.end_transaction(producer_id, commit)

    def shutdown(self) -> None:
        """This broker no longer leads the partition: answer parked requests with NOT_COORDINATOR."""
        self._rebalancer.shutdown(ErrorCode.NOT_COORDINATOR)
        self._removals.shutdown()
        self._consumers.shutdown()
        self.shares.shutdown()
        self.streams.shutdown()

    def consumer_heartbeat(self, reply: Reply, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int) -> None:
        """ConsumerGroupHeartbeat: answered through the effects."""
        if request.group_id in self._removals.groups:
            refused = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._rebalancer.effects.answers.append((reply, refused))
        else:
            self._consumers.heartbeat(reply, request, client, now_ms)

    def streams_heartbeat(self, reply: Reply, request: StreamsGroupHeartbeatRequest, client: Client, now_ms: int) -> None:
        """StreamsGroupHeartbeat: answered through the effects."""
        if request.group_id in self._removals.groups:
            refused = StreamsGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._rebalancer.effects.answers.append((reply, refused))
        else:
            self.streams.heartbeat(reply, request, client, now_ms)

    def _type_of(self, group_id: str) -> str | None:
        """The type of the non-classic group with this id; None if there is none."""
        if group_id in self._consumers.groups:
            return CONSUMER
        if group_id in self.shares.groups:
            return SHARE
        return STREAMS if group_id in self.streams.groups else None

    def _make_room(self, group_id: str) -> Records:
        """Records that end an empty classic group, which a group of the consumer protocol replaces."""
        if self.streams.is_busy(group_id):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._end_classic(group_id, CONSUMER)

    def _make_room_for_streams(self, group_id: str) -> Records:
        """Records that end an empty classic group, which a group of the streams protocol replaces."""
        if self._consumers.is_busy(group_id):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._end_classic(group_id, STREAMS)

    def is_other(self, group_id: str, kind: str) -> bool:
        """Whether a group of another type than `kind` has this id. `kind` is not the classic type."""
        return group_id in self.groups or self._type_of(group_id) not in (None, kind)

    def _end_classic(self, group_id: str, kind: str) -> Records:
        group = self.groups.get(group_id)
        if self.shares.is_busy(group_id):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self._type_of(group_id) is not None or (group is not None and group.state is not GroupState.EMPTY):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
        if group is not None:
            return [CoordinatorRecord(group.key(), None)]
        self._check_room()
        return []

    def _check_room(self) -> None:
        if sum(len(groups) for groups in self._every_type()) >= self._config.groups_max:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _check_free(self, group_id: str) -> None:
        """Raises if a share group cannot be created because another group has the id or is about to have it."""
        if self._consumers.is_busy(group_id) or self.streams.is_busy(group_id) or group_id in self._removals.groups:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if group_id in self.groups or self._type_of(group_id) is not None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        self._check_room()

    def listed(self) -> list[tuple[str, str, str, str]]:
        """Id, protocol type, state and type of every group, for ListGroups."""
        classic = [(group.group_id, group.protocol_type or "", group.state.value, "classic") for group in self.groups.values()]
        consumer = [(group.group_id, CONSUMER, group.state, CONSUMER) for group in self._consumers.groups.values()]
        share = [(group.group_id, SHARE, group.state, SHARE) for group in self.shares.groups.values()]
        return classic + consumer + share + [(group.group_id, STREAMS, group.state, STREAMS) for group in self.streams.groups.values()]

    def member_counts(self) -> dict[str, int]:
        """Number of members by group."""
        return {group_id: len(group.members) for groups in self._every_type() for group_id, group in groups.items()}

    def _every_type(self) -> tuple[Mapping[str, Any], ...]:
        return self.groups, self._consumers.groups, self.shares.groups, self.streams.groups

    def _check_type(self, group_id: str) -> None:
        """Raises GROUP_ID_NOT_FOUND for a share group, COORDINATOR_LOAD_IN_PROGRESS while one is being deleted."""
        if group_id in self.shares.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group_id in self._removals.groups:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    # -- rebalancing -----------------------------------------------------------------------------------------------

    def join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """JoinGroup: answered through the effects."""
        if not self._config.allows_session(request.session_timeout_ms):
            self._rebalancer.join(reply, request, client, now_ms)  # which refuses it, whatever the group
        elif request.group_id in self.shares.groups:
            self._rebalancer.refuse_join(reply, client, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        elif request.group_id in self._removals.groups or self.shares.is_busy(request.group_id):
            self._rebalancer.refuse_join(reply, client, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, request.member_id)
        elif self._classics.concerns(request.group_id):
            self._classics.join(reply, request, client, now_ms)
        elif request.group_id in self.streams.groups or self.streams.is_busy(request.group_id):
            self._join_after_streams(reply, request, client, now_ms)
        else:
            self._rebalancer.join(reply, request, client, now_ms)

    def _join_after_streams(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """Replace an empty streams group by a classic group, then join it."""

        def ended(code: ErrorCode, at_ms: int) -> None:
            if code is ErrorCode.NONE:
                self._rebalancer.join(reply, request, client, at_ms)
            else:
                self._rebalancer.refuse_join(reply, client, code, "")

        self.streams.when_ended(request.group_id, ended, now_ms)

    def sync(self, reply: Reply, request: SyncGroupRequest, client: Client, now_ms: int) -> None:
        """SyncGroup: answered through the effects."""
        if self._classics.concerns(request.group_id):
            self._rebalancer.effects.answers.append((reply, self._classics.sync(request, client, now_ms)))
        else:
            self._rebalancer.sync(reply, request, client, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Heartbeat: answered at once."""
        classics = self._classics if self._classics.concerns(request.group_id) else self._rebalancer
        return classics.heartbeat(request, now_ms)

    def leave(self, reply: Reply, request: LeaveGroupRequest, version: int, now_ms: int) -> None:
        """LeaveGroup: answered through the effects, perhaps together with other members' requests."""
        if self._classics.concerns(request.group_id):
            self._classics.leave(reply, request, version, now_ms)
        else:
            self._rebalancer.answer_leave(reply, request, version, now_ms)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit(self, reply: Reply, request: OffsetCommitRequest, version: int, resolve: TopicResolver, now_ms: int) -> None:
        """OffsetCommit: the accepted partitions go into one batch, and the answer waits until the batch is committed. As in KafkaApis,
        a partition that does not exist has that error, whatever the group says."""
        self._in_turn(request.group_id, lambda code, at_ms: self._commit(reply, request, version, resolve, code, at_ms), now_ms)

    def _in_turn(self, group_id: str, commit: Refusal, now_ms: int) -> None:
        """Call `commit(NONE, now_ms)` when no change of the group is being written, because that may fence the member: its commit would
        follow in the log, and its successor might have read the offset before. If the change takes too long, `commit` gets an error."""

        def work(at_ms: int) -> bool:
            commit(ErrorCode.NONE, at_ms)
            return False

        for turns in (self._consumers.turns, self.streams.turns):
            if turns.is_busy(group_id):
                turns.run(group_id, work, commit, now_ms)
                return
        commit(ErrorCode.NONE, now_ms)

    def _commit(
        self, reply: Reply, request: OffsetCommitRequest, version: int, resolve: TopicResolver, code: ErrorCode, now_ms: int
    ) -> None:
        check = None
        if code is ErrorCode.NONE:
            code, check = self._check_commit(request, version, now_ms)
        if check is not None:
            code = first_refusal(check, resolve, [(t.name, t.topic_id, p.partition_index) for t in request.topics for p in t.partitions])
        wall_ms = self._wall_ms(now_ms)
        expire = expiry(wall_ms, request.retention_time_ms)
        accepted: Commits = []
        topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = []
        pending: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
        for topic in request.topics:
            results: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
            topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
            for partition in topic.partitions:
                result = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index)
                results.append(result)
                found = resolve(topic.name, topic.topic_id, partition.partition_index)
                metadata = partition.committed_metadata or ""
                if isinstance(found, ErrorCode):
                    result.error_code = found
                elif code is not ErrorCode.NONE:
                    result.error_code = code
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
                        topic_id=found[1],
                    )
                    accepted.append((found[0], partition.partition_index, committed))
        response = OffsetCommitResponse(topics=topics)
        if is_too_long(response):
            self._exists(request.group_id, wall_ms)
        self._append_commits(reply, request.group_id, accepted, pending, response)

    def _append_commits(
        self,
        reply: Reply,
        group_id: str,
        commits: Commits,
        pending: Sequence[PartitionResult | OffsetCommitResponse.OffsetCommitResponsePartition],
        response: OffsetCommitResponse | TxnOffsetCommitResponse,
        producer: tuple[int, int] | None = None,
        check: Callable[[], None] = unchecked,
    ) -> None:
        """Write commits, those of a transaction if `producer` is given, and answer. `pending`: the parts of the answer about them."""
        if not commits:
            self._rebalancer.effects.answers.append((reply, response))
            return
        writes = self.offsets.writes if producer is None else self.offsets.open_writes
        end = writes.begin(group_id, [(topic, index) for topic, index, _ in commits])

        def settled(is_written: bool, at_ms: int) -> None:
            end()

        def stored(error: ErrorCode, done_ms: int) -> None:
            if error is not ErrorCode.NONE:
                for result in pending:
                    result.error_code = append_error(error)
            self._rebalancer.effects.answers.append((reply, response))

        records = [offset_record(group_id, topic, index, committed) for topic, index, committed in commits]
        self._append(Append(records, stored, producer, settled, check))

    def _check_commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> tuple[ErrorCode, CommitCheck | None]:
        if self._type_of(request.group_id) in (None, SHARE):
            return self._check_classic_commit(request, version, now_ms), None
        return self._check_member_commit(request, version)

    def _check_member_commit(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest, version: int | None
    ) -> tuple[ErrorCode, CommitCheck | None]:
        """Check a commit to a group whose members have epochs. `version` is that of an OffsetCommit, None for a TxnOffsetCommit."""
        group_id, epoch = request.group_id, request.generation_id_or_member_epoch
        sender = request.member_id, request.group_instance_id, epoch, version
        consumers, streams = self._consumers.groups.get(group_id), self.streams.groups.get(group_id)
        try:
            self._check_type(group_id)
            if consumers is not None:
                return ErrorCode.NONE, check_commit(consumers, *sender)
            assert streams is not None
            return ErrorCode.NONE, check_streams_commit(streams, *sender)
        except ApiError as error:
            return error.code, None

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Check that a member may read offsets (KIP-848). Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or GROUP_ID_NOT_FOUND."""
        group, streams = self._consumers.groups.get(group_id), self.streams.groups.get(group_id)
        if group is not None:
            check_fetch(group, member_id, member_epoch)
        elif streams is not None:
            check_streams_fetch(streams, member_id, member_epoch)

    def _check_classic_commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> ErrorCode:
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        try:
            self._check_type(request.group_id)
            if group is None:
                if generation < 0:
                    # A consumer with manual assignment, or an admin client: the commit creates the group.
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

    def commit_transactional(
        self,
        reply: Reply,
        request: TxnOffsetCommitRequest,
        version: int,
        resolve: TopicResolver,
        check_open: Callable[[], None],
        now_ms: int,
    ) -> None:
        """TxnOffsetCommit: like `commit`, but the offsets count when the transaction is committed (KIP-98), and the consumer is fenced by
        member id and generation (KIP-447). `check_open()` raises ApiError if the verified transaction has ended (KIP-890); it is called
        when the offsets are written. The caller has checked that topics given by id exist."""

        def commit(code: ErrorCode, at_ms: int) -> None:
            self._commit_transactional(reply, request, version, resolve, check_open, code, at_ms)

        self._in_turn(request.group_id, commit, now_ms)

    def _commit_transactional(
        self,
        reply: Reply,
        request: TxnOffsetCommitRequest,
        version: int,
        resolve: TopicResolver,
        check_open: Callable[[], None],
        code: ErrorCode,
        now_ms: int,
    ) -> None:
        check = None
        if code is ErrorCode.NONE:
            code, check = self._check_transactional(request, version)
        if check is not None:
            code = first_refusal(check, resolve, [(t.name, t.topic_id, p.partition_index) for t in request.topics for p in t.partitions])
        if code is ErrorCode.STALE_MEMBER_EPOCH and version < IDS_VERSION:
            # Older producers only support the classic protocol's error.
            code = ErrorCode.ILLEGAL_GENERATION
        wall_ms = self._wall_ms(now_ms)
        response, commits, pending = select_commits(request, code, resolve, wall_ms, self._config.offset_metadata_bytes_max)
        if is_too_long(response):
            self._exists(request.group_id, wall_ms)
        producer = request.producer_id, request.producer_epoch
        self._append_commits(reply, request.group_id, commits, pending, response, producer, check_open)

    def _check_transactional(self, request: TxnOffsetCommitRequest, version: int) -> tuple[ErrorCode, CommitCheck | None]:
        if self._type_of(request.group_id) in (None, SHARE):
            return self._check_classic_transactional(request, version), None
        return self._check_member_commit(request, None)

    def _check_classic_transactional(self, request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        group = self.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        try:
            self._check_type(request.group_id)
            if group is None:
                if generation >= 0:
                    return ErrorCode.GROUP_ID_NOT_FOUND if version >= IDS_VERSION else ErrorCode.ILLEGAL_GENERATION
                return ErrorCode.NONE if len(self.groups) < self._config.groups_max else ErrorCode.GROUP_MAX_SIZE_REACHED
            if generation < 0 and (group.state is GroupState.EMPTY or (not request.member_id and request.group_instance_id is None)):
                return ErrorCode.NONE  # a producer that does not send its consumer's metadata
            check_member(group, request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE if generation == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    # -- removal ---------------------------------------------------------------------------------------------------

    def check_delete_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
        """Whether OffsetDelete may delete each partition's offset: not while members subscribe to its topic (KIP-496)."""
        self._check_type(group_id)
        consumers = self._consumers.groups.get(group_id)
        others = self.streams.groups.get(group_id) if consumers is None else consumers
        if others is not None:
            return dict(subscribes(others, partitions))
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.members and group.protocol_type != "consumer":
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        subscribed = subscribed_topics(group)
        return {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed is None or key[0] in subscribed else ErrorCode.NONE for key in partitions
        }

    def delete_offsets(self, group_id: str, partitions: list[tuple[str, int]], done: Done) -> Iterator[None]:
        """Delete the offsets of partitions that passed the check, in steps. `done` is called when the tombstones are committed."""
        return self._removals.delete_offsets(group_id, partitions, done)

    def delete_group(self, group_id: str, done: Done) -> Iterator[None]:
        """Delete a group, in steps. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP. `done` is called when the deletion is committed."""
        if group_id in self.shares.groups:
            self.shares.delete_group(group_id, done, 0)
            return iter(())
        self._check_type(group_id)
        if self._consumers.is_busy(group_id) or self.streams.is_busy(group_id):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        streams = self.streams.groups.get(group_id)
        if streams is not None:
            if streams.members:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            return self._removals.delete_group(group_id, streams_tombstones(streams), done)
        consumers = self._consumers.groups.get(group_id)
        if consumers is not None:
            if consumers.state != EMPTY:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            return self._removals.delete_group(group_id, group_tombstones(consumers), done)
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return self._removals.delete_group(group_id, [CoordinatorRecord(group.key(), None)], done)

    def partitions_deleted(self, topics: list[str]) -> Iterator[None]:
        """Topics were deleted from the cluster: delete the offsets that groups committed for them, in steps."""
        return self._removals.forget_topics(topics)

    def expire_offsets(self, now_ms: int) -> Iterator[None]:
        """Delete offsets that have not been needed for `offsets.retention.minutes` (KIP-211), in steps."""
        groups = ExpiringGroups(self.groups, self._consumers, self.streams)
        return self._removals.expire(groups, self._wall_ms(now_ms), self._config.offsets_retention_ms)


def member_id_of(uuid_text: str) -> str:
    """A member id as Apache Kafka makes it."""
    return uuid_to_text(bytes.fromhex(uuid_text.replace("-", "")))
