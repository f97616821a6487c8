# ruff: noqa: E402 - a script: the path to the packages comes first
"""The same Parquet table into the same three brokers (replication 3, acks=all): `minikafka load` beside Spark's own Kafka connector.

    PYTHONPATH=. python tests/bench/load_beside_spark.py [--rounds 3] [--compression none] [--connector kafka.batch.size=524288]

All of it on the cores of this machine, brokers too: local[2] against two processes. Ways take turns, round by round, with equal settings.
Shown are medians, the ratio of each round to Spark's of the same round, and CPU seconds of brokers and loaders. What starts once
(interpreter, JVM, first job of a session) is left out. Before each load what earlier ones left is on the disk and its topic deleted, and
free memory is touched: on a virtual machine whose host takes free memory back, filling it anew costs several times the load (see
`raw.py --only floor`). All write to new topics of 8 partitions with Kafka's partitioner; the number of records that the brokers hold
afterwards is counted. Needs Java, and Maven for the connector's JAR.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

import psutil
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from helpers.spark_connector import spark_kafka_connector
from memory import warm_memory
from pyarrow import parquet

from minikafka.spark.load import LoadOptions, prepare_topic
from minikafka.testing.cluster import ProcessCluster

PARTITIONS = 8
SPARK = """
import os, sys, time
from pyspark.sql import SparkSession
bootstrap, jars, table, compression, warm, *others = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
frame = spark.read.parquet(table).selectExpr("cast(k as binary) key", "v value")
options = {"kafka.bootstrap.servers": bootstrap, "kafka.acks": "all", "kafka.compression.type": compression,
           **dict(other.split("=", 1) for other in others)}
frame.limit(200000).write.format("kafka").options(**options, topic=warm).save()
print("READY", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    frame.write.format("kafka").options(**options, topic=line.strip()).save()
    print("SECONDS", time.perf_counter() - start, flush=True)
"""

OURS = """
import os, sys
from dataclasses import replace
from minikafka.spark.engine_spark import SparkEngine
from minikafka.spark.load import LoadOptions, run_load
bootstrap, table, compression, batch_size = sys.argv[1:]
engine = SparkEngine(master="local[2]")
options = LoadOptions(bootstrap, "", key="k", value="v", compression=compression)
options = replace(options, batch_bytes=int(batch_size)) if int(batch_size) else options
run_load(table, replace(options, partitions=8, dry_run=True), engine)
print("READY", flush=True)
for line in sys.stdin:
    report = run_load(table, replace(options, topic=line.strip()), engine)
    assert report.reconciled
    print("SECONDS", report.seconds, flush=True)
engine.close()
"""
Load = Callable[[str], float]


def write_table(path: Path, rows: int, part: int = 1 << 17) -> None:
    with parquet.ParquetWriter(path, pa.schema([("k", pa.string()), ("v", pa.binary())])) as writer:
        for start in range(0, rows, part):
            count = min(part, rows - start)
            keys = pa.array([f"key-{number:08d}" for number in range(start, start + count)])
            data = pa.py_buffer(os.urandom(100 * count))
            offsets = pa.array(range(0, 100 * count + 1, 100), pa.int32()).buffers()[1]
            writer.write_table(pa.table({"k": keys, "v": pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])}))


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


def delete(bootstrap: str, topic: str, directories: list[Path]) -> None:
    """Delete a topic and wait until its files are gone."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 30
    while any(path for directory in directories for path in directory.glob(f"{topic}-*")):
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.1)


def command(bootstrap: str, table: Path, compression: str, batch_size: int) -> Load:
    """`minikafka load` as people type it: the seconds that it reports."""

    def load(topic: str) -> float:
        words = ["load", str(table), "--topic", topic, "--key", "k", "--value", "v", "-o", "json", "--compression", compression]
        words += ["--batch-size", str(batch_size)] if batch_size else []
        done = subprocess.run([sys.executable, "-m", "minikafka", *words, "--bootstrap-server", bootstrap], capture_output=True, text=True,
                              check=False, env=_environment())  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        report = json.loads(done.stdout[done.stdout.index("{") :])
        assert report["reconciled"]
        return float(report["seconds"])

    return load


@contextlib.contextmanager
def session(program: str, *arguments: str) -> Iterator[Load]:
    """A Spark session that waits for names of topics."""
    pipe, words = subprocess.PIPE, [sys.executable, "-c", program, *arguments]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=_environment()) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def expect(word: str) -> str:
            for line in stdout:
                if line.startswith(word):
                    return line
            errors.seek(0)
            raise AssertionError(errors.read()[-3000:])

        expect("READY")

        def load(topic: str) -> float:
            stdin.write(topic + "\n")
            stdin.flush()
            return float(expect("SECONDS").split()[1])

        yield load
        stdin.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": sys.path[0]}


def cpu_s(processes: list[psutil.Process]) -> float:
    """CPU seconds of processes and of their children that have ended."""
    return sum(sum(process.cpu_times()[:4]) for process in processes)


def everyone_else(brokers: list[psutil.Process]) -> list[psutil.Process]:
    """This process and all below it, but for the brokers."""
    ours = psutil.Process()
    return [one for one in [ours, *ours.children(recursive=True)] if one not in brokers and not set(one.parents()) & set(brokers)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--batch-size", type=int, default=0, help="of our loads [default: theirs]")
    parser.add_argument("--connector", action="append", default=[], metavar="OPTION=VALUE", help="of the connector")
    parser.add_argument("--warm-gb", type=int, default=5)
    parser.add_argument("--without", action="append", default=[], choices=["connector", "local", "spark"])
    chosen = parser.parse_args()
    with contextlib.ExitStack() as stack:
        name, cluster = stack.enter_context(tempfile.TemporaryDirectory()), stack.enter_context(ProcessCluster())
        table, bootstrap = Path(name) / "t.parquet", cluster.bootstrap
        write_table(table, chosen.rows)
        print(f"{chosen.rows:,} rows of a 12 byte key and a 100 byte value, {PARTITIONS} partitions, replication 3, acks=all, "
              f"compression {chosen.compression}, {chosen.rounds} rounds", flush=True)  # fmt: skip
        ways: dict[str, Load] = {}
        if "connector" not in chosen.without:
            create(bootstrap, "warm")
            jars = ",".join(map(str, spark_kafka_connector()))
            ways['Spark format("kafka"), local[2]'] = stack.enter_context(
                session(SPARK, bootstrap, jars, str(table), chosen.compression, "warm", *chosen.connector)
            )
        if "local" not in chosen.without:
            ways["minikafka load"] = command(bootstrap, table, chosen.compression, chosen.batch_size)
        if "spark" not in chosen.without:
            arguments = (bootstrap, str(table), chosen.compression, str(chosen.batch_size))
            ways["minikafka load, local[2]"] = stack.enter_context(session(OURS, *arguments))
        brokers = [psutil.Process(node.process.pid) for node in cluster.nodes.values() if node.process is not None]
        directories = [node.log_dir for node in cluster.nodes.values()]
        found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        for number in range(chosen.rounds):
            for index, (way, load) in enumerate(ways.items()):
                topic = f"way-{index}-{number}"
                create(bootstrap, topic)
                os.sync()
                warm_memory(chosen.warm_gb << 30)
                before = cpu_s(brokers), cpu_s(everyone_else(brokers))
                seconds = load(topic)
                found[way].append((seconds, cpu_s(brokers) - before[0], cpu_s(everyone_else(brokers)) - before[1]))
                assert records_in(bootstrap, topic) == chosen.rows, topic
                delete(bootstrap, topic, directories)
        show(found, chosen.rows)


def show(found: dict[str, list[tuple[float, float, float]]], rows: int) -> None:
    yardstick = [seconds for seconds, _, _ in next(iter(found.values()))]
    print(f"{'':34s} M rows/s (range)          times the first line (range)   CPU s: brokers, others")
    for way, rounds in found.items():
        rates = [rows / seconds / 1e6 for seconds, _, _ in rounds]
        ratios = [first / seconds for first, (seconds, _, _) in zip(yardstick, rounds, strict=True)]
        brokers, others = (statistics.median(one[column] for one in rounds) for column in (1, 2))
        print(f"  {way:32s} {statistics.median(rates):5.2f} ({min(rates):.2f} to {max(rates):.2f})   {statistics.median(ratios):10.1f} "
              f"({min(ratios):.1f} to {max(ratios):.1f}) {brokers:20.1f} {others:7.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
