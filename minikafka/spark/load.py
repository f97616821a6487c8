"""Bulk-loads a table into a topic. Each task reads its part, partitions and encodes it, and produces to the leaders.

There is no shuffle: every task may write to every partition. Rows of one task keep their order within a partition; the rows of different
tasks interleave. Every row is written once, even if tasks or the driver die and run again. A task is a fixed set of rows with a producer
id, which the job's ledger stores. So a sequence number is the number of a row, and brokers reject rows that they already have.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from minikafka.counted import counted
from minikafka.spark.job_ledger import RESUME_MS_MAX, JobLedger, JobState
from minikafka.spark.load_progress import LoadWatch, Progress
from minikafka.spark.security import PLAIN_TEXT, Security

if TYPE_CHECKING:
    from minikafka.spark.audit import Engine
    from minikafka.spark.tables import Unit

ATTEMPTS_MAX = 3
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a table becomes records. `key`, `value`, `timestamp` and `partition` are names of columns.

    Without `value`, each row becomes a JSON object. Without `partition`, the `partitioner` chooses by key: murmur2 like Kafka's clients,
    crc32 like librdkafka. `partitions` 0 takes those of the topic, which must exist; otherwise a missing topic is created.
    `headers`: (name, column). `job` "" starts a new job. `bytes_per_second` 0: unlimited.
    `unpacked_bytes_max`: most bytes that a compressed file may unpack to; 0: 250 times its size, at least 256 MiB.
    """

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
    delimiter: str = ""
    dry_run: bool = False
    timeout_ms: int = 30_000
    partition: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    partitioner: str = "murmur2"
    job: str = ""
    bytes_per_second: int = 0
    tasks_at_once: int = 1
    unpacked_bytes_max: int = 0
    security: Security = PLAIN_TEXT


@dataclass(slots=True)
class TaskReport:
    rows: int = 0
    bytes: int = 0
    batches: int = 0
    acknowledged: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str = ""
    repeated: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)

    def for_ledger(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rows", "bytes", "batches", "acknowledged", "offsets", "written")}

    @classmethod
    def from_ledger(cls, fact: dict[str, Any]) -> TaskReport:
        offsets = {int(partition): (low, high) for partition, (low, high) in fact["offsets"].items()}
        written = {int(partition): count for partition, count in fact["written"].items()}
        return cls(
            fact["rows"], fact["bytes"], fact["batches"], fact["acknowledged"], repeated=fact["rows"], offsets=offsets, written=written
        )  # fmt: skip


@dataclass(slots=True)
class LoadReport:
    """What a load wrote. `offsets`: per partition the smallest and one past the largest written offset. `repeated`: rows that an earlier
    run of the job had already written. `reconciled`: the leaders confirmed the rows of every task and partition."""

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
    job: str = ""
    repeated: int = 0
    reconciled: bool = False
    already_done: bool = False

    @property
    def rows_per_second(self) -> float:
        """The average rate over the whole load."""
        return self.rows / self.seconds if self.seconds else 0.0


class LoadFailed(Exception):
    """The load did not write every row; the text says what failed and how many rows were written."""


def run_load(table: str, options: LoadOptions, engine: Engine, progress: Progress | None = None) -> LoadReport:
    """Write the rows of a table that pyarrow reads (Parquet, CSV, JSON lines) to a topic.

    `progress(rows done, share or None)` is called as the leaders report them. Raises LoadFailed, TableError, ProduceFailed, ValueError."""
    from minikafka.spark.tables import plan_units

    started = time.perf_counter()
    parallelism, split_bytes = engine.parallelism, options.split_bytes
    with JobLedger(options.bootstrap, options.timeout_ms, options.security) if not options.dry_run else contextlib.nullcontext() as ledger:
        earlier = ledger.read(options.job) if ledger is not None and options.job else None
        if earlier is not None:
            parallelism, split_bytes = earlier.plan["parallelism"], earlier.plan["split_bytes"]
        else:
            split_bytes = _split_bytes(table, options, parallelism)
        units, columns = plan_units(table, options.format, split_bytes, options.delimiter, options.unpacked_bytes_max)
        _check_columns(options, columns)
        partitions = options.partitions or 1 if options.dry_run else prepare_topic(options)
        job = options.job or secrets.token_hex(8)
        groups = _group(units, earlier.plan["tasks"] if earlier is not None else _task_count(units, parallelism))
        state = None
        if ledger is not None:
            fingerprint = job_fingerprint(options, partitions, [(unit.path, unit.begin, unit.end, unit.bytes) for unit in units])
            plan = {"parallelism": parallelism, "split_bytes": split_bytes, "topic": options.topic, "tasks": len(groups)}
            state = begin_job(ledger, earlier, job, fingerprint, plan, options)
            if state.summary is not None:
                return already_loaded(state, job, options, engine.name)
        tasks = [
            Task(index, tuple(group), replace(options, partitions=partitions, job=job, tasks_at_once=min(engine.parallelism, len(groups))),
                 state.producers[index] if state else None)
            for index, group in enumerate(groups)
        ]  # fmt: skip
        return _run_tasks(tasks, replace(options, partitions=partitions, job=job), state, ledger, engine, progress, started)


@dataclass(frozen=True, slots=True)
class Task:
    """A fixed unit of work: however often it runs, it has the same rows, in the same order, under the same producer id."""

    index: int
    units: tuple[Unit, ...]
    options: LoadOptions
    producer: tuple[int, int] | None


def _split_bytes(table: str, options: LoadOptions, parallelism: int) -> int:
    from minikafka.spark.tables import list_files

    size_on_disk = sum(os.path.getsize(file) for file in list_files(table, options.format)[0])
    return max(1 << 20, min(options.split_bytes, size_on_disk // (4 * parallelism)))


def job_fingerprint(options: LoadOptions, partitions: int, parts: list[tuple[Any, ...]]) -> str:
    """A digest of everything that must not change between two runs of a job: the parts of the table and the batch layout."""
    layout = (options.topic, partitions, options.key, options.value, options.timestamp, options.partition, options.headers,
             options.partitioner, options.compression, options.batch_bytes, options.format, options.delimiter or ",")  # fmt: skip
    return hashlib.blake2b(json.dumps([layout, parts]).encode(), digest_size=16).hexdigest()


def begin_job(
    ledger: JobLedger, earlier: JobState | None, job: str, fingerprint: str, plan: dict[str, Any], options: LoadOptions
) -> JobState:
    """The job's state in the ledger; a new job is started. `earlier`: the state read before. Raises LoadFailed if it cannot be resumed."""
    if earlier is None:
        earlier = ledger.begin(job, fingerprint, _producer_ids(options, plan["tasks"]), plan)
    if earlier.fingerprint != fingerprint:
        raise LoadFailed(f"job {job} was started with another table, topic or batch layout; use a new --job-id for a new load")
    if earlier.summary is None and time.time_ns() // 1_000_000 - earlier.started_ms > RESUME_MS_MAX:
        raise LoadFailed(
            f"job {job} was started more than {RESUME_MS_MAX // 3_600_000} hours ago: the brokers may have forgotten its producers, "
            "so it cannot be resumed without writing rows twice"
        )
    return earlier


def _producer_ids(options: LoadOptions, count: int) -> list[tuple[int, int]]:
    from minikafka.spark.produce_client import LoadProducer

    producer = LoadProducer(options.bootstrap, options.topic, timeout_ms=options.timeout_ms, security=options.security)
    try:
        return [producer.new_producer_id() for _ in range(count)]
    finally:
        producer.close()


def already_loaded(state: JobState, job: str, options: LoadOptions, engine: str) -> LoadReport:
    """The report of a job that was already done."""
    said = state.summary or {}
    offsets = {int(partition): (low, high) for partition, (low, high) in said["offsets"].items()}
    return LoadReport(
        options.topic, said["rows"], said["rows"], said["bytes"], said["batches"], 0, said["partitions"], len(state.producers), 0.0,
        engine, offsets, job, repeated=said["rows"], already_done=True,
    )  # fmt: skip


def _run_tasks(
    tasks: list[Task], options: LoadOptions, state: JobState | None, ledger: JobLedger | None, engine: Engine, progress: Progress | None,
    started: float,
) -> LoadReport:  # fmt: skip
    """Run the tasks that are not done, with retries, record each finished one, and finally ask the leaders whether every row is there."""
    reports = {index: TaskReport.from_ledger(fact) for index, fact in (state.tasks if state else {}).items()}
    left = [task for task in tasks if task.index not in reports]
    errors: list[str] = []
    if progress is not None:
        engine.open()
    with _watch(tasks, state, progress) as watch:
        for _ in range(ATTEMPTS_MAX):
            errors = []
            for index, done in engine.map(_run_task, left):
                if done.error:
                    errors.append(done.error)
                    continue
                reports[index] = done
                if ledger is not None:
                    ledger.append(options.job, "task", {"task": index, **done.for_ledger()})
            left = [task for task in left if task.index not in reports]
            if not errors or not all("run the job again" in error for error in errors):
                break
    watch.report(sum(one.rows for one in reports.values()))
    report = sum_up(tasks, options, reports, engine.name, time.perf_counter() - started)
    if errors:
        raise LoadFailed(
            f"{errors[0]} ({counted(report.acknowledged, 'row')} of finished tasks acknowledged; "
            f"{len(left)} of {counted(len(tasks), 'task')} failed; "
            f"resume with --job-id {report.job})"
        )
    if ledger is not None and state is not None:
        reconcile(tasks, reports, report, options)
        fields = ("rows", "bytes", "batches", "partitions", "offsets")
        ledger.append(options.job, "done", {name: getattr(report, name) for name in fields})
    return report


def _watch(tasks: list[Task], state: JobState | None, progress: Progress | None) -> LoadWatch:
    options = tasks[0].options if tasks else LoadOptions("", "")
    counts = [unit.rows for task in tasks for unit in task.units]
    return LoadWatch(options, state.producers if state is not None else [], sum(counts) if all(counts) else 0, progress)


def sum_up(tasks: list[Task], options: LoadOptions, reports: dict[int, TaskReport], engine: str, seconds: float) -> LoadReport:
    """The totals of the finished tasks."""
    offsets: dict[int, tuple[int, int]] = {}
    for one in reports.values():
        for partition, (low, high) in one.offsets.items():
            bounds = offsets.get(partition, (low, high))
            offsets[partition] = min(low, bounds[0]), max(high, bounds[1])
    total = {name: sum(getattr(one, name) for one in reports.values()) for name in ("rows", "acknowledged", "bytes", "batches", "retries")}
    return LoadReport(
        options.topic, total["rows"], total["acknowledged"], total["bytes"], total["batches"], total["retries"],
        options.partitions, len(tasks), seconds, engine, dict(sorted(offsets.items())), options.job,
        repeated=sum(one.repeated for one in reports.values()),
    )  # fmt: skip


def reconcile(tasks: list[Task], reports: dict[int, TaskReport], report: LoadReport, options: LoadOptions) -> None:
    """Check that rows read == rows acknowledged == rows of each task's producer on the partition leaders. Raises LoadFailed."""
    from minikafka.spark.produce_client import LoadProducer

    if report.acknowledged != report.rows:
        raise LoadFailed(f"{counted(report.rows, 'row was', 'rows were')} read, but {report.acknowledged:,} acknowledged")
    producer = LoadProducer(options.bootstrap, options.topic, timeout_ms=options.timeout_ms, security=options.security)
    task_of_producer = {task.producer[0]: task.index for task in tasks if task.producer is not None}
    try:
        there = producer.last_sequences(task_of_producer)
    finally:
        producer.close()
    for producer_id, index in task_of_producer.items():
        expected = {partition: count for partition, count in reports[index].written.items() if count}
        found = {partition: sequence + 1 for partition, sequence in there.get(producer_id, {}).items()}
        if expected != found:
            odd = next(partition for partition in {*expected, *found} if expected.get(partition) != found.get(partition))
            wrote, has = expected.get(odd, 0), found.get(odd, 0)
            raise LoadFailed(f"{options.topic}-{odd}: task {index} wrote {counted(wrote, 'row')}, the leader has {has:,} of its producer")
    report.reconciled = True


def _check_columns(options: LoadOptions, columns: list[str]) -> None:
    import difflib

    from minikafka.spark.tables import TableError

    named = (options.key, options.value, options.timestamp, options.partition, *(column for _, column in options.headers))
    for name in filter(None, named):
        if columns and name not in columns:
            near = difflib.get_close_matches(name, columns, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TableError(f"there is no column {name!r}{hint} (columns: {', '.join(columns)})")


def prepare_topic(options: LoadOptions) -> int:
    """The number of the topic's partitions. A missing topic is created if a count is given."""
    from minikafka.spark.produce_client import LoadProducer, ProduceFailed

    producer = LoadProducer(options.bootstrap, options.topic, timeout_ms=options.timeout_ms, security=options.security)
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


TASK_BYTES_MAX = 2 << 30


def _task_count(units: list[Unit], parallelism: int) -> int:
    """Enough tasks for balance and visible progress, but few enough that their fixed cost does not matter."""
    return max(2 * parallelism, sum(unit.bytes for unit in units) // TASK_BYTES_MAX)


def _group(units: list[Unit], tasks: int) -> list[list[Unit]]:
    """Lists of units, one for each task, of about equal bytes."""
    count = max(1, min(len(units), tasks))
    groups: list[list[Unit]] = [[] for _ in range(count)]
    loads = [0] * count
    for unit in units:
        lightest = loads.index(min(loads))
        groups[lightest].append(unit)
        loads[lightest] += unit.bytes + 1
    return [group for group in groups if group]


def _run_task(task: Task) -> tuple[int, TaskReport]:
    """Run one task; called on a worker. Failures are returned as text, because a worker's traceback does not help a user."""
    report = TaskReport()
    started = time.perf_counter()
    keep_memory()
    try:
        _load_units(task, report)
    except Exception as error:
        report.error = f"{type(error).__name__}: {error}" if type(error).__module__ == "builtins" else str(error)
        if isinstance(error, ModuleNotFoundError):
            report.error = f"a worker has no module {error.name} (install minikafka with its extra `spark` where the executors run)"
    report.seconds = time.perf_counter() - started
    return task.index, report


def keep_memory() -> None:
    """Make glibc's malloc keep freed memory, so that the next table reuses its pages instead of requesting new ones from the kernel."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 64 << 20)
        library.mallopt(_M_TRIM_THRESHOLD, 256 << 20)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def _load_units(task: Task, report: TaskReport) -> None:
    from minikafka.spark.tables import read_unit

    options = task.options
    with open_writer(options, task.producer, report) as write:
        for unit in task.units:
            row = unit.first_row
            for table in read_unit(unit, _columns(unit, options)):
                row += write(table, row)


@contextlib.contextmanager
def open_writer(
    options: LoadOptions, producer_id: tuple[int, int] | None, report: TaskReport
) -> Iterator[Callable[[Any, int], int]]:  # fmt: skip
    """A function (Arrow table, number of its first row) -> rows that partitions, encodes and sends. On exit all rows are acknowledged.

    Without a producer id nothing is sent (dry run). The batches depend only on the rows and the options.
    """
    from minikafka.spark.encode import encode_rows, partitions_of
    from minikafka.wire.compression import CompressionType, compress

    codec = COMPRESSIONS.index(options.compression)
    producer = None
    if producer_id is not None:
        from minikafka.spark.produce_client import LoadProducer

        producer = LoadProducer(options.bootstrap, options.topic, timeout_ms=options.timeout_ms, security=options.security)
        producer.partition_count()
        producer.adopt(*producer_id)
    pace = Pace(options.bytes_per_second / max(1, options.tasks_at_once))

    def write(table: Any, row: int) -> int:
        now_ms = time.time_ns() // 1_000_000
        keys, values, timestamps, chosen, headers = _columns_of(table, options, now_ms)
        partition = chosen if chosen is not None else partitions_of(keys, len(values), options.partitions, row, options.partitioner)
        encoded = encode_rows(
            keys, values, partition, batch_bytes=options.batch_bytes, now_ms=now_ms, timestamps=timestamps, codec=codec, headers=headers,
            compress=(lambda kind, data: bytes(compress(CompressionType(kind), data))) if codec else None, checksum=producer is None,
        )  # fmt: skip
        report.rows += len(values)
        batches = list(encoded)
        size = sum(len(batch.data) for batch in batches)
        report.batches += len(batches)
        report.bytes += size
        if producer is not None:
            producer.send(batches)
            pace.spend(size)
        return len(values)

    try:
        yield write
        if producer is not None:
            producer.flush()
    finally:
        if producer is not None:
            _settle(producer, report)


class Pace:
    """Keeps a task's average rate since its start below `bytes_per_second` (0: no limit)."""

    def __init__(self, bytes_per_second: float) -> None:
        self.rate, self.spent, self.begun = bytes_per_second, 0, time.monotonic()

    def spend(self, size: int) -> None:
        self.spent += size
        if self.rate > 0:
            time.sleep(max(0.0, self.spent / self.rate - (time.monotonic() - self.begun)))


def _settle(producer: Any, report: TaskReport) -> None:
    report.retries = producer.retries
    for partition, state in producer.partitions.items():
        report.acknowledged += state.records
        report.repeated += state.repeated
        report.written[partition] = state.records
        if state.first_offset >= 0:
            report.offsets[partition] = state.first_offset, state.next_offset
    producer.close()


def _columns(unit: Unit, options: LoadOptions) -> list[str] | None:
    """The columns to read: the requested ones, None (all) if rows become JSON, or [] (whole lines) if JSON lines stay unchanged."""
    if options.value:
        named = (options.value, options.key, options.timestamp, options.partition, *(column for _, column in options.headers))
        return list(dict.fromkeys(filter(None, named)))
    if unit.format == "jsonl" and not (options.key or options.timestamp or options.partition or options.headers):
        return []
    return None


def _columns_of(table: Any, options: LoadOptions, now_ms: int) -> tuple[Any, Any, Any, Any, Any]:
    """(keys, values, timestamps, partitions, headers) of an Arrow table. All but the values may be None."""
    from minikafka.spark.tables import TableError, as_binary, as_milliseconds, as_partitions, rows_as_json

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
    chosen = as_partitions(column(options.partition), options.partitions) if options.partition else None
    headers = [(name, as_binary(column(source))) for name, source in options.headers] or None
    return keys, values, timestamps, chosen, headers
