"""A minikafka broker that lost records while it was down, with Apache Kafka 4.4: under its controller, and following its leaders."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.mixed_cluster import BROKER, CONTROLLER, KAFKA_NEXT, MINI, MixedCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(400)]
RECORDS = 300
OURS, THEIRS = 3, 2


def write(cluster: MixedCluster, **config: str) -> Path:
    """Write the records; the directory of the partition on our broker."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 2, config={"internal.segment.bytes": "1000", **config})])["t"].result(30)
    cluster.wait_for_isr("t", {OURS, THEIRS})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 10})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    cluster.wait_for_isr("t", {OURS, THEIRS})
    cluster.wait_for(lambda: size_of(cluster, OURS) == size_of(cluster, THEIRS), "both have every record")
    return cluster.nodes[OURS].data / "t-0"


def size_of(cluster: MixedCluster, node_id: int) -> int:
    return sum(path.stat().st_size for path in (cluster.nodes[node_id].data / "t-0").glob("*.log"))


def remove(lost: str, directory: Path) -> int:
    """Remove segments; returns the first lost offset."""
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 4
    index, end = {"first": (0, 1), "middle": (2, 3), "last": (len(segments) - 2, len(segments))}[lost]
    for path in segments[index:end]:
        path.unlink()
    return int(segments[index].stem)


@pytest.mark.parametrize("lost", ["first", "middle", "last"])
def test_it_gets_what_it_lost_from_a_leader_of_the_other_kind(lost: str, tmp_path: Path) -> None:
    """It fetches from offset -1, which no leader has, and asks where the leader's log begins. Meanwhile it is not in sync."""
    nodes = [(1, KAFKA_NEXT, CONTROLLER), (THEIRS, KAFKA_NEXT, BROKER), (OURS, MINI, BROKER)]
    with MixedCluster(tmp_path, nodes) as cluster:
        cluster.format()
        cluster.start()
        directory = write(cluster)
        size = size_of(cluster, THEIRS)
        assert cluster.stop(OURS) == 0
        begin = remove(lost, directory)
        cluster.start(OURS)
        cluster.wait_for_isr("t", {OURS, THEIRS})
        assert f"t-0: records among offsets {begin} to " in cluster.nodes[OURS].output
        cluster.wait_for(lambda: size_of(cluster, OURS) == size == size_of(cluster, THEIRS), "every replica has every record")
        assert not [found for found in cluster.errors() if "records among offsets" not in found]


@pytest.mark.parametrize("lost", ["middle", "last"])
def test_as_the_last_known_leader_it_leads_if_the_controller_insists(lost: str, tmp_path: Path) -> None:
    """Apache Kafka's controller elects the last known leader (KIP-966), and does not ask whether its broker reports the replica as lost.
    Ours elects another then (`tests/system/test_lost_files.py`). The loss is at least not silent."""
    nodes = [(1, KAFKA_NEXT, CONTROLLER), (THEIRS, KAFKA_NEXT, BROKER), (OURS, MINI, BROKER)]
    with MixedCluster(tmp_path, nodes) as cluster:
        cluster.format()
        cluster.start()
        directory = write(cluster, **{"min.insync.replicas": "1"})
        assert cluster.stop(THEIRS) == 143
        cluster.wait_for_isr("t", {OURS})
        assert cluster.stop(OURS) == 0
        begin = remove(lost, directory)
        cluster.start(THEIRS, OURS)
        said = f"t-0: leads without the records among offsets {begin} to "
        cluster.wait_for(lambda: said in cluster.nodes[OURS].output, "it says what is lost")
        cluster.wait_for_isr("t", {OURS, THEIRS})
