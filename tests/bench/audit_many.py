"""Many small partitions, as synthetic summaries: what the driver of an audit needs for each.

usage: PYTHONPATH=.:tests python tests/bench/audit_many.py [--partitions 100000] [--spark]

With --spark the tasks are those of Spark's local[2].
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from minikafka.spark.audit import Engine
from minikafka.spark.coordination import Cluster
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.judging import Job, judge, key_of, keys_of
from minikafka.spark.scan import Cell, SegmentSummary
from minikafka.spark.sources import DELETE, Replica, Segment, SegmentTask, partition_tasks
from minikafka.spark.splits import split

RECORDS = 1000


def replica(number: int, broker: int) -> Replica:
    """One copy of a partition with a segment of 100 kB."""
    path = f"/data/b{broker}/t-{number}"
    return Replica(
        "t", number, str(broker), path, [Segment(0, 100_000, ("index", "timeindex"))], [], None, RECORDS, True, 0, None, 0,
        epochs=[(0, 0)], node=str(broker), policy=DELETE, topic_id="x" * 22,
    )  # fmt: skip


def scanned(tasks: list[SegmentTask]) -> list[SegmentSummary]:
    """What a scan of them gives."""
    found = []
    for task in tasks:
        one = SegmentSummary(task, 0, RECORDS, task.size, 10, RECORDS, task.size, runs=[(0, 0, RECORDS - 1)])
        one.cells[1, 0] = Cell(task.partition, 10, RECORDS, task.size, 0, RECORDS, 0, RECORDS)
        found.append(one)
    return found


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--partitions", type=int, default=100_000)
    arguments.add_argument("--spark", action="store_true")
    chosen = arguments.parse_args()
    count, engine = chosen.partitions, on_spark() if chosen.spark else LocalEngine(1)
    before = peak_mb()
    plan = {("t", number): [replica(number, broker) for broker in (1, 2, 3)] for number in range(count)}
    planned, start = peak_mb(), time.process_time()
    tasks = {key: list(partition_tasks(copies, "batches", "crc")) for key, copies in plan.items()}
    groups = {key: (Job(copies, Cluster({})), 3) for key, copies in plan.items()}
    items = list(split([task for mine in tasks.values() for task in mine], 64 << 20))
    verdicts: dict[str, int] = {}
    listed = peak_mb()
    results = []
    for one in engine.gather(scanned, items, key_of, groups, judge, lambda _: None, keys_of):
        verdicts[one.result.verdict] = verdicts.get(one.result.verdict, 0) + 1
        results.append(one)
    engine.close()
    where, seconds = " on Spark" if chosen.spark else "", time.process_time() - start
    print(f"{count} partitions x 3{where}: {verdicts}, {seconds:.0f} CPU s of the driver; peak MB: {before:.0f} before, {planned:.0f} "
          f"with the plan, {listed:.0f} with tasks, {peak_mb():.0f} with verdicts")  # fmt: skip
    return 0 if set(verdicts) == {"MATCH"} else 1


def on_spark() -> Engine:
    """Spark on this machine."""
    from minikafka.spark.engine_spark import SparkEngine

    return SparkEngine(master="local[2]")


def peak_mb() -> float:
    """The most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
