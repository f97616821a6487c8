"""The first half of a load to files: each task encodes its rows as batches in one file (a run), with an index sorted by partition.

A run belongs to one attempt of a task. A second or speculative attempt writes to its own files. The engine hands the driver one report
per task, which decides whose files count. All attempts write the same bytes.
"""

from __future__ import annotations

import functools
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from minikafka.spark.cluster_segments import BATCH, FilesFailed
from minikafka.spark.load import COMPRESSIONS, LoadOptions, _columns, _columns_of, keep_memory
from minikafka.wire.batch import LOG_APPEND_TIME, TIMESTAMP_TYPE_BIT

if TYPE_CHECKING:
    from minikafka.spark.tables import Unit

#: Upper bound for a table handed to the encoder, which otherwise holds about one batch per partition.
TABLE_BYTES_MAX = 64 << 20
#: Generous estimates of the overhead per batch and per record.
RECORD_OVERHEAD = 200
BOUND = np.dtype("<i8")
_WRITE_BYTES = 8 << 20
JOB_FILE = "job"


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """The options that all tasks of a job share.

    `now_ms`: timestamp of records without one. `timestamp_type`: 0 CreateTime, 1 LogAppendTime.
    """

    load: LoadOptions
    staging: str
    job: str
    now_ms: int
    batch_bytes_max: int
    timestamp_type: int = 0
    needs_keys: bool = False


@dataclass(frozen=True, slots=True)
class EncodeTask:
    index: int
    units: tuple[Unit, ...]
    options: EncodeOptions


@dataclass(slots=True)
class Run:
    """What one task wrote. `rows`: rows read. `rows_of` and `bytes_of`: encoded rows and bytes per partition."""

    index: int
    path: str = ""
    rows: int = 0
    batches: int = 0
    bytes: int = 0
    rows_of: list[int] = field(default_factory=list)
    bytes_of: list[int] = field(default_factory=list)
    timestamp_min: int = 0
    timestamp_max: int = -1
    error: str = ""


def encode_task(task: EncodeTask) -> Run:
    """Encode one task's rows; runs on a worker. Failures are returned as text, because a worker's traceback does not help a user."""
    from minikafka.spark.tables import read_unit

    def tables() -> Iterator[tuple[Any, int]]:
        for unit in task.units:
            row = unit.first_row
            for table in read_unit(unit, _columns(unit, task.options.load)):
                yield table, row
                row += table.num_rows

    return guarded(task.index, lambda run: write_run(run, tables(), task.options))


class EncodeFrame:
    """Encodes one partition of a DataFrame; runs in Spark."""

    def __init__(self, options: EncodeOptions) -> None:
        self.options = options

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pickle

        import pyarrow as pa
        from pyspark import TaskContext

        def tables() -> Iterator[tuple[Any, int]]:
            row = 0
            for batch in batches:
                yield pa.Table.from_batches([batch]), row
                row += batch.num_rows

        context = TaskContext.get()
        run = guarded(context.partitionId() if context is not None else 0, lambda run: write_run(run, tables(), self.options))
        yield pa.RecordBatch.from_pydict({"run": pa.array([pickle.dumps(run)], pa.binary())})


def unpickled(data: bytes | bytearray) -> Run:
    """The Run that EncodeFrame reported."""
    import pickle

    run: Run = pickle.loads(bytes(data))  # from our own tasks
    return run


def guarded(index: int, work: Callable[[Run], None]) -> Run:
    """Run `work`, and record a failure in the Run as one line."""
    run = Run(index)
    keep_memory()
    try:
        work(run)
    except ModuleNotFoundError as error:
        run.error = f"a worker has no module {error.name} (install minikafka with its extra `spark` where the executors run)"
    except OSError as error:
        run.error = f"cannot write {error.filename or 'a run'}: {error.strerror or error}"
    except Exception as error:
        run.error = f"{type(error).__name__}: {error}" if type(error).__module__ == "builtins" else str(error)
    return run


def write_run(run: Run, tables: Iterator[tuple[Any, int]], options: EncodeOptions) -> None:
    """Encode the tables (each with the number of its first row) into a new run file. Raises FilesFailed, TableError, OSError."""
    from minikafka.spark.encode import encode_rows, partitions_of
    from minikafka.wire.compression import CompressionType, compress

    load = options.load
    run.path = _new_path(options, run.index)
    codec = COMPRESSIONS.index(load.compression)
    compressor = (lambda kind, data: bytes(compress(CompressionType(kind), data))) if codec else None
    rows_of = np.zeros(load.partitions, np.int64)
    index = _Index()
    with open(run.path, "xb", buffering=0) as file:
        out = _Out(file)
        for table, row in _gathered(tables, min(TABLE_BYTES_MAX, load.partitions * load.batch_bytes)):
            keys, values, timestamps, chosen, headers = _columns_of(table, load, options.now_ms)
            if options.needs_keys and (keys is None or keys.null_count):
                raise FilesFailed(f"{load.topic} is compacted (cleanup.policy), so every row needs a key, but some have none")
            partition = chosen if chosen is not None else partitions_of(keys, len(values), load.partitions, row, load.partitioner)
            rows_of += np.bincount(partition, minlength=load.partitions)
            run.rows += table.num_rows
            _note_times(run, timestamps, options)
            encode = functools.partial(
                encode_rows, keys, values, partition, now_ms=options.now_ms, timestamps=timestamps, codec=codec, headers=headers,
                compress=compressor,
            )  # fmt: skip
            for batch in _fitting(encode, keys, values, options):
                timestamp = _stamp(batch.data, options)
                index.add(batch.partition, out.position, len(batch.data), batch.records, timestamp)
                out.write(batch.data)
        out.flush()
        run.bytes, run.batches = out.position, len(index)
    run.rows_of = rows_of.tolist()
    run.bytes_of = index.write(f"{run.path}.index", load.partitions)


def _fitting(encode: Callable[..., Any], keys: Any, values: Any, options: EncodeOptions) -> list[Any]:
    """Batches within the topic's size limit. Large records that do not fit together get separate batches. Raises FilesFailed."""
    from minikafka.spark.framing import binary_parts

    batches = list(encode(batch_bytes=options.load.batch_bytes))
    limit = options.batch_bytes_max
    if any(len(batch.data) > limit and batch.records > 1 for batch in batches):
        largest = int(binary_parts(values)[1].max()) + (int(binary_parts(keys)[1].max()) if keys is not None else 0)
        batches = list(encode(batch_bytes=max(1, limit - largest - RECORD_OVERHEAD)))
    for batch in batches:
        if len(batch.data) > limit:
            raise FilesFailed(_too_large(len(batch.data), batch.records, options))
    return batches


def _new_path(options: EncodeOptions, index: int) -> str:
    check_shared(options.staging, options.job)
    return f"{options.staging}/runs/{index:06d}-{secrets.token_hex(6)}"


def check_shared(staging: str, job: str) -> None:
    """Raise FilesFailed if this process does not see the driver's directory."""
    try:
        with open(f"{staging}/{JOB_FILE}", encoding="ascii") as file:
            if file.read() == job:
                return
    except OSError:
        pass
    raise FilesFailed(
        f"an executor on {os.uname().nodename} does not see the same {os.path.dirname(staging)} as the driver: "
        "--to-files needs a directory that all of them share"
    )


def _gathered(tables: Iterator[tuple[Any, int]], bytes_min: int) -> Iterator[tuple[Any, int]]:
    """Join small consecutive tables, so that batches do not become small if there are many partitions."""
    import pyarrow as pa

    waiting: list[Any] = []
    first = following = size = 0
    for table, row in tables:
        if waiting and row != following:
            yield pa.concat_tables(waiting), first
            waiting, size = [], 0
        if not waiting:
            first = row
        waiting.append(table)
        following = row + table.num_rows
        size += table.nbytes
        if size >= bytes_min:
            yield pa.concat_tables(waiting), first
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting), first


def _note_times(run: Run, timestamps: Any, options: EncodeOptions) -> None:
    if timestamps is None or options.timestamp_type == LOG_APPEND_TIME:
        low = high = options.now_ms
    elif len(timestamps):
        low, high = int(timestamps.min()), int(timestamps.max())
    else:
        return
    if low < 0:
        raise FilesFailed(f"a timestamp of {low} ms is before 1970, which Kafka rejects")
    run.timestamp_min = low if run.timestamp_max < 0 else min(run.timestamp_min, low)
    run.timestamp_max = max(run.timestamp_max, high)


def _stamp(data: bytearray, options: EncodeOptions) -> int:
    """The largest timestamp of a batch. With LogAppendTime this sets the header's max timestamp and CRC, as a leader would."""
    if options.timestamp_type != LOG_APPEND_TIME:
        return int.from_bytes(data[35:43], "big", signed=True)
    data[22] |= TIMESTAMP_TYPE_BIT
    struct.pack_into(">q", data, 35, options.now_ms)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return options.now_ms


def _too_large(size: int, records: int, options: EncodeOptions) -> str:
    what = "a record" if records == 1 else f"a batch of {records} records"
    return (
        f"{what} makes a batch of {size:,} bytes, more than the {options.batch_bytes_max:,} that {options.load.topic} takes "
        "(max.message.bytes, segment.bytes): give --config max.message.bytes=... or a smaller --batch-size"
    )


class _Out:
    """Buffers writes into large pieces. `position` counts all bytes handed in, written or not."""

    def __init__(self, file: Any) -> None:
        self._file, self._waiting, self._size, self.position = file, [], 0, 0  # type: ignore[var-annotated]

    def write(self, data: bytearray) -> None:
        self._waiting.append(data)
        self._size += len(data)
        self.position += len(data)
        if self._size >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        for start in range(0, len(self._waiting), 512):
            self._write_all(self._waiting[start : start + 512])
        self._waiting, self._size = [], 0

    def _write_all(self, pieces: list[Any]) -> None:
        expected = sum(map(len, pieces))
        done = os.writev(self._file.fileno(), pieces)
        if done < expected:
            rest = memoryview(b"".join(pieces))[done:]
            while rest:
                rest = rest[self._file.write(rest) :]


class _Index:
    """The index of a run: its batches in the order of writing."""

    def __init__(self) -> None:
        self._partitions: list[int] = []
        self._entries: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, partition: int, position: int, size: int, records: int, timestamp: int) -> None:
        self._partitions.append(partition)
        self._entries.append((position, size, records, timestamp))

    def write(self, path: str, partitions: int) -> list[int]:
        """Write `partitions` + 1 bounds, then the entries sorted by partition. Returns the bytes of each partition."""
        of = np.array(self._partitions, np.int64)
        entries = np.array(self._entries, BATCH)
        order = np.argsort(of, kind="stable")
        counts = np.bincount(of, minlength=partitions)
        bounds = np.concatenate(([0], np.cumsum(counts))).astype(BOUND)
        with open(path, "xb") as file:
            file.write(bounds.tobytes())
            file.write(entries[order].tobytes())
        return np.bincount(of, weights=entries["size"], minlength=partitions).astype(np.int64).tolist()  # type: ignore[no-any-return]


def read_index(path: str, partition: int, partitions: int) -> np.ndarray[Any, Any]:
    """The batches of one partition in a run, as BATCH. Raises FilesFailed, OSError."""
    with open(f"{path}.index", "rb") as file:
        file.seek(partition * BOUND.itemsize)
        begin, end = np.frombuffer(file.read(2 * BOUND.itemsize), BOUND).tolist()
        file.seek((partitions + 1) * BOUND.itemsize + begin * BATCH.itemsize)
        data = file.read((end - begin) * BATCH.itemsize)
    if len(data) != (end - begin) * BATCH.itemsize:
        raise FilesFailed(f"{path}.index is truncated: does every executor see the same files there?")
    return np.frombuffer(data, BATCH)
