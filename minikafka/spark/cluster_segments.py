"""Writes one partition's record batches as Kafka's segment files, rolled and indexed as a leader would do it.

Runs on executors, and touches nothing but these files. The rules are those of LogSegment.shouldRoll and LogSegment.append in Kafka 4.3,
for a leader that appends batch after batch, at leader epoch 0 and from offset 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from crc32c import crc32c

from minikafka.wire.batch import HEADER, LOG_OVERHEAD, MAGIC_V2
from minikafka.wire.batch_header import COUNT, LAST_DELTA, LENGTH, MAGIC

INT32_MAX = 2**31 - 1
CHUNK_BYTES = 4 << 20
#: Number of files that may wait to be synced, and the size from which a file is synced on its own.
SYNCS_MAX, SYNC_ALONE_BYTES = 64, 1 << 20
OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
#: A batch of a run: position in the file, size, number of records, largest timestamp.
BATCH = np.dtype([("position", "<i8"), ("size", "<i4"), ("records", "<i4"), ("timestamp", "<i8")])
#: Version 1, CRC and the count 0: a producer snapshot without producers (ProducerStateManager).
EMPTY_PRODUCER_SNAPSHOT = struct.pack(">hIi", 1, crc32c(bytes(4)), 0)
_PLACE = struct.Struct(">qii")
_FICLONE = 0x40049409
_NO_CLONE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.EBADF, errno.ETXTBSY}


class FilesFailed(Exception):
    """The cluster's files cannot be written; the text says what, where and what to do."""


@dataclass(frozen=True, slots=True)
class LogRules:
    """The topic properties that determine its segments (Kafka's names, units last)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588


@dataclass(slots=True)
class SegmentPlan:
    """A segment with batches [first, end) of the partition, starting at `base_offset`. Index entries are (relative offset, position) and
    (timestamp, relative offset)."""

    base_offset: int
    first: int
    end: int = 0
    bytes: int = 0
    next_offset: int = 0
    offset_index: list[tuple[int, int]] = field(default_factory=list)
    time_index: list[tuple[int, int]] = field(default_factory=list)
    max_timestamp: int = -1


def plan_segments(sizes: Sequence[int], records: Sequence[int], timestamps: Sequence[int], rules: LogRules) -> list[SegmentPlan]:
    """The segments and index entries that a leader would write. Without batches there is one empty segment."""
    offset_entries_max = rules.segment_index_bytes // OFFSET_ENTRY.itemsize
    time_entries_max = rules.segment_index_bytes // TIME_ENTRY.itemsize - 1
    segment = SegmentPlan(0, 0)
    segments = [segment]
    first_timestamp, max_offset, unindexed, offset = -1, 0, 0, 0
    for number, (size, count, timestamp) in enumerate(zip(sizes, records, timestamps, strict=True)):
        last = offset + count - 1
        if segment.bytes and (
            segment.bytes + size > rules.segment_bytes
            or (first_timestamp >= 0 and timestamp - first_timestamp > rules.segment_ms)
            or len(segment.offset_index) >= offset_entries_max
            or len(segment.time_index) >= time_entries_max
            or last - segment.base_offset > INT32_MAX
        ):
            _finish(segment, number, offset, max_offset)
            segment = SegmentPlan(offset, number)
            segments.append(segment)
            unindexed = 0
        if segment.bytes == 0:
            first_timestamp = timestamp
        if timestamp > segment.max_timestamp:
            segment.max_timestamp, max_offset = timestamp, last
        if unindexed > rules.index_interval_bytes:
            segment.offset_index.append((last - segment.base_offset, segment.bytes))
            _note_time(segment, max_offset)
            unindexed = size
        else:
            unindexed += size
        segment.bytes += size
        offset = last + 1
    _finish(segment, len(sizes), offset, max_offset)
    return segments


def _note_time(segment: SegmentPlan, offset: int) -> None:
    if segment.max_timestamp > (segment.time_index[-1][0] if segment.time_index else -1):
        segment.time_index.append((segment.max_timestamp, offset - segment.base_offset))


def _finish(segment: SegmentPlan, end: int, next_offset: int, max_offset: int) -> None:
    """Complete a segment. As on roll and close, the last time index entry is always written."""
    segment.end, segment.next_offset = end, next_offset
    if segment.max_timestamp >= 0:
        _note_time(segment, max_offset)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A written file: name, bytes, CRC-32C."""

    name: str
    bytes: int
    crc32c: int


class Syncer:
    """Syncs files to disk: each large file in the background while the next one is written, all small files with one syncfs at the end.

    A context manager; when it exits, everything is on disk. Raises OSError."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "sync")
        self._waiting: list[Future[None]] = []
        self._small = -1

    def add(self, descriptor: int, size: int) -> None:
        """Sync the `size` bytes written to an open file. The caller may close the descriptor."""
        if size >= SYNC_ALONE_BYTES:
            self._waiting.append(self._threads.submit(_sync_and_close, os.dup(descriptor)))
            while len(self._waiting) > SYNCS_MAX:
                self._waiting.pop(0).result()
        elif self._small < 0:
            self._small = os.dup(descriptor)

    def __enter__(self) -> Syncer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._threads.shutdown()
        try:
            if error is None:
                for future in self._waiting:
                    future.result()
                if self._small >= 0:
                    sync_file_system(self._small)
        finally:
            if self._small >= 0:
                os.close(self._small)


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Sync the whole file system of an open file. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(descriptor) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class RunReader:
    """Reads batches from run files, and keeps the files open until it is closed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._open: dict[int, int] = {}

    def read_into(self, run: int, position: int, view: memoryview) -> None:
        """Fill `view`. Raises FilesFailed if the run is too short."""
        descriptor = self._open.get(run)
        if descriptor is None:
            descriptor = self._open[run] = os.open(self._paths[run], os.O_RDONLY)
        done = 0
        while done < len(view):
            count = os.preadv(descriptor, [view[done:]], position + done)
            if count == 0:
                raise FilesFailed(f"{self._paths[run]} ends at byte {position + done}: does every executor see the same files there?")
            done += count

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_segment(
    directory: str, plan: SegmentPlan, batches: np.ndarray[Any, Any], runs: np.ndarray[Any, Any], reader: RunReader, syncer: Syncer
) -> tuple[list[FileFact], int]:
    """Write a segment's `.log`, `.index`, `.timeindex` and (except at offset 0) `.snapshot`. Returns the files and the number of records.

    batches: BATCH of the whole partition, in order; runs: for each the number of its run. Raises FilesFailed, OSError.
    """
    stem = f"{plan.base_offset:020d}"
    facts = []
    with _created(f"{directory}/{stem}.log") as descriptor:
        offset, crc = plan.base_offset, 0
        for pieces, view in _filled(plan, batches, runs, reader):
            for start, size, count in pieces:
                _place(view, start, size, count, offset)
                offset += count
            crc = crc32c(view, crc)
            _write_all(descriptor, view)
        syncer.add(descriptor, plan.bytes)
    facts.append(FileFact(f"{stem}.log", plan.bytes, crc))
    facts.append(_write_small(directory, f"{stem}.index", np.array(plan.offset_index, OFFSET_ENTRY).tobytes(), syncer))
    facts.append(_write_small(directory, f"{stem}.timeindex", np.array(plan.time_index, TIME_ENTRY).tobytes(), syncer))
    if plan.base_offset:
        facts.append(_write_small(directory, f"{stem}.snapshot", EMPTY_PRODUCER_SNAPSHOT, syncer))
    return facts, offset - plan.base_offset


def _filled(
    plan: SegmentPlan, batches: np.ndarray[Any, Any], runs: np.ndarray[Any, Any], reader: RunReader
) -> Iterator[tuple[list[tuple[int, int, int]], memoryview]]:
    """Chunks of whole batches: ((position in the chunk, size, records) of each, the chunk)."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    pieces: list[tuple[int, int, int]] = []
    used = 0
    chosen = batches[plan.first : plan.end]
    rows = zip(
        runs[plan.first : plan.end].tolist(), chosen["position"].tolist(), chosen["size"].tolist(), chosen["records"].tolist(), strict=True
    )
    for run, position, size, count in rows:
        if pieces and used + size > len(buffer):
            yield pieces, buffer[:used]
            pieces, used = [], 0
        if size > len(buffer):
            buffer = memoryview(bytearray(size))
        reader.read_into(run, position, buffer[used : used + size])
        pieces.append((used, size, count))
        used += size
    if pieces:
        yield pieces, buffer[:used]


def _place(view: memoryview, start: int, size: int, count: int, offset: int) -> None:
    """Set a batch's base offset and leader epoch 0. Both fields precede the part that the CRC covers."""
    header = HEADER.unpack_from(view, start)
    is_whole = header[LENGTH] == size - LOG_OVERHEAD and header[MAGIC] == MAGIC_V2
    if not is_whole or header[COUNT] != count or header[LAST_DELTA] != count - 1:
        raise FilesFailed("a run does not contain what was written to it: does every executor see the same files?")
    _PLACE.pack_into(view, start, offset, size - LOG_OVERHEAD, 0)


def write_end(directory: str, end_offset: int, topic_id_text: str, syncer: Syncer) -> list[FileFact]:
    """Write a replica's epoch checkpoint, topic id, and producer snapshot at the log's end, as after a clean shutdown."""
    facts = [
        _write_small(directory, "leader-epoch-checkpoint", b"0\n1\n0 0\n", syncer),
        _write_small(directory, "partition.metadata", f"version: 0\ntopic_id: {topic_id_text}".encode(), syncer),
    ]
    if end_offset:
        facts.append(_write_small(directory, f"{end_offset:020d}.snapshot", EMPTY_PRODUCER_SNAPSHOT, syncer))
    return facts


def copy_file(source: str, target: str, syncer: Syncer) -> None:
    """Copy a file, sharing blocks if the file system supports it (reflink), else by a copy in the kernel."""
    with contextlib.ExitStack() as stack:
        origin = os.open(source, os.O_RDONLY)
        stack.callback(os.close, origin)
        descriptor = stack.enter_context(_created(target))
        if not _cloned(origin, descriptor):
            _copied(origin, descriptor)
        syncer.add(descriptor, os.fstat(origin).st_size)


def _cloned(origin: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, origin)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        return False
    return True


def _copied(origin: int, target: int) -> None:
    size = os.fstat(origin).st_size
    done = 0
    copy = getattr(os, "copy_file_range", None)
    while done < size and copy is not None:
        try:
            count = copy(origin, target, min(1 << 30, size - done), done, done)
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
            break
        if count == 0:
            break
        done += count
    while done < size:
        data = os.pread(origin, CHUNK_BYTES, done)
        if not data:
            raise FilesFailed("a file shrank while it was being copied to another replica")
        done += os.pwrite(target, data, done)


@contextlib.contextmanager
def _created(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_small(directory: str, name: str, data: bytes, syncer: Syncer) -> FileFact:
    with _created(f"{directory}/{name}") as descriptor:
        _write_all(descriptor, memoryview(data))
        syncer.add(descriptor, len(data))
    return FileFact(name, len(data), crc32c(data))


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
