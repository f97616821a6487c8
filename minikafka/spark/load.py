"""Bulk load: a table into a topic, map-side. Each task reads its part, partitions and encodes it, and produces to the leaders.

There is no shuffle: every task may write to every partition. Rows of one task keep their order within a partition; tasks
interleave. A task that runs twice (Spark retries) writes its rows twice; within a task every row is written once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.spark.audit import Engine
    from minikafka.spark.tables import Unit

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """`value` "" makes each row a JSON object. `partitions` 0 takes the topic's own; else the topic is created when missing."""

    bootstrap: str
    topic: str
    key: str = ""
    value: str = ""
    timestamp: str = ""
    partitions: int = 0
    replication_factor: int = -1
    compression: str = "none"
    batch_bytes: int = 512 << 10
    split_bytes: int = 64 << 20
    format: str = ""
    delimiter: str = ","
    dry_run: bool = False
    timeout_ms: int = 30_000


@dataclass(slots=True)
class TaskReport:
    rows: int = 0
    bytes: int = 0
    batches: int = 0
    acknowledged: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str = ""
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class LoadReport:
    """`offsets`: per partition the smallest and one past the largest offset that was written."""

    topic: str
    rows: int
    acknowledged: int
    bytes: int
    batches: int
    retries: int
    partitions: int
    tasks: int
    seconds: float
    engine: str
    offsets: dict[int, tuple[int, int]]

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


class LoadFailed(Exception):
    """The load did not write every row; the text says what failed and how far it came."""


def run_load(table: str, options: LoadOptions, engine: Engine, progress: Callable[[int, int, int], None] | None = None) -> LoadReport:
    """Load a table. `progress(rows, bytes of units done, bytes of all units)`. Raises LoadFailed, TableError, ProduceFailed, ValueError."""
    from minikafka.spark.tables import list_files, plan_units

    started = time.perf_counter()
    size_on_disk = sum(os.path.getsize(file) for file in list_files(table, options.format)[0])
    split_bytes = max(1 << 20, min(options.split_bytes, size_on_disk // (4 * engine.parallelism)))
    units, columns = plan_units(table, options.format, split_bytes, options.delimiter)
    _check_columns(options, columns)
    partitions = options.partitions or 1 if options.dry_run else _prepare_topic(options)
    task_list = [(group, replace(options, partitions=partitions)) for group in _group(units, engine.parallelism)]
    rows = size = batches = acknowledged = retries = 0
    offsets: dict[int, tuple[int, int]] = {}
    errors = []
    done = 0
    for index, report in engine.map(_run_task, list(enumerate(task_list))):
        rows, size, batches = rows + report.rows, size + report.bytes, batches + report.batches
        acknowledged, retries = acknowledged + report.acknowledged, retries + report.retries
        done += sum(unit.bytes for unit in task_list[index][0])
        for partition, (low, high) in report.offsets.items():
            known = offsets.get(partition, (low, high))
            offsets[partition] = min(low, known[0]), max(high, known[1])
        if report.error:
            errors.append(report.error)
        if progress is not None:
            progress(rows, done, sum(unit.bytes for unit in units))
    if errors:
        raise LoadFailed(
            f"{errors[0]} (after {acknowledged:,} of {rows:,} rows read were acknowledged; {len(errors)} of {len(task_list)} tasks failed)"
        )
    if not options.dry_run and acknowledged != rows:
        raise LoadFailed(f"{rows:,} rows were read but {acknowledged:,} acknowledged")
    seconds = time.perf_counter() - started
    return LoadReport(
        options.topic,
        rows,
        acknowledged,
        size,
        batches,
        retries,
        partitions,
        len(task_list),
        seconds,
        engine.name,
        dict(sorted(offsets.items())),
    )


def _check_columns(options: LoadOptions, columns: list[str]) -> None:
    import difflib

    from minikafka.spark.tables import TableError

    for name in filter(None, (options.key, options.value, options.timestamp)):
        if columns and name not in columns:
            near = difflib.get_close_matches(name, columns, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TableError(f"there is no column {name!r}{hint} (columns: {', '.join(columns)})")


def _prepare_topic(options: LoadOptions) -> int:
    """Partitions of the topic, which is created when it is missing and a count was given."""
    from minikafka.spark.produce_client import LoadProducer, ProduceFailed

    producer = LoadProducer(options.bootstrap, options.topic, timeout_ms=options.timeout_ms)
    try:
        count = producer.partition_count()
        if count == 0:
            if not options.partitions:
                raise ProduceFailed(f"topic {options.topic} does not exist; create it, or give --partitions")
            producer.create_topic(options.partitions, options.replication_factor)
            count = producer.partition_count()
        return count
    finally:
        producer.close()


def _group(units: list[Unit], parallelism: int) -> list[list[Unit]]:
    """One list of units a task: enough tasks to balance, few enough that their fixed cost does not count."""
    wanted = max(1, min(len(units), parallelism * 4))
    groups: list[list[Unit]] = [[] for _ in range(wanted)]
    loads = [0] * wanted
    for unit in units:
        lightest = loads.index(min(loads))
        groups[lightest].append(unit)
        loads[lightest] += unit.bytes + 1
    return [group for group in groups if group]


def _run_task(item: tuple[int, tuple[list[Unit], LoadOptions]]) -> tuple[int, TaskReport]:
    """What a worker runs. Failures come back as text: a traceback of a worker explains nothing to a person."""
    index, (units, options) = item
    report = TaskReport()
    started = time.perf_counter()
    try:
        _load_units(units, options, report)
    except Exception as error:
        report.error = f"{type(error).__name__}: {error}" if type(error).__module__ == "builtins" else str(error)
    report.seconds = time.perf_counter() - started
    return index, report


def _load_units(units: list[Unit], options: LoadOptions, report: TaskReport) -> None:
    from minikafka.spark.encode import encode_rows, partitions_of
    from minikafka.spark.tables import read_unit
    from wire.compression import CompressionType, compress

    codec = COMPRESSIONS.index(options.compression)
    producer = None
    if not options.dry_run:
        from minikafka.spark.produce_client import LoadProducer

        producer = LoadProducer(options.bootstrap, options.topic, timeout_ms=options.timeout_ms)
        producer.partition_count()
        producer.start()
    try:
        for unit in units:
            row = unit.first_row
            for table in read_unit(unit, _columns(unit, options)):
                now_ms = time.time_ns() // 1_000_000
                keys, values, timestamps = _columns_of(table, options, now_ms)
                partition = partitions_of(keys, len(values), options.partitions, row)
                encoded = encode_rows(
                    keys, values, partition, batch_bytes=options.batch_bytes, now_ms=now_ms, timestamps=timestamps, codec=codec,
                    compress=(lambda kind, data: bytes(compress(CompressionType(kind), data))) if codec else None,
                )  # fmt: skip
                row += len(values)
                report.rows += len(values)
                batches = list(encoded)
                report.batches += len(batches)
                report.bytes += sum(len(batch.data) for batch in batches)
                if producer is not None:
                    producer.send(batches)
        if producer is not None:
            producer.flush()
    finally:
        if producer is not None:
            _settle(producer, report)


def _settle(producer: Any, report: TaskReport) -> None:
    report.retries = producer.retries
    for partition, state in producer.partitions.items():
        report.acknowledged += state.records
        if state.first_offset >= 0:
            report.offsets[partition] = state.first_offset, state.next_offset
    producer.close()


def _columns(unit: Unit, options: LoadOptions) -> list[str] | None:
    """The columns to read: those asked for; all of them when rows become JSON; none (whole lines) for JSON lines as they are."""
    if options.value:
        return list(dict.fromkeys(filter(None, (options.value, options.key, options.timestamp))))
    if unit.format == "jsonl" and not options.key and not options.timestamp:
        return []
    return None


def _columns_of(table: Any, options: LoadOptions, now_ms: int) -> tuple[Any, Any, Any]:
    from minikafka.spark.tables import TableError, as_binary, as_milliseconds, rows_as_json

    def column(name: str) -> Any:
        if name not in table.column_names:
            raise TableError(f"there is no column {name!r} (columns: {', '.join(table.column_names)})")
        return table.column(name)

    if options.value:
        values = as_binary(column(options.value))
    elif table.column_names == ["line"] and not options.key:
        values = as_binary(table.column("line"))
    else:
        values = rows_as_json(table)
    keys = as_binary(column(options.key)) if options.key else None
    timestamps = as_milliseconds(column(options.timestamp), now_ms) if options.timestamp else None
    return keys, values, timestamps
