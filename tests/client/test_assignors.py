"""The range and round-robin assignors: the examples of Apache Kafka's documentation, the rules for all inputs, another client's words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from minikafka.client.assignors import (
    ASSIGNORS,
    assign_range,
    assign_round_robin,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from minikafka.wire.errors import WireError

TOPICS = ["a", "b", "c"]
subscriptions = st.dictionaries(
    st.sampled_from([f"member-{n}" for n in range(6)]), st.sets(st.sampled_from(TOPICS), min_size=1).map(sorted), min_size=1
)
counts = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 9)))


def test_range_as_documented() -> None:
    assert assign_range({"c0": ["t0", "t1"], "c1": ["t0", "t1"]}, {"t0": 3, "t1": 3}) == {
        "c0": {"t0": [0, 1], "t1": [0, 1]},
        "c1": {"t0": [2], "t1": [2]},
    }


def test_round_robin_as_documented() -> None:
    assert assign_round_robin({"c0": ["t0", "t1"], "c1": ["t0", "t1"]}, {"t0": 3, "t1": 3}) == {
        "c0": {"t0": [0, 2], "t1": [1]},
        "c1": {"t0": [1], "t1": [0, 2]},
    }


def test_round_robin_with_different_subscriptions_as_documented() -> None:
    members = {"c0": ["t0"], "c1": ["t0", "t1"], "c2": ["t0", "t1", "t2"]}
    assigned = assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3})
    assert assigned == {"c0": {"t0": [0]}, "c1": {"t1": [0]}, "c2": {"t1": [1], "t2": [0, 1, 2]}}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=subscriptions, partitions=counts)
def test_every_partition_goes_to_one_subscriber(name: str, members: dict[str, list[str]], partitions: dict[str, int]) -> None:
    assigned = ASSIGNORS[name](members, partitions)
    assert set(assigned) == set(members)
    given_out = [(topic, index) for assignment in assigned.values() for topic, indexes in assignment.items() for index in indexes]
    subscribed = {topic for topics in members.values() for topic in topics}
    assert sorted(given_out) == sorted((topic, index) for topic in subscribed for index in range(partitions[topic]))
    for member, assignment in assigned.items():
        assert set(assignment) <= set(members[member])


@given(members=subscriptions, partitions=counts)
def test_kafka_python_gives_the_same_ranges(members: dict[str, list[str]], partitions: dict[str, int]) -> None:
    cluster: Any = SimpleNamespace(partitions_for_topic=lambda topic: set(range(partitions[topic])))
    joined = [
        SimpleNamespace(member_id=member, group_instance_id=None, metadata=SimpleNamespace(topics=topics))
        for member, topics in members.items()
    ]
    assigned = RangePartitionAssignor.assign(cluster, joined)
    decided = {member: {topic: indexes for topic, indexes in found.assigned_partitions if indexes} for member, found in assigned.items()}
    assert assign_range(members, partitions) == decided


def test_the_bytes_of_the_protocol() -> None:
    assert decode_subscription(encode_subscription(["b", "a"])) == ["a", "b"]
    assert decode_assignment(encode_assignment({"t": [2, 0]})) == {"t": [0, 2]}
    assert decode_assignment(b"") == {}
    with pytest.raises(WireError):
        decode_assignment(b"\x00\x01\x00\x00\x00\x09")
    with pytest.raises(WireError):
        decode_subscription(b"\x00\x01\x7f\xff\xff\xff")
