"""A cluster stops cleanly, and a broker's files are removed before it starts again: the others still have the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.shell import minikafka

from minikafka.testing.cluster import ProcessCluster

pytestmark = pytest.mark.timeout(120)
RECORDS = 300
#: The only controller, which stops last: it alone is in sync in the end.
LAST = 1
FIRST, MIDDLE = f"{0:020d}.log", "the third segment"


def end_of(bootstrap: str) -> int:
    """The high watermark, -1 while nobody can say."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)[1])
    except KafkaException:  # a new leader's high watermark, for example, is not certain at once
        return -1
    finally:
        consumer.close()


def write_and_stop(cluster: ProcessCluster, **config: str) -> Path:
    """Write the records, stop all brokers one after the other, and return the directory of the partition on the last."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config={"internal.segment.bytes": "1000", **config})])["t"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 10})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    for node_id in sorted(cluster.nodes, reverse=True):
        assert cluster.terminate(node_id) == 0
    (directory,) = cluster.nodes[LAST].directory.rglob("t-0")
    return directory


def remove(lost: str, directory: Path) -> int:
    """Remove files of the partition; returns the first lost offset."""
    third = sorted(path.name for path in directory.glob("*.log"))[2]
    for path in directory.glob(third if lost == MIDDLE else lost):
        path.unlink()
    if lost == "*":
        directory.rmdir()
    return int(third.partition(".")[0]) if lost == MIDDLE else 0


def in_sync(cluster: ProcessCluster) -> tuple[int, ...]:
    (topic,) = cluster.metadata(["t"]).topics
    return tuple(sorted(topic.partitions[0].isr_nodes))


def expect_whole(cluster: ProcessCluster, size: int) -> None:
    """Every replica comes back, and has every record; `size`: their bytes."""
    cluster.wait_for(lambda: end_of(cluster.bootstrap) == RECORDS, "all records are there")
    cluster.wait_for(lambda: in_sync(cluster) == (1, 2, 3), "the broker is in sync again")
    cluster.wait_for(lambda: end_of(cluster.bootstrap) == RECORDS, "all records are still there")
    for node in cluster.nodes.values():  # when it leads, others delete what is before its first record
        assert size_of(next(node.directory.rglob("t-0"))) == size


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


@pytest.mark.parametrize("lost", ["*.log", "*", FIRST, MIDDLE])
def test_the_last_leader_loses_its_records_while_it_is_down(lost: str, tmp_path: Path) -> None:
    """It led with an empty log, and the others truncated theirs. Or it led with a log that begins late, and the others deleted the
    records before. Or it led with a log that has a hole. A crash of the start that noticed it changes nothing."""
    with ProcessCluster(3, directory=tmp_path) as cluster:
        directory = write_and_stop(cluster)
        size = size_of(directory)
        said = f"t-0: records among offsets {remove(lost, directory)} to "
        cluster.spawn(LAST)
        cluster.wait_for(lambda: said in cluster.nodes[LAST].output_path.read_text(), "the broker notices the loss")
        cluster.kill(LAST)
        cluster.start()
        expect_whole(cluster, size)
        assert cluster.nodes[LAST].output_path.read_text().count(said) == 2


@pytest.mark.parametrize("lost", ["*.log", FIRST, MIDDLE])
def test_the_last_known_leader_does_not_lead_with_what_is_left(lost: str, tmp_path: Path) -> None:
    """With min.insync.replicas=1 nobody else is eligible. It says so, and leaves it to the operator which replica leads."""
    with ProcessCluster(3, directory=tmp_path) as cluster:
        directory = write_and_stop(cluster, **{"min.insync.replicas": "1"})
        size = size_of(directory)
        begin = remove(lost, directory)
        cluster.start()
        said = f"t-0: does not lead, because records among offsets {begin} to "
        cluster.wait_for(lambda: said in cluster.nodes[LAST].output_path.read_text(), "the broker says that it does not lead")
        cluster.wait_for_brokers()
        assert all(size_of(next(cluster.nodes[node_id].directory.rglob("t-0"))) == size for node_id in (2, 3)), "nobody truncates"
        election = ("leader-election", "--election-type", "unclean", "--topic", "t", "--partition", "0")
        minikafka(*election, "--bootstrap-server", cluster.bootstrap)
        expect_whole(cluster, size)
