"""`format("minikafka")`: log directories and brokers, batch and streaming, records and batches, and the sink. Runs where Java is.

The tests with brokers are long: `pytest -m interop tests/spark`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.timeout(180),
]

from confluent_kafka import Producer  # noqa: E402
from helpers import log_fault_clusters, log_faults  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from minikafka.spark import worker_daemon  # noqa: E402
from minikafka.spark.datasource import BatchReader  # noqa: E402
from minikafka.spark.engine_spark import SparkEngine  # noqa: E402
from minikafka.spark.load import LoadOptions, run_load  # noqa: E402
from minikafka.spark.source_options import SourceOptions  # noqa: E402
from minikafka.testing.cluster import ProcessCluster  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "logs"


def test_every_codec_reads_the_same_from_log_directories(session: Any, tmp_path: Path) -> None:
    cluster = log_fault_clusters.many_topics(tmp_path, ("codec-none-0", "codec-gzip-0", "codec-snappy-0", "codec-lz4-0", "codec-zstd-0"))
    table = session.read.format("minikafka").option("includeHeaders", "true").load(str(cluster.directories[1]))
    assert table.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    rows: dict[str, list[Any]] = {}
    for row in table.orderBy("topic", "offset").collect():
        rows.setdefault(row.topic, []).append((row.offset, row.key, row.value, row.timestamp, row.timestampType, row.headers))
    assert sorted(rows) == ["codec-gzip", "codec-lz4", "codec-none", "codec-snappy", "codec-zstd"]
    assert len(rows["codec-none"]) == 47 and all(found == rows["codec-none"] for found in rows.values())
    keys = [key for _, key, *_ in rows["codec-none"]]
    assert None in keys and bytearray(b"") in keys
    assert any(headers and len(headers) > 1 for *_, headers in rows["codec-none"])


def test_batches_and_ranges_from_log_directories(session: Any, tmp_path: Path) -> None:
    cluster = log_fault_clusters.replicated(tmp_path)
    log_faults.flip_payload(False)(cluster)
    source = session.read.format("minikafka").option("mode", "batches").option("logDirs", str(cluster.directories[1]))
    batches = source.load().orderBy("baseOffset").collect()
    assert len(batches) == 30 and [row.leaderEpoch for row in batches] == sorted(row.leaderEpoch for row in batches)
    assert [row.baseOffset for row in batches if not row.crcValid] == [30]
    some = (
        session.read.format("minikafka").option("logDirs", str(cluster.directories[2])).option("subscribe", "rep")
        .option("startingOffsets", '{"rep": {"0": 10}}').option("endingOffsets", '{"rep": {"0": 20}}').load()
    )  # fmt: skip
    assert [row.offset for row in some.orderBy("offset").collect()] == list(range(10, 20))


def test_directories_that_only_executors_see(session: Any, tmp_path: Path) -> None:
    """The driver looks at none of them (the master is local here, so that is asked of the reader itself)."""
    cluster = log_fault_clusters.many_topics(tmp_path, ("codec-none-0", "codec-gzip-0", "codec-snappy-0", "codec-lz4-0", "codec-zstd-0"))
    source = session.read.format("minikafka").option("logDirs", ",".join(map(str, cluster.directories.values())))
    expected = source.load().orderBy("topic", "offset").collect()
    elsewhere = source.option("logDirsOn", "executors").option("minPartitions", "3").load()
    assert elsewhere.rdd.getNumPartitions() == 3
    assert elsewhere.orderBy("topic", "offset").collect() == expected and len(expected) == 5 * 47
    partitions = BatchReader(SourceOptions.parse({"logDirs": "/nowhere", "logDirsOn": "executors"}), StructType()).partitions()
    assert len(partitions) == 16
    with pytest.raises(Exception, match="logDirsOn=executors works only for batch queries"):
        session.readStream.format("minikafka").option("logDirs", "/nowhere").option("logDirsOn", "executors").load().writeStream.format(
            "noop"
        ).start().processAllAvailable()


@pytest.mark.parametrize(("options", "text"), [
    ({}, "either kafka.bootstrap.servers or logDirs"),
    ({"kafka.bootstrap.servers": "x:1"}, "give one of assign, subscribe"),
    ({"logDirs": "/nowhere"}, r"no such directory \(where only executors see it: logDirsOn=executors\)"),
    ({"logDirs": "/nowhere", "logDirsOn": "executors"}, "/nowhere: no such directory"),
    ({"logDirs": "/nowhere", "logDirsOn": "moon"}, "expected driver, or with logDirs executors"),
    ({"logDirs": str(GOLDEN), "mode": "x"}, "expected records or batches"),
    ({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, "cannot be reached"),
    ({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.isolation.level": "x"}, "expected read_uncommitted or"),
])  # fmt: skip
def test_wrong_options_are_named(session: Any, options: dict[str, str], text: str) -> None:
    reader = session.read.format("minikafka")
    for name, value in options.items():
        reader = reader.option(name, value)
    with pytest.raises(Exception, match=text):
        reader.load().collect()


@pytest.fixture(scope="module")
def brokers() -> Any:
    with ProcessCluster() as cluster:
        yield cluster


def create(cluster: ProcessCluster, topic: str, partitions: int = 3) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        future.result(20)


def produce(cluster: ProcessCluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "compression.type": "lz4"})
    for number in numbers:
        producer.produce(topic, str(number).encode(), key=f"k{number % 7}".encode())
    producer.flush(30)


@pytest.mark.interop
def test_the_sink_writes_and_the_source_reads_brokers(session: Any, brokers: ProcessCluster) -> None:
    create(brokers, "sunk")
    table = session.range(5000).selectExpr(
        "cast(id % 11 as string) key", "cast(id as string) value", "'sunk' topic", "cast(if(id % 2 = 0, id % 3, null) as int) partition",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers",
    )  # fmt: skip
    written = table.write.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap)
    written.option("includeHeaders", "true").option("kafka.compression.type", "zstd").mode("append").save()
    read = session.read.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap).option("subscribe", "sunk")
    rows = read.option("includeHeaders", "true").option("minPartitions", "6").load().collect()
    found = Counter(int(row.value) for row in rows)
    assert len(found) == 5000 and set(found.values()) == {1}
    assert all(row.partition == int(row.value) % 3 for row in rows if int(row.value) % 2 == 0)
    assert rows[0].headers[0].key == "h" and bytes(rows[0].headers[0].value) == b"x"
    with pytest.raises(Exception, match="does not exist"):
        sink = table.drop("topic").write.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap)
        sink.option("topic", "none").mode("append").save()


@pytest.mark.interop
def test_streams_with_limits_go_through_all_that_is_there(session: Any, brokers: ProcessCluster, tmp_path: Path) -> None:
    create(brokers, "stream")
    create(brokers, "copied")
    produce(brokers, "stream", range(900))
    stream = (
        session.readStream.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap).option("subscribe", "stream")
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").load()
    )  # fmt: skip

    def run() -> int:
        query = (
            stream.select("key", "value").writeStream.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap)
            .option("topic", "copied").option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(90)
        assert query.exception() is None
        return len([progress for progress in query.recentProgress if progress["numInputRows"]])

    assert run() >= 3, "900 rows in triggers of at most about 400"
    produce(brokers, "stream", range(900, 1000))
    run()
    copied = session.read.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap).option("subscribe", "copied").load()
    found = Counter(int(row.value) for row in copied.collect())
    assert len(found) == 1000 and set(found.values()) == {1}


@pytest.mark.interop
def test_a_killed_python_worker_writes_no_row_twice(session: Any, brokers: ProcessCluster, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = 200_000
    source = pa.table({"k": [str(n % 97) for n in range(rows)], "n": list(range(rows)), "pad": ["x" * 60] * rows})
    parquet.write_table(source, tmp_path / "t.parquet", row_group_size=20_000)
    victims: list[int] = []

    def kill_a_worker() -> None:
        for process in psutil.Process(os.getpid()).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # one that has ended, which its parent has not seen yet
                parent = process.parent()
                if parent is not None and all(worker_daemon.__name__ in " ".join(one.cmdline()) for one in (process, parent)):
                    victims.append(process.pid)
                    process.send_signal(signal.SIGKILL)
                    return

    def progress(rows: int, share: float | None) -> None:
        if share and share < 1 and not victims:
            kill_a_worker()

    options = LoadOptions(
        brokers.bootstrap, "killed", key="k", partitions=3, replication_factor=3, batch_bytes=16_384, bytes_per_second=8 << 20
    )  # fmt: skip
    report = run_load(str(tmp_path / "t.parquet"), options, SparkEngine(session), progress)
    assert victims, "no worker was killed"
    assert (report.rows, report.acknowledged, report.reconciled) == (rows, rows, True)
    read = session.read.format("minikafka").option("kafka.bootstrap.servers", brokers.bootstrap).option("subscribe", "killed").load()
    assert read.count() == rows
    assert len({json.loads(row.value)["n"] for row in read.select("value").collect()}) == rows
