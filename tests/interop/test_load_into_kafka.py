"""`minikafka load` into three brokers of Apache Kafka: its driver is killed in the midst, another goes on, each row is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from helpers.mixed_cluster import BOTH, KAFKA, MixedCluster
from pyarrow import parquet

from minikafka.testing.wait import LoadAdjustedDeadline

ROWS = 60_000


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(240)
def test_a_killed_load_into_apache_kafka_goes_on_and_each_row_is_there_once(tmp_path: Path) -> None:
    table, metrics = tmp_path / "t.parquet", tmp_path / "load.prom"
    rows = {"k": [f"key-{n % 999}" for n in range(ROWS)], "n": list(range(ROWS)), "text": [f"{n:060d}" for n in range(ROWS)]}
    parquet.write_table(pa.table(rows), table, row_group_size=ROWS // 8)
    with MixedCluster(tmp_path, [(node, KAFKA, BOTH) for node in (1, 2, 3)]) as cluster:
        cluster.format()
        cluster.start()
        load = [sys.executable, "-m", "minikafka", "load", str(table), "-b", cluster.bootstrap, "--topic", "t", "--key", "k"]
        load += ["--partitions", "3", "--replication-factor", "3", "--job-id", "night", "--batch-size", "8192", "--compression", "zstd"]
        load += ["--metrics-file", str(metrics), "--processes", "2", "-o", "json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        killed = subprocess.Popen([*load, "--throttle", "400000"], env=environment, start_new_session=True)
        until = LoadAdjustedDeadline(60)
        while not (metrics.exists() and rows_there(metrics)):
            assert killed.poll() is None and not until.is_over
            time.sleep(0.1)
        os.killpg(killed.pid, 9)
        killed.wait()
        done = subprocess.run([*load, "--audit"], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["rows"], report["acknowledged"], report["reconciled"], report["audit"]) == (ROWS, ROWS, True, "PASS")
        assert 0 < report["repeated"] < ROWS
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: Counter[int] = Counter()
        while sum(found.values()) < ROWS:
            messages = consumer.consume(10_000, 30)
            assert messages
            found.update(json.loads(message.value())["n"] for message in messages)
        consumer.close()
    assert found == Counter(range(ROWS))


def rows_there(metrics: Path) -> int:
    values = [line.rsplit(" ", 1)[1] for line in metrics.read_text().splitlines() if line.startswith("minikafka_bulkload_rows{")]
    return int(float(values[0])) if values else 0
