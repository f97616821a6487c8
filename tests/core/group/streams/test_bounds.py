"""What one member may make a streams group hold, and make its coordinator do in one turn."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.streams_group_world import Request, StreamsWorld, subtopology, topology

from minikafka.core.group.consumer.assignor import STEP_UNITS
from minikafka.core.group.consumer.topics import TopicHashes
from minikafka.core.group.streams.checks import CLIENT_TAGS_MAX, CLIENT_TEXT_MAX, ENDPOINT_HOST_MAX, TOPOLOGY_ENTRIES_MAX
from minikafka.core.group.streams.describe import SUBTOPOLOGIES_AT_ONCE
from minikafka.core.group.streams.endpoints import ENDPOINTS_AT_ONCE
from minikafka.core.group.streams.heartbeat import CONFIGURED_AT_ONCE_MAX
from minikafka.core.group.streams.model import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    GroupSpec,
    InternalTopic,
    MemberSpec,
    Status,
    Topology,
)
from minikafka.core.group.streams.records import topology_value
from minikafka.core.group.streams.sticky_assignor import assign_sticky
from minikafka.core.group.streams.topology import configure
from minikafka.wire.errors import ErrorCode
from minikafka.wire.lazy_list import LazyList


def of_entries(kind: str, count: int) -> list[Request.Subtopology]:
    """Subtopologies that have so many entries together."""
    if kind == "subtopologies":
        return [subtopology(str(number), "a") for number in range(count // 2 - 1)] + [subtopology("z", *["a"] * (1 + count % 2))]
    if kind == "changelogs":
        return [subtopology("0", "a", changelogs=tuple(f"c{number}" for number in range(count - 2)))]
    if kind == "sources":
        return [subtopology("0", *(f"t{number}" for number in range(count - 1)))]
    groups = [Request.CopartitionGroup(source_topics=[0]) for _ in range(count - 2)]
    return [subtopology("0", "a", copartition_groups=groups)]


@pytest.mark.parametrize("kind", ["subtopologies", "changelogs", "sources", "copartition groups"])
def test_a_topology_has_so_many_entries(kind: str) -> None:
    world = StreamsWorld(a=1)
    refused = world.join("m", topology=topology(*of_entries(kind, TOPOLOGY_ENTRIES_MAX + 2)))
    assert refused.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY and f"may have {TOPOLOGY_ENTRIES_MAX} at most" in refused.error_message
    assert "g" not in world.groups.groups
    assert world.join("m", topology=topology(*of_entries(kind, TOPOLOGY_ENTRIES_MAX))).error_code == ErrorCode.NONE
    internal = [name for name in world.topics.topics if name.startswith("c")]
    assert len(internal) == (TOPOLOGY_ENTRIES_MAX - 2 if kind == "changelogs" else 0), "so many internal topics at most"


def test_a_host_is_no_longer_than_a_name() -> None:
    world = StreamsWorld(a=1, b=1)
    for length, code in ((ENDPOINT_HOST_MAX, ErrorCode.NONE), (ENDPOINT_HOST_MAX + 1, ErrorCode.INVALID_REQUEST)):
        assert world.join("m", user_endpoint=Request.Endpoint(host="h" * length, port=1)).error_code == code


def test_endpoints_of_many_members_are_made_as_they_are_encoded() -> None:
    world, many = StreamsWorld(a=1, b=1, size_max=200), 3 * ENDPOINTS_AT_ONCE + 1
    answer: Any = None
    for number in range(many):
        answer = world.join(f"m{number}", user_endpoint=Request.Endpoint(host=f"h{number}", port=number))
    assert isinstance(answer.partitions_by_user_endpoint, LazyList)
    assert [one.user_endpoint.port for one in answer.partitions_by_user_endpoint] == list(range(many))


def test_a_topic_is_found_without_a_look_at_the_others() -> None:
    class Watched(dict[str, Any]):
        looks = 0

        def __iter__(self) -> Any:
            Watched.looks += 1
            return super().__iter__()

        def items(self) -> Any:
            Watched.looks += 1
            return super().items()

    value = topology_value(topology(subtopology("0", "a", "b"), subtopology("1", "b", "c")))
    reported = Topology(0, Watched({one.subtopology_id: one for one in value.subtopologies}))
    before = Watched.looks
    assert [reported.subtopology_of(topic) for topic in "abcd"] == ["0", "0", "1", None]
    assert Watched.looks == before


def offsets(*tasks: tuple[str, int]) -> list[Request.TaskOffset]:
    return [Request.TaskOffset(subtopology_id=name, partition=partition, offset=7) for name, partition in tasks]


def test_only_members_offsets_are_kept_and_only_those_of_tasks() -> None:
    world = StreamsWorld(a=2, b=1)
    tasks = offsets(("0", 0), ("0", 1), ("0", 2), ("0", -1), ("no such subtopology", 0))
    epoch = world.join("m1", task_offsets=tasks).member_epoch
    assert {name: reported.task_offsets for name, reported in world.group().reported_offsets.items()} == {"m1": {"0": {0: 7, 1: 7}}}
    world.go_on("m1", epoch, task_end_offsets=tasks)
    assert world.group().reported_offsets["m1"].task_end_offsets == {"0": {0: 7, 1: 7}}
    world.is_stalled = True
    world.send("m2", member_id="m2", rebalance_timeout_ms=1, topology=topology(), process_id="p", task_offsets=tasks,
               active_tasks=[], standby_tasks=[], warmup_tasks=[])  # fmt: skip
    world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
    answer: Any = world.answer("m2")
    assert answer.error_code != ErrorCode.NONE and list(world.group().reported_offsets) == ["m1"]


@pytest.mark.parametrize("name", ["tags", "key", "value", "rack", "process"])
def test_a_members_client_description_is_bounded(name: str) -> None:
    """Any change writes all of it again."""

    def fields(beyond: int) -> dict[str, Any]:
        text = "x" * (CLIENT_TEXT_MAX + beyond)
        if name == "tags":
            return {"client_tags": [Request.KeyValue(key=str(number), value="") for number in range(CLIENT_TAGS_MAX + beyond)]}
        if name in ("key", "value"):
            return {"client_tags": [Request.KeyValue(**{"key": "", "value": "", name: text})]}
        return {f"{name}_id": text}

    world = StreamsWorld(a=1, b=1)
    assert world.join("m", **fields(1)).error_code == ErrorCode.INVALID_REQUEST and "g" not in world.groups.groups
    assert world.join("m", **fields(0)).error_code == ErrorCode.NONE


def test_only_a_member_can_stop_the_application() -> None:
    world = StreamsWorld(a=1, b=1)
    epoch = world.join("m1").member_epoch
    assert world.beat("nobody", -1, shutdown_application=True).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert Status.SHUTDOWN_APPLICATION not in [one.status_code for one in world.go_on("m1", epoch).status or []]


@pytest.mark.parametrize("kind", ["subtopologies", "changelogs"])
def test_a_large_topology_is_configured_in_steps_and_no_member_joins_meanwhile(kind: str) -> None:
    few, many = CONFIGURED_AT_ONCE_MAX // 2 * 2, 4 * CONFIGURED_AT_ONCE_MAX
    world = StreamsWorld(a=1)
    assert world.join("m", topology=topology(*of_entries(kind, few))).error_code == ErrorCode.NONE and not world.steps
    world = StreamsWorld(a=1)
    world.is_stepwise = True
    join = {"member_epoch": 0, "rebalance_timeout_ms": 9, "active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    large = topology(*of_entries(kind, many))
    world.send("first", member_id="m", process_id="p", topology=large, **join)
    world.send("second", member_id="n", process_id="q", topology=large, **join)
    assert world.answer("first") is None
    while not (answer := world.answer("first")):
        assert world.answer("second") is None
        world.take_step()
    assert answer.error_code == ErrorCode.NONE and world.steps >= (many if kind == "changelogs" else 0) // STEP_UNITS + 2
    while not (answer := world.answer("second")):
        world.take_step()
    assert answer.error_code == ErrorCode.NONE and sorted(world.groups.groups["g"].members) == ["m", "n"]
    recorded = Topology.of(topology_value(large))
    configured = world.groups.groups["g"].configured
    assert configured == configure(recorded, world.topics, configured.metadata_hash)


def test_a_topology_that_cannot_work_is_refused_after_its_steps() -> None:
    world = StreamsWorld(a=1)
    names = [f"c{number}" for number in range(2 * CONFIGURED_AT_ONCE_MAX)]
    bad = subtopology("0", "a", changelogs=(*names, "."))
    assert world.join("m", topology=topology(bad)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.steps and "g" not in world.groups.groups and not world.groups.is_busy("g")
    assert world.join("m", topology=topology(subtopology("0", "a", changelogs=tuple(names)))).error_code == ErrorCode.NONE


def test_a_leadership_that_ends_while_a_topology_is_configured_answers_who_waits() -> None:
    world = StreamsWorld(a=1)
    world.is_stepwise = True
    large = topology(*of_entries("changelogs", 2 * CONFIGURED_AT_ONCE_MAX))
    world.send("m", member_id="m", rebalance_timeout_ms=9, topology=large, active_tasks=[], standby_tasks=[], warmup_tasks=[])
    world.groups.shutdown()
    world.run()
    assert world.answer("m").error_code == ErrorCode.NOT_COORDINATOR


def test_topics_that_change_while_a_topology_is_configured_are_looked_at_again() -> None:
    world = StreamsWorld(a=1)
    world.is_stepwise = True
    large = topology(*of_entries("changelogs", 2 * CONFIGURED_AT_ONCE_MAX))
    world.send("m", member_id="m", rebalance_timeout_ms=9, topology=large, active_tasks=[], standby_tasks=[], warmup_tasks=[])
    world.take_step()
    world.topic("a", 3)
    while world.answer("m") is None:
        world.take_step()
    assert world.groups.groups["g"].metadata_hash == TopicHashes(world.topics).of(["a"])


class Reported(dict[int, int]):
    """Offsets of tasks that count how often they are read."""

    read = 0

    def items(self) -> Any:
        for item in super().items():
            Reported.read += 1
            yield item


def test_offsets_of_many_tasks_are_looked_at_in_steps() -> None:
    many = 3 * STEP_UNITS
    found = {"0": ConfiguredSubtopology(many, frozenset("a"), {}, frozenset(), {"c": InternalTopic("c", many)})}
    members = {name: MemberSpec(name, task_offsets={"0": Reported({n: n for n in range(many)})}) for name in ("m", "n")}
    before = most = 0
    for _ in assign_sticky(GroupSpec(members, 1), ConfiguredTopology(0, 1, found, {})):
        most, before = max(most, Reported.read - before), Reported.read
    assert before == 2 * many and most <= STEP_UNITS


def test_a_description_is_made_as_it_is_encoded() -> None:
    world = StreamsWorld(a=300)
    tasks = [("0", number) for number in range(300)]
    epoch = world.join("m", topology=topology(subtopology("0", "a"))).member_epoch
    world.go_on("m", epoch, task_offsets=offsets(*tasks))
    (member,) = world.groups.describe("g").members
    assert isinstance(member.task_offsets, LazyList)
    assert [(one.subtopology_id, one.partition, one.offset) for one in member.task_offsets] == [("0", number, 7) for number in range(300)]
    many = 3 * SUBTOPOLOGIES_AT_ONCE
    world = StreamsWorld(a=1)
    world.join("m", topology=topology(*(subtopology(str(number), "a") for number in range(many))))
    described = world.groups.describe("g").topology.subtopologies
    assert isinstance(described, LazyList) and sorted(int(one.subtopology_id) for one in described) == list(range(many))
