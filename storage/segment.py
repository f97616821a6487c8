"""One segment: a `.log` file of consecutive batches with its indexes (Kafka's LogSegment).

Positions are bytes in the `.log`. `size` moves only after the bytes are written, so a reader never sees an incomplete batch.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left

from minikafka.storage import cold_reads
from minikafka.storage.batch_scan import BATCH_LENGTH_MIN, INT32_MAX, LOOKUP_BYTES, STEP, batches, prepare_producer, valid_batches
from minikafka.storage.config import LogConfig
from minikafka.storage.cut_copy import CutCopy
from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import Buffer, File, FileSystem, read_all, write_all
from minikafka.storage.open_files import OpenFiles
from minikafka.storage.producer_state import ProducerStateManager, ProducerUpdate
from minikafka.storage.slice import FileSlice, OnDiskError, SharedFile
from minikafka.storage.sparse_index import IndexWrite, OffsetIndex, TimeIndex
from minikafka.storage.timestamp_lookup import TimestampCandidate, TimestampScan, first_candidate
from minikafka.storage.txn_index import TransactionIndex
from minikafka.storage.types import AbortedTransaction
from minikafka.wire.batch import LOG_OVERHEAD, OVERHEAD, RecordBatch
from minikafka.wire.batch_header import BASE_OFFSET, LAST_DELTA, LEADER_EPOCH, MAX_TIMESTAMP, PRODUCER_ID, Header
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode

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
    """Batches from `base_offset` on. Created by `create` (empty, active) or `open` (existing files, inactive)."""

    __slots__ = (
        "_filesystem", "_has_files", "_index_interval_bytes", "_on_error", "_open_files", "_opened_size", "_recent_floor",
        "_recent_lasts", "_recent_positions", "_shared", "base_offset", "bytes_since_index_entry", "created_ms", "first_timestamp",
        "is_indexed", "log_path", "max_timestamp", "max_timestamp_offset", "offset_index", "size", "synced_size", "time_index",
        "txn_index",
    )  # fmt: skip

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        suffix: str = "",
        *,
        open_files: OpenFiles | None = None,
        on_error: OnDiskError | None = None,
    ) -> None:
        """`on_error` is called when reading a slice in flight fails."""
        self._filesystem = filesystem
        self._open_files = OpenFiles() if open_files is None else open_files
        self._on_error = on_error
        self.base_offset = base_offset
        stem = segment_path(directory, base_offset, "")
        self.log_path = f"{stem}.log{suffix}"
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(filesystem, f"{stem}.index{suffix}", base_offset, index_bytes, self._open_files)
        self.time_index = TimeIndex(filesystem, f"{stem}.timeindex{suffix}", base_offset, index_bytes, self._open_files)
        self.txn_index = TransactionIndex(filesystem, f"{stem}.txnindex{suffix}")
        self._index_interval_bytes = config.index_interval_bytes
        #: False for the first segment of a new log until its file is opened.
        self._has_files = True
        #: None while the file is closed.
        self._shared: SharedFile | None = None
        #: Bytes that readers may see: whole batches that were written. The file is as long, or longer by a preallocated part.
        self.size = 0
        #: Bytes that the last flush synced; never more than `size`.
        self.synced_size = 0
        #: `size` when the file was opened; -1 after a truncation. Bytes beyond this and beyond `synced_size` are unsynced.
        self._opened_size = 0
        #: Largest timestamp of the batches, -1 if none has one, and the last offset of the first batch that has it.
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        #: Bytes of the batches since the last index entry, including the batch of that entry.
        self.bytes_since_index_entry = 0
        #: Largest timestamp of the first batch; None until it is needed.
        self.first_timestamp: int | None = None
        self.created_ms = 0
        #: False if an index is missing or contradicts the log: call `recover` before any look-up.
        self.is_indexed = True
        #: Last offsets and positions of all batches from offset `_recent_floor` on. Reads there need neither index nor disk.
        self._recent_lasts: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_floor = base_offset

    @classmethod
    def create(
        cls, filesystem: FileSystem, directory: str, base_offset: int, config: LogConfig, wall_ms: int, *,
        suffix: str = "", open_files: OpenFiles | None = None, on_error: OnDiskError | None = None,
    ) -> Segment:  # fmt: skip
        """A new empty segment, ready for appends. Leftover files of the same name are emptied. `suffix` is appended to the file names. The
        indexes get their files later (`index_writes`)."""
        segment = cls(filesystem, directory, base_offset, config, suffix, open_files=open_files, on_error=on_error)
        segment.created_ms = wall_ms
        file = segment._open_shared(create=True).file
        if file.size():
            file.truncate(0)
        if config.preallocate:
            file.preallocate(config.segment_bytes)
        if suffix:
            segment.txn_index.reset()
        segment.offset_index.begin()
        segment.time_index.begin()
        return segment

    def begin(self, config: LogConfig, wall_ms: int) -> None:
        """Become the first segment of a log whose directory is empty."""
        self.created_ms = wall_ms
        self._has_files = False
        self.offset_index.begin(is_new_directory=True)
        self.time_index.begin(is_new_directory=True)
        # Tools that look into the directory tell an empty replica from a missing one by this file.
        self._filesystem.open(self.log_path, create=True).close()
        if config.preallocate:
            self.file.preallocate(config.segment_bytes)

    @classmethod
    def open(
        cls,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        wall_ms: int,
        *,
        is_trusted: bool = True,
        is_own: bool = False,
        open_files: OpenFiles | None = None,
        on_error: OnDiskError | None = None,
    ) -> Segment:
        """Open a segment from its files. `is_indexed` is False if an index is missing or contradicts the log, or if the files are not
        trusted: then recover it. Reads only the last index entries, and the whole index of transactions unless this process has just
        written it (`is_own`). Leaves no file open."""
        segment = cls(filesystem, directory, base_offset, config, open_files=open_files, on_error=on_error)
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
            if not is_own:
                segment.txn_index.check(base_offset)
        except (CorruptFile, FileNotFoundError, ApiError):
            segment.is_indexed = False
        else:
            segment.max_timestamp = segment.time_index.last_timestamp
            segment.max_timestamp_offset = segment.time_index.last_offset
        finally:
            segment.close_if_idle()
        return segment

    # -- appending

    def append(self, data: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end and index it. `data` must be whole and checked."""
        position = self.size
        written = (self._shared or self._open_shared()).file.pwrite(data, position)
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
        # As in Kafka 4.3: a batch gets an entry if more than index.interval.bytes were written since the last one.
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

    def append_aborted(self, aborted: list[AbortedTransaction]) -> None:
        """Add aborted transactions to the transaction index."""
        self.txn_index.append(aborted)

    def discard_after(self, size: int) -> bool:
        """After a failed append: truncate the file, so that bytes beyond `size` do not reappear at the next start. False if that fails."""
        shared = self._shared
        if shared is None:
            return True  # nothing was written to it
        try:
            shared.file.truncate(size)
        except OSError:
            return False
        return True

    def should_roll(self, config: LogConfig, jitter_ms: int, size: int, last_offset: int, timestamp: int, now: int) -> bool:
        """Whether a batch must go to a new segment (LogSegment.shouldRoll): size, time by record timestamps, a full
        index, or an offset that does not fit in the index."""
        own, offsets, times = self.size, self.offset_index, self.time_index
        if (
            own + size > config.segment_bytes
            or offsets.entries >= offsets.full_at
            or times.entries >= times.full_at
            or last_offset - self.base_offset > INT32_MAX
        ):
            return True
        if not own:
            return False
        first = self.first_timestamp
        if first is None:
            first = self.load_first_timestamp()
        if first >= 0:
            waited_ms = timestamp - first
        else:
            waited_ms = now - self.created_ms if self.created_ms > 0 else 0
        return waited_ms > config.segment_ms - jitter_ms

    def has_index_room(self, batches: int) -> bool:
        """Whether so many batches, each with an entry in the indexes, leave room for the entries of a roll."""
        offsets, times = self.offset_index, self.time_index
        return offsets.entries + batches < offsets.full_at and times.entries + batches < times.full_at

    def load_first_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 if there is none."""
        if self.first_timestamp is None and self.size > 0:
            header = read_all(self.file, OVERHEAD, 0)
            self.first_timestamp = RecordBatch(header).max_timestamp if len(header) == OVERHEAD else None
        return -1 if self.first_timestamp is None else self.first_timestamp

    def become_inactive(self, *, trims_later: bool = False) -> None:
        """Become inactive: add the last time index entry and trim the indexes. With `trims_later`, `index_writes` does that."""
        if self.time_index.keys is not None and self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        for index in (self.offset_index, self.time_index):
            if trims_later:
                index.is_to_be_trimmed = index.keys is not None
            else:
                index.trim()
        if not self._has_files:
            self._open_shared()
        elif self._filesystem.size(self.log_path) > self.size:
            self.file.truncate(self.size)
        self.forget_recent(NO_RECENT)

    def activate(self) -> None:
        """Get ready for appends (the last segment after loading or truncation)."""
        self.offset_index.activate()
        self.time_index.activate()

    # -- reading

    @property
    def file(self) -> File:
        return (self._shared or self._open_shared()).file

    def _source(self, position: int) -> cold_reads.Source:
        """The file, for a look-up that reads from a position on."""
        if self._shared is None:
            cold_reads.before_opening(self._filesystem, self.log_path, position, LOOKUP_BYTES)
        return cold_reads.Source(self.file)

    def _open_shared(self, *, create: bool = False) -> SharedFile:
        shared = self._shared
        if shared is None:
            cold_reads.before_opening(self._filesystem, self.log_path)
            file = self._open_files.open(self._filesystem, self.log_path, create=create or not self._has_files)
            shared = SharedFile(file, self._on_error)
            self._shared, self._has_files = shared, True
            self._opened_size = self.size
            self._open_files.admit(self)
        return shared

    @property
    def is_open(self) -> bool:
        return self._shared is not None

    def test_and_clear_used(self) -> bool:
        """Whether the file was used since the last call of this method."""
        shared = self._shared
        if shared is None:
            return False
        was_used, shared.was_used = shared.was_used, False
        return was_used

    def close_if_idle(self) -> bool:
        """Close the file and drop the cached index pages, if no slice is in flight and all written bytes are synced. False if the file
        stays open."""
        shared = self._shared
        if shared is None or shared.is_pinned or max(self.synced_size, self._opened_size) < self.size:
            return False
        shared.retire()
        self._shared = None
        self.offset_index.forget()
        self.time_index.forget()
        if self.offset_index.keys is None:
            self.txn_index.forget()
        return True

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed. Open files stay open."""
        self.log_path = f"{directory}/{self.log_path.rpartition('/')[2]}"
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.path = f"{directory}/{index.path.rpartition('/')[2]}"

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self._shared or self._open_shared(), position, size)

    def is_recent(self, offset: int) -> bool:
        """Whether this process has appended the record a short while ago: its bytes are in memory."""
        return offset >= self._recent_floor

    def translate(self, offset: int, from_position: int = 0) -> tuple[int, int] | None:
        """(position, size) of the first batch whose last offset is >= `offset`; None if there is none. Raises ApiError(CORRUPT_MESSAGE) if
        the bytes on the way are not batches."""
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
        source, unpack, end = self._source(position), STEP.unpack_from, self.size
        data = memoryview(bytearray(_SCAN_BYTES))
        while position + LOG_OVERHEAD + BATCH_LENGTH_MIN <= end:
            window = data[: end - position]
            count = source.pread_into(window, position)
            if count < STEP.size:
                count = source.fill(window, position)
            cursor, last = 0, count - STEP.size
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

    def timestamp_candidate(self, timestamp: int, from_offset: int) -> TimestampCandidate | TimestampScan | None:
        """The first batch that, by its header, may hold a record at or after `from_offset` with a timestamp >= `timestamp`; or what must be
        searched for it, if that is much."""
        if not self.size:
            return None
        position = self.offset_index.position_for(max(self.time_index.offset_for(timestamp), from_offset))
        return first_candidate(self._source(position), self.slice(position, self.size - position), timestamp, from_offset)

    def max_timestamp_candidate(self) -> TimestampCandidate | None:
        """The batch that carries the segment's largest timestamp."""
        if self.max_timestamp < 0:
            return None
        found = self.translate(self.max_timestamp_offset)
        if found is None:
            return None
        batch = cold_reads.read(self.file, found[1], found[0])
        return TimestampCandidate(batch, RecordBatch(batch).max_timestamp, self.base_offset)

    def next_offset(self) -> int:
        """Offset after the last batch (LogSegment.readNextOffset)."""
        next_offset = self.base_offset
        start = 0
        if self.offset_index.entries:
            _, start = self.offset_index.entry(self.offset_index.entries - 1)
        file, end, position = self.file, self.size, start
        while position + STEP.size <= end:
            base, length, delta = STEP.unpack(read_all(file, STEP.size, position))
            if length < BATCH_LENGTH_MIN or position + length + LOG_OVERHEAD > end:
                break
            next_offset = base + delta + 1
            position += length + LOG_OVERHEAD
        return next_offset

    def largest_timestamp(self) -> int:
        """Largest timestamp of the records, or the file's modification time if no record has one."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        if not self._has_files:
            return self.created_ms
        cold_reads.before_opening(self._filesystem, self.log_path)
        return self._filesystem.modified_ms(self.log_path)

    # -- recovery and truncation

    def recover(self, producers: ProducerStateManager, epochs: EpochCache, previous_end: int, log_start_offset: int) -> int:
        """Keep the longest valid prefix; rebuild the indexes, the producers (from the state at the base offset) and the epochs of its
        batches. `previous_end`: where the batch before the segment ended.

        Returns the number of bytes cut. The indexes are left in memory: trim or activate them.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self.max_timestamp = self.max_timestamp_offset = -1
        self.first_timestamp = None
        self.bytes_since_index_entry = 0
        self.forget_recent(NO_RECENT)
        valid = last_indexed = 0
        end = previous_end
        aborted: list[AbortedTransaction] = []
        for position, size, header, view in valid_batches(self.file, self.size, self.base_offset):
            last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
            if header[MAX_TIMESTAMP] > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header[MAX_TIMESTAMP], last_offset
            if position - last_indexed > self._index_interval_bytes and not self.offset_index.is_full:
                self.offset_index.append(last_offset - self.base_offset, position)
                self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
                last_indexed = position
            valid = position + size
            begin = min(end, header[BASE_OFFSET])
            if begin < log_start_offset:
                begin = log_start_offset if log_start_offset <= last_offset else header[BASE_OFFSET]
            epochs.on_recovered_batch(header[LEADER_EPOCH], begin, last_offset)
            end = last_offset + 1
            if header[PRODUCER_ID] >= 0:
                aborted += self._replay(producers, view, header)
            producers.advance(last_offset + 1, 1, size)
        self.append_aborted(aborted)
        cut = self.size - valid
        if cut:
            self.file.truncate(valid)
            self.size = valid
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.is_indexed = True
        return cut

    @staticmethod
    def _replay(producers: ProducerStateManager, view: memoryview, header: Header) -> list[AbortedTransaction]:
        update = ProducerUpdate()
        prepare_producer(producers, update, view, 0, header)
        return producers.complete(update)

    def prepare_cut(self, offset: int) -> CutCopy | None:
        """A copy of what a truncation to `offset` would keep; None if it need not copy, since no slice reaches beyond the cut."""
        found, shared = self.translate(offset), self._shared
        if found is None or shared is None or not shared.reaches_beyond(found[0]):
            return None
        return CutCopy(self._filesystem, self.log_path, self.slice(0, found[0]))

    def truncate_to(self, offset: int, wall_ms: int, copy: CutCopy | None = None) -> int:
        """Drop the batches that reach `offset` or beyond; returns the number of bytes cut. If slices in flight reach beyond the cut, the
        file is replaced by a synced copy of what stays: `copy` if it is of that. The cut is durable after the next sync."""
        found = self.translate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.activate()
        cut = 0
        if found is not None:
            position, _ = found
            cut = self.size - position
            self._cut_file(position, copy)
            self.size = position
        if self.size == 0:
            self.created_ms = wall_ms
            self.first_timestamp = None
        self.bytes_since_index_entry = 0
        self.forget_recent(offset)
        self.max_timestamp = self.time_index.last_timestamp
        self.max_timestamp_offset = self.time_index.last_offset
        # The time index knows the largest timestamp up to the last entry of the offset index, however long ago it was.
        start = self.offset_index.position_for(offset)
        for _, _, header in batches(self.file, start, self.size, LOOKUP_BYTES):
            if header[MAX_TIMESTAMP] > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header[MAX_TIMESTAMP], header[BASE_OFFSET] + header[LAST_DELTA]
        return cut

    def _cut_file(self, size: int, copy: CutCopy | None) -> None:
        shared = self._open_shared()
        if not shared.reaches_beyond(size):
            shared.file.truncate(size)
            # The truncation is not synced yet: keep the file open until it is.
            self.synced_size, self._opened_size = min(self.synced_size, size), -1
            return
        if copy is None or not copy.is_of(shared, size):
            copy = CutCopy(self._filesystem, self.log_path, self.slice(0, size))
        try:
            file = copy.take(self.log_path)
        finally:
            copy.release()
        # The descriptor stays valid across the rename; only error messages would show the old path.
        self._shared = SharedFile(file, self._on_error)
        self.synced_size = self._opened_size = size
        shared.retire()

    # -- the end

    def sync(self) -> None:
        """Sync the files of an inactive segment that is not in use yet."""
        self.file.fsync()
        for path in (self.offset_index.path, self.time_index.path, self.txn_index.path):
            with contextlib.suppress(FileNotFoundError):
                file = self._filesystem.open(path)
                try:
                    file.fsync()
                finally:
                    file.close()

    def index_writes(self) -> list[IndexWrite]:
        """What is due in the files of the indexes."""
        writes = self.offset_index.begin_write(), self.time_index.begin_write()
        return [write for write in writes if write is not None]

    def close(self) -> None:
        """Close cleanly: as on a roll, then close the files."""
        if self._shared is not None or self.offset_index.keys is not None:
            self.become_inactive()
        self.close_files()

    def close_files(self) -> None:
        """Close the files without writing (the disk failed, or the files are about to be deleted)."""
        if self._shared is not None:
            self._shared.retire()
            self._shared = None

    def mark_deleted(self) -> list[str]:
        """Rename all files to `.deleted` and return the new paths. Slices in flight keep their file open."""
        self.close_files()
        target = self.log_path + DELETED
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rename(self.log_path, target)
        self.log_path = target
        names = [target, self.offset_index.rename(DELETED), self.time_index.rename(DELETED)]
        txn_name = self.txn_index.rename(DELETED)
        return names if txn_name is None else [*names, txn_name]

    def forget_recent(self, floor: int) -> None:
        """Forget the positions of recent batches, and record those of batches appended from offset `floor` on."""
        self._recent_lasts = []
        self._recent_positions = []
        self._recent_floor = floor

    def _check_indexes(self) -> None:
        """Check that the last index entries agree with the log, which is cheap (KAFKA-7283). Raises CorruptFile."""
        index = self.offset_index
        if index.entries:
            relative, position = index.entry(index.entries - 1)
            # Position 0 is never indexed: it means the zeros of an index that was not trimmed.
            if not 0 < position <= self.size - STEP.size:
                raise CorruptFile(f"{index.path}: the last entry points outside the log")
            base, length, delta = STEP.unpack(read_all(self.file, STEP.size, position))
            if base + delta != self.base_offset + relative or position + length + LOG_OVERHEAD > self.size:
                raise CorruptFile(f"{index.path}: the last entry does not point to its batch")
        times = self.time_index
        if times.entries:
            timestamp, relative = times.entry(times.entries - 1)
            first_timestamp, _ = times.entry(0)
            ascends = times.entries == 1 or timestamp > first_timestamp
            if not ascends or relative < 0 or self.size == 0:
                raise CorruptFile(f"{times.path}: the entries are not in ascending order")
            found = self.translate(times.last_offset)
            position, _ = (-1, 0) if found is None else found
            if position < 0 or self._max_timestamp_at(position) != timestamp:
                raise CorruptFile(f"{times.path}: the last entry does not match its batch")
        elif self.size > 0 and self._max_timestamp_at(0) >= 0:
            # A cleanly closed segment has an entry unless no record has a timestamp.
            raise CorruptFile(f"{times.path}: the entries are missing")

    def _max_timestamp_at(self, position: int) -> int:
        """The largest timestamp of the batch at `position`. Raises CorruptFile if a power cut left less than a header."""
        try:
            return RecordBatch(read_all(self.file, OVERHEAD, position)).max_timestamp
        except CorruptRecord as error:
            raise CorruptFile(f"{self.log_path}: no batch at {position}: {error}") from error
