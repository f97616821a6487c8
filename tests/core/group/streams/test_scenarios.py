"""Events of streams groups that are too rare for random histories, and error messages for members."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.streams_group_world import Request, Roles, StreamsWorld, assigned_tasks, subtopology, topology

from minikafka.core.group.consumer.targets import AT_ONCE_MAX
from minikafka.core.group.streams.group import ASSIGNING, NOT_READY, STABLE
from minikafka.core.group.streams.model import Status
from minikafka.core.group.streams.settings import StreamsIntervals
from minikafka.wire.errors import ApiError, ErrorCode


def statuses(answer: Any) -> list[int]:
    return [status.status_code for status in answer.status]


def settled(world: StreamsWorld, member_id: str, epoch: int) -> tuple[int, Roles]:
    """The epoch and the tasks of a member that continues until it gets nothing new."""
    held = world.group().members[member_id].assigned
    tasks: Roles = {"active": set(held.active), "standby": set(held.standby)}
    for _ in range(5):
        answer = world.go_on(member_id, epoch, tasks)
        assert answer.error_code == ErrorCode.NONE, answer
        epoch, tasks = answer.member_epoch, assigned_tasks(answer) or tasks
    return epoch, tasks


def test_a_new_group_waits_for_members_and_then_for_the_interval() -> None:
    world = StreamsWorld(StreamsIntervals(assignment_interval_ms=1_000, initial_rebalance_delay_ms=3_000), b=2)
    stateless = topology(subtopology("1", "b"))
    first = world.join("m1", topology=stateless)
    assert statuses(first) == [Status.ASSIGNMENT_DELAYED] and first.member_epoch == 1
    assert statuses(world.join("m2", topology=stateless)) == [Status.ASSIGNMENT_DELAYED]
    assert world.group().state == ASSIGNING
    world.advance(3_000)
    assert world.group().assignment_epoch == world.group().epoch, "nobody had to ask"
    assert settled(world, "m1", 1)[1]["active"] and settled(world, "m2", 1)[1]["active"]
    assert world.group().state == STABLE
    late = world.join("m3", topology=stateless)
    assert late.member_epoch == world.group().assignment_epoch and statuses(late) == [Status.ASSIGNMENT_DELAYED]
    world.advance(1_000)
    assert statuses(world.go_on("m3", late.member_epoch)) == []


def test_topics_that_are_missing_are_asked_for_until_they_are_there() -> None:
    world = StreamsWorld(makes_topics=False, a=3)
    answer = world.join("m1")
    assert statuses(answer) == [Status.MISSING_SOURCE_TOPICS] and not world.creations
    assert world.group().state == NOT_READY
    world.topic("b", 2)
    answer = world.go_on("m1", answer.member_epoch, {})
    assert statuses(answer) == [Status.MISSING_INTERNAL_TOPICS]
    (creation,) = world.creations
    assert {name: topic.partition_count for name, topic in creation.topics.items()} == {"g-a-changelog": 3}
    assert creation.answer is answer, "whoever makes them can say in it why he does not"
    world.make_topics()
    _, tasks = settled(world, "m1", answer.member_epoch)
    assert len(tasks["active"]) == 5 and world.group().state == STABLE


def test_a_member_without_tags_or_with_an_old_topology_gets_a_status() -> None:
    world = StreamsWorld(StreamsIntervals(initial_rebalance_delay_ms=0, rack_aware_assignment_tags=("zone", "rack")), a=1, b=1)
    tag = Request.KeyValue(key="zone", value="z")
    answer = world.join("m1", topology=topology(epoch=1), client_tags=[tag])
    assert Status.MISSING_CLIENT_TAGS in statuses(answer) and "[rack]" in answer.status[-1].status_detail
    assert Status.MISSING_CLIENT_TAGS not in statuses(world.join("m2", version=0, topology=topology(epoch=1)))
    assert statuses(world.join("m3", topology=topology()))[0] == Status.STALE_TOPOLOGY


def test_a_tag_that_is_there_twice_is_refused_wherever_apache_kafka_looks_at_it() -> None:
    world = StreamsWorld(StreamsIntervals(initial_rebalance_delay_ms=0), a=1, b=1)
    twice = [Request.KeyValue(key="zone", value=value) for value in ("y", "z")]
    assert world.join("m1", client_tags=twice).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    epoch = world.join("m1").member_epoch
    assert world.go_on("m1", epoch, None, client_tags=twice).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.go_on("m1", epoch + 7, None, client_tags=twice).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.go_on("m1", epoch, None, client_tags=twice[:1]).error_code == ErrorCode.NONE


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    world = StreamsWorld(b=4)
    stateless = topology(subtopology("1", "b"))
    world.join("m1", topology=stateless, rebalance_timeout_ms=10_000)
    epoch, tasks = settled(world, "m1", 2)
    world.join("m2", topology=stateless)
    reported = world.go_on("m1", epoch, tasks)
    assert reported.member_epoch == epoch and assigned_tasks(reported) is not None
    for _ in range(3):
        world.advance(4_000)
        world.go_on("m1", epoch, tasks)
    assert world.go_on("m1", epoch, tasks).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    _, taken = settled(world, "m2", world.group().members["m2"].member_epoch)
    assert len(taken["active"]) == 4


@pytest.mark.parametrize("missed", ["session", "rebalance"])
def test_the_removal_of_a_member_is_tried_again_until_it_is_written(missed: str) -> None:
    world = StreamsWorld(b=4)
    stateless = topology(subtopology("1", "b"))
    world.join("m1", topology=stateless, rebalance_timeout_ms=10_000)
    epoch, tasks = settled(world, "m1", 2)
    if missed == "rebalance":
        world.join("m2", topology=stateless)
        world.go_on("m1", epoch, tasks)
    world.is_stalled = True

    def pass_ms(ms: int) -> None:
        for _ in range(ms // 100):
            world.advance(100)
            if missed == "rebalance":
                for member in ("m1", "m2"):
                    world.groups.sessions.touch("g", member, world.now_ms + 10_000)

    pass_ms(10_000 if missed == "rebalance" else 45_000)
    for _ in range(3):
        assert len(world.uncommitted) == 1
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        pass_ms(400)
        assert not world.uncommitted and "m1" in world.group().members
        pass_ms(100)
    world.commit()
    assert "m1" not in world.group().members


def test_an_assignment_that_could_not_be_written_is_made_again_at_the_next_heartbeat() -> None:
    world = StreamsWorld(StreamsIntervals(assignment_interval_ms=0, initial_rebalance_delay_ms=3_000), b=2)
    world.join("m1", topology=topology(subtopology("1", "b")))
    world.is_stalled = True
    world.advance(3_000)
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.group().assignment_epoch < world.group().epoch
    world.is_stalled = False
    world.go_on("m1", 1)
    assert world.group().assignment_epoch == world.group().epoch


def test_a_shutdown_request_is_repeated_until_the_group_is_empty() -> None:
    world = StreamsWorld(b=1)
    stateless = topology(subtopology("1", "b"))
    for member in ("m1", "m2"):
        world.join(member, topology=stateless)
    world.beat("m1", -1, shutdown_application=True)
    epoch = world.group().members["m2"].member_epoch
    answer = world.go_on("m2", epoch)
    assert statuses(answer) == [Status.SHUTDOWN_APPLICATION] and "m1" in answer.status[0].status_detail
    world.beat("m2", -1)
    assert statuses(world.join("m3", topology=stateless)) == []


def test_configuration_of_assignments_begins_a_new_epoch() -> None:
    world = StreamsWorld(a=2, b=1)
    for member in ("m1", "m2"):
        world.join(member)
    before = world.group().epoch
    world.streams_intervals = StreamsIntervals(assignment_interval_ms=0, initial_rebalance_delay_ms=0, num_standby_replicas=1)
    world.go_on("m1", world.group().members["m1"].member_epoch)
    group = world.group()
    assert group.epoch == before + 1 and group.assignment_configs == {"num.standby.replicas": "1"}
    standby = [target.standby for target in group.targets.values()]
    assert sum(len(partitions) for tasks in standby for partitions in tasks.values()) == 2


def test_a_large_group_is_assigned_in_steps() -> None:
    world = StreamsWorld(b=AT_ONCE_MAX + 1)
    world.is_stepwise = True
    stateless = topology(subtopology("1", "b"))
    joined = world.join("m1", topology=stateless)
    assert not world.group().targets and joined.member_epoch == 1, "nobody waits for it"
    world.go_on("m1", 1)
    while world.work:
        world.take_step()
    assert len(settled(world, "m1", 1)[1]["active"]) == AT_ONCE_MAX + 1


def test_an_empty_group_ends_for_a_classic_one_and_a_full_one_does_not() -> None:
    world = StreamsWorld(b=1)
    found: list[ErrorCode] = []
    world.join("m1", topology=topology(subtopology("1", "b")))
    for _ in range(2):
        world.groups.when_ended("g", lambda code, at_ms: found.append(code), world.now_ms)
        world.run()
        world.send("left", member_id="m1", member_epoch=-1)
    assert found == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.NONE] and not world.groups.groups
    with pytest.raises(ApiError, match="not found"):
        world.groups.describe("g")


def test_the_epochs_of_descriptions_are_kept() -> None:
    world = StreamsWorld(b=1)
    found: list[ErrorCode] = []
    world.groups.set_description_epochs("g", 0, -1, found.append, 0)
    world.join("m1", topology=topology(subtopology("1", "b")))
    world.groups.set_description_epochs("g", 0, 4, found.append, 0)
    world.run()
    world.fail_over()
    group = world.group()
    assert found == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]
    assert (group.stored_description_epoch, group.failed_description_epoch, group.epoch) == (0, 4, 2)


def test_a_member_in_another_epoch_is_fenced() -> None:
    world = StreamsWorld(b=2)
    world.join("m1", topology=topology(subtopology("1", "b")))
    epoch, tasks = settled(world, "m1", 2)
    for lie in (epoch + 1, epoch - 1):
        assert world.go_on("m1", lie, {"active": {("1", 0)}} if lie > epoch else None).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.go_on("m1", epoch, tasks).error_code == ErrorCode.NONE
