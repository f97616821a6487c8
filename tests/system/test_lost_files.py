"""A cluster stops cleanly, and a broker's files are removed before it starts again: the others still have the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

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


@pytest.mark.parametrize("lost", ["*.log", "*", FIRST, MIDDLE])
def test_the_last_leader_loses_its_records_while_it_is_down(lost: str, tmp_path: Path) -> None:
    """It led with an empty log, and the others truncated theirs. Or it led with a log that begins late, and the others deleted the
    records before. Or it led with a log that has a hole."""
    with ProcessCluster(3, directory=tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 3, config={"internal.segment.bytes": "1000"})])["t"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 10})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        for node_id in sorted(cluster.nodes, reverse=True):
            assert cluster.terminate(node_id) == 0
        (directory,) = cluster.nodes[LAST].directory.rglob("t-0")
        size = sum(path.stat().st_size for path in directory.glob("*.log"))
        third = sorted(path.name for path in directory.glob("*.log"))[2]
        for path in directory.glob(third if lost == MIDDLE else lost):
            path.unlink()
        if lost == "*":
            directory.rmdir()
        cluster.start()
        cluster.wait_for(lambda: end_of(cluster.bootstrap) == RECORDS, "all records are there")

        def is_whole() -> bool:
            (topic,) = cluster.metadata(["t"]).topics
            return len(topic.partitions[0].isr_nodes) == 3

        cluster.wait_for(is_whole, "the broker is in sync again")
        cluster.wait_for(lambda: end_of(cluster.bootstrap) == RECORDS, "all records are still there")
        said = cluster.nodes[LAST].output_path.read_text()
        ends = f"t-0: the log ends at offset 0, and ended at {RECORDS} when the broker stopped cleanly"
        begin = 0 if lost == FIRST else int(third.partition(".")[0])
        assert (f"t-0: segments with records among offsets {begin} to " if lost in (FIRST, MIDDLE) else ends) in said
        for node in cluster.nodes.values():  # when it leads, others delete what is before its first record
            (replica,) = node.directory.rglob("t-0")
            sizes = {path.name: path.stat().st_size for path in replica.glob("*.log")}
            assert sizes[FIRST] > 0
            assert sum(sizes.values()) == size, "every replica has every record"
