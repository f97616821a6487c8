"""Targets of large groups: computed and written in steps, while members come, go and beat."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.consumer_group_world import GroupsWorld, Partitions, assigned, topic_id_of, wire_partitions

from minikafka.core.group.consumer.assignment import BATCH_RECORDS_MAX
from minikafka.core.group.consumer.assignor import STEP_UNITS
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.core.group.consumer.targets import AT_ONCE_MAX
from minikafka.wire.errors import ErrorCode

MEMBERS, PARTITIONS = BATCH_RECORDS_MAX + 5, 2 * STEP_UNITS


def large(*, assignor: str = "uniform", members: int = 3) -> GroupsWorld:
    """A group with a large topic and its targets, and one more member that has just come: an assignment is under way."""
    world = GroupsWorld(ConsumerGroupConfig(assignors=(assignor,)), a=PARTITIONS, b=1)
    world.is_stepwise = True
    for number in range(members):
        world.join(f"m{number:03}", "a")
    finish(world)
    if members > 1:
        # The first assignment was begun when the first one came.
        world.beat("m000", world.group().members["m000"].member_epoch)
        finish(world)
    world.steps = 0
    world.join("new", "a")
    return world


def finish(world: GroupsWorld) -> None:
    while world.work:
        world.take_step()
        world.run()


def everything(world: GroupsWorld) -> list[tuple[bytes, int]]:
    targets = world.group().targets.values()
    return sorted((topic_id, partition) for target in targets for topic_id, partitions in target.items() for partition in partitions)


ALL = [(topic_id_of("a"), partition) for partition in range(PARTITIONS)]


@pytest.mark.parametrize(("count", "is_at_once"), [(AT_ONCE_MAX, True), (AT_ONCE_MAX + 1, False)])
def test_a_group_beyond_a_bound_is_assigned_in_steps(count: int, is_at_once: bool) -> None:
    world = GroupsWorld(a=count)
    world.is_stepwise = True
    answer = world.join("m", "a")
    assert bool(answer.assignment and answer.assignment.topic_partitions) is is_at_once
    assert bool(world.work) is not is_at_once
    finish(world)
    assert world.group().assignment_epoch == world.group().epoch
    assert [sum(map(len, target.values())) for target in world.group().targets.values()] == [count]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_an_assignment_takes_many_steps(assignor: str, names: tuple[str, ...]) -> None:
    world = large(assignor=assignor)
    world.join("other", *names)
    before = world.group().assignment_epoch
    finish(world)
    assert world.steps >= (2 * PARTITIONS if assignor == "uniform" else STEP_UNITS) // STEP_UNITS
    assert world.group().assignment_epoch > before
    world.beat("m000", before)
    finish(world)
    assert world.group().assignment_epoch == world.group().epoch
    assert [partition for partition in everything(world) if partition[0] == ALL[0][0]] == ALL


def test_members_beat_meanwhile_and_go_on_towards_what_they_had() -> None:
    world = large()
    epoch = world.group().members["m000"].member_epoch
    world.take_step()
    answer = world.beat("m000", epoch)
    assert answer.error_code == ErrorCode.NONE and world.group().assignment_epoch < world.group().epoch
    assert world.join("later", "a").error_code == ErrorCode.NONE
    assert len(world.work) == 1, "one assignment at a time"
    finish(world)
    assert "later" not in world.group().targets, "it came when the assignment was under way"
    assert everything(world) == ALL
    world.beat("later", world.group().members["later"].member_epoch)
    finish(world)
    assert world.group().targets["later"] and everything(world) == ALL


def test_a_member_that_leaves_meanwhile_gets_nothing() -> None:
    world = large()
    world.take_step()
    world.beat("m001", -1)
    finish(world)
    assert "m001" not in world.group().targets and everything(world) != ALL
    world.beat("m000", world.group().members["m000"].member_epoch)
    finish(world)
    assert everything(world) == ALL


def test_a_member_that_returns_meanwhile_has_the_target_of_the_one_that_left() -> None:
    world = large()
    finish(world)
    fields: dict[str, Any] = {"instance_id": "i"}
    epoch = world.join("s1", "a", **fields).member_epoch
    world.beat("s1", -2, **fields)
    world.take_step()
    world.join("s2", "a", **fields)
    finish(world)
    assert epoch > 0 and "s1" not in world.group().targets
    assert world.group().targets["s2"] and everything(world) == ALL


def test_a_group_that_ends_meanwhile_ends() -> None:
    world = large(members=0)
    world.beat("new", -1)
    ended: list[ErrorCode] = []
    world.groups.end_empty(world.group(), lambda code, now_ms: ended.append(code))
    world.run()
    finish(world)
    assert ended == [ErrorCode.NONE] and world.groups.groups == {}


def crowded() -> GroupsWorld:
    """A group of many that have no targets yet: an assignment is under way."""
    world = GroupsWorld(a=PARTITIONS)
    world.is_stepwise = True
    for number in range(MEMBERS):
        world.join(f"m{number:03}", "a")
    return world


def test_targets_are_written_in_batches_and_the_group_waits_for_all_of_them() -> None:
    world = crowded()
    batches = len(world.batches)
    while world.work and len(world.batches) == batches:
        world.take_step()
    assert len(world.batches[-1]) == BATCH_RECORDS_MAX and world.groups.is_busy("g")
    world.send("waits", member_id="m000", member_epoch=world.group().members["m000"].member_epoch)
    assert world.answer("waits") is None
    finish(world)
    answer = world.answer("waits")
    assert answer is not None and answer.member_epoch == world.group().epoch
    assert not world.groups.is_busy("g") and everything(world) == ALL


def test_targets_that_cannot_be_written_are_made_anew() -> None:
    world = crowded()
    before = world.group().assignment_epoch
    world.is_stalled = True
    while world.work and not world.uncommitted:
        world.take_step()
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.is_stalled = False
    finish(world)
    assert world.group().assignment_epoch == before and not world.groups.is_busy("g")
    world.beat("m000", world.group().members["m000"].member_epoch)
    finish(world)
    assert world.group().assignment_epoch > before and everything(world) == ALL


def test_the_death_of_one_of_a_hundred_takes_nothing_from_the_others() -> None:
    """So none of them pauses: each keeps its partitions and its session, and the dead one's are added to those of some."""
    topics = {f"t{number}": 100 for number in range(10)}
    world = GroupsWorld(intervals=GroupIntervals(session_timeout_ms=6_000, assignment_interval_ms=0), **topics)
    names = [f"m{number:03}" for number in range(100)]
    epochs: dict[str, int] = dict.fromkeys(names, 0)
    owned: dict[str, Partitions] = {name: set() for name in names}
    given_up: list[str] = []

    def settle(members: list[str]) -> None:
        while {epochs[name] for name in members} != {world.group().epoch} or sum(len(owned[name]) for name in members) < 1_000:
            for name in members:
                answer = world.beat(name, epochs[name], topic_partitions=wire_partitions(owned[name]))
                assert answer.error_code == ErrorCode.NONE
                epochs[name] = answer.member_epoch
                told = assigned(answer)
                if told is not None:
                    given_up.extend([name] * len(owned[name] - told))
                    owned[name] = told

    for name in names:
        epochs[name] = world.join(name, *topics).member_epoch
    settle(names)
    assert {len(found) for found in owned.values()} == {10} and set.union(*owned.values()) == {
        (topic_id_of(topic), partition) for topic in topics for partition in range(100)
    }
    given_up.clear()
    world.advance(5_999)
    alive = names[1:]
    for name in alive:
        assert world.beat(name, epochs[name]).error_code == ErrorCode.NONE
    world.advance(1)
    assert names[0] not in world.group().members and len(world.group().members) == 99
    owned.pop(names[0])
    settle(alive)
    assert given_up == [] and sorted(len(found) for found in owned.values()) == [10] * 89 + [11] * 10
    assert len(set.union(*owned.values())) == 1_000
