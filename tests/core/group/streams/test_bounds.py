"""What one member may make a streams group hold, and make its coordinator do in one turn."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.streams_group_world import Request, StreamsWorld, subtopology, topology

from minikafka.core.group.streams.checks import CLIENT_TAGS_MAX, CLIENT_TEXT_MAX, ENDPOINT_HOST_MAX, TOPOLOGY_ENTRIES_MAX
from minikafka.core.group.streams.endpoints import ENDPOINTS_AT_ONCE
from minikafka.core.group.streams.model import Status, Topology
from minikafka.core.group.streams.records import topology_value
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
    """All of it is written anew whenever any of it is another."""

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
