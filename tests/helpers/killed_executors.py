"""An audit on a Spark cluster of this machine whose executors are killed in the midst of tasks, each kill once: while segments are scanned,
and while partitions are judged, when summaries that lie on the killed executor have to be made again.

usage: killed_executors.py DIRECTORY_OF_KILLS LOG_DIRECTORY... (prints the report; the directory then has a file for each kill)
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from helpers.spark_clusters import spark_home

from minikafka.spark import audit as auditing
from minikafka.spark import report as reporting
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_spark import SparkEngine
from minikafka.spark.judging import Job, Judged, judge
from minikafka.spark.scan import SegmentSummary, scan_segments
from minikafka.spark.sources import SegmentTask

IS_SPARK = "IS_SPARK"
SCANNED, JUDGED = (3, 17, 24), (5, 21)


def kill_once(kills: str, name: str) -> None:
    """Kill the executor that this Python works for, or the process of a local engine, when it comes here for the first time.

    `kills` comes with the call: a process of a fork server has the environment of its server's start."""
    try:
        os.close(os.open(os.path.join(kills, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    process = os.getpid()
    while os.environ.get(IS_SPARK) and "CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_text():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)


def killed_scan(kills: str, tasks: list[SegmentTask]) -> list[SegmentSummary]:
    """As scan_segments."""
    for number in {task.partition for task in tasks if task.topic == "t"} & set(SCANNED):
        kill_once(kills, f"scan {number}")
    return scan_segments(tasks)


def killed_judge(kills: str, item: tuple[Job, list[SegmentSummary]]) -> Judged:
    """As judging.judge."""
    one = item[0].copies[0]
    if one.topic == "t" and one.partition in JUDGED:
        kill_once(kills, f"judge {one.partition}")
    return judge(item)


def main() -> None:
    kills, *paths = sys.argv[1:]
    os.environ |= {"SPARK_HOME": str(spark_home()), "SPARK_WORKER_DIR": str(Path(kills).with_name("work"))}
    settings = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
                f"spark.executorEnv.{IS_SPARK}": "1", "spark.task.maxFailures": "8", "spark.executor.memory": "512m"}  # fmt: skip
    engine: Any = SparkEngine(master="local-cluster[2,1,512]", settings=settings)
    auditing.scan_segments, auditing.judge = partial(killed_scan, kills), partial(killed_judge, kills)
    try:
        report = reporting.build(run_audit(paths, engine, AuditOptions()))
    finally:
        engine.close()
    print(json.dumps(report))


if __name__ == "__main__":
    # Functions of `__main__` would go to executors by value, with what they refer to as it is here.
    from helpers import killed_executors

    killed_executors.main()
