# ruff: noqa: E402 - a script: the path to the packages comes first
"""The same Parquet table into the same three brokers (replication 3, acks=all): `minikafka load` beside Spark's own Kafka connector.

    PYTHONPATH=. python tests/bench/load_beside_spark.py [--rows 4000000] [--rounds 2] [--compression none]

All of it on the cores of this machine, brokers too: local[2] against two processes. What starts once (interpreter, JVM, first job of a
session) is left out of the rates and said apart. What the rounds before left in the page cache is on the disk before a round begins. All
write to new topics of 8 partitions with Kafka's partitioner; the number of records that the brokers hold afterwards is counted. Needs
Java, and Maven for the connector's JAR.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from helpers.spark_connector import spark_kafka_connector
from pyarrow import parquet

from minikafka.spark.load import LoadOptions, prepare_topic
from minikafka.testing.cluster import ProcessCluster

PARTITIONS = 8
SPARK = """
import os, sys, time
from pyspark.sql import SparkSession
bootstrap, jars, table, topics, compression = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
frame = spark.read.parquet(table).selectExpr("cast(k as binary) key", "v value")
options = {"kafka.bootstrap.servers": bootstrap, "kafka.acks": "all", "kafka.compression.type": compression}
first, *others = topics.split(",")
frame.limit(20000).write.format("kafka").options(**options, topic=first).save()
for topic in others:
    os.sync()
    start = time.perf_counter()
    frame.write.format("kafka").options(**options, topic=topic).save()
    print("SECONDS", time.perf_counter() - start, flush=True)
"""

OURS = """
import os, sys
from dataclasses import replace
from minikafka.spark.engine_spark import SparkEngine
from minikafka.spark.load import LoadOptions, run_load
bootstrap, table, topics, compression = sys.argv[1:]
engine = SparkEngine(master="local[2]")
options = LoadOptions(bootstrap, "", key="k", value="v", compression=compression)
run_load(table, replace(options, partitions=8, dry_run=True), engine)
for topic in topics.split(","):
    os.sync()
    report = run_load(table, replace(options, topic=topic), engine)
    assert report.reconciled
    print("SECONDS", report.seconds, flush=True)
engine.close()
"""


def write_table(path: Path, rows: int, part: int = 1 << 17) -> None:
    with parquet.ParquetWriter(path, pa.schema([("k", pa.string()), ("v", pa.binary())])) as writer:
        for start in range(0, rows, part):
            count = min(part, rows - start)
            keys = pa.array([f"key-{number:08d}" for number in range(start, start + count)])
            writer.write_table(pa.table({"k": keys, "v": pa.array([os.urandom(100) for _ in range(count)], pa.binary())}))


def records_in(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    total = 0
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        total += high - low
    consumer.close()
    return total


def create(bootstrap: str, topic: str) -> None:
    assert prepare_topic(LoadOptions(bootstrap, topic, partitions=PARTITIONS, replication_factor=3)) == PARTITIONS


def command(bootstrap: str, table: Path, topics: list[str], compression: str) -> tuple[list[float], float]:
    """`minikafka load` as people type it: (seconds that each load reports, seconds of all)."""
    start, found = time.perf_counter(), []
    for topic in topics:
        os.sync()
        words = ["load", str(table), "--topic", topic, "--key", "k", "--value", "v", "-o", "json", "--compression", compression]
        done = _run("-m", "minikafka", *words, "--bootstrap-server", bootstrap)
        report = json.loads(done[done.index("{") :])
        assert report["reconciled"]
        found.append(float(report["seconds"]))
    return found, time.perf_counter() - start


def ours_on_spark(bootstrap: str, table: Path, topics: list[str], compression: str) -> tuple[list[float], float]:
    """`load` on local[2] in a warm session: the same two numbers."""
    return _timed(OURS, bootstrap, str(table), ",".join(topics), compression)


def sparks(bootstrap: str, table: Path, topics: list[str], compression: str) -> tuple[list[float], float]:
    """Spark's connector in a warm session: the same two numbers. One more topic takes what warms it up."""
    create(bootstrap, "warm")
    return _timed(SPARK, bootstrap, ",".join(map(str, spark_kafka_connector())), str(table), ",".join(["warm", *topics]), compression)


def _timed(program: str, *arguments: str) -> tuple[list[float], float]:
    start = time.perf_counter()
    said = _run("-c", program, *arguments)
    return [float(line.split()[1]) for line in said.splitlines() if line.startswith("SECONDS")], time.perf_counter() - start


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": sys.path[0]})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--compression", default="none")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ProcessCluster() as cluster:
        table = Path(name) / "t.parquet"
        write_table(table, chosen.rows)
        print(f"{chosen.rows:,} rows of a 12 byte key and a 100 byte value, {PARTITIONS} partitions, replication 3, acks=all, "
              f"compression {chosen.compression}; M rows/s, best of {chosen.rounds}")  # fmt: skip
        yardstick = 0.0
        ways = {"Spark format(\"kafka\"), local[2]": sparks, "minikafka load": command, "minikafka load, local[2]": ours_on_spark}
        for way, (label, load) in enumerate(ways.items()):
            topics = [f"way-{way}-{number}" for number in range(chosen.rounds)]
            for topic in topics:
                create(cluster.bootstrap, topic)
            seconds, whole = load(cluster.bootstrap, table, topics, chosen.compression)
            for topic in topics:
                assert records_in(cluster.bootstrap, topic) == chosen.rows, topic
            best = min(seconds)
            yardstick = yardstick or best
            print(f"  {label:36s} {chosen.rows / best / 1e6:6.3f}   {best:6.1f} s, {yardstick / best:4.1f} times Spark's "
                  f"({chosen.rounds} rounds and start-up: {whole:.0f} s)", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
