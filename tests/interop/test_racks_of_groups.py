"""Racks in groups of the consumer protocol (KIP-848), beside Apache Kafka 4.4: who gets what when members and replicas have racks.

Members tell their racks, and brokers tell an assignor the racks of each partition. The assignors of Apache Kafka 4.4 look at neither; the
racks of the replicas are part of the hash by which a group notices that its topics have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.asked import QUICK, Asked, retry
from helpers.ledger import audit
from helpers.mixed_cluster import BOTH, BROKER, KAFKA_NEXT, MINI, MixedCluster

from minikafka.core.group.consumer.topics import topic_hash
from minikafka.core.java_hash import text_order
from minikafka.core.xxh3 import xxh3_64
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.records.frame import decode_group_key, decode_group_value

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(400)]
#: Node -> rack; the third has none.
RACKS: Mapping[int, str | None] = {1: "r1", 2: "r2", 3: None}
#: Topic -> the nodes of each partition's replicas.
REPLICAS: Mapping[str, list[list[int]]] = {
    "a": [[1, 3], [2, 3], [1, 3], [2, 3], [3, 1], [1, 2]], "b": [[2], [2], [2], [2]], "c": [[1], [1], [1]],
}  # fmt: skip
#: Member -> rack. Whoever looked at racks would not give m1 the first partitions of `a`, nor m2 any of `b`.
MEMBERS: Mapping[str, str | None] = {"m1": "r2", "m2": "r1", "m3": None, "m4": "elsewhere"}
#: Assignor and subscriptions. What `uniform` does with topics of one size depends on their random ids, so they have different sizes.
GROUPS: Mapping[str, tuple[str, Mapping[str, list[str]]]] = {
    "one topic": ("uniform", {name: ["a"] for name in MEMBERS}),
    "other topics": ("uniform", {"m1": ["a", "b"], "m2": ["a", "b", "c"], "m3": ["c"], "m4": ["a"]}),
    "ranges": ("range", {name: ["a", "b", "c"] for name in MEMBERS}),
    "other ranges": ("range", {"m1": ["a", "b"], "m2": ["a", "b", "c"], "m3": ["c"], "m4": ["a"]}),
}


class Placed:
    """A topic as groups see it."""

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name, self.topic_id, self.partition_count = name, topic_id, len(REPLICAS[name])

    def racks(self, index: int) -> list[str]:
        return [rack for node_id in REPLICAS[self.name][index] if (rack := RACKS[node_id]) is not None]


def make_topics(asked: Asked) -> None:
    kind = CreateTopicsRequest
    topics = [
        kind.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1,
            assignments=[kind.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes) for index, nodes in enumerate(replicas)],
        )
        for name, replicas in REPLICAS.items()
    ]  # fmt: skip
    made = asked.ask(kind(topics=topics, timeout_ms=30_000), 7)
    assert [topic.error_code for topic in made.topics] == [ErrorCode.NONE] * len(REPLICAS)
    asked.ids = {topic.name: topic.topic_id for topic in made.topics}


def find_coordinator(asked: Asked, group_id: str) -> None:
    """Ask the group's coordinator from now on."""

    def is_found() -> bool:
        found = asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4).coordinators[0]
        if found.error_code:
            return False
        asked.address = found.host, found.port
        described = asked.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1).groups[0]
        return bool(described.error_code == ErrorCode.GROUP_ID_NOT_FOUND)

    retry(is_found)


class Group:
    """Members that say everything with each heartbeat, and give up at once what they are to give up."""

    def __init__(self, asked: Asked, group_id: str, assignor: str) -> None:
        self._asked, self._group_id, self._assignor = asked, group_id, assignor
        self._epochs: dict[str, int] = {}
        self._told: dict[str, tuple[str | None, list[str]]] = {}
        self._owned: dict[str, dict[str, list[int]]] = {}

    def join(self, name: str, rack: str | None, topics: list[str]) -> None:
        self._epochs[name], self._told[name], self._owned[name] = 0, (rack, topics), {}
        self._beat(name)

    def move(self, name: str, rack: str) -> None:
        """It is in another rack."""
        self._told[name] = rack, self._told[name][1]
        self._beat(name)

    def _beat(self, name: str) -> bool:
        """Whether it has all that it is to have."""
        asked, (rack, topics) = self._asked, self._told[name]
        answer = asked.beat(
            name, name, self._epochs[name], group_id=self._group_id, server_assignor=self._assignor, rack_id=rack,
            rebalance_timeout_ms=60_000, subscribed_topic_names=topics, owned=self._owned[name],
        )  # fmt: skip
        assert answer.error_code == ErrorCode.NONE, answer
        names = {topic_id: topic for topic, topic_id in asked.ids.items()}
        given = {names[topic.topic_id]: sorted(topic.partitions) for topic in answer.assignment.topic_partitions}
        before = self._epochs[name], self._owned[name]
        self._epochs[name], self._owned[name] = answer.member_epoch, given
        return before == (answer.member_epoch, given)

    def settle(self) -> dict[str, Any]:
        """Everybody's target by name, once it is reached, and what else the coordinator says of it."""
        retry(lambda: all([self._beat(name) for name in self._epochs]) and len(set(self._epochs.values())) == 1)
        described = self._asked.ask(ConsumerGroupDescribeRequest(group_ids=[self._group_id]), 1).groups[0]
        assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Stable")
        for member in described.members:
            assert self._asked.words(member.assignment) == self._asked.words(member.target_assignment)
        return {str(member.member_id): self._asked.words(member) for member in described.members} | {"epoch": described.group_epoch}


def targets(described: dict[str, Any]) -> dict[str, Any]:
    return {name: member["target_assignment"] for name, member in described.items() if name != "epoch"}


def story(asked: Asked) -> dict[str, Any]:
    """By group and step: what is said of the group when it is settled."""
    found: dict[str, Any] = {}
    for name, (assignor, subscriptions) in GROUPS.items():
        for has_racks in (True, False):
            group_id = name if has_racks else f"{name} without racks"
            find_coordinator(asked, group_id)
            group = Group(asked, group_id, assignor)
            for member, rack in MEMBERS.items():
                group.join(member, rack if has_racks else None, subscriptions[member])
                found[f"{group_id}, {member} has joined"] = group.settle()
            if has_racks:
                group.move("m1", "r1")
                found[f"{group_id}, m1 has moved"] = group.settle()
    return found


def hashes(directory: Path) -> dict[str, int]:
    """By group: the last hash of its topics in the log."""
    found = {}
    for batch in iterate_batches(memoryview((directory / "00000000000000000000.log").read_bytes())):
        for record in batch.records():
            key: Any = decode_group_key(bytes(record.key or b""))
            if type(key).__name__ == "ConsumerGroupMetadataKey" and record.value is not None:
                found[str(key.group_id)] = int(decode_group_value(key, bytes(record.value)).metadata_hash)
    return found


def expected_hash(ids: Mapping[str, bytes], names: set[str]) -> int:
    each = [topic_hash(Placed(name, ids[name])).to_bytes(8, "little", signed=True) for name in sorted(names, key=text_order)]
    return xxh3_64(b"".join(each))


def told(kind: str, directory: Path) -> dict[str, Any]:
    """The story of brokers of one kind; its groups know their topics by their racks, too."""
    nodes = [(1, kind, BOTH), (2, kind, BROKER), (3, kind, BROKER)]
    with MixedCluster(directory, nodes, properties=QUICK) as cluster:
        for node_id, rack in RACKS.items():
            cluster.nodes[node_id].overrides |= {} if rack is None else {"broker.rack": rack}
        cluster.format(options=["--release-version", "4.4"])
        cluster.start()
        asked = Asked(cluster.nodes[1].address)
        make_topics(asked)
        found = story(asked)
        cluster.wait_for_isr("__consumer_offsets", set(RACKS))
        cluster.check_errors()
        for node_id in (3, 2, 1):  # the controller last
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()])
        for group_id, metadata_hash in hashes(cluster.nodes[1].data / "__consumer_offsets-0").items():
            subscriptions = GROUPS[group_id.removesuffix(" without racks")][1]
            assert metadata_hash == expected_hash(asked.ids, {name for names in subscriptions.values() for name in names}), group_id
        return found


def test_racks_change_nothing_that_they_do_not_change_in_apache_kafka(tmp_path: Path) -> None:
    ours, theirs = told(MINI, tmp_path / "ours"), told(KAFKA_NEXT, tmp_path / "theirs")
    assert ours == theirs
    for name in GROUPS:
        racked, plain = (theirs[f"{group_id}, m4 has joined"] for group_id in (name, f"{name} without racks"))
        assert targets(racked) == targets(plain), name
        assert targets(theirs[f"{name}, m1 has moved"]) == targets(racked), name
