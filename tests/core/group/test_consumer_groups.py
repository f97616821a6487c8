"""A shard with groups of both protocols: which takes whose place, and what becomes of their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.consumer_group_world import FakeTopic, FakeTopics

from minikafka.core.coordinator.shard import Append
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, ConsumerSettings, GroupIntervals
from minikafka.core.group.coordinator import GroupShard
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest


class BothWorld:
    """A shard over a topic of two partitions, whose appends are committed at once; committed records are kept in `log`."""

    def __init__(self, **config: int) -> None:
        self.now_ms = 1_000_000
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})
        self.answers: dict[str, Any] = {}
        self.log: list[Any] = []
        self.work: list[Iterator[None]] = []
        self.uncommitted: list[Append] = []
        self.is_stalled = False
        self.shard = self.new_shard()
        self.shard.loaded(self.now_ms)

    def new_uuid(self) -> str:
        return "00" * 16

    def settle(self) -> None:
        while effects := self.shard.take_effects():
            self.uncommitted += effects.appends
            if not self.is_stalled:
                self.commit()
            self.answers.update(effects.answers)
            self.work += effects.work
            for steps in self.work:
                next(steps, None)

    def commit(self, is_written: bool = True) -> None:
        """Commit what is written, in its order; or all of it fails."""
        waiting, self.uncommitted = self.uncommitted, []
        for append in waiting:
            if is_written:
                self.log += append.records
                for record in append.records:
                    self.shard.replay(record.key, record.value)
            append.on_settled(is_written, self.now_ms)
            append.on_done(ErrorCode.NONE if is_written else ErrorCode.NOT_ENOUGH_REPLICAS, self.now_ms)

    def take_steps(self, work: Iterator[None]) -> None:
        self.settle()
        for _ in work:
            self.settle()
        self.settle()

    def advance(self, ms: int) -> None:
        target_ms = self.now_ms + ms
        while (due_ms := self.shard.next_deadline()) is not None and due_ms <= target_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.shard.on_deadline(self.now_ms)
            self.settle()
        self.now_ms = target_ms

    def new_shard(self) -> GroupShard:
        topics = FakeTopics()
        topics.topics["t"] = FakeTopic("t", 2)
        intervals = GroupIntervals(assignment_interval_ms=0)
        return GroupShard(
            self.config, self.new_uuid, lambda now_ms: now_ms, ConsumerSettings(ConsumerGroupConfig(), topics, lambda group_id: intervals)
        )

    def beat(self, epoch: int, group: str = "g") -> Any:
        fields: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **(fields if epoch == 0 else {}))
        self.shard.consumer_heartbeat("beat", request, Client("c", "/h", 1), self.now_ms)
        self.settle()
        return self.answers.pop("beat")

    def join_classic(self) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="", protocol_type="consumer", protocols=[protocol]
        )
        self.shard.join("join", request, Client("c", "/h", 3), self.now_ms)
        self.settle()
        return self.answers.pop("join")

    def commit_at(self, member: str, epoch: int) -> int:
        self.send_commit(member, epoch)
        return self.commit_answer()

    def commit_answer(self) -> int:
        return int(self.answers.pop("commit").topics[0].partitions[0].error_code)

    def send_commit(self, member: str, epoch: int) -> None:
        part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member, topics=topics)
        self.shard.commit("commit", request, 9, lambda name, topic_id, index: (name, FakeTopic("t", 2).topic_id), self.now_ms)
        self.settle()

    def send_transactional_commit(self, member: str, epoch: int) -> None:
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])]
        request = TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, generation_id_or_member_epoch=epoch, member_id=member,
            topics=topics,
        )  # fmt: skip
        resolve = lambda name, topic_id, index: (name, FakeTopic("t", 2).topic_id)  # noqa: E731
        self.shard.commit_transactional("commit", request, 5, resolve, lambda: None, self.now_ms)
        self.settle()

    def kinds(self) -> list[tuple[str, str]]:
        return [(state, kind) for _, _, state, kind in self.shard.listed()]


def test_an_empty_group_gives_way_to_the_other_protocol_and_keeps_its_offsets() -> None:
    world = BothWorld()
    epoch = world.beat(0).member_epoch
    assert world.commit_at("m", epoch) == 0 and world.kinds() == [("Stable", "consumer")]
    assert world.join_classic().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "its subscription cannot be read"
    assert world.beat(-1).error_code == 0 and world.kinds() == [("Empty", "consumer")]
    assert world.join_classic().error_code == 0
    assert [kind for _, kind in world.kinds()] == ["classic"]
    assert world.beat(0).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "nor can it here: the group stays classic"
    committed = world.shard.offsets.get("g", "t", 0)
    assert committed is not None and committed.offset == 7


def test_offsets_before_members_belong_to_the_group() -> None:
    world = BothWorld()
    assert world.commit_at("", -1) == 0 and world.kinds() == [("Empty", "classic")]
    assert world.beat(0).error_code == 0 and world.kinds() == [("Stable", "consumer")]
    successor = world.new_shard()
    for record in world.log:
        successor.replay(record.key, record.value)
    successor.loaded(world.now_ms)
    assert successor.listed() == world.shard.listed() and successor.member_counts() == {"g": 1}


def test_a_fenced_member_commits_nothing() -> None:
    world = BothWorld()
    epoch = world.beat(0).member_epoch
    assert world.commit_at("m", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    world.advance(45_000)
    assert world.commit_at("m", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.shard.offsets.get("g", "t", 0) is None


@pytest.mark.parametrize("send", [BothWorld.send_commit, BothWorld.send_transactional_commit])
def test_a_commit_waits_for_the_change_that_may_fence_its_member(send: Any) -> None:
    """The record that removes the member is written and not committed yet: a commit that is taken now would follow it in the log, after the
    next owner may have read the offset (simulator, seed 3000146)."""
    world = BothWorld()
    epoch = world.beat(0).member_epoch
    world.is_stalled = True
    world.advance(45_000)
    send(world, "m", epoch)
    assert "commit" not in world.answers and len(world.uncommitted) == 1
    world.is_stalled = False
    world.commit()
    world.settle()
    assert world.commit_answer() == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.shard.offsets.get("g", "t", 0) is None and not world.shard.offsets.open_partitions("g")


@pytest.mark.parametrize("send", [BothWorld.send_commit, BothWorld.send_transactional_commit])
def test_a_commit_is_taken_if_its_member_is_not_fenced_after_all(send: Any) -> None:
    world = BothWorld()
    epoch = world.beat(0).member_epoch
    world.is_stalled = True
    world.advance(45_000)
    send(world, "m", epoch)
    world.is_stalled = False
    world.commit(is_written=False)
    world.settle()
    assert world.commit_answer() == ErrorCode.NONE


def test_commits_are_refused_while_a_change_takes_too_long() -> None:
    world = BothWorld()
    epoch = world.beat(0).member_epoch
    world.is_stalled = True
    world.advance(45_000)
    world.send_commit("m", epoch)
    world.uncommitted[0].on_done(ErrorCode.REQUEST_TIMED_OUT, world.now_ms)
    world.settle()
    assert world.commit_answer() == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_is_deleted_when_it_is_empty_with_all_that_it_has() -> None:
    world = BothWorld()
    epoch = world.beat(0).member_epoch
    world.commit_at("m", epoch)
    with pytest.raises(ApiError) as refused:
        world.shard.delete_group("g", lambda code: None)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    world.beat(-1)
    codes: list[ErrorCode] = []
    work = world.shard.delete_group("g", codes.append)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    world.shard.consumer_heartbeat("early", request, Client("c", "/h", 1), world.now_ms)
    world.take_steps(work)
    assert codes == [ErrorCode.NONE] and world.answers["early"].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.shard.listed() == [] and world.shard.offsets.group_ids() == []
    successor = world.new_shard()
    for record in world.log:
        successor.replay(record.key, record.value)
    assert successor.listed() == []


def test_offsets_of_topics_that_members_subscribe_to_do_not_expire() -> None:
    world = BothWorld()
    world.commit_at("m", world.beat(0).member_epoch)
    later_ms = world.now_ms + world.config.offsets_retention_ms
    world.take_steps(world.shard.expire_offsets(later_ms))
    assert world.shard.offsets.get("g", "t", 0) is not None
    world.beat(-1)
    world.take_steps(world.shard.expire_offsets(later_ms))
    assert world.shard.listed() == [] and world.shard.offsets.group_ids() == []


def test_groups_of_both_protocols_have_one_bound() -> None:
    world = BothWorld(groups_max=1)
    assert world.beat(0).error_code == 0
    assert world.beat(0, "h").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat(2).error_code == 0
