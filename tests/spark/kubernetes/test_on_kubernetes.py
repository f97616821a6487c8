"""Audit, load and the data source on the Kubernetes of the current kubeconfig: `pytest -m kubernetes tests/spark/kubernetes`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
PARTS, PART_ROWS = 8, 20_000
ROWS = PARTS * PART_ROWS
SOURCE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
bootstrap, topic = sys.argv[1:]
read = spark.read.format("minikafka").option("kafka.bootstrap.servers", bootstrap)
frame = read.option("subscribe", topic).load()
print("RECORDS", frame.count(), frame.select("partition", "offset").distinct().count())
print("LOGS", spark.read.format("minikafka").load("/logs/broker-1").count())
to = frame.limit(1000).select("key", "value").write.format("minikafka").option("kafka.bootstrap.servers", bootstrap)
to.option("topic", "sunk").mode("append").save()
print("SUNK", read.option("subscribe", "sunk").load().count())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    from helpers.kubernetes import Kubernetes, image_of_spark

    with Kubernetes(tmp_path / "spark", image_of_spark()) as found:
        yield found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "table").mkdir()
    for part in range(PARTS):
        rows = range(part * PART_ROWS, (part + 1) * PART_ROWS)
        columns = {"k": [f"key-{n % 977}" for n in rows], "n": list(rows), "v": ["x" * 100] * PART_ROWS}
        parquet.write_table(pa.table(columns), tmp_path / "table" / f"part-{part}.parquet")
    return tmp_path / "table"


def brokers_in(tmp_path: Path, paths: list[str]) -> Path:
    """The directories of the brokers in one, which is to be shown to pods."""
    logs = tmp_path / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    for path in paths:
        shutil.move(path, logs)
    return logs


LOG_DIRS = [f"/logs/broker-{number}" for number in (1, 2, 3)]


def test_directories_that_only_executors_see(cluster: Any, tmp_path: Path, three_brokers: Any) -> None:
    cluster.confs |= cluster.mounted(brokers_in(tmp_path, three_brokers()), "/logs", "executor")
    audited = cluster.minikafka("audit", *LOG_DIRS, "--quiet")
    assert audited.returncode == 0 and audited.stdout.startswith("AUDIT PASS"), audited.stderr
    brokers_in(tmp_path, three_brokers("byte-flipped"))
    audited = cluster.minikafka("audit", *LOG_DIRS, "-o", "json")
    report = json.loads(audited.stdout)
    assert (audited.returncode, report["outcome"]) == (1, "FAIL"), audited.stderr
    assert ("batch-crc", ["1"]) in {one["check"]: (one["check"], one["brokers"]) for one in report["findings"]}.values()
    missing = cluster.minikafka("audit", "/nowhere/broker-1")
    assert missing.returncode == 2 and "where Spark's tasks run" in missing.stderr


def test_a_load_whose_executor_is_deleted_writes_each_row_once(cluster: Any, tmp_path: Path, table: Path) -> None:
    from confluent_kafka import Consumer
    from helpers.kubernetes import ReachableCluster, kubectl

    cluster.confs |= cluster.mounted(table, str(table), "executor")
    with ReachableCluster(cluster.host) as brokers:
        metrics = tmp_path / "load.prom"
        pace = ["--throttle", "1500000", "--metrics-file", str(metrics)]
        target = ["--bootstrap-server", brokers.bootstrap_of_pods, "--topic", "t", "--key", "k", "--partitions", "6"]
        load = cluster.start_minikafka("load", str(table), *target, *pace, "--audit", "-o", "json")
        while load.poll() is None and not (metrics.exists() and rows_in(metrics) > ROWS // 20 and cluster.executors()):
            time.sleep(0.2)
        kubectl("-n", cluster.namespace, "delete", cluster.executors()[0], "--force", "--grace-period=0")
        said, errors = load.communicate()
        assert load.returncode == 0, errors
        report = json.loads(said)
        assert (report["engine"], report["rows"], report["acknowledged"], report["reconciled"]) == ("spark", ROWS, ROWS, True)
        assert report["audit"] == "PASS"
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = []
        while len(found) < ROWS:
            messages = consumer.consume(10_000, 30)
            assert messages and all(message.error() is None for message in messages)
            found += [json.loads(message.value())["n"] for message in messages]
        assert consumer.poll(2) is None
        consumer.close()
        assert sorted(found) == list(range(ROWS))


def rows_in(metrics: Path) -> float:
    """How many the file of a load tells."""
    lines = [line for line in metrics.read_text().splitlines() if line.startswith("minikafka_bulkload_rows{")]
    return float(lines[0].split()[-1]) if lines else 0.0


def test_a_driver_in_a_pod(cluster: Any, tmp_path: Path, table: Path, three_brokers: Any) -> None:
    """Its container's exit status is the command's; spark-submit's own is 0 whatever happened."""
    from confluent_kafka.admin import AdminClient, NewTopic
    from helpers.kubernetes import SUBMIT, ReachableCluster

    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "source.py").write_text(SOURCE)
    cluster.confs |= cluster.mounted(brokers_in(tmp_path, three_brokers("byte-flipped")), "/logs", "executor", "driver")
    cluster.confs |= cluster.mounted(table, "/table", "executor", "driver") | cluster.mounted(tmp_path / "jobs", "/jobs", "driver")
    status, said = cluster.submit_inside(SUBMIT, "audit", *LOG_DIRS, "--quiet")
    assert status == 1 and "AUDIT FAIL" in said
    with ReachableCluster(cluster.host) as brokers:
        target = ["--bootstrap-server", brokers.bootstrap_of_pods, "--topic", "t", "--key", "k", "--partitions", "6"]
        status, said = cluster.submit_inside(SUBMIT, "load", "/table", *target, "--audit")
        assert status == 0 and "AUDIT PASS" in said, said[-4000:]
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        admin.create_topics([NewTopic("sunk", 3)])["sunk"].result(30)
        status, said = cluster.submit_inside("local:///jobs/source.py", brokers.bootstrap_of_pods, "t")
        assert status == 0, said[-4000:]
        assert {f"RECORDS {ROWS} {ROWS}", "LOGS 60", "SUNK 1000"} <= set(said.splitlines())


def test_the_cause_of_missing_executors_is_reported_in_one_line(cluster: Any, tmp_path: Path, three_brokers: Any) -> None:
    cluster.confs |= cluster.mounted(brokers_in(tmp_path, three_brokers()), "/logs", "executor")
    right = cluster.confs
    cases = [
        ({"spark.kubernetes.container.image": "minikafka.invalid/none:1"}, 3, ("executor pod", "minikafka.invalid/none:1")),
        ({"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}, 3, ("executor pod", "spark.driver.host=ADDRESS")),
        ({"spark.pyspark.python": "/nowhere/python"}, 3, ("/nowhere/python",)),
        ({"spark.kubernetes.namespace": f"{cluster.namespace}-none"}, 2, ("not found",)),
    ]
    for changed, status, texts in cases:
        cluster.confs = right | changed
        audited = cluster.minikafka("audit", *LOG_DIRS)
        lines = audited.stderr.strip().splitlines()
        assert audited.returncode == status and len(lines) == 1 and lines[0].startswith("minikafka audit: "), audited.stderr
        assert all(text in lines[0] for text in texts), audited.stderr
    assert not cluster.executors()
