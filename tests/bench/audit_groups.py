"""The offsets that a million groups have committed, on three brokers: an audit to its end, and what the largest task of it holds.

usage: PYTHONPATH=.:tests python tests/bench/audit_groups.py [--groups 1000000] [--partitions 50] [--directory /dev/shm]

With --partitions 1 one task reads all groups. Half of them commit twice. Prints CPU seconds and the most memory of a process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from helpers.log_clusters import Batch, Partition, plain, write_broker

from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.coordination import Source, read_coordinator
from minikafka.spark.coordinator_log import home_of
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.planning import make_plan
from minikafka.spark.sources import partition_tasks

RECORDS_A_BATCH = 1000
TOPIC = "__consumer_offsets"


def commit(group: int, offset: int) -> tuple[bytes, bytes]:
    """Key and value of a group's offset in t-0."""
    name = b"group-%07d" % group
    key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h", 1) + b"t" + struct.pack(">i", 0)
    return key, struct.pack(">hqihq", 3, offset, 0, 0, 1_700_000_000_000)


def write(folder: Path, groups: int, partitions: int) -> None:
    """Three brokers with the same logs."""
    kept: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
    homes = [home_of(f"group-{group:07d}", partitions) for group in range(groups)]
    for group, home in enumerate(homes):
        kept[home].append(commit(group, 1))
    for group, home in enumerate(homes):
        if group % 2:
            kept[home].append(commit(group, 2))
    made = [Partition("t-0", [plain(0, 2)])]
    made += [Partition(f"{TOPIC}-{number}", list(batches(records))) for number, records in enumerate(kept)]
    write_broker(folder / "b1", 1, made)
    for broker in (2, 3):
        shutil.copytree(folder / "b1", folder / f"b{broker}")
        text = (folder / "b1" / "meta.properties").read_text().replace("node.id=1", f"node.id={broker}")
        kept_lines = [line for line in text.splitlines() if not line.startswith("directory.id")]
        (folder / f"b{broker}" / "meta.properties").write_text("\n".join(kept_lines) + "\n")


def batches(records: list[tuple[bytes, bytes]]) -> Iterable[Batch]:
    """As a group coordinator under load writes them."""
    for base in range(0, len(records), RECORDS_A_BATCH):
        chosen = records[base : base + RECORDS_A_BATCH]
        yield Batch(base, [(delta, key, value) for delta, (key, value) in enumerate(chosen)])


def largest_task(folder: Path) -> None:
    """Read the largest coordinator's partition, as the task that has it does."""
    plan = make_plan([str(folder / "b1")])
    copies = max((copies for (topic, _), copies in plan.replicas.items() if topic == TOPIC), key=lambda one: one[0].size)
    tasks = list(partition_tasks(copies, "batches", "crc"))
    start = time.process_time()
    end = copies[0].high_watermark
    facts = read_coordinator(Source((TOPIC, copies[0].partition), "1", copies[0].path, tasks, end, [], end, copies[0].size, 0))
    assert ("t", 0, "") in facts.commits, facts.findings.kept
    print(f"largest coordinator's partition: {end} records, {time.process_time() - start:.0f} CPU s, peak of the task {peak_mb():.0f} MB")


def whole_audit(folder: Path) -> None:
    """The audit of all three, in this process."""
    start = time.process_time()
    paths = [str(folder / f"b{broker}") for broker in (1, 2, 3)]
    result: AuditResult = run_audit(paths, LocalEngine(1), AuditOptions(compacted=(TOPIC,)))
    size = sum(one.bytes_compared for one in result.partitions)
    used = f"{time.process_time() - start:.0f} CPU s, peak of driver and tasks together {peak_mb():.0f} MB"
    print(f"audit: {result.outcome}, {len(result.partitions)} partitions, {size >> 20} MiB compared, {used}")


def peak_mb() -> float:
    """The most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--groups", type=int, default=1_000_000)
    arguments.add_argument("--partitions", type=int, default=50)
    arguments.add_argument("--directory", default=None)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as place:
        folder = Path(place)
        context = multiprocessing.get_context("spawn")
        for step in (write, largest_task, whole_audit):
            process = context.Process(target=step, args=(folder, chosen.groups, chosen.partitions) if step is write else (folder,))
            process.start()
            process.join()
            if process.exitcode:
                return 1
    print(f"load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
