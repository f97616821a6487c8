"""The broker's ceiling: raw pipelined Produce and Fetch frames from a C load generator, broker and load pinned to a core each.

    python tests/bench/raw.py [--seconds 3] [--rounds 3] [--only produce|fetch|floor]

Prints requests/s, MB/s (1 MB = 1e6 bytes), and the broker's CPU microseconds a request, medians of the rounds. Wants gcc and two cores. The
figure to compare between machines is CPU a request; capacity is 1e6 / that.

`floor` puts a C program beside the broker that only receives, computes the CRC, writes and answers (`raw_sink.c`), and shows what the same
bytes cost to write into memory that this machine has lately used, and into memory that its host took back while it was free: on a virtual
machine the second is several times the first, and whoever fills the page cache pays it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from memory import warm_memory

from minikafka.client.admin import Admin
from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.batch import build_batch
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.produce import ProduceRequest

HERE = Path(__file__).parent
PRODUCE = [(100, 8, 8, "100 B"), (1024, 6, 3, "1 KiB"), (16 << 10, 8, 5, "16 KiB"), (64 << 10, 8, 5, "64 KiB"), (1_000_000, 6, 3, "1 MB")]
FETCH = [(16 << 10, 4, 2, "16 KiB"), (64 << 10, 4, 2, "64 KiB"), (256 << 10, 4, 2, "256 KiB"), (1 << 20, 4, 2, "1 MiB")]


def frame(request: Any, version: int) -> bytes:
    return b"".join(bytes(piece) for piece in encode_request(request, version, 1, "bench"))


def produce_frame(topic: str, size: int, acks: int, partitions: int = 1) -> bytes:
    batch = bytes(build_batch([(0, time.time_ns() // 1_000_000, None, os.urandom(max(size - 75, 1)), ())] * 1))
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 9)


def fetch_frame(topic: str, size: int) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return frame(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=size, session_id=0, session_epoch=-1, topics=topics), 12)


def measure(
    load: Path, port: int, data: bytes, connections: int, depth: int, seconds: float, broker: psutil.Process
) -> tuple[float, float, float]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        warm_memory()
        before = broker.cpu_times()
        command = ["taskset", "-c", "1", str(load), "127.0.0.1", str(port), file.name, str(connections), str(depth), str(seconds)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = broker.cpu_times()
    answers, received, elapsed = (float(part) for part in output.split()[:3])
    cpu = (after.user - before.user) + (after.system - before.system)
    return answers / elapsed, received / elapsed, cpu / max(answers, 1) * 1e6


def floor(load: Path, directory: Path, seconds: float, rounds: int, broker: psutil.Process, port: int) -> None:
    """Produce of growing batches to the broker and to the sink, in turn."""
    sink_program = directory / "raw_sink"
    subprocess.run(["gcc", "-O2", "-msse4.2", "-o", str(sink_program), str(HERE / "raw_sink.c")], check=True)
    print("CPU s/GB to take, check, write and answer:        broker   sink  broker/sink")
    for size, connections, depth, name in PRODUCE[2:]:
        data = produce_frame("produce", size, 1)
        costs: dict[str, list[float]] = {"broker": [], "sink": []}
        for _ in range(rounds):
            segments = directory / "sink"
            segments.mkdir()
            with subprocess.Popen([str(sink_program), str(segments)], stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                sink_port = int(process.stdout.readline())
                sink = psutil.Process(process.pid)
                sink.cpu_affinity([0])
                for kind, target, watched in (("broker", port, broker), ("sink", sink_port, sink)):
                    _, _, cpu_us = measure(load, target, data, connections, depth, seconds, watched)
                    costs[kind].append(cpu_us * 1e3 / size)
                process.kill()
            shutil.rmtree(segments)
        broker_cost, sink_cost = statistics.median(costs["broker"]), statistics.median(costs["sink"])
        print(f"  {name:<46}{broker_cost:>8.2f}{sink_cost:>7.2f}{broker_cost / sink_cost:>11.2f}x", flush=True)
    print("CPU s/GB to write 1 GiB to a new file, nothing else: " + ", ".join(page_cache_costs(directory)))


def page_cache_costs(directory: Path, size_bytes: int = 1 << 30) -> list[str]:
    """The cost of filling page cache after the machine had nothing to do for 10 s, and at once again."""
    data = bytes(1 << 20)
    found = []
    for name, idle_s in (("memory idle for 10 s", 10.0), ("the same memory again", 0.0)):
        time.sleep(idle_s)
        path = directory / "filled"
        with path.open("wb", buffering=0) as file:
            started = time.process_time()
            for _ in range(size_bytes >> 20):
                file.write(data)
            found.append(f"{name} {(time.process_time() - started) / size_bytes * 1e9:.2f}")
        path.unlink()
    return found


def row(name: str, size_bytes: int, rounds: list[tuple[float, float, float]], *, sent: bool) -> str:
    rate, received, cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
    megabytes = rate * size_bytes / 1e6 if sent else received / 1e6
    return f"{name:<16} {rate:>10,.0f} req/s {megabytes:>9,.0f} MB/s {cpu:>8.1f} us CPU/req   capacity {1e6 / cpu:>9,.0f} req/s"


async def prepare(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        for topic in ("produce", "fetch"):
            configs = {"retention.bytes": str(128 << 20), "segment.bytes": str(64 << 20), "file.delete.delay.ms": "0"}
            await admin.create_topic(topic, partitions=1, replication_factor=1, configs=configs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["produce", "fetch", "floor"])
    options = parser.parse_args()
    if shutil.which("gcc") is None:
        sys.exit("gcc is needed to build the load generator")
    directory = Path(tempfile.mkdtemp(prefix="minikafka-bench-"))
    load = directory / "raw_load"
    subprocess.run(["gcc", "-O2", "-o", str(load), str(HERE / "raw_load.c")], check=True)
    properties = {"log.retention.check.interval.ms": "250", "min.insync.replicas": "1"}
    try:
        with ProcessCluster(1, properties=properties, directory=directory / "cluster") as cluster:
            node = cluster.nodes[1]
            assert node.process is not None
            broker = psutil.Process(node.process.pid)
            broker.cpu_affinity([0])
            asyncio.run(prepare(cluster.bootstrap))
            fill = produce_frame("fetch", 16 << 10, 1)
            measure(load, node.port, fill, 1, 1, 0.3, broker)
            if options.only == "floor":
                floor(load, directory, options.seconds, options.rounds, broker, node.port)
                return
            if options.only != "fetch":
                print("Produce acks=1, one batch a request")
                for size, connections, depth, name in PRODUCE:
                    data = produce_frame("produce", size, 1)
                    rounds = [measure(load, node.port, data, connections, depth, options.seconds, broker) for _ in range(options.rounds)]
                    print(row(name, size, rounds, sent=True), flush=True)
            if options.only != "produce":
                print("Fetch, page cache, sendfile from 24 KiB on")
                for size, connections, depth, name in FETCH:
                    data = fetch_frame("fetch", size)
                    rounds = [measure(load, node.port, data, connections, depth, options.seconds, broker) for _ in range(options.rounds)]
                    print(row(name, size, rounds, sent=False), flush=True)
            print(f"resident memory {broker.memory_info().rss / 1e6:.0f} MB")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
