"""A shard with members of both protocols over a log in memory, and requests as clients send them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from helpers.consumer_group_world import FakeTopic, FakeTopics, topic_id_of

from minikafka.core.coordinator.shard import Append, CoordinatorRecord
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.consumer.embedded import assignment_of
from minikafka.core.group.consumer.policy import MigrationPolicy
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, ConsumerSettings, GroupIntervals
from minikafka.core.group.coordinator import GroupShard
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.sync_group import SyncGroupRequest
from minikafka.wire.records.client_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription

Partitions = set[tuple[str, int]]
SESSION_MS = 10_000
REBALANCE_MS = 20_000


def subscription(names: list[str], owned: Partitions = frozenset(), version: int = 1) -> bytes:  # type: ignore[assignment]
    """As a cooperative consumer writes it."""
    entry = ConsumerProtocolSubscription.TopicPartition
    topics = [entry(topic=name, partitions=sorted(p for n, p in owned if n == name)) for name in sorted({name for name, _ in owned})]
    return version.to_bytes(2, "big") + ConsumerProtocolSubscription(topics=sorted(names), owned_partitions=topics).encode(version)


def assignment(partitions: Partitions, user_data: bytes | None = None) -> bytes:
    """As a leader writes it."""
    entry = ConsumerProtocolAssignment.TopicPartition
    names = sorted({name for name, _ in partitions})
    topics = [entry(topic=name, partitions=sorted(p for n, p in partitions if n == name)) for name in names]
    return b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data).encode(1)


def partitions_of(data: bytes) -> Partitions:
    """What an assignment says."""
    return {(entry.topic, partition) for entry in assignment_of(data).assigned_partitions for partition in entry.partitions}


class MixedWorld:
    """One shard. What it appends is committed at once, unless `is_stalled`."""

    def __init__(self, policy: str = "bidirectional", *, interval_ms: int = 0, size_max: int = 100, **topics: int) -> None:
        self.now_ms = 1_000_000
        self.policy = policy
        self.size_max = size_max
        self.intervals = GroupIntervals(assignment_interval_ms=interval_ms, session_timeout_ms=SESSION_MS)
        self.topics = FakeTopics()
        for name, count in (topics or {"t": 4}).items():
            self.topics.topics[name] = FakeTopic(name, count)
        self.is_stalled = False
        self.log: list[CoordinatorRecord] = []
        self.batches: list[list[CoordinatorRecord]] = []
        self.uncommitted: list[Append] = []
        self.work: deque[Iterator[None]] = deque()
        self.answers: dict[Any, Any] = {}
        #: Those who have left, or fallen silent.
        self.former: list[Any] = []
        self._ids = iter(range(1, 100_000))
        self.shard = self._new_shard()
        self.shard.loaded(self.now_ms)

    def _new_shard(self) -> GroupShard:
        config = ConsumerGroupConfig(size_max=self.size_max, migration=MigrationPolicy.named(self.policy, 100))
        settings = ConsumerSettings(config, self.topics, lambda group_id: self.intervals)
        groups = GroupConfig(initial_rebalance_delay_ms=0)
        return GroupShard(groups, lambda: f"{next(self._ids):032x}", lambda now_ms: now_ms, settings)

    # -- the runtime -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out the shard's effects until there are none left."""
        while True:
            while effects := self.shard.take_effects():
                self.uncommitted += effects.appends
                self.answers.update(effects.answers)
                self.work += effects.work
                if not self.is_stalled:
                    self._commit()
            if not self.work:
                return
            steps = self.work.popleft()
            if next(steps, self) is not self:
                self.work.append(steps)

    def _commit(self) -> None:
        waiting, self.uncommitted = self.uncommitted, []
        for append in waiting:
            self.batches.append(append.records)
            for record in append.records:
                self.log.append(record)
                self.shard.replay(record.key, record.value)
            append.on_settled(True, self.now_ms)
            append.on_done(ErrorCode.NONE, self.now_ms)

    def go_on(self) -> None:
        """Commit what is written, now and from now on."""
        self.is_stalled = False
        self._commit()
        self.run()

    def refuse(self) -> None:
        """Fail the pending writes."""
        waiting, self.uncommitted = self.uncommitted, []
        for append in waiting:
            append.on_settled(False, self.now_ms)
            append.on_done(ErrorCode.NOT_ENOUGH_REPLICAS, self.now_ms)
        self.run()

    def fail_over(self) -> None:
        """Another broker loads the committed records; waiting requests get an error."""
        self.shard.shutdown()
        waiting, self.uncommitted = self.uncommitted, []
        for append in waiting:
            append.on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.now_ms)
        self.answers.update(self.shard.take_effects().answers)
        self.work.clear()
        self.shard = self._new_shard()
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.shard.loaded(self.now_ms)
        self.run()

    def advance(self, ms: int) -> None:
        """Let time pass, stopping at each deadline."""
        end_ms = self.now_ms + ms
        while (due_ms := self.shard.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.shard.on_deadline(self.now_ms)
            self.run()
        self.now_ms = end_ms

    # -- requests --------------------------------------------------------------------------------------------------------

    def take(self, reply: Any) -> Any:
        """The answer, once; None while there is none."""
        return self.answers.pop(reply, None)

    def beat(
        self, reply: Any, member_id: str, epoch: int, names: list[str] | None = None, owned: Partitions | None = None, **fields: Any
    ) -> Any:
        """A heartbeat of the consumer protocol; `names` when it joins."""
        if names is not None:
            fields = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": names, **fields}
        if owned is not None or names is not None:
            entry, topics = ConsumerGroupHeartbeatRequest.TopicPartitions, sorted({name for name, _ in owned or ()})
            fields["topic_partitions"] = [
                entry(topic_id=topic_id_of(name), partitions=sorted(p for n, p in owned or () if n == name)) for name in topics
            ]
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        self.shard.consumer_heartbeat(reply, request, Client("c", "/h", 1), self.now_ms)
        self.run()
        return self.take(reply) if reply == "now" else None

    def join(
        self, reply: Any, member_id: str, names: list[str], owned: Partitions = frozenset(), *, version: int = 9, protocol: str = "range",  # type: ignore[assignment]
        instance: str | None = None, kind: str = "consumer", metadata: bytes | None = None,
    ) -> Any:  # fmt: skip
        """JoinGroup."""
        entry = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=member_id, protocol_type=kind,
            protocols=[entry(name=protocol, metadata=subscription(names, owned) if metadata is None else metadata)],
            group_instance_id=instance,
        )  # fmt: skip
        self.shard.join(reply, request, Client("classic", "/k", version), self.now_ms)
        self.run()
        return self.take(reply) if reply == "now" else None

    def sync(self, reply: Any, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
        """SyncGroup."""
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        given = [entry(member_id=each, assignment=data) for each, data in (assignments or {}).items()]
        values = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        request = SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id, assignments=given, **values)
        self.shard.sync(reply, request, Client("classic", "/k", 5), self.now_ms)
        self.run()
        return self.take(reply) if reply == "now" else None

    def alive(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        """Heartbeat."""
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance)
        response: HeartbeatResponse = self.shard.heartbeat(request, self.now_ms)
        self.run()
        return ErrorCode(response.error_code)

    def leave(self, *members: tuple[str, str | None], reply: Any = "now", version: int = 5) -> Any:
        """LeaveGroup: the members' error codes."""
        entry = LeaveGroupRequest.MemberIdentity
        given = [entry(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        request = LeaveGroupRequest(group_id="g", members=given)
        if version < 3:
            request = LeaveGroupRequest(group_id="g", member_id=members[0][0])
        self.shard.leave(reply, request, version, self.now_ms)
        self.run()
        answer = self.take(reply) if reply == "now" else None
        if answer is None:
            return None
        return [ErrorCode(each.error_code) for each in answer.members] if version >= 3 else ErrorCode(answer.error_code)

    def commit(self, member_id: str, epoch: int, partition: tuple[str, int] = ("t", 0)) -> ErrorCode:
        """OffsetCommit of one partition."""
        part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition[1], committed_offset=7, committed_metadata="")
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=partition[0], partitions=[part])]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics)
        self.shard.commit("commit", request, 9, lambda name, topic_id, index: (name, topic_id_of(name)), self.now_ms)
        self.run()
        answer = self.take("commit")
        return ErrorCode(answer.topics[0].partitions[0].error_code) if answer is not None else ErrorCode.REQUEST_TIMED_OUT

    def kinds(self) -> list[tuple[str, str]]:
        """State and type of every group."""
        return [(state, kind) for _, _, state, kind in self.shard.listed()]

    def classic_group(self, **targets: Partitions) -> int:
        """A stable classic group with these members: its generation. Members are told apart by name."""
        names = list(targets)
        for name in names:
            self.join(name, "", ["t"], version=3, instance=name)
        for name in names[:-1]:
            # The last one's coming has begun another generation.
            self.take(name)
            self.join(name, self.shard.groups["g"].static_members[name], ["t"], version=3, instance=name)
        assert all(self.take(name).error_code == 0 for name in names)
        group = self.shard.groups["g"]
        ids = dict(group.static_members)
        given = {ids[name]: assignment(partitions) for name, partitions in targets.items()}
        for name in targets:
            self.sync(name, ids[name], group.generation_id, given if ids[name] == group.leader_id else None)
        assert all(self.take(name).error_code == 0 for name in targets)
        return group.generation_id


def of_records(records: list[CoordinatorRecord]) -> list[str]:
    """Types of records, tombstones marked."""
    return [type(record.key).__name__.removesuffix("Key") + ("" if record.value is not None else "-") for record in records]


def rng(seed: int) -> random.Random:
    """Of a seed."""
    return random.Random(seed)
