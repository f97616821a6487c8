"""Share groups at their coordinator: who has which partitions, which partitions have a state, and what a coordinator's death leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.consumer.settings import ConsumerSettings
from minikafka.core.group.coordinator import GroupShard
from minikafka.core.group.effects import StateQuestion
from minikafka.core.group.share.assignor import assign_simple
from minikafka.core.group.share.settings import ShareIntervals, ShareSettings
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.records.group_records import ShareGroupMetadataKey

TOPIC = b"t" * 16
SESSION_MS = 45_000


class Topics:
    version = 1

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def _topic(self, name: str) -> Any:
        count = self.counts[name]
        return SimpleNamespace(name=name, topic_id=name.encode() * 16, partition_count=count, racks=lambda index: [])

    def by_name(self, name: str) -> Any:
        return self._topic(name) if name in self.counts else None

    def by_id(self, topic_id: bytes) -> Any:
        return self.by_name(topic_id[:1].decode())

    def names(self) -> list[str]:
        return list(self.counts)


class World:
    """A shard of the group coordinator over a log; share coordinators that answer at once, unless `is_held`."""

    def __init__(self, *, intervals_ms: int = 0, **settings: Any) -> None:
        self.topics = Topics(t=4)
        self.settings = ShareSettings(intervals=lambda group_id: ShareIntervals(SESSION_MS, 5000, intervals_ms), **settings)
        self.now_ms = 1000
        self.log: list[Any] = []
        self.held: list[StateQuestion] = []
        self.asked: list[StateQuestion] = []
        self.is_held = False
        self.code = ErrorCode.NONE
        #: How many appends are refused from now on.
        self.refusals = 0
        self.restart()

    def restart(self) -> None:
        """Another broker loads the log."""
        consumer = ConsumerSettings(topics=self.topics)
        self.shard = GroupShard(GroupConfig(groups_max=3), lambda: "0" * 32, lambda now_ms: now_ms, consumer, self.settings)
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.shard.loaded(self.now_ms)
        self.run()

    def run(self) -> None:
        while effects := self.shard.take_effects():
            for append in effects.appends:
                if self.refusals:
                    self.refusals -= 1
                    append.on_settled(False, self.now_ms)
                    append.on_done(ErrorCode.NOT_ENOUGH_REPLICAS, self.now_ms)
                    continue
                for record in append.records:
                    self.log.append(record)
                    self.shard.replay(record.key, record.value)
                append.on_settled(True, self.now_ms)
                append.on_done(ErrorCode.NONE, self.now_ms)
            for reply, answer in effects.answers:
                reply.append(answer)
            for question in effects.questions:
                self.asked.append(question)
                self.held.append(question)
            if not self.is_held:
                self.answer()

    def answer(self) -> None:
        held, self.held = self.held, []
        for question in held:
            answers = {(topic_id, p): (self.code, None) for topic_id, some in question.topics.items() for p, _ in some}
            question.done(answers, self.now_ms)

    def heartbeat(self, member: str, epoch: int, *names: str, group: str = "g") -> Any:
        answers: list[Any] = []
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(names) or None
        )
        self.shard.shares.heartbeat(answers, request, Client("c", "/h", 1), self.now_ms)
        self.run()
        return answers[0]

    def join(self, member: str, *names: str) -> int:
        """The epoch of a member that has what it is to have."""
        epoch = self.heartbeat(member, 0, *(names or ("t",))).member_epoch
        return int(self.heartbeat(member, epoch).member_epoch)

    def assigned(self, member: str) -> list[int]:
        return sorted(self.shard.shares.groups["g"].members[member].assigned.get(TOPIC, ()))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.on_deadline(self.now_ms)
        self.run()


def test_a_member_gets_the_partitions_when_they_have_a_state() -> None:
    world = World()
    first = world.heartbeat("m", 0, "t")
    assert (first.error_code, first.member_epoch, first.assignment.topic_partitions) == (ErrorCode.NONE, 2, [])
    assert world.asked[0].topics == {TOPIC: [(0, -1), (1, -1), (2, -1), (3, -1)]}
    assert world.asked[0].state_epoch == 2
    second = world.heartbeat("m", 2)
    assert (second.member_epoch, second.assignment.topic_partitions[0].partitions) == (3, [0, 1, 2, 3])
    third = world.heartbeat("m", 3)
    assert (third.member_epoch, third.assignment) == (3, None)


def test_partitions_are_shared_out_and_come_back_when_a_session_ends() -> None:
    world = World()
    epoch = world.join("a")
    world.join("b")
    world.heartbeat("a", epoch)
    assert sorted(world.assigned("a") + world.assigned("b")) == [0, 1, 2, 3]
    assert len(world.assigned("a")) == len(world.assigned("b")) == 2
    world.pass_ms(SESSION_MS - 1)
    epoch = world.heartbeat("a", world.shard.shares.groups["g"].members["a"].member_epoch).member_epoch
    world.pass_ms(1)
    assert list(world.shard.shares.groups["g"].members) == ["a"]
    world.heartbeat("a", epoch)
    assert world.assigned("a") == [0, 1, 2, 3]


def test_the_removal_of_a_silent_member_is_tried_again_until_it_is_written() -> None:
    world = World()
    world.join("m")
    world.refusals = 3
    world.pass_ms(SESSION_MS)
    for left in (2, 1, 0):
        assert world.refusals == left
        world.pass_ms(499)
        assert world.refusals == left and "m" in world.shard.shares.groups["g"].members
        world.pass_ms(1)
    assert not world.shard.shares.groups["g"].members


def test_who_joins_an_empty_group_need_not_wait_for_the_next_assignment() -> None:
    world = World(intervals_ms=60_000)
    world.join("m", "t")
    world.heartbeat("m", -1)
    group = world.shard.shares.groups["g"]
    assert (group.epoch, group.assignment_wall_ms) == (group.assignment_epoch, 0)
    joined = world.heartbeat("n", 0, "t")
    assert sorted(joined.assignment.topic_partitions[0].partitions) == [0, 1, 2, 3]
    assert world.heartbeat("o", 0, "t").assignment.topic_partitions == [], "a second member waits"


def test_a_coordinators_death_loses_nothing_and_gives_fresh_sessions() -> None:
    world = World()
    epoch = world.join("m")
    before = world.shard.shares.describe("g")
    world.now_ms += SESSION_MS - 1
    world.restart()
    assert world.shard.shares.describe("g") == before
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat("m", epoch).error_code == ErrorCode.NONE


def test_unanswered_state_requests_are_repeated() -> None:
    world = World(initialize_retry_ms=10_000)
    world.is_held = True
    epoch = world.heartbeat("m", 0, "t").member_epoch
    world.heartbeat("m", epoch)
    assert len(world.asked) == 1
    world.now_ms += 10_000
    epoch = world.heartbeat("m", epoch).member_epoch
    assert len(world.asked) == 2
    world.restart()
    world.heartbeat("m", epoch)
    assert len(world.asked) == 3
    world.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.held = world.held[-1:]
    world.answer()
    world.run()
    assert not world.shard.shares.groups["g"].initialized
    world.heartbeat("m", epoch)
    assert len(world.asked) == 4, "a refusal is an answer, so nothing is waited for"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_partitions_that_got_no_state_begin_where_the_group_begins(is_restarted: bool) -> None:
    """The others have one, so the topic is known; but only partitions that are new to it begin at 0."""
    world = World()
    world.is_held = True
    epoch = world.heartbeat("m", 0, "t").member_epoch
    codes = [ErrorCode.NONE, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3]
    world.held.pop().done({(TOPIC, p): (code, None) for p, code in enumerate(codes)}, world.now_ms)
    world.run()
    world.topics.counts["t"] = 5
    world.shard.shares.topics_changed(["t"])
    if is_restarted:
        world.restart()
    epoch = world.heartbeat("m", epoch).member_epoch
    assert world.asked[-1].topics == {TOPIC: [(1, -1), (2, -1), (3, -1), (4, 0)]}
    world.heartbeat("m", epoch)
    assert len(world.asked) == 2, "they have been asked for"
    world.answer()
    world.run()
    assert world.shard.shares.groups["g"].initialized[TOPIC].partitions == {0, 1, 2, 3, 4}
    assert not world.shard.shares.groups["g"].initializing


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_grows_before_any_partition_has_a_state_is_new_no_longer(is_restarted: bool) -> None:
    """What is written to the new partition before it has a state would be skipped."""
    world = World(initialize_retry_ms=10_000)
    world.is_held = True
    epoch = world.heartbeat("m", 0, "t").member_epoch
    world.topics.counts["t"] = 5
    world.shard.shares.topics_changed(["t"])
    if is_restarted:
        world.restart()
    epoch = world.heartbeat("m", epoch).member_epoch
    first = [(0, -1), (1, -1), (2, -1), (3, -1)]
    assert world.asked[-1].topics == {TOPIC: [*first, (4, 0)] if is_restarted else [(4, 0)]}
    world.now_ms += 10_000
    world.heartbeat("m", epoch)
    assert world.asked[-1].topics == {TOPIC: [*first, (4, 0)]}, "neither does it begin elsewhere when it is asked for again"
    world.answer()
    world.run()
    assert world.shard.shares.groups["g"].initialized[TOPIC].partitions == {0, 1, 2, 3, 4}
    assert not world.shard.shares.groups["g"].initializing


def test_more_partitions_get_a_state_too() -> None:
    world = World()
    epoch = world.join("m")
    world.topics.counts["t"] = 6
    world.shard.shares.topics_changed(["t"])
    epoch = world.heartbeat("m", epoch).member_epoch
    assert world.asked[-1].topics == {TOPIC: [(4, 0), (5, 0)]}, "what was written before they had a state is read, too"
    world.heartbeat("m", epoch)
    assert world.assigned("m") == [0, 1, 2, 3, 4, 5]
    del world.topics.counts["t"]
    world.shard.shares.topics_deleted([TOPIC], world.now_ms)
    world.run()
    assert not world.shard.shares.groups["g"].initialized


@pytest.mark.parametrize(
    ("epoch", "code"), [(99, ErrorCode.FENCED_MEMBER_EPOCH), (1, ErrorCode.FENCED_MEMBER_EPOCH), (-5, ErrorCode.INVALID_REQUEST)]
)
def test_members_in_a_wrong_epoch_are_fenced(epoch: int, code: ErrorCode) -> None:
    world = World()
    world.join("m")
    assert world.heartbeat("m", epoch).error_code is code
    assert world.heartbeat("stranger", 3).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_room_for_so_many_members_and_a_shard_for_so_many_groups() -> None:
    world = World(size_max=2)
    for member in ("a", "b"):
        world.join(member)
    assert world.heartbeat("c", 0, "t").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    for group in ("h", "i"):
        assert world.heartbeat("a", 0, "t", group=group).error_code == ErrorCode.NONE
    assert world.heartbeat("a", 0, "t", group="j").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def alter(world: World, offset: int) -> Any:
    answers: list[Any] = []
    kind = AlterShareGroupOffsetsRequest
    partitions = [kind.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset) for index in (0, 9)]
    topics = [kind.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)]
    world.shard.shares.alter_offsets(answers, kind(group_id="g", topics=topics), world.now_ms)
    world.run()
    return answers[0]


def test_offsets_are_altered_only_of_a_group_without_members() -> None:
    world = World()
    answer = alter(world, 7)
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.asked[-1].topics == {TOPIC: [(0, 7)]}
    assert world.shard.shares.groups["g"].initialized[TOPIC].partitions == {0}
    world.join("m")
    assert alter(world, 8).error_code is ErrorCode.NON_EMPTY_GROUP


def test_each_alteration_is_an_epoch_of_its_own() -> None:
    """A former member may read between two, and a leader that it read from has used the first one's state."""
    world = World()
    epoch = world.join("m")
    world.heartbeat("m", -1)
    alter(world, 7)
    alter(world, 2)
    first, second = world.asked[-2:]
    assert first.state_epoch is not None and second.state_epoch is not None
    assert epoch < first.state_epoch < second.state_epoch
    assert world.join("m") > second.state_epoch
    assert world.assigned("m") == [0, 1, 2, 3]


def test_partitions_whose_alteration_fails_keep_their_state() -> None:
    world = World()
    world.join("m")
    world.heartbeat("m", -1)
    world.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert alter(world, 7).responses[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = world.shard.shares.groups["g"]
    assert group.initialized[TOPIC].partitions == {0, 1, 2, 3}
    assert not group.initializing


def test_an_alteration_to_no_offset_deletes_the_state_first() -> None:
    """An initialization without an offset resets no state: the answer was a success, and the offset stayed."""
    world = World()
    alter(world, 7)
    asked = len(world.asked)
    answer = alter(world, -1)
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    deletion, beginning = world.asked[asked:]
    assert (deletion.topics, deletion.state_epoch) == ({TOPIC: [(0, -1)]}, None)
    assert beginning.topics == {TOPIC: [(0, -1)]} and beginning.state_epoch is not None
    assert world.shard.shares.groups["g"].initialized[TOPIC].partitions == {0}


def test_a_state_that_cannot_be_deleted_does_not_lose_its_offset() -> None:
    world = World()
    alter(world, 7)
    asked, world.code = len(world.asked), ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert alter(world, -1).responses[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    (deletion,) = world.asked[asked:]
    assert deletion.state_epoch is None
    group, world.code = world.shard.shares.groups["g"], ErrorCode.NONE
    assert group.initializing[TOPIC].partitions == {0}, "nobody knows whether it is still there"
    world.join("m")
    assert group.initialized[TOPIC].partitions == {0, 1, 2, 3}
    assert world.assigned("m") == [0, 1, 2, 3]


def delete_offsets(world: World) -> None:
    kind = DeleteShareGroupOffsetsRequest
    request = kind(group_id="g", topics=[kind.DeleteShareGroupOffsetsRequestTopic(topic_name="t")])
    world.shard.shares.delete_offsets([], request, world.now_ms)
    world.run()


def delete_group(world: World) -> None:
    for _ in world.shard.delete_group("g", lambda code: None):
        world.run()
    world.run()


@pytest.mark.parametrize("delete", [delete_offsets, delete_group])
def test_a_member_that_joins_while_states_are_deleted_gets_new_ones(delete: Any) -> None:
    """Its question may be answered before the states are deleted, and nobody could ever read what has none."""
    world = World()
    world.join("m")
    world.heartbeat("m", -1)
    world.is_held = True
    delete(world)
    (deletion,) = world.held
    world.held = []
    epoch = world.heartbeat("m", 0, "t").member_epoch
    world.answer()
    world.run()
    epoch = world.heartbeat("m", epoch).member_epoch
    world.held = [deletion]
    world.answer()
    world.run()
    world.is_held = False
    asked = len(world.asked)
    world.heartbeat("m", epoch)
    assert [question.topics for question in world.asked[asked:]] == [{TOPIC: [(p, -1) for p in range(4)]}]
    world.heartbeat("m", epoch)
    assert world.assigned("m") == [0, 1, 2, 3]


def test_offsets_are_deleted_with_their_topic() -> None:
    world = World()
    world.join("m")
    kind = DeleteShareGroupOffsetsRequest
    request = kind(group_id="g", topics=[kind.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "x")])

    def delete() -> Any:
        answers: list[Any] = []
        world.shard.shares.delete_offsets(answers, request, world.now_ms)
        world.run()
        return answers[0]

    assert delete().error_code is ErrorCode.NON_EMPTY_GROUP
    world.heartbeat("m", -1)
    answer = delete()
    found = {topic.topic_name: topic.error_code for topic in answer.responses}
    assert found == {"t": ErrorCode.NONE, "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    group = world.shard.shares.groups["g"]
    assert (group.initialized, group.deleting) == ({}, {})
    assert world.asked[-1].state_epoch is None


def test_a_group_that_is_deleted_takes_its_states_along() -> None:
    world = World()
    world.join("m")
    codes: list[ErrorCode] = []

    def delete() -> None:
        for _ in world.shard.delete_group("g", codes.append):
            world.run()
        world.run()

    delete()
    world.heartbeat("m", -1)
    world.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    delete()
    world.code = ErrorCode.NONE
    delete()
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    assert world.asked[-1].topics == {TOPIC: [(p, -1) for p in range(4)]}
    assert (world.log[-1].key, world.log[-1].value) == (ShareGroupMetadataKey(group_id="g"), None)
    assert world.shard.listed() == []
    assert world.heartbeat("m", 0, "t").error_code == ErrorCode.NONE


def test_requests_that_wait_for_share_coordinators_fail_when_the_leadership_ends() -> None:
    world = World()
    world.join("m")
    world.heartbeat("m", -1)
    codes: list[ErrorCode] = []
    world.is_held = True
    list(world.shard.delete_group("g", codes.append))
    world.run()
    assert not codes
    world.shard.shutdown()
    assert codes == [ErrorCode.NOT_COORDINATOR]


def test_an_id_is_of_one_type() -> None:
    world = World()
    world.join("m")
    assert world.shard.listed() == [("g", "share", "Stable", "share")]
    world.shard.groups["classic"] = SimpleNamespace(group_id="classic")  # type: ignore[assignment]
    answer = world.heartbeat("m", 0, "t", group="classic")
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a share group.")


@pytest.mark.parametrize(("members", "partitions"), [(1, 5), (3, 7), (4, 4), (7, 3), (5, 1), (2, 0)])
def test_simple_assigns_every_partition_and_balances_members(members: int, partitions: int) -> None:
    names = [f"m{number}" for number in range(members)]
    assignable = {TOPIC: frozenset(range(partitions))}
    found = assign_simple(dict.fromkeys(names, frozenset([TOPIC])), assignable, {})
    counts = [len(found[name].get(TOPIC, ())) for name in names]
    assert max(counts) - min(counts) <= 1
    assert frozenset[int]().union(*(found[name].get(TOPIC, frozenset()) for name in names)) == assignable[TOPIC]
    assert min(counts) >= min(partitions, 1)
    again = assign_simple(dict.fromkeys(names, frozenset([TOPIC])), assignable, found)
    assert again == found
