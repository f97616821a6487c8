"""`format("minikafka")` beside Spark's own `format("kafka")`, its JAR from Maven, over the same faults of the same brokers.

What is written down here is what both did: where they differ, `format("minikafka")` refuses what the connector passes over in silence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.spark_connector import spark_kafka_connector

from minikafka.testing.cluster import ProcessCluster

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(300)]
PROGRAM = Path(__file__).with_name("spark_connector_faults.py")
TOPICS = ("sound", "rotten", "missing", "cut", "retained")
#: fault -> (failOnDataLoss=true, =false) of the connector, of ours if it is another; a number of rows, or words of the error of each.
LOST = "Some data may have been lost"
BATCH: dict[str, list[tuple[Any, Any]]] = {
    "sound": [(300, 300)],
    "rotten": [("Record is corrupt", "Record is corrupt"), ("rotten-0: the batch at offset 156 is corrupt.*read past it",) * 2],
    # Neither can tell a broker's lost segment from a compacted one; ours logs it.
    "segment missing": [(196, 196)],
    "segment cut": [(299, 299)],
    "begins below the log's start": [(LOST, 150), ("retained-0: offsets 10 to 149 are missing", 150)],
    "ends behind the log's end": [(LOST, 300), ("sound-0: offsets 300 to 309 are missing", 300)],
    "begins behind the log's end": [("start offset 310 is greater than",) * 2, ("begins at offset 310, after its end at 300",) * 2],
    "no such topic": [("UnknownTopicOrPartitionException",) * 2, ("topic none does not exist",) * 2],
    "no such partition": [(300, 300), ("sound-7 does not exist",) * 2],
}
STREAMS: dict[str, list[tuple[Any, Any]]] = {
    "made again with fewer records": [("failOnDataLoss", 110), (r"s0-gone-0: .* deleted and recreated", 110 + 30)],
    "made again with more records": [(110 + 50, 110 + 50), (r"s1-gone-0: .* deleted and recreated", 110 + 150)],
    "vanished": [("failOnDataLoss", 110), (r"s2-gone-0: .* the partition no longer exists", 110)],
}


def run(what: str, bootstrap: str, directory: Path) -> dict[str, Any]:
    jars = ",".join(map(str, spark_kafka_connector()))
    words = [sys.executable, str(PROGRAM), what, bootstrap, jars, str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.split("RESULT ", 1)[1].splitlines()[0])
    return found | {"stderr": done.stderr}


def compare(found: dict[str, Any], expected: dict[str, list[tuple[Any, Any]]]) -> None:
    for name, outcomes in expected.items():
        for form, pair in zip(("kafka", "minikafka"), (outcomes[0], outcomes[-1]), strict=True):
            for fails, wanted in zip((True, False), pair, strict=True):
                got = found[f"{name} {form} {fails}"]
                assert got == wanted if isinstance(wanted, int) else re.search(wanted, str(got)), (name, form, fails, got)


@pytest.fixture(scope="module")
def broker() -> Iterator[ProcessCluster]:
    """One broker, stopped, with faults planted, and started again."""
    with ProcessCluster(1, properties={"log.segment.bytes": str(1 << 20), "log.retention.ms": "-1"}) as cluster:
        fill(cluster.bootstrap)
        assert cluster.terminate(1) == 0
        segments = {topic: sorted((cluster.nodes[1].log_dir / f"{topic}-0").glob("*.log"))[1] for topic in TOPICS}
        data = bytearray(segments["rotten"].read_bytes())
        data[len(data) // 2 + 3000] ^= 1
        segments["rotten"].write_bytes(data)
        os.truncate(segments["cut"], segments["cut"].stat().st_size - 40)
        segments["missing"].unlink()
        cluster.restart(1)
        yield cluster


def fill(bootstrap: str) -> None:
    """300 records of 10 kB in each topic, a batch each: three segments."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 10_000, "linger.ms": 0})
    for number in range(300):
        for topic in TOPICS:
            producer.produce(topic, b"%d:" % number + os.urandom(10_000))
    assert producer.flush(30) == 0
    admin.delete_records([TopicPartition("retained", 0, 150)])[TopicPartition("retained", 0)].result(20)


def test_batch_queries(broker: ProcessCluster, tmp_path: Path) -> None:
    found = run("batch", broker.bootstrap, tmp_path)
    compare(found, BATCH)
    for text in ("missing-0: broker 127.0.0.1:[0-9]+ has no batch with offsets 104 to 207, though the topic is not compacted",
                 "skipped: retained-0: offsets 10 to 149", "skipped: sound-0: offsets 300 to 309"):  # fmt: skip
        assert re.search(text, found["stderr"]), text


def test_streams(broker: ProcessCluster, tmp_path: Path) -> None:
    found = run("streams", broker.bootstrap, tmp_path)
    compare(found, STREAMS)
    for text in ("skipped: s0-gone-0: everything from offset 100 on", "skipped: s2-gone-0: everything from offset 100 on"):
        assert text in found["stderr"]
