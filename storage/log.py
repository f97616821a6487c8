"""The log of one topic partition (Kafka's UnifiedLog): segments, epochs, producers, watermarks.

Single-threaded: all calls come from one event loop (or from one worker while the log is being loaded). What blocks
long - syncing - is split off as a FlushTask that may run elsewhere. Offsets are published after their bytes are
written; a failed write is cut off again and takes the log offline (`failure`).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable
from itertools import takewhile
from struct import Struct

from crc32c import crc32c

from storage import retention
from storage.batch_scan import CONTROL_BIT, CRC_FROM, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, Header, prepare_producer
from storage.checkpoint import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, write_partition_metadata
from storage.config import LogConfig
from storage.epoch_cache import EpochCache
from storage.errors import StorageError, UnexpectedAppendOffset
from storage.filesystem import FileSystem
from storage.flush import FlushTask
from storage.producer_state import ProducerStateManager, ProducerUpdate
from storage.segment import Segment
from storage.slice import empty_slice
from storage.types import AbortedTransaction, AppendInfo, EpochEnd, OffsetPosition, ReadResult, TimestampOffset
from storage.validation import SMALL_BATCH_RECORDS, check_client_header, fit_to_topic, one_batch
from wire.batch import HEADER, LOG_OVERHEAD, OVERHEAD
from wire.errors import ApiError, ErrorCode

_BASE_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_ODD_BITS = 0x04 | TIMESTAMP_TYPE_BIT
_ZERO_UUID = bytes(16)


class Log:
    """See the methods; attributes are for reading only. Made by `storage.recovery.load_log`."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        on_failure: Callable[[StorageError], None] | None = None,
        jitter_ms: Callable[[int], int] | None = None,
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = _ZERO_UUID
        self.epochs = EpochCache(filesystem, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.producer_state = ProducerStateManager(filesystem, directory, self.name, config.producer_id_expiration_ms)
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.size = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        self.failure: StorageError | None = None
        self.is_flush_wanted = False
        self.truncations = 0
        self.unsynced_snapshots: list[str] = []
        self.doomed: list[tuple[int, str]] = []
        self._on_failure = on_failure
        self._pick_jitter = jitter_ms
        self._position_cache: OffsetPosition | None = None
        self._active: Segment
        self.config: LogConfig
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Take a changed topic configuration; index sizes apply from the next segment on."""
        self.config = config
        self.producer_state.expiration_ms = config.producer_id_expiration_ms
        self._choose_jitter()
        # Batches as clients usually send them skip fit_to_topic.
        self._is_plain = (
            config.compression_type == "producer" and not config.is_log_append_time and not config.is_compacted
        )

    def set_segments(self, segments: list[Segment], log_end_offset: int) -> None:
        """(Loading and truncation.) The last segment must be ready for appends."""
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._active.forget_recent(log_end_offset)
        self.size = sum(segment.size for segment in segments)
        self.log_end_offset = log_end_offset
        self._position_cache = None

    # -- watermarks and small facts

    @property
    def active_segment_base_offset(self) -> int:
        return self._active.base_offset

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest if self.epochs.latest >= 0 else None

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the first transaction that is open or not replicated yet."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> bool:
        """Clamped into [log start, log end]; True when it moved."""
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producer_state.on_high_watermark(offset)
        return True

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata. Raises ApiError(INCONSISTENT_TOPIC_ID) if the log belongs to another topic."""
        if self.topic_id == topic_id:
            return
        if self.topic_id != _ZERO_UUID:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.name} is the log of another topic of that name")
        with self.disk("write partition.metadata"):
            write_partition_metadata(self.filesystem, f"{self.directory}/{PARTITION_METADATA}", topic_id)
        self.topic_id = topic_id

    def assign_epoch_start(self, leader_epoch: int, offset: int) -> None:
        """A leader notes its epoch at once, before any record."""
        with self.disk("write the leader epoch checkpoint"):
            self.epochs.assign(leader_epoch, offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """KIP-101/279: (largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        wall_ms: int,
        *,
        origin: str = "client",
        requires_sequence_checks: bool = True,
    ) -> AppendInfo:
        """Append one client batch (several for origin "coordinator" and "raft"). Offsets and epoch are patched into
        `records`, which must be writable. Raises ApiError, with nothing appended, for what must not be stored;
        StorageError if the disk fails."""
        if origin != "client":
            return self._append_internal(records, leader_epoch, wall_ms)
        if self.failure is not None:
            raise self.failure
        size = len(records)
        if size < OVERHEAD:
            one_batch(records)
        header: Header = HEADER.unpack_from(records)
        base, length, _, magic, crc, attributes, delta, base_timestamp, timestamp, producer_id, _, sequence, count = header
        if length + LOG_OVERHEAD != size or magic != 2:
            records = one_batch(records)
            size = len(records)
        config = self.config
        if size > config.max_message_bytes or size > config.segment_bytes:
            self._refuse_size(size)
        if crc32c(records[CRC_FROM:]) != crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc}) in {self.name}")
        if base != 0 or count != delta + 1 or delta < 0 or attributes & CONTROL_BIT or (producer_id >= 0 > sequence):
            check_client_header(header, self.name)
        append_time = -1
        if (
            not self._is_plain
            or attributes & _ODD_BITS
            or count <= SMALL_BATCH_RECORDS
            or timestamp > wall_ms + config.message_timestamp_after_max_ms
            or base_timestamp < wall_ms - config.message_timestamp_before_max_ms
        ):
            records = fit_to_topic(records, header, config, wall_ms, self.name)
            header = HEADER.unpack_from(records)
            size, timestamp = len(records), header[8]
            if config.is_log_append_time:
                append_time = wall_ms
        first = self.log_end_offset
        last = first + delta
        update: ProducerUpdate | None = None
        if producer_id >= 0:
            duplicate = self._duplicate(header, timestamp)
            if duplicate is not None:
                return duplicate
            update = ProducerUpdate()
            self._prepare_client_batch(update, header, first, last, requires_sequence_checks)
        _BASE_OFFSET.pack_into(records, 0, first)
        _EPOCH.pack_into(records, 12, leader_epoch)
        try:
            if leader_epoch != self.epochs.latest:
                self.epochs.assign(leader_epoch, first)
            segment = self._active
            if segment.should_roll(config, self._jitter_ms, size, last, timestamp, wall_ms):
                segment = self.roll(wall_ms, first)
            segment.append(records, size, last, timestamp)
        except BaseException as error:
            raise self._undo(error) from error
        self.size += size
        self.log_end_offset = last + 1
        if update is not None:
            self.producer_state.publish(update)
        self.producer_state.advance(last + 1)
        if last + 1 - self.recovery_point >= config.flush_messages:
            self.flush()
        return AppendInfo(first, last, timestamp, append_time, self.log_start_offset, False, 1, leader_epoch)

    def _refuse_size(self, size: int) -> None:
        config = self.config
        if size > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {self.name} is {size} bytes which exceeds the maximum "
                f"configured value of {config.max_message_bytes}.",
            )
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {self.name}, which exceeds the maximum "
            f"configured segment size of {config.segment_bytes}.",
        )

    def _duplicate(self, header: Header, timestamp: int) -> AppendInfo | None:
        delta, producer_id, epoch, sequence = header[6], header[9], header[10], header[11]
        last_sequence = (sequence + delta) & 0x7FFFFFFF
        found = self.producer_state.find_duplicate(producer_id, epoch, sequence, last_sequence)
        if found is None:
            return None
        first, last, first_timestamp = found
        append_time = first_timestamp if self.config.is_log_append_time else -1
        return AppendInfo(first, last, timestamp, append_time, self.log_start_offset, True, 1, header[2])

    def _prepare_client_batch(
        self, update: ProducerUpdate, header: Header, first: int, last: int, requires_sequence_checks: bool
    ) -> None:
        self.producer_state.prepare_batch(
            update,
            header[9],
            header[10],
            header[11],
            first,
            last,
            header[8],
            bool(header[5] & TRANSACTIONAL_BIT),
            check_epoch=True,
            check_sequence=requires_sequence_checks,
        )

    def _append_internal(self, records: memoryview, leader_epoch: int, wall_ms: int) -> AppendInfo:
        """Batches of a coordinator or of the raft leader: control batches and any sequence may be there. Offsets
        follow the end of the log."""
        headers = self._whole_batches(records)
        offset = self.log_end_offset
        for position, size, header in headers:
            if size > self.config.max_message_bytes or size > self.config.segment_bytes:
                self._refuse_size(size)
            _BASE_OFFSET.pack_into(records, position, offset)
            _EPOCH.pack_into(records, position + 12, leader_epoch)
            offset += header[6] + 1
        if not headers:
            raise ApiError(ErrorCode.INVALID_RECORD, f"no whole record batch in the append to {self.name}")
        placed = self._whole_batches(records)
        return self._append_batches(records, placed, wall_ms, check_epoch=True)

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> AppendInfo:
        """Append fetched batches byte for byte. An incomplete tail is ignored, and everything from the first batch on
        whose epoch is higher than `leader_epoch`, the one the fetch was made in (KAFKA-18723). Raises
        UnexpectedAppendOffset if the first batch does not continue the log, ApiError(CORRUPT_MESSAGE) for a wrong CRC.
        `batches` is 0 if nothing was whole."""
        headers = self._whole_batches(records)
        if leader_epoch is not None:
            headers = list(takewhile(lambda entry: entry[2][2] <= leader_epoch, headers))
        if not headers:
            end = self.log_end_offset
            return AppendInfo(end, end - 1, -1, -1, self.log_start_offset, False, 0, -1)
        first = headers[0][2]
        if first[0] < self.log_end_offset:
            last = first[0] + first[6]
            if self.log_end_offset == self.log_start_offset <= last:
                # The log starts inside of this batch (the leader's log start does): keep the batch whole.
                self.truncate_fully_and_start_at(first[0])
            else:
                raise UnexpectedAppendOffset(
                    f"{self.name} ends at {self.log_end_offset}, but the fetched batch begins at {first[0]}",
                    first[0],
                    last,
                )
        previous = self.log_end_offset - 1
        for position, _, header in headers:
            if header[0] <= previous or header[6] < 0:
                raise UnexpectedAppendOffset(
                    f"{self.name}: offset {header[0]} follows {previous} at byte {position} of the fetched batches",
                    header[0],
                    header[0] + header[6],
                )
            previous = header[0] + header[6]
        return self._append_batches(records, headers, -1, check_epoch=False)

    def _whole_batches(self, records: memoryview) -> list[tuple[int, int, Header]]:
        """Checked batches from the start of `records`. Raises ApiError(CORRUPT_MESSAGE)."""
        if self.failure is not None:
            raise self.failure
        found: list[tuple[int, int, Header]] = []
        position, end, unpack = 0, len(records), HEADER.unpack_from
        while position + OVERHEAD <= end:
            header: Header = unpack(records, position)
            size = header[1] + LOG_OVERHEAD
            if size < OVERHEAD or header[3] != 2:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: no record batch at byte {position}")
            if position + size > end:
                break
            if crc32c(records[position + CRC_FROM : position + size]) != header[4]:
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.name}: the batch at offset {header[0]} is corrupt (stored crc = {header[4]})",
                )
            found.append((position, size, header))
            position += size
        return found

    def _append_batches(
        self, records: memoryview, headers: list[tuple[int, int, Header]], wall_ms: int, *, check_epoch: bool
    ) -> AppendInfo:
        update = ProducerUpdate()
        entries: list[tuple[int, int, int, int]] = []
        largest = -1
        for position, size, header in headers:
            last = header[0] + header[6]
            largest = max(largest, header[8])
            entries.append((position, size, last, header[8]))
            if header[9] >= 0:
                prepare_producer(self.producer_state, update, records, position, header, check_epoch=check_epoch)
        first_offset, epoch = headers[0][2][0], headers[-1][2][2]
        end = entries[-1][0] + entries[-1][1]
        try:
            for _, _, header in headers:
                if header[2] != self.epochs.latest and header[2] >= 0:
                    self.epochs.assign(header[2], header[0])
            segment = self._active
            if segment.should_roll(self.config, self._jitter_ms, end, last, largest, max(wall_ms, segment.created_ms)):
                segment = self.roll(max(wall_ms, segment.created_ms), first_offset)
            segment.append_all(records[:end], entries)
            self.size += end
            self.log_end_offset = last + 1
            self.producer_state.publish(update)
            for completed in update.completed:
                if completed.is_aborted:
                    stable = self.producer_state.last_stable_offset_after(completed)
                    segment.append_aborted(completed, stable)
                self.producer_state.complete(completed)
        except BaseException as error:
            raise self._undo(error) from error
        self.producer_state.advance(last + 1)
        if last + 1 - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return AppendInfo(first_offset, last, largest, -1, self.log_start_offset, False, len(headers), epoch)

    def _undo(self, error: BaseException) -> BaseException:
        """A failed append: what it wrote must never be read, now or after a restart (KAFKA-19407)."""
        self._active.discard_after(self._active.size)
        if isinstance(error, OSError):
            return self.fail("append to the log", error)
        return error

    # -- reading

    def read(self, offset: int, bytes_max: int, *, end_offset: int, at_least_one: bool = True) -> ReadResult:
        """Batches from the one that holds `offset`, up to `bytes_max` bytes and below `end_offset`, from one segment.
        `at_least_one`: the first batch is returned whole even if larger. The slice is empty if there is nothing below
        `end_offset` yet. Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE)."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self._refuse_offset(offset)
        if offset >= end_offset or offset == self.log_end_offset:
            return ReadResult(empty_slice(), self.offset_position(offset))
        with self.disk("read the log"):
            index = bisect_right(self.bases, offset) - 1
            stop = None if end_offset >= self.log_end_offset else self.offset_position(end_offset)
            for segment in self.segments[max(index, 0) :]:
                found = segment.translate(offset)
                if found is None:
                    continue
                position, first_size = found
                limit = segment.size
                if stop is not None and stop.segment_base_offset <= segment.base_offset:
                    limit = stop.file_position if stop.segment_base_offset == segment.base_offset else 0
                size = min(limit - position, max(bytes_max, first_size) if at_least_one else bytes_max)
                where = OffsetPosition(offset, segment.base_offset, position)
                if size <= 0:
                    return ReadResult(empty_slice(), where, bytes_max < first_size)
                return ReadResult(segment.slice(position, size), where, not at_least_one and bytes_max < first_size)
        return ReadResult(empty_slice(), self._end_position())

    def _refuse_offset(self, offset: int) -> None:
        if self.failure is not None:
            raise self.failure
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self.name}, but we only have log segments from "
            f"offset {self.log_start_offset} to {self.log_end_offset}.",
        )

    def offset_position(self, offset: int) -> OffsetPosition:
        """Segment and byte of an offset. Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        if offset == self.log_end_offset:
            return self._end_position()
        cached = self._position_cache
        if cached is not None and cached.offset == offset:
            return cached
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self._refuse_offset(offset)
        with self.disk("read the log"):
            for segment in self.segments[max(bisect_right(self.bases, offset) - 1, 0) :]:
                found = segment.translate(offset)
                if found is not None:
                    self._position_cache = OffsetPosition(offset, segment.base_offset, found[0])
                    return self._position_cache
        return self._end_position()

    def _end_position(self) -> OffsetPosition:
        return OffsetPosition(self.log_end_offset, self._active.base_offset, self._active.size)

    def upper_bound_offset(self, result: ReadResult) -> int:
        """An offset beyond every record of a read, near it: bound for `aborted_transactions`."""
        index = bisect_right(self.bases, result.position.segment_base_offset) - 1
        segment = self.segments[max(index, 0)]
        bound = segment.offset_index.offset_at_or_after(result.position.file_position + result.slice.size)
        if bound is not None:
            return bound
        return self.bases[index + 1] if index + 1 < len(self.bases) else self.log_end_offset

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that touch [start_offset, end_offset)."""
        found: list[AbortedTransaction] = []
        with self.disk("read the transaction index"):
            for segment in self.segments[max(bisect_right(self.bases, start_offset) - 1, 0) :]:
                for entry in segment.txn_index.entries:
                    if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                        found.append(entry)
                    if entry.last_stable_offset >= end_offset:
                        return found
        return found

    def lookup_offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record, by offset, with a timestamp >= `timestamp`."""
        with self.disk("look up a timestamp"):
            for segment in self.segments:
                if segment.largest_timestamp() >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return found
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (ListOffsets -3); None if there is none."""
        with self.disk("look up a timestamp"):
            best = max(self.segments, key=lambda segment: segment.max_timestamp)
            return best.max_timestamp_record()

    # -- truncation, rolling, retention

    def roll(self, wall_ms: int, first_offset: int | None = None) -> Segment:
        """Close the active segment and begin the next at max(`first_offset`, log end). OSError if the disk fails."""
        offset = max(self.log_end_offset, first_offset or 0)
        active = self._active
        if offset == active.base_offset and active.size == 0:
            # Nothing to keep (an index that is full although the segment is empty, KAFKA-6492): begin it anew.
            self._drop([active], wall_ms)
        else:
            active.become_inactive()
        segment = Segment.create(self.filesystem, self.directory, offset, self.config, wall_ms)
        self.segments.append(segment)
        self.bases.append(offset)
        self._active = segment
        self._choose_jitter()
        self.producer_state.advance(offset)
        snapshot = self.producer_state.take_snapshot(sync=False)
        if snapshot is not None:
            self.unsynced_snapshots.append(snapshot.path)
            snapshot.close()
        self.is_flush_wanted = True
        return segment

    def truncate_to(self, offset: int, wall_ms: int = 0) -> bool:
        """Drop everything from `offset` on. False, with only the epochs cut, if the log ends there already
        (KAFKA-10706)."""
        if offset < 0:
            raise ValueError(f"truncation to offset {offset}")
        with self.disk("truncate the log"):
            if offset >= self.log_end_offset:
                self.epochs.truncate_from_end(offset)
                return False
            if offset < self.bases[0]:
                self.truncate_fully_and_start_at(offset, wall_ms)
                return True
            keep = bisect_right(self.bases, offset)
            self._drop(self.segments[keep:], wall_ms)
            self.segments[-1].truncate_to(offset, wall_ms)
            self.epochs.truncate_from_end(offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._restart_at(offset, wall_ms)
        return True

    def truncate_fully_and_start_at(self, offset: int, wall_ms: int = 0) -> None:
        """Drop everything; the empty log starts at `offset`."""
        with self.disk("truncate the log"):
            self._drop(self.segments[:], wall_ms)
            self.segments = [Segment.create(self.filesystem, self.directory, offset, self.config, wall_ms)]
            self.epochs.clear()
            self.producer_state.truncate_fully_and_start_at(offset)
            self.log_start_offset = offset
            self._restart_at(offset, wall_ms)

    def _restart_at(self, offset: int, wall_ms: int) -> None:
        # Producers and the first unstable offset go back before the end offset is published (KAFKA-12153).
        retention.rebuild_producers(self, self.segments, offset, wall_ms)
        self.set_segments(self.segments, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.truncations += 1
        if self.high_watermark > offset or self.high_watermark < self.log_start_offset:
            self.high_watermark = offset
            self.producer_state.on_high_watermark(offset)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Hide what is below `offset`; True if it moved. Raises ApiError(OFFSET_OUT_OF_RANGE) beyond the high
        watermark. Segments go at the next `delete_old_segments`."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is larger than "
                f"the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        with self.disk("move the log start"):
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producer_state.on_log_start_offset(offset)
        return True

    def delete_old_segments(self, wall_ms: int) -> int:
        """Retention: by log start, then size and time if the policy says so. Returns the number of segments. Files
        are renamed now and unlinked by `delete_files` when file.delete.delay.ms has passed."""
        with self.disk("delete old segments"):
            return retention.delete_old_segments(self, wall_ms)

    def delete_files(self, wall_ms: int) -> None:
        """Unlink renamed files whose delay has passed."""
        with self.disk("delete files"):
            while self.doomed and self.doomed[0][0] <= wall_ms:
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(self.doomed[0][1])
                del self.doomed[0]

    def _drop(self, segments: list[Segment], wall_ms: int) -> None:
        """Rename the files of `segments` and forget them."""
        due = wall_ms + self.config.file_delete_delay_ms
        for segment in segments:
            names = segment.mark_deleted()
            snapshot = self.producer_state.mark_snapshot_deleted(segment.base_offset)
            self.doomed.extend((due, name) for name in (names if snapshot is None else [*names, snapshot]))
        gone = {segment.base_offset for segment in segments}
        self.segments = [segment for segment in self.segments if segment.base_offset not in gone]
        self.bases = [segment.base_offset for segment in self.segments]
        self._position_cache = None

    def drop_first(self, segments: list[Segment], wall_ms: int) -> None:
        """(Retention.) The oldest segments go; the log starts at the next."""
        self.size -= sum(segment.size for segment in segments)
        self._drop(segments, wall_ms)
        if self.bases[0] > self.log_start_offset:
            self.increment_log_start_offset(self.bases[0])

    # -- durability and the end

    def prepare_flush(self, up_to: int | None = None) -> FlushTask | None:
        """What must be synced so that everything below `up_to` (the log end) is durable; None if nothing. Run it
        anywhere, then call its `finish` here."""
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        self.is_flush_wanted = False
        if end <= self.recovery_point and not self.unsynced_snapshots:
            return None
        with self.disk("flush the log"):
            return FlushTask(self, end)

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to` and move the recovery point. Raises StorageError; never retried."""
        task = self.prepare_flush(up_to)
        if task is not None:
            with self.disk("flush the log"):
                task.run()
            task.finish()

    def close(self) -> None:
        """Cleanly: snapshot of the producers, sync, indexes cut. After a failure files are just closed."""
        if self.failure is not None:
            self.close_files()
            return
        with self.disk("close the log"):
            self.producer_state.take_snapshot()
            self.flush()
            for segment in self.segments:
                segment.close()

    def close_files(self) -> None:
        """Without writing."""
        for segment in self.segments:
            with contextlib.suppress(OSError):
                segment.close_files()

    def delete(self) -> None:
        """Unlink every file and the directory."""
        self.close_files()
        with self.disk("delete the log"):
            for name in self.filesystem.list(self.directory):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(f"{self.directory}/{name}")
            self.filesystem.rmdir(self.directory)

    def fail(self, action: str, error: OSError) -> StorageError:
        """Take the log offline; the error to raise."""
        failure = StorageError(f"cannot {action} of {self.name} in {self.directory}", path=self.directory, cause=error)
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)
        return failure

    def disk(self, action: str) -> _DiskGuard:
        """Context in which an OSError becomes a StorageError."""
        return _DiskGuard(self, action)

    def _choose_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = self._pick_jitter(bound) if self._pick_jitter is not None and bound > 0 else 0


class _DiskGuard:
    __slots__ = ("_action", "_log")

    def __init__(self, log: Log, action: str) -> None:
        self._log = log
        self._action = action

    def __enter__(self) -> None:
        if self._log.failure is not None:
            raise self._log.failure

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._log.fail(self._action, error) from error

