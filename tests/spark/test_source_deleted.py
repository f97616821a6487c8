"""The data source over a cluster of minikafka that was stopped in order: where records were deleted nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from confluent_kafka import Producer

from minikafka.spark import source_ranges
from minikafka.spark.audit import run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.source_options import SourceOptions
from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import wait_until

RECORDS, RECORD_BYTES, SEGMENT_BYTES = 330, 10_000, 1 << 20
SMALL = {"segment.bytes": SEGMENT_BYTES}
TOPICS = {
    "kept": {"partitions": 1, "configs": SMALL},
    "deleted": {"partitions": 1, "configs": SMALL},
    "in-a-batch": {"partitions": 1, "configs": SMALL},
    "retained": {"partitions": 1, "configs": {**SMALL, "retention.bytes": SEGMENT_BYTES}},
}
CONFIG = {"log.retention.check.interval.ms": 100, "log.initial.task.delay.ms": 100, "log.segment.delete.delay.ms": 0}
BEGIN = {"kept": 0, "deleted": 150, "in-a-batch": 3}


def first_segments(directories: list[Path], topic: str) -> set[int]:
    return {min((int(file.stem) for file in (path / f"{topic}-0").glob("*.log")), default=0) for path in directories}


def test_every_broker_of_an_orderly_stop_reads_what_was_not_deleted(tmp_path: Path) -> None:
    """Each one's directory alone, and all together: leaders and followers write their log starts and leader epochs down."""
    with EmbeddedCluster(3, topics=TOPICS, config=CONFIG, directory=tmp_path / "cluster") as cluster:
        directories = [Path(node.log_dir) for node in cluster.layout.nodes.values()]
        producer = Producer(cluster.client_config(**{"batch.num.messages": 10, "acks": "all"}))
        for topic in TOPICS:
            for _ in range(RECORDS):
                producer.produce(topic, bytes(RECORD_BYTES))
        assert producer.flush(60) == 0
        wanted = {(topic, 0): offset for topic, offset in BEGIN.items() if offset}
        cluster.admin.call(lambda admin: admin.delete_records(wanted))
        wait_until(lambda: min(first_segments(directories, "retained")) > 0, "retention on all brokers", 60)
    assert run_audit(list(map(str, directories)), LocalEngine(1)).outcome == "PASS"
    for paths in (*([path] for path in directories), directories):
        for topic in TOPICS:
            read = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": ",".join(map(str, paths)), "subscribe": topic}))
            begin = BEGIN.get(topic, min(first_segments(paths, topic)))
            assert (read[0].begin, read[-1].end) == (begin, RECORDS)
