"""Consumers with `group.protocol=consumer` (KIP-848): librdkafka's, while brokers die."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.wait import LoadAdjustedDeadline

pytestmark = pytest.mark.timeout(180)
PARTITIONS, RECORDS = 6, 600
Key = tuple[str, int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(3, controllers=3, directory=tmp_path_factory.mktemp("cluster")) as made:
        yield made


def silent(error: object) -> None:
    """Brokers that die are no news here."""


def written(cluster: ProcessCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "error_cb": silent})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 3)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "error_cb": silent})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Members:
    """Consumers of one group, and what they read."""

    def __init__(self, cluster: ProcessCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self.members: dict[str, Consumer] = {}
        self.read: dict[Key, list[int]] = {}

    def add(self, name: str, topic: str, **settings: object) -> None:
        member = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": self._group, "group.protocol": "consumer", "client.id": name,
             "auto.offset.reset": "earliest", "error_cb": silent, "log_level": 0, **settings}
        )  # fmt: skip
        member.subscribe([topic])
        self.members[name] = member

    def close(self, name: str) -> None:
        self.members.pop(name).close()

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = LoadAdjustedDeadline(60)
        while not condition():
            assert not deadline.is_over, what
            for member in self.members.values():
                message = member.poll(0.02)
                if message is not None and message.error() is None:
                    self.read.setdefault((message.topic(), message.partition()), []).append(message.offset())

    def owned(self) -> dict[str, list[Key]]:
        return {name: sorted((p.topic, p.partition) for p in member.assignment()) for name, member in self.members.items()}

    def share(self, topic: str) -> bool:
        """Whether everything is owned once, in equal parts."""
        owned = list(self.owned().values())
        everything = sorted(partition for found in owned for partition in found)
        is_equal = all(len(found) == PARTITIONS // len(owned) for found in owned)
        return is_equal and everything == [(topic, index) for index in range(PARTITIONS)]

    def has_read(self, topic: str) -> bool:
        """Whether every record was read."""
        return all(set(self.read.get((topic, index), ())) >= set(range(RECORDS // PARTITIONS)) for index in range(PARTITIONS))


def test_members_come_and_go_while_the_coordinator_dies(cluster: ProcessCluster) -> None:
    written(cluster, "t")
    group = Members(cluster, "g")
    group.add("one", "t")
    group.poll_until(lambda: group.share("t") and group.has_read("t"), "one to read everything")
    group.add("two", "t")
    group.poll_until(lambda: group.share("t"), "two to share")
    coordinator = next(
        partition.leader_id for topic in cluster.metadata(["__consumer_offsets"]).topics for partition in topic.partitions
        if partition.partition_index == partition_of("g")
    )  # fmt: skip
    cluster.kill(coordinator)
    group.add("three", "t")
    group.poll_until(lambda: group.share("t"), "three to share, with another coordinator")
    group.close("one")
    group.poll_until(lambda: group.share("t"), "two to share again")
    cluster.restart(coordinator)
    group.close("two")
    group.poll_until(lambda: group.share("t"), "the last to have everything")
    # Nothing is read again: what was committed counts for whoever comes after.
    assert {key: sorted(offsets) for key, offsets in group.read.items()} == {
        ("t", index): list(range(RECORDS // PARTITIONS)) for index in range(PARTITIONS)
    }
    group.close("three")


def test_a_group_goes_on_when_every_broker_has_died(cluster: ProcessCluster) -> None:
    written(cluster, "d")
    group = Members(cluster, "dead")
    group.add("one", "d")
    group.add("two", "d")
    group.poll_until(lambda: group.share("d") and group.has_read("d"), "both to share and to read everything")
    for node_id in cluster.nodes:
        cluster.kill(node_id)
    # One after the other would not do: the first is no broker before a majority of the controllers is back.
    for node_id in cluster.nodes:
        cluster.spawn(node_id)
    cluster.wait_for_brokers(timeout_s=60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "error_cb": silent})
    for index in range(PARTITIONS):
        producer.produce("d", b"more", partition=index)
    assert producer.flush(60) == 0
    group.poll_until(lambda: all(max(group.read["d", index]) == RECORDS // PARTITIONS for index in range(PARTITIONS)), "what came after")
    assert group.share("d")
    for name in ("one", "two"):
        group.close(name)


def partition_of(group: str) -> int:
    from minikafka.core.java_hash import partition_for_key

    return partition_for_key(group, 3)


def test_a_pattern_and_an_instance(cluster: ProcessCluster) -> None:
    written(cluster, "left-p")
    group = Members(cluster, "patterns")
    group.add("one", "^.*-p", **{"group.instance.id": "first"})
    group.poll_until(lambda: group.share("left-p") and group.has_read("left-p"), "one to read everything")
    group.close("one")
    group.add("again", "^.*-p", **{"group.instance.id": "first"})
    group.poll_until(lambda: group.share("left-p"), "the instance to come back")
    group.close("again")
