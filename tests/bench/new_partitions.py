"""What it costs to create many partitions: calls of the file system for each, wall and CPU time of a cluster of three in one process.

    python tests/bench/new_partitions.py [--partitions 1000]
"""

from __future__ import annotations

# ruff: noqa: E402 - a script: the path to the packages comes first
import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from minikafka.client.admin import Admin
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.testing import EmbeddedCluster


def calls_of_a_new_log() -> int:
    """System calls that go through `os`, of a log that is created, led and flushed."""
    counts: Counter[str] = Counter()

    def count(name: str, function: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **named)

        return counted

    files = ("open", "close", "pwrite", "pread", "ftruncate", "fsync", "fdatasync", "fstat")
    names = (*files, "stat", "listdir", "mkdir", "replace", "unlink")
    with tempfile.TemporaryDirectory() as path:
        filesystem = OsFileSystem()
        format_directory(filesystem, path, MetaProperties("x" * 22, 1, bytes(16)), 0)
        directory = LogDirectory(filesystem, path)
        directory.open()
        directory.load(lambda *_: LogConfig(), 0)
        real = {name: getattr(os, name) for name in names}
        for name, function in real.items():
            setattr(os, name, count(name, function))
        try:
            log = directory.create_log("t", 0, b"t" * 16, LogConfig(), 0)
            log.assign_epoch_start(0, 0)
            state: Any = getattr(log, "durability", log)
            if state.is_flush_requested:
                log.flush(log.active_segment_base_offset)
        finally:
            for name, function in real.items():
                setattr(os, name, function)
        directory.abandon()
    return sum(counts.values())


async def create(bootstrap: str, partitions: int) -> float:
    """Seconds until every partition has its leader."""
    async with Admin(bootstrap) as admin:
        started = time.monotonic()
        await admin.create_topic("many", partitions=partitions, replication_factor=3)
        return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=1000)
    options = parser.parse_args()
    print(f"{calls_of_a_new_log()} system calls a new partition")
    with EmbeddedCluster(brokers=3) as cluster:
        before = time.process_time()
        seconds = asyncio.run(create(cluster.bootstrap_servers, options.partitions))
        time.sleep(3)
        print(f"{options.partitions} partitions: {seconds:.2f} s, {time.process_time() - before:.2f} CPU s (with three seconds after it)")


if __name__ == "__main__":
    main()
