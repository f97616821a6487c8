"""Log compaction (kafka.log.LogCleaner, LogCleanerManager, Cleaner): which log is due, and one round over it.

A round has steps that may run on any thread (`build_map`, `plan`, `write`) and steps that belong on the event loop (`Cleaning`, `pinned`,
`swap`). The blocking steps read inactive segments through pinned files and write `.cleaned` files. Only `swap` changes the log, and
only if the log is still the one that was read.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Iterator

from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps
from minikafka.storage.batch_scan import INT32_MAX, checked_batches
from minikafka.storage.compaction import BYTES_PER_KEY, BatchFilter, CleanedTransactions, OffsetMap, map_batch
from minikafka.storage.log import Log
from minikafka.storage.segment import CLEANED, Segment
from minikafka.storage.slice import FileSlice
from minikafka.storage.txn_index import TransactionIndex
from minikafka.storage.types import AbortedTransaction
from minikafka.wire.batch import HEADER
from minikafka.wire.batch_header import BASE_OFFSET, LAST_DELTA, MAX_TIMESTAMP

#: Batches after which the thread gives up the interpreter lock: the event loop must not wait for a whole switch interval.
_BATCHES_PER_SLICE = 8
#: Aborted transactions that are looked up in one step on the loop.
ABORTED_AT_ONCE = 256
#: Segments that are open at a time, and so the most that are merged into one.
PINNED_MAX = 64


@dataclass(frozen=True, slots=True)
class CleaningNeed:
    """What a round over a log would find.

    The round compacts [first_dirty_offset, end_offset). Both are base offsets of segments; `first_dirty_offset` may also be the checkpoint
    or the log start. `overdue_ms`: how long ago max.compaction.lag.ms passed, 0 if it has not.
    """

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int

    @property
    def ratio(self) -> float:
        """The dirty share of the bytes that could be cleaned."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Dirty enough (min.cleanable.dirty.ratio), or dirty for too long (max.compaction.lag.ms)."""
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio)


def cleaning_need(log: Log, checkpoint: int | None, wall_ms: int) -> CleaningNeed:
    """Measure a compacted log. `checkpoint` is the end of the last round, or None. A checkpoint outside the log is ignored
    (LogCleanerManager.cleanableOffsets)."""
    active_base = log.active_segment_base_offset
    start = checkpoint
    if start is None or not log.log_start_offset <= start <= active_base:
        start = log.log_start_offset
    at_rest = log.segments[:-1]
    limit = min(log.last_stable_offset, active_base)
    lag_ms = log.config.min_compaction_lag_ms
    end = active_base
    for index, segment in enumerate(at_rest):
        after = log.segments.bases[index + 1]
        if after <= start and after <= limit:
            continue
        if after > limit or (lag_ms > 0 and segment.largest_timestamp() > wall_ms - lag_ms):
            end = segment.base_offset
            break
    start = min(start, end)
    clean = sum(segment.size for index, segment in enumerate(at_rest) if log.segments.bases[index + 1] <= start)
    dirty = sum(
        segment.size for index, segment in enumerate(at_rest) if log.segments.bases[index + 1] > start and segment.base_offset < end
    )
    return CleaningNeed(log, start, end, clean, dirty, _overdue_ms(log, start, wall_ms))


def _overdue_ms(log: Log, start: int, wall_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms > wall_ms:
        return 0
    first = [
        segment.load_first_timestamp()
        for index, segment in enumerate(log.segments[:-1])
        if segment.size and log.segments.bases[index + 1] > start
    ]
    return max(wall_ms - lag_ms - min((timestamp for timestamp in first if timestamp > 0), default=wall_ms), 0)


class CleaningStopped(Exception):
    """Raised in a blocking step after `Cleaning.stop` was called."""


class _Source:
    """An inactive segment. While it is pinned its file stays readable, whatever happens to the log."""

    __slots__ = ("_pin", "base_offset", "index_bytes", "segment", "size", "time_index_bytes")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.base_offset = segment.base_offset
        self.size = segment.size
        self.index_bytes = segment.offset_index.entries * 8
        self.time_index_bytes = segment.time_index.entries * 12
        self._pin: FileSlice | None = None

    @property
    def pin(self) -> FileSlice:
        """The pinned contents."""
        assert self._pin is not None
        return self._pin

    def open(self) -> None:
        """Pin the file. Raises StorageError."""
        self._pin = self.segment.slice(0, self.size)

    def release(self) -> None:
        """Unpin the file."""
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.release()


class Cleaning:
    """One round over one log.

    Create it on the event loop, and take the steps of `find_aborted`. For each of `windows()` call `build_map` on another thread, then
    `plan`. For each of `groups` call `write` on another thread and `swap` on the loop. A window and a group must be `pinned` while it is
    read. `end_offset` is then the new checkpoint. The blocking steps raise OSError and CorruptRecord.
    """

    def __init__(self, need: CleaningNeed, wall_ms: int, dedupe_bytes: int) -> None:
        log = self.log = need.log
        self._config = log.config
        self._size_max = log.decompressed_bytes_max
        self._wall_ms = wall_ms
        self._first_dirty_offset = need.first_dirty_offset
        self._truncations = log.truncations
        self._sources = [
            _Source(segment) for segment in log.segments[:-1] if segment.base_offset < need.end_offset
        ]
        self._end_offset = need.end_offset
        #: None before `find_aborted` has found all.
        self._aborted: list[AbortedTransaction] | None = None
        self._last_records = {
            producer_id: (entry.last_offset if entry.last_offset >= 0 else None, entry.epoch)
            for producer_id, entry in log.producer_state.entries.items()
        }
        self._map = OffsetMap(dedupe_bytes // BYTES_PER_KEY)
        self._map.latest_offset = need.first_dirty_offset - 1
        self._mapped: CleanedTransactions | None = None
        self._is_map_full = False
        self._filter: BatchFilter | None = None
        self.groups: list[list[_Source]] = []
        #: The index of transactions of the group that was written last.
        self._written: TransactionIndex | None = None
        self.bytes_read = self.bytes_written = 0
        self._is_stopped = False

    @property
    def end_offset(self) -> int:
        """The log is compacted below this offset once the round is done."""
        return self._map.latest_offset + 1

    @property
    def map_filled(self) -> float:
        """The share of the key memory that the round uses, 0 to 1."""
        return self._map.filled

    # -- on the loop

    def find_aborted(self) -> Steps[None]:
        """Look up the aborted transactions, some in a step. Raises StorageError."""
        log, start_offset = self.log, self.log.segments.bases[0]
        found: list[AbortedTransaction] = []
        while some := log.aborted_transactions(start_offset, self._end_offset, ABORTED_AT_ONCE):
            found += some
            start_offset = some[-1].last_offset + 1
            yield
        self._aborted = found

    def windows(self) -> Iterator[list[_Source]]:
        """The dirty segments, PINNED_MAX at a time, until their keys fill the map."""
        bases = [source.base_offset for source in self._sources]
        first = max(bisect_right(bases, self._first_dirty_offset) - 1, 0)
        for start in range(first, len(bases), PINNED_MAX):
            if self._is_map_full:
                return
            yield self._sources[start : start + PINNED_MAX]

    @contextlib.contextmanager
    def pinned(self, sources: list[_Source]) -> Iterator[bool]:
        """Keep the files of some segments open. Yields whether they are: False if the log was truncated, trimmed or moved since the round
        began. Raises StorageError."""
        try:
            are_there = self._is_unchanged(sources)
            if are_there:
                for source in sources:
                    source.open()
            yield are_there
        finally:
            for source in sources:
                source.release()

    # -- on any thread

    def build_map(self, window: list[_Source]) -> None:
        """Read the keys of some dirty segments, as many as fit. Like `write`, raises CorruptRecord for a batch with a wrong checksum: a
        rebuilt batch gets a new checksum, which would hide the damage."""
        assert self._aborted is not None
        if self._mapped is None:
            self._mapped = CleanedTransactions([entry for entry in self._aborted if entry.last_offset >= self._first_dirty_offset])
        ends = [source.base_offset for source in self._sources_behind(window)] + [self._end_offset]
        for source, end in zip(window, ends, strict=False):
            if not self._map_segment(source, self._mapped):
                self._is_map_full = True
                return
            # A segment may end before the next one begins: it is mapped up to there.
            self._map.latest_offset = max(self._map.latest_offset, end - 1)

    def _sources_behind(self, window: list[_Source]) -> list[_Source]:
        """The segments behind the first of a window."""
        start = bisect_right(self._sources, window[0].base_offset, key=_base_offset)
        return self._sources[start : start + len(window)]

    def plan(self) -> None:
        """Group the segments that are merged into one, after their keys were mapped."""
        assert self._aborted is not None
        self._group()
        self._filter = BatchFilter(
            self._map,
            CleanedTransactions(self._aborted),
            self._last_records,
            now_ms=self._wall_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            size_max=self._size_max,
        )

    def _map_segment(self, source: _Source, transactions: CleanedTransactions) -> bool:
        for count, (_, _, header, batch) in enumerate(checked_batches(source.pin, 0, source.size)):
            if header[BASE_OFFSET] + header[LAST_DELTA] < self._first_dirty_offset:
                continue
            if not map_batch(self._map, transactions, batch, 0, header, self._first_dirty_offset, self._size_max):
                return False
            if count % _BATCHES_PER_SLICE == 0:
                self._yield_to_threads()
        return True

    def _yield_to_threads(self) -> None:
        if self._is_stopped:
            raise CleaningStopped
        time.sleep(0)

    def _group(self) -> None:
        """Merge neighbouring segments as long as the result stays within segment.bytes and the size of its indexes."""
        config = self._config
        sources = [source for source in self._sources if source.base_offset < self.end_offset]
        ends = [source.base_offset for source in sources[1:]] + [self._end_offset]
        size = index_bytes = time_index_bytes = 0
        for source, end in zip(sources, ends, strict=True):
            size += source.size
            index_bytes += source.index_bytes
            time_index_bytes += source.time_index_bytes
            if (
                self.groups
                and len(self.groups[-1]) < PINNED_MAX
                and size <= config.segment_bytes
                and max(index_bytes, time_index_bytes) <= config.segment_index_bytes
                and (source.size == 0 or end - 1 - self.groups[-1][0].base_offset <= INT32_MAX)
            ):
                self.groups[-1].append(source)
            else:
                self.groups.append([source])
                size, index_bytes, time_index_bytes = source.size, source.index_bytes, source.time_index_bytes

    def write(self, group: list[_Source]) -> None:
        """Write the retained batches of a group into `.cleaned` files and sync them."""
        assert self._filter is not None
        log, transactions = self.log, self._filter.transactions
        directory = group[0].segment.log_path.rpartition("/")[0]
        cleaned = Segment.create(log.filesystem, directory, group[0].base_offset, self._config, self._wall_ms, suffix=CLEANED)
        try:
            for source in group:
                self.bytes_read += source.size
                self._write_segment(source, cleaned)
            cleaned.txn_index.append(transactions.kept)
            self._written = cleaned.txn_index
            transactions.kept.clear()
            cleaned.become_inactive()
            cleaned.sync()
            self.bytes_written += cleaned.size
        finally:
            cleaned.close_files()

    def _write_segment(self, source: _Source, cleaned: Segment) -> None:
        assert self._filter is not None
        retained = self._filter.retained
        for count, (_, size, header, batch) in enumerate(checked_batches(source.pin, 0, source.size)):
            kept = retained(batch, 0, size, header)
            if kept is not None:
                timestamp = HEADER.unpack_from(kept)[MAX_TIMESTAMP]
                cleaned.append(kept, len(kept), header[BASE_OFFSET] + header[LAST_DELTA], timestamp)
            if count % _BATCHES_PER_SLICE == 0:
                self._yield_to_threads()

    # -- on the loop

    def swap(self, group: list[_Source], wall_ms: int) -> bool:
        """Replace the group's segments by the `.cleaned` one. False, and nothing changes, if the log was truncated, trimmed or moved since
        it was read. Raises StorageError."""
        if not self._is_unchanged(group):
            self._discard(group)
            return False
        cleaned = self.log.replace_segments([source.segment for source in group], wall_ms)
        if self._written is not None:
            cleaned.txn_index.begins_as(self._written)
        return True

    def _is_unchanged(self, sources: list[_Source]) -> bool:
        log, held = self.log, set(self.log.segments)
        return (
            log.failure is None
            and log.truncations == self._truncations
            and all(source.segment in held and source.size == source.segment.size for source in sources)
        )

    def _discard(self, group: list[_Source]) -> None:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            stem = group[0].segment.log_path.partition(".log")[0]
            with contextlib.suppress(OSError):
                self.log.filesystem.unlink(stem + suffix + CLEANED)

    def stop(self) -> None:
        """Make a blocking step on another thread end soon, with CleaningStopped."""
        self._is_stopped = True


def _base_offset(source: _Source) -> int:
    return source.base_offset
