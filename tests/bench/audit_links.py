"""Large logs with producers and transactions, as hard links of a few segments: what an audit of them needs of memory, tasks and messages.

usage: PYTHONPATH=.:tests python tests/bench/audit_links.py [--gigabytes 60] [--processes 2] [--directory /dev/shm] [--spark]

Three brokers have a file each for every segment of one partition; all further partitions are links to them. The files are large, and so few
that they stay in the page cache. Prints sizes, counts, and the most memory of the driver and of a task. With --spark the tasks are those of
Spark's local[processes], whose Python processes are looked at ten times a second.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pickle
import resource
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from helpers.log_clusters import ABORT, COMMIT, TRANSACTIONAL, Batch, Partition, lines, marker, write_broker

from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

SEGMENTS, SEGMENT_BYTES = 2, 256 << 20
VALUE = b"v" * 2000
RECORDS_A_BATCH, BATCHES_A_TRANSACTION, OPEN_AT_ONCE, PRODUCERS = 8, 4, 20, 2000


def transactions() -> Iterator[Batch]:
    """Batches of transactions that overlap, and their markers; every fourth transaction is aborted."""
    offset, ended = 0, 0
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    opened = {producer: 0 for producer in range(OPEN_AT_ONCE)}
    while True:
        for producer in list(opened):
            records = [(delta, b"%012d" % (offset + delta), VALUE) for delta in range(RECORDS_A_BATCH)]
            time_ms = 1_700_000_000_000 + offset
            yield Batch(offset, list(records), 0, time_ms, producer, 0, sequences[producer], TRANSACTIONAL)
            offset, opened[producer] = offset + RECORDS_A_BATCH, opened[producer] + 1
            sequences[producer] += RECORDS_A_BATCH
            if opened[producer] == BATCHES_A_TRANSACTION:
                yield marker(offset, ABORT if ended % 4 == 3 else COMMIT, producer)
                offset, ended = offset + 1, ended + 1
                del opened[producer]
                opened[(producer + OPEN_AT_ONCE) % PRODUCERS] = 0


def one_partition() -> Partition:
    """A partition of whole segments."""
    batches, bases, size, each = [], [0], 0, 61 + RECORDS_A_BATCH * (len(VALUE) + 24)
    for batch in transactions():
        if size >= SEGMENT_BYTES:
            if len(bases) == SEGMENTS:
                break
            bases, size = [*bases, batch.base], 0
        batches.append(batch)
        size += each if len(batch.records) > 1 else 78
    return Partition("t-0", batches, tuple(bases), index_every=1)


def write(folder: Path, gigabytes: float) -> int:
    """The brokers' directories; returns the number of partitions."""
    one = one_partition()
    for broker in (1, 2, 3):
        path = write_broker(folder / f"b{broker}", broker, [one])
        size = sum(file.stat().st_size for file in (path / "t-0").glob("*.log"))
        count = max(1, round(gigabytes * (1 << 30) / 3 / size))
        for number in range(1, count):
            shutil.copytree(path / "t-0", path / f"t-{number}", copy_function=os.link)
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (path / name).write_text(lines(f"t {number} {one.end}" for number in range(count)))
    aborts = sum(batch.records[0][1] == struct.pack(">hh", 0, ABORT) for batch in one.batches)
    print(f"{count} partitions x 3 of {SEGMENTS} segments: {len(one.batches)} batches, {PRODUCERS} producers, {aborts} aborts each")
    return count


class CountingEngine(LocalEngine):
    """Counts what goes from and to the driver. On Spark summaries go from task to task."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes)
        self.tasks = self.task_bytes = self.summary_bytes = self.verdict_bytes = 0

    def gather(self, function: Any, items: Any, key_of: Any, groups: Any, finish: Any, watch: Any, keys_of: Any) -> Iterator[Any]:
        self.tasks = len(items)
        self.task_bytes = sum(len(pickle.dumps(one)) for one in [*items, *(context for context, _ in groups.values())])

        def counted(values: Any) -> None:
            self.summary_bytes += len(pickle.dumps(values))
            watch(values)

        for one in super().gather(function, items, key_of, groups, finish, counted, keys_of):
            self.verdict_bytes += len(pickle.dumps(one))
            yield one


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--gigabytes", type=float, default=60)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--directory", default=None)
    arguments.add_argument("--spark", action="store_true")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as place:
        context = multiprocessing.get_context("spawn")  # each step in a process of its own, for its memory
        audited = audit_on_spark if chosen.spark else audit
        for step, number in ((write, chosen.gigabytes), (audited, chosen.processes)):
            process = context.Process(target=step, args=(Path(place), number))
            process.start()
            process.join()
            if process.exitcode:
                return 1
    return 0


def audit(folder: Path, processes: int) -> None:
    """Audit, and print what it took."""
    engine, before, start = CountingEngine(processes), peak_mb(), time.perf_counter()
    result = run_audit([str(folder)], engine, AuditOptions())
    seconds = time.perf_counter() - start
    engine.close()
    print(f"{result.outcome}: {result.bytes_scanned / 1e9:.1f} GB, {len(result.partitions)} partitions, {engine.tasks} tasks, "
          f"{seconds:.0f} s; kB to tasks {engine.task_bytes >> 10}, of summaries {engine.summary_bytes >> 10}, "
          f"of verdicts {engine.verdict_bytes >> 10}; "
          f"peak MB: driver {peak_mb():.0f} ({before:.0f} before), a task {peak_mb(resource.RUSAGE_CHILDREN):.0f}")  # fmt: skip
    print(f"load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    assert result.outcome == "PASS"


class Watched:
    """Looks at the memory of Spark's Python workers and of its JVM, all of them children of this process, until it is closed."""

    def __init__(self) -> None:
        self.task_mb = self.java_mb = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._closed.wait(0.1):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    size = process.memory_info().rss / (1 << 20)
                    if process.name() == "java":
                        self.java_mb = max(self.java_mb, size)
                    else:
                        self.task_mb = max(self.task_mb, size)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()


def audit_on_spark(folder: Path, cores: int) -> None:
    """The same by Spark."""
    from minikafka.spark.engine_spark import SparkEngine

    engine, before, start = SparkEngine(master=f"local[{cores}]"), peak_mb(), time.perf_counter()
    watched = Watched()
    try:
        result = run_audit([str(folder)], engine, AuditOptions())
        seconds = time.perf_counter() - start
    finally:
        watched.close()
        engine.close()
    print(f"{result.outcome} on Spark: {result.bytes_scanned / 1e9:.1f} GB, {len(result.partitions)} partitions, {seconds:.0f} s; "
          f"peak MB: driver {peak_mb():.0f} ({before:.0f} before), a task {watched.task_mb:.0f}, Java {watched.java_mb:.0f}")  # fmt: skip
    print(f"load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    assert result.outcome == "PASS"


def peak_mb(who: int = resource.RUSAGE_SELF) -> float:
    """The most memory of this process, or of a child that has ended."""
    return resource.getrusage(who).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
