"""One segment: a `.log` file of consecutive batches with its indexes (Kafka's LogSegment).

Positions are bytes in the `.log`. The size published in `size` moves only after the bytes are written, so a reader
never sees a batch that is not whole.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left

from storage.batch_scan import BATCH_LENGTH_MIN, INT32_MAX, STEP, Header, batches, prepare_producer, valid_batches
from storage.config import LogConfig
from storage.epoch_cache import EpochCache
from storage.errors import CorruptFile
from storage.filesystem import Buffer, File, FileSystem, write_all
from storage.producer_state import CompletedTransaction, ProducerStateManager, ProducerUpdate
from storage.slice import FileSlice, SharedFile
from storage.sparse_index import OffsetIndex, TimeIndex
from storage.txn_index import TransactionIndex
from storage.types import AbortedTransaction, TimestampOffset
from wire.batch import LOG_OVERHEAD, OVERHEAD, RecordBatch
from wire.compression import CorruptRecord
from wire.errors import ApiError, ErrorCode

_RECENT_MAX = 1024
NO_RECENT = 1 << 63
_SCAN_BYTES = 4096
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class Segment:
    """Batches from `base_offset` on. Made by `create` (empty, active) or `open` (files at rest)."""

    __slots__ = (
        "_filesystem",
        "_index_interval_bytes",
        "_pwrite",
        "_recent_floor",
        "_recent_lasts",
        "_recent_positions",
        "_shared",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "first_timestamp",
        "is_indexed",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "synced_size",
        "time_index",
        "txn_index",
    )

    def __init__(self, filesystem: FileSystem, directory: str, base_offset: int, config: LogConfig, suffix: str = "") -> None:
        self._filesystem = filesystem
        self.base_offset = base_offset
        stem = segment_path(directory, base_offset, "")
        self.log_path = f"{stem}.log{suffix}"
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(filesystem, f"{stem}.index{suffix}", base_offset, index_bytes)
        self.time_index = TimeIndex(filesystem, f"{stem}.timeindex{suffix}", base_offset, index_bytes)
        self.txn_index = TransactionIndex(filesystem, f"{stem}.txnindex{suffix}")
        self._index_interval_bytes = config.index_interval_bytes
        self._shared: SharedFile | None = None
        self.size = 0
        #: What the last flush synced of it.
        self.synced_size = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.bytes_since_index_entry = 0
        self.first_timestamp: int | None = None
        self.created_ms = 0
        self.is_indexed = True
        self.forget_recent(base_offset)

    @classmethod
    def create(
        cls, filesystem: FileSystem, directory: str, base_offset: int, config: LogConfig, wall_ms: int, *, suffix: str = ""
    ) -> Segment:
        """A new empty segment, ready for appends. Leftover files of the same name are emptied. `suffix` is put behind the
        names of its files."""
        segment = cls(filesystem, directory, base_offset, config, suffix)
        segment.created_ms = wall_ms
        file = filesystem.open(segment.log_path, create=True)
        segment._set_file(file)
        file.truncate(0)
        if config.preallocate:
            file.preallocate(config.segment_bytes)
        segment.offset_index.reset()
        segment.time_index.reset()
        if suffix:
            segment.txn_index.reset()
        segment.offset_index.activate()
        segment.time_index.activate()
        return segment

    @classmethod
    def open(
        cls, filesystem: FileSystem, directory: str, base_offset: int, config: LogConfig, wall_ms: int, *, is_trusted: bool = True
    ) -> Segment:
        """A segment from its files. `is_indexed` is false if an index is missing or contradicts the log, or if the files are
        not trusted: recover it then. Cheap: nothing is read but the last entries."""
        segment = cls(filesystem, directory, base_offset, config)
        segment.created_ms = wall_ms
        segment.forget_recent(NO_RECENT)
        segment.size = filesystem.size(segment.log_path)
        if not is_trusted:
            segment.is_indexed = False
            return segment
        try:
            segment.offset_index.open_at_rest()
            segment.time_index.open_at_rest()
            segment._check_indexes()
        except (CorruptFile, FileNotFoundError, ApiError):
            segment.is_indexed = False
        else:
            segment.max_timestamp = segment.time_index.last_timestamp
            segment.max_timestamp_offset = segment.time_index.last_offset
        return segment

    # -- appending

    def append(self, data: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end and index it. `data` must be whole and checked."""
        position = self.size
        written = self._pwrite(data, position)
        if written != size:
            write_all(self.file, memoryview(data)[written:], position + written)
        self._index(position, size, last_offset, max_timestamp)
        self.size = position + size

    def append_all(self, data: memoryview, entries: list[tuple[int, int, int, int]]) -> None:
        """Write consecutive batches at once: (position in data, size, last offset, max timestamp) of each."""
        position = self.size
        write_all(self.file, data, position)
        for relative, size, last_offset, max_timestamp in entries:
            self._index(position + relative, size, last_offset, max_timestamp)
        self.size = position + len(data)

    def _index(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        # Kafka 4.3 applies the interval to each batch: entry = the batch that comes after more than that many bytes.
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index_entry = size
        else:
            self.bytes_since_index_entry += size
        lasts = self._recent_lasts
        lasts.append(last_offset)
        self._recent_positions.append(position)
        if len(lasts) >= _RECENT_MAX:
            half = _RECENT_MAX // 2
            self._recent_floor = lasts[half - 1] + 1
            del lasts[:half], self._recent_positions[:half]
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp

    def append_aborted(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        self.txn_index.append(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
            )
        )

    def discard_after(self, size: int) -> None:
        """After a failed append: bytes beyond `size` must not come back at the next start."""
        with contextlib.suppress(OSError):
            self.file.truncate(size)

    def should_roll(self, config: LogConfig, jitter_ms: int, size: int, last_offset: int, timestamp: int, now: int) -> bool:
        """Whether a batch must go to a new segment (LogSegment.shouldRoll): size, time by record timestamps, a full
        index, or an offset that does not fit in the index."""
        own = self.size
        return (
            own + size > config.segment_bytes
            or (own > 0 and self._waited_ms(timestamp, now) > config.segment_ms - jitter_ms)
            or self.offset_index.is_full
            or self.time_index.is_full
            or last_offset - self.base_offset > INT32_MAX
        )

    def _waited_ms(self, timestamp: int, now: int) -> int:
        first = self.load_first_timestamp()
        if first >= 0:
            return timestamp - first
        return now - self.created_ms if self.created_ms > 0 else 0

    def load_first_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 if there is none."""
        if self.first_timestamp is None and self.size > 0:
            self.first_timestamp = RecordBatch(self.file.pread(61, 0)).max_timestamp
        return -1 if self.first_timestamp is None else self.first_timestamp

    def become_inactive(self) -> None:
        """Roll: the last time entry is forced, the indexes are cut to their entries."""
        if self.time_index.keys is not None and self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.trim()
        self.time_index.trim()
        if self.file.size() > self.size:
            self.file.truncate(self.size)
        self.forget_recent(NO_RECENT)

    def activate(self) -> None:
        """Make ready for appends (the last segment after loading or truncation)."""
        self.offset_index.activate()
        self.time_index.activate()
        self.file  # noqa: B018 - opened for `append`

    # -- reading

    @property
    def file(self) -> File:
        return self._open_shared().file

    def _open_shared(self) -> SharedFile:
        if self._shared is None:
            self._set_file(self._filesystem.open(self.log_path))
        assert self._shared is not None
        return self._shared

    def _set_file(self, file: File) -> None:
        self._shared = SharedFile(file)
        self._pwrite = file.pwrite

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self._shared or self._open_shared(), position, size)

    def translate(self, offset: int, from_position: int = 0) -> tuple[int, int] | None:
        """(position, size) of the first batch whose last offset is >= `offset`; None if there is none. Raises
        ApiError(CORRUPT_MESSAGE) if the walk meets something that is no batch."""
        if offset >= self._recent_floor:
            lasts = self._recent_lasts
            index = bisect_left(lasts, offset)
            if index == len(lasts):
                return None
            positions = self._recent_positions
            position = positions[index]
            end = positions[index + 1] if index + 1 < len(positions) else self.size
            return position, end - position
        position = max(self.offset_index.position_for(offset), from_position)
        pread, unpack, end = self.file.pread, STEP.unpack_from, self.size
        while position + LOG_OVERHEAD + BATCH_LENGTH_MIN <= end:
            data = pread(min(_SCAN_BYTES, end - position), position)
            cursor, last = 0, len(data) - STEP.size
            if last < 0:
                break
            while cursor <= last:
                base, length, delta = unpack(data, cursor)
                if length < BATCH_LENGTH_MIN or position + cursor + length + LOG_OVERHEAD > end:
                    raise ApiError(
                        ErrorCode.CORRUPT_MESSAGE, f"no valid batch at position {position + cursor} of {self.log_path}"
                    )
                if base + delta >= offset:
                    return position + cursor, length + LOG_OVERHEAD
                cursor += length + LOG_OVERHEAD
            position += cursor
        return None

    def find_timestamp(self, timestamp: int, from_offset: int) -> TimestampOffset | None:
        """The first record at or after `from_offset` with a timestamp >= `timestamp`."""
        start = max(self.time_index.offset_for(timestamp), from_offset)
        position = self.offset_index.position_for(start)
        with self.file.map() as view:
            for at, _, header in batches(view, position, self.size):
                if header[8] < timestamp or header[0] + header[6] < from_offset:
                    continue
                for record in RecordBatch(view, at).records():
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return TimestampOffset(record.timestamp, record.offset, header[2])
        return None

    def max_timestamp_record(self) -> TimestampOffset | None:
        """The first record that carries the segment's largest timestamp."""
        if self.max_timestamp < 0:
            return None
        found = self.translate(self.max_timestamp_offset)
        if found is None:
            return None
        view = memoryview(self.file.pread(found[1], found[0]))
        batch = RecordBatch(view)
        for record in batch.records():
            if record.timestamp == batch.max_timestamp:
                return TimestampOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
        return TimestampOffset(batch.max_timestamp, batch.last_offset, batch.partition_leader_epoch)

    def next_offset(self) -> int:
        """Offset after the last batch (LogSegment.readNextOffset)."""
        next_offset = self.base_offset
        start = 0
        if self.offset_index.entries:
            start = self.offset_index.entry(self.offset_index.entries - 1)[1]
        pread, end, position = self.file.pread, self.size, start
        while position + STEP.size <= end:
            base, length, delta = STEP.unpack(pread(STEP.size, position))
            if length < BATCH_LENGTH_MIN or position + length + LOG_OVERHEAD > end:
                break
            next_offset = base + delta + 1
            position += length + LOG_OVERHEAD
        return next_offset

    def largest_timestamp(self) -> int:
        """Of the records; of the file's last change if no record has one."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._filesystem.modified_ms(self.log_path)

    # -- recovery and truncation

    def recover(self, producers: ProducerStateManager, epochs: EpochCache) -> int:
        """Keep the longest valid prefix and rebuild indexes, producers (from the state at the base offset) and the
        epochs above the known ones; returns the number of bytes cut. Indexes are left in memory: trim or activate."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self.max_timestamp = self.max_timestamp_offset = -1
        self.first_timestamp = None
        self.bytes_since_index_entry = 0
        self.forget_recent(NO_RECENT)
        valid = last_indexed = 0
        with self.file.map() as view:
            for position, size, header in valid_batches(view, self.base_offset):
                last_offset = header[0] + header[6]
                if header[8] > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header[8], last_offset
                if position - last_indexed > self._index_interval_bytes and not self.offset_index.is_full:
                    self.offset_index.append(last_offset - self.base_offset, position)
                    self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
                    last_indexed = position
                valid = position + size
                if header[2] != epochs.latest:
                    epochs.learn(header[2], header[0])
                if header[9] >= 0:
                    self._replay(producers, view, position, header)
                producers.advance(last_offset + 1)
        cut = self.size - valid
        if cut:
            self.file.truncate(valid)
            self.size = valid
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.is_indexed = True
        return cut

    def _replay(self, producers: ProducerStateManager, view: memoryview, position: int, header: Header) -> None:
        update = ProducerUpdate()
        prepare_producer(producers, update, view, position, header)
        producers.publish(update)
        for completed in update.completed:
            if completed.is_aborted:
                self.append_aborted(completed, producers.last_stable_offset_after(completed))
            producers.complete(completed)

    def truncate_to(self, offset: int, wall_ms: int) -> int:
        """Drop the batches that reach `offset` or beyond, durably; returns the number of bytes cut. A file with slices in
        flight is replaced by a copy of what stays, never cut under them."""
        found = self.translate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.activate()
        cut = 0
        if found is not None:
            cut = self.size - found[0]
            self._cut_file(found[0])
            self.size = found[0]
        if self.size == 0:
            self.created_ms = wall_ms
            self.first_timestamp = None
        self.bytes_since_index_entry = 0
        self.forget_recent(offset)
        self.max_timestamp = self.time_index.last_timestamp
        self.max_timestamp_offset = self.time_index.last_offset
        with self.file.map() as view:
            start = self.offset_index.position_for(self.max_timestamp_offset)
            for _, _, header in batches(view, start, self.size):
                if header[8] > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header[8], header[0] + header[6]
        return cut

    def _cut_file(self, size: int) -> None:
        shared = self._open_shared()
        if shared.pins == 0:
            shared.file.truncate(size)
            shared.file.fsync()
            return
        path = self.log_path + CLEANED
        copy = self._filesystem.open(path, create=True)
        copy.truncate(0)
        position = 0
        while position < size:
            data = shared.file.pread(min(1 << 20, size - position), position)
            write_all(copy, data, position)
            position += len(data)
        copy.fsync()
        self._filesystem.rename(path, self.log_path)
        # The open file follows its name; only error messages would tell the old one.
        self._set_file(copy)
        shared.retire()

    # -- the end

    def sync(self) -> None:
        """Make the files durable, of a segment at rest that nobody else uses yet."""
        self.file.fsync()
        for path in (self.offset_index.path, self.time_index.path, self.txn_index.path):
            with contextlib.suppress(FileNotFoundError):
                file = self._filesystem.open(path)
                try:
                    file.fsync()
                finally:
                    file.close()

    def write_pending(self) -> None:
        """Index entries that are still in memory only."""
        self.offset_index.write_pending()
        self.time_index.write_pending()

    def close(self) -> None:
        """Cleanly: as on roll, then close the files."""
        if self._shared is not None or self.offset_index.keys is not None:
            self.become_inactive()
        self.close_files()

    def close_files(self) -> None:
        """Without writing anything (the disk failed, or the files are about to go)."""
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
        if self._shared is not None:
            self._shared.retire()
            self._shared = None

    def mark_deleted(self) -> list[str]:
        """Rename all files to `.deleted`; the new names. Slices in flight keep their file open."""
        self.close_files()
        target = self.log_path + DELETED
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rename(self.log_path, target)
        self.log_path = target
        names = [target, self.offset_index.rename(DELETED), self.time_index.rename(DELETED)]
        txn_name = self.txn_index.rename(DELETED)
        return names if txn_name is None else [*names, txn_name]

    def forget_recent(self, floor: int) -> None:
        """Positions of the batches appended from offset `floor` on are kept (the last ones), so that reads at the tail
        need neither index nor disk."""
        self._recent_lasts: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_floor = floor

    def _check_indexes(self) -> None:
        """Cheap: the last entries must agree with the log (KAFKA-7283). Raises CorruptFile."""
        index = self.offset_index
        if index.entries:
            relative, position = index.entry(index.entries - 1)
            # Zeros (an index that was not cut) are no entries: the first bytes of a segment are never indexed.
            if not 0 < position <= self.size - STEP.size:
                raise CorruptFile(f"{index.path}: the last entry points outside of the log")
            base, length, delta = STEP.unpack(self.file.pread(STEP.size, position))
            if base + delta != self.base_offset + relative or position + length + LOG_OVERHEAD > self.size:
                raise CorruptFile(f"{index.path}: the last entry does not point to its batch")
        times = self.time_index
        if times.entries:
            timestamp, relative = times.entry(times.entries - 1)
            ascends = times.entries == 1 or timestamp > times.entry(0)[0]
            if not ascends or relative < 0 or self.size == 0:
                raise CorruptFile(f"{times.path}: the entries do not ascend")
            found = self.translate(times.last_offset)
            if found is None or self._max_timestamp_at(found[0]) != timestamp:
                raise CorruptFile(f"{times.path}: the last entry does not fit its batch")
        elif self.size > 0 and self._max_timestamp_at(0) >= 0:
            # A cleanly closed segment has an entry unless no record has a timestamp.
            raise CorruptFile(f"{times.path}: the entries are missing")

    def _max_timestamp_at(self, position: int) -> int:
        """Of the batch there. Raises CorruptFile if a power cut left less than a header."""
        try:
            return RecordBatch(self.file.pread(OVERHEAD, position)).max_timestamp
        except CorruptRecord as error:
            raise CorruptFile(f"{self.log_path}: no batch at {position}: {error}") from error
