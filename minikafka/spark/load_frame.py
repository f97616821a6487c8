"""Loads a Spark DataFrame into a topic, each row once. Spark may read anything (ORC, Delta, tables, queries); columns are SQL expressions.

The ledger and the guarantees are those of load.py. A task is a partition of the DataFrame. So the DataFrame must produce the same rows in
the same partitions when it is computed again: files and tables do, `rand()` or an unordered shuffle does not.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from minikafka.counted import counted
from minikafka.spark.job_ledger import JobLedger
from minikafka.spark.load import (
    LoadFailed,
    LoadOptions,
    LoadReport,
    Task,
    TaskReport,
    already_loaded,
    begin_job,
    job_fingerprint,
    keep_memory,
    open_writer,
    prepare_topic,
    reconcile,
    sum_up,
)
from minikafka.spark.load_progress import LoadWatch, Progress


class _Name:
    name = "spark"


def load_dataframe(frame: Any, options: LoadOptions, progress: Progress | None = None) -> LoadReport:
    """Load a DataFrame. `key`, `value`, `timestamp`, `partition` and the headers' columns are SQL expressions over its columns.

    A call with an earlier job id resumes that job, unless the DataFrame has other columns, partitions or input files. Raises LoadFailed,
    ProduceFailed.
    """
    started = time.perf_counter()
    source, (chosen, options) = frame, _select(frame, options)
    count = chosen.rdd.getNumPartitions()
    at_once = min(count, frame.sparkSession.sparkContext.defaultParallelism)
    if options.dry_run:
        options = replace(options, partitions=options.partitions or 1, tasks_at_once=at_once)
        tasks = [Task(index, (), options, None) for index in range(count)]
        done, errors = _write(chosen, options, None, frozenset())
        if errors:
            raise LoadFailed(f"{errors[0]} ({len(errors)} of {counted(count, 'task')} failed)")
        return sum_up(tasks, options, done, _Name.name, time.perf_counter() - started)
    with JobLedger(options.bootstrap, options.timeout_ms, options.security) as ledger:
        partitions = prepare_topic(options)
        job = options.job or secrets.token_hex(8)
        parts = [(str(chosen.schema.simpleString()), count), *((file,) for file in sorted(source.inputFiles()))]
        fingerprint = job_fingerprint(options, partitions, parts)
        earlier = ledger.read(options.job) if options.job else None
        plan = {"parallelism": 0, "split_bytes": 0, "topic": options.topic, "tasks": count}
        state = begin_job(ledger, earlier, job, fingerprint, plan, options)
        if state.summary is not None:
            return already_loaded(state, job, options, "spark")
        options = replace(options, partitions=partitions, job=job, tasks_at_once=at_once)
        done = {index: TaskReport.from_ledger(fact) for index, fact in state.tasks.items()}
        with LoadWatch(options, state.producers, 0, progress):
            found, errors = _write(chosen, options, state.producers, frozenset(done))
        for index, finished in found.items():
            ledger.append(job, "task", {"task": index, **finished.for_ledger()})
        done |= found
        tasks = [Task(index, (), options, state.producers[index]) for index in range(count)]
        for task in tasks:
            done.setdefault(task.index, TaskReport())  # an empty partition sends no report
        report = sum_up(tasks, options, done, _Name.name, time.perf_counter() - started)
        if errors:
            raise LoadFailed(f"{errors[0]} ({len(errors)} of {counted(count, 'task')} failed; resume with --job-id {job})")
        reconcile(tasks, done, report, options)
        ledger.append(job, "done", {name: getattr(report, name) for name in ("rows", "bytes", "batches", "partitions", "offsets")})
        return report


def _write(
    chosen: Any, options: LoadOptions, producers: list[tuple[int, int]] | None, done: frozenset[int]
) -> tuple[dict[int, TaskReport], list[str]]:  # fmt: skip
    """The reports of the finished tasks, and the errors of the others."""
    found, errors = {}, []
    for row in chosen.mapInArrow(_Write(options, producers, done), "report string").collect():
        said = json.loads(row.report)
        if said["error"]:
            errors.append(said["error"])
            continue
        found[said["task"]] = TaskReport.from_ledger(said)
        found[said["task"]].repeated = said["repeated"]
    return found, errors


def _select(frame: Any, options: LoadOptions) -> tuple[Any, LoadOptions]:
    """The frame with the expressions as plain columns, and options with their names. Without a value expression the row becomes JSON."""
    from pyspark.sql import functions as f

    columns = [f.expr(options.value) if options.value else f.to_json(f.struct("*"), {"ignoreNullFields": "false"})]
    columns[0] = columns[0].alias("value")  # binary is unchanged, text becomes UTF-8, other types their text (tables.as_binary)
    named: dict[str, Any] = {"value": "value"}
    for name in ("key", "partition", "timestamp"):
        if getattr(options, name):
            columns.append(f.expr(getattr(options, name)).alias(name))
            named[name] = name
    headers = []
    for number, (name, expression) in enumerate(options.headers):
        columns.append(f.expr(expression).alias(f"header_{number}"))
        headers.append((name, f"header_{number}"))
    return frame.select(*columns), replace(options, **named, headers=tuple(headers))


class _Write:
    """Writes one partition of the DataFrame; runs in Spark."""

    def __init__(self, options: LoadOptions, producers: list[tuple[int, int]] | None, done: frozenset[int]) -> None:
        self.options, self.producers, self.done = options, producers, done

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        index = context.partitionId() if context is not None else 0
        if index in self.done:
            return
        report = TaskReport()
        keep_memory()
        try:
            with open_writer(self.options, self.producers[index] if self.producers is not None else None, report) as write:
                row = 0
                for batch in batches:
                    row += write(pa.Table.from_batches([batch]), row)
        except Exception as error:
            report.error = str(error) or type(error).__name__
        said = {"task": index, "error": report.error, "repeated": report.repeated, **report.for_ledger()}
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(said)]})
