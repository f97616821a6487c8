"""Appending to a log: as leader, batches of clients and coordinators; as follower, fetched batches.

The order is check, write, publish. A refused batch changes nothing, and the bytes of a failed write are truncated again. A plain client
batch costs a few microseconds: one unpack, one CRC, one pwrite.
"""

from __future__ import annotations

from struct import Struct

from minikafka.storage.batch_scan import CRC_FROM, INT32_MAX, prepare_producer
from minikafka.storage.config import INT64_MAX, LogConfig
from minikafka.storage.errors import StorageError, UnexpectedAppendOffset
from minikafka.storage.log_parts import LogParts
from minikafka.storage.producer_state import UNCHECKED, ProducerEntry, ProducerUpdate, Verification
from minikafka.storage.rolling import Rolling
from minikafka.storage.segment import Segment
from minikafka.storage.truncation import Truncation
from minikafka.storage.types import AppendInfo
from minikafka.storage.validation import (
    LIGHT_BYTES_MAX,
    RECORD_BYTES_MIN,
    SMALL_BATCH_RECORDS,
    Fitting,
    HeavyBatch,
    check_client_header,
    ends_with_its_stream,
    fit_to_topic,
    is_heavy,
    is_simple_record,
    one_batch,
)
from minikafka.wire.batch import (
    ATTRIBUTES_LOW_BYTE,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    LOG_OVERHEAD,
    OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    decompressed_bytes_max,
)
from minikafka.wire.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    COUNT,
    CRC,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Header,
)
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import ApiError, ErrorCode

#: Base offset, batch length, partition leader epoch: the fields before the CRC, which a leader sets.
_PLACE = Struct(">qii")
#: A batch within the given bytes: position, size, header.
PlacedBatch = tuple[int, int, Header]
_ODD_BITS = 0x04 | TIMESTAMP_TYPE_BIT | CONTROL_BIT


class BatchRun:
    """Clients' batches of one log that arrived together and are written together.

    It holds only batches that pass `LogAppender.plain_header`, and that, if they have a producer id, simply continue their producer. The
    log is not changed before the append.
    """

    __slots__ = (
        "_entries", "_plain_header", "_room", "batches", "end_offset", "first_offset", "max_timestamp", "producers", "size", "wall_ms",
    )  # fmt: skip

    def __init__(
        self, appender: LogAppender, entries: dict[int, ProducerEntry], first_offset: int, wall_ms: int, room: tuple[int, int]
    ) -> None:
        """`room`: see `LogAppender.begin_run`."""
        self._plain_header = appender.plain_header
        self._entries = entries
        self._room = room
        self.wall_ms = wall_ms
        #: Each batch as the client sent it, and its header.
        self.batches: list[tuple[memoryview, Header]] = []
        #: The offsets that the append gives them; exclusive end.
        self.first_offset = self.end_offset = first_offset
        self.size = 0
        self.max_timestamp = -1
        #: The producers' entries after the append.
        self.producers: dict[int, ProducerEntry] = {}

    def add(self, records: memoryview) -> int:
        """Add a batch, whose bytes must stay where they are until the append. Returns the number of its records; 0, with nothing changed,
        if it must be appended by itself."""
        header = self._plain_header(records, self.wall_ms)
        if header is None or header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            return 0
        size_max, timestamp_max = self._room
        if self.size + len(records) > size_max or header[MAX_TIMESTAMP] > timestamp_max:
            return 0
        count: int = header[COUNT]
        end = self.end_offset + count
        if header[PRODUCER_ID] >= 0 and not self._continue(header, end - 1):
            return 0
        self.batches.append((records, header))
        self.end_offset = end
        self.size += len(records)
        self.max_timestamp = max(self.max_timestamp, header[MAX_TIMESTAMP])
        return count

    def _continue(self, header: Header, last_offset: int) -> bool:
        """Add the batch to its producer's entry. False, with nothing changed, if it is not simply the next one."""
        producer_id, epoch, sequence, delta = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE], header[LAST_DELTA]
        entry = self.producers.get(producer_id)
        own = entry or self._entries.get(producer_id)
        if own is None or not own.is_next(epoch, sequence):
            return False
        if entry is None:
            entry = self.producers[producer_id] = own.copy()
        entry.add_batch(epoch, (sequence + delta) & INT32_MAX, last_offset, delta, header[MAX_TIMESTAMP])
        return True


class LogAppender:
    """Appends to one log."""

    __slots__ = (
        "_after_max_ms",
        "_batch_bytes_max",
        "_before_max_ms",
        "_config",
        "_disk",
        "_durability",
        "_epochs",
        "_flush_messages",
        "_is_plain",
        "_producers",
        "_records_bytes_max",
        "_rolling",
        "_segments",
        "_truncation",
        "_watermarks",
    )

    def __init__(self, parts: LogParts, config: LogConfig, rolling: Rolling, truncation: Truncation) -> None:
        # Kept as attributes of their own: every append uses them.
        self._disk = parts.disk
        self._epochs = parts.epochs
        self._producers = parts.producers
        self._watermarks = parts.watermarks
        self._segments = parts.segments
        self._durability = parts.durability
        self._rolling = rolling
        self._truncation = truncation
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed topic configuration."""
        self._config = config
        self._batch_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        self._records_bytes_max = decompressed_bytes_max(config.max_message_bytes)
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._flush_messages = config.flush_messages - 1
        # With such a configuration, batches as clients usually send them skip fit_to_topic.
        self._is_plain = config.compression_type == "producer" and not config.is_log_append_time and not config.is_compacted

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, wall_ms: int, *, origin: str = "client", requires_sequence_checks: bool = True,
        verification: Verification | None = UNCHECKED, fitting: Fitting = Fitting.HERE,
    ) -> AppendInfo:  # fmt: skip
        """Append one client batch (several for origin "coordinator" and "raft").

        Offsets and epoch are patched into `records`, which must be writable. `verification`: a batch that begins a transaction needs the
        one that `begin_verification` gave; with None it is refused, with UNCHECKED nothing is checked. Raises ApiError, with nothing
        appended, for a batch that must not be stored; StorageError if the disk fails.
        """
        if origin != "client":
            return self._append_internal(records, leader_epoch, wall_ms)
        if self._disk.failure is not None:
            raise self._disk.failure
        durability = self._durability
        if durability.is_cut:
            durability.sync_cut()
        append_time = -1
        header = None if fitting is Fitting.DONE else self.plain_header(records, wall_ms)
        if header is None:
            records, header = self._checked(records, wall_ms, fitting)
            if self._config.is_log_append_time:
                append_time = header[MAX_TIMESTAMP]
        # The first part of what `must_sync_first` asks: for most logs it is all.
        may_sync = self._segments.may_have_gaps or durability.stale_point > durability.recovery_point
        if may_sync and fitting is Fitting.ELSEWHERE and self.must_sync_first(records, wall_ms):
            raise HeavyBatch
        if header[PRODUCER_ID] < 0:
            return self._write(records, header, leader_epoch, wall_ms, None, append_time)
        admitted = self._admit(header, requires_sequence_checks, verification)
        if isinstance(admitted, AppendInfo):
            return admitted
        return self._write(records, header, leader_epoch, wall_ms, admitted, append_time)

    def plain_header(self, records: memoryview, wall_ms: int) -> Header | None:
        """The header of a client's batch that passes every check and is stored as it is; None if `_checked` has to decide. Most batches are
        of this kind."""
        size = len(records)
        if size < OVERHEAD:
            return None
        header: Header = HEADER.unpack_from(records)
        base, length, _, magic, crc, attributes, delta, base_timestamp, timestamp, producer_id, _, sequence, count = header
        if (
            self._is_plain
            and length + LOG_OVERHEAD == size <= self._batch_bytes_max
            and magic == 2
            and base == 0
            and (producer_id < 0 or sequence >= 0)
            and timestamp <= wall_ms + self._after_max_ms
            and base_timestamp >= wall_ms - self._before_max_ms
            and (
                (delta == 0 and timestamp == base_timestamp and is_simple_record(records, size))
                if count == 1
                else SMALL_BATCH_RECORDS < count == delta + 1 and count * RECORD_BYTES_MIN <= size - OVERHEAD
            )
            and crc32c(records[CRC_FROM:]) == crc
            and (not attributes or self._is_plain_body(records, attributes, count))
        ):
            return header
        return None

    @staticmethod
    def _is_plain_body(records: memoryview, attributes: int, count: int) -> bool:
        """Whether a batch with these attributes, of a client, may be stored as it is."""
        codec = attributes & CODEC_MASK
        return not attributes & _ODD_BITS and (not codec or ends_with_its_stream(records[OVERHEAD:], codec, count))

    def _checked(self, records: memoryview, wall_ms: int, fitting: Fitting) -> tuple[memoryview, Header]:
        """Check a batch and convert it by the topic's configuration. Raises ApiError for a batch that must not be stored."""
        size = len(records)
        if size < OVERHEAD:
            one_batch(records)
        header: Header = HEADER.unpack_from(records)
        base, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = header
        if length + LOG_OVERHEAD != size or magic != 2:
            records = one_batch(records)
            size = len(records)
        if size > self._batch_bytes_max:
            self._refuse_size(size)
        if crc32c(records[CRC_FROM:]) != crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc}) in {self._disk.name}")
        has_records = 0 <= delta == count - 1 and count * RECORD_BYTES_MIN <= size - OVERHEAD
        if base != 0 or not has_records or attributes & CONTROL_BIT or producer_id >= 0 > sequence:
            check_client_header(header, self._disk.name, self._records_bytes_max)
        if fitting is Fitting.DONE:
            return records, header
        return self._fit(records, header, wall_ms, fitting)

    def _fit(self, records: memoryview, header: Header, wall_ms: int, fitting: Fitting) -> tuple[memoryview, Header]:
        """Check and convert the batch by the topic's configuration. Raises HeavyBatch if that takes long and belongs on another thread."""
        if fitting is Fitting.ELSEWHERE and is_heavy(records, header, self._config):
            raise HeavyBatch
        records = fit_to_topic(records, header, self._config, wall_ms, self._disk.name)
        return records, HEADER.unpack_from(records)

    def _write(
        self,
        records: memoryview,
        header: Header,
        leader_epoch: int,
        wall_ms: int,
        admitted: ProducerEntry | ProducerUpdate | None,
        append_time: int,
    ) -> AppendInfo:
        """Assign offsets to a checked batch, write it and publish it. `admitted` is the result of `_admit`, None without a producer id."""
        watermarks, segments, epochs = self._watermarks, self._segments, self._epochs
        size, delta, timestamp = len(records), header[LAST_DELTA], header[MAX_TIMESTAMP]
        first = watermarks.log_end_offset
        last = first + delta
        _PLACE.pack_into(records, 0, first, size - LOG_OVERHEAD, leader_epoch)
        try:
            if leader_epoch != epochs.latest and epochs.assign(leader_epoch, first):
                self._durability.request_flush()
            segment = segments.active
            if segment.should_roll(self._config, self._rolling.jitter_ms, size, last, timestamp, wall_ms):
                segment = self._rolling.roll(wall_ms, first)
            segment.append(records, size, last, timestamp)
        except BaseException as error:
            # As the client sent them: the batch may be appended another time.
            _PLACE.pack_into(records, 0, header[BASE_OFFSET], header[LENGTH], header[LEADER_EPOCH])
            self._undo(error)
            raise
        if not segments.size:
            self._durability.begun()
        segments.size += size
        watermarks.log_end_offset = last + 1
        if admitted is not None:
            if isinstance(admitted, ProducerEntry):
                # A roll for this very batch may have begun a snapshot of the entry as it was.
                entry = self._producers.continued(admitted)
                entry.add_batch(entry.epoch, (header[BASE_SEQUENCE] + delta) & INT32_MAX, last, delta, timestamp)
            else:
                self._producers.publish(admitted)
        self._producers.advance(last + 1, 1, size)
        return AppendInfo(first, last, timestamp, append_time, watermarks.log_start_offset, False, 1, leader_epoch)

    def begin_run(self, wall_ms: int) -> BatchRun:
        """An empty run, which `append_run` appends in the same turn of the event loop. A batch that needs a new segment, or a file that
        is not open, is not for it: runs of many logs are appended together, and that takes long."""
        segment, config, room = self._segments.active, self._config, (0, 0)
        if segment.size and segment.is_open and (first := self._first_timestamp(segment)) is not None:
            latest = first + config.segment_ms - self._rolling.jitter_ms if first >= 0 else INT64_MAX
            room = config.segment_bytes - segment.size, latest
        return BatchRun(self, self._producers.entries, self._watermarks.log_end_offset, wall_ms, room)

    def append_run(self, run: BatchRun, leader_epoch: int) -> bool:
        """Append the batches of a run with one write. Returns False, with nothing changed, if they must be appended one by one: the log has
        changed since the run began, or a new segment, a flush or the like is due. Raises StorageError, with nothing appended."""
        watermarks, segment = self._watermarks, self._segments.active
        first, last = run.first_offset, run.end_offset - 1
        if (
            first != watermarks.log_end_offset
            or leader_epoch != self._epochs.latest
            or self._disk.failure is not None
            or self._durability.is_cut
            or not segment.size
            or segment.should_roll(self._config, self._rolling.jitter_ms, run.size, last, run.max_timestamp, run.wall_ms)
            or not segment.has_index_room(len(run.batches))
            or last - self._durability.recovery_point >= self._flush_messages
        ):
            return False
        entries: list[tuple[int, int, int, int]] = []
        position, offset = 0, first
        for records, header in run.batches:
            _PLACE.pack_into(records, 0, offset, header[LENGTH], leader_epoch)
            size, offset = len(records), offset + header[COUNT]
            entries.append((position, size, offset - 1, header[MAX_TIMESTAMP]))
            position += size
        try:
            segment.append_all(memoryview(b"".join([records for records, _ in run.batches])), entries)
        except BaseException as error:
            for records, header in run.batches:
                _PLACE.pack_into(records, 0, header[BASE_OFFSET], header[LENGTH], header[LEADER_EPOCH])
            self._undo(error)
            raise
        self._segments.size += run.size
        watermarks.log_end_offset = last + 1
        self._producers.entries.update(run.producers)
        self._producers.advance(last + 1, len(run.batches), run.size)
        return True

    def is_heavy(self, records: memoryview) -> bool:
        """Whether a client's batch takes so long to check and convert that `prepare` must do it before the append."""
        size = len(records)
        if size < OVERHEAD or (size <= LIGHT_BYTES_MAX and not records[ATTRIBUTES_LOW_BYTE] & CODEC_MASK):
            return False
        header: Header = HEADER.unpack_from(records)
        return size <= self._batch_bytes_max and is_heavy(records, header, self._config)

    def must_sync_first(self, records: memoryview, wall_ms: int, batches_max: int = INT32_MAX) -> bool:
        """Whether to flush the log on another thread before these batches are appended: they begin a segment, and before that the log
        must be synced (`Rolling`). Looks at up to `batches_max` batches; of a client's only the first is appended."""
        if not self._durability.must_sync_for_roll or len(records) < OVERHEAD:
            return False
        timestamp, position, end = -1, 0, len(records)
        while position + OVERHEAD <= end and batches_max:
            batches_max -= 1
            header: Header = HEADER.unpack_from(records, position)
            timestamp = max(timestamp, header[MAX_TIMESTAMP])
            position += max(header[LENGTH] + LOG_OVERHEAD, OVERHEAD)
        return self.is_roll_due(end, timestamp, wall_ms)

    def is_roll_due(self, size: int, timestamp: int, wall_ms: int) -> bool:
        """Whether an append of `size` bytes begins a segment."""
        active = self._segments.active
        end = self._watermarks.log_end_offset
        if not active.size or self._first_timestamp(active) is None:
            return False
        return active.should_roll(self._config, self._rolling.jitter_ms, size, end, timestamp, wall_ms)

    def _first_timestamp(self, segment: Segment) -> int | None:
        """See Segment.load_first_timestamp. None if it cannot be read: then the disk has failed, as the append that follows will say."""
        try:
            return segment.load_first_timestamp()
        except OSError as error:
            self._disk.fail("read the log", error)
            return None

    def prepare(self, records: memoryview, wall_ms: int) -> memoryview:
        """Check and convert a client's batch, for an append with Fitting.DONE. Does not touch the log, so it may run on another thread;
        nothing else may use `records` meanwhile. Raises ApiError for a batch that must not be stored."""
        records = one_batch(records)
        config, header = self._config, HEADER.unpack_from(records)
        if len(records) > self._batch_bytes_max:
            self._refuse_size(len(records))
        if crc32c(records[CRC_FROM:]) != header[CRC]:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header[CRC]}) in {self._disk.name}")
        check_client_header(header, self._disk.name, self._records_bytes_max)
        return fit_to_topic(records, header, config, wall_ms, self._disk.name)

    def _refuse_size(self, size: int) -> None:
        config = self._config
        if size > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {self._disk.name} is {size} bytes which exceeds the maximum "
                f"configured value of {config.max_message_bytes}.",
            )
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {self._disk.name}, which exceeds the maximum "
            f"configured segment size of {config.segment_bytes}.",
        )

    def _admit(
        self, header: Header, requires_sequence_checks: bool, verification: Verification | None
    ) -> ProducerEntry | ProducerUpdate | AppendInfo:
        """Check a batch with a producer id. Returns the producer's entry if the batch simply continues it, an update to publish after the
        write, or, for a duplicate, the result of the first append. Raises ApiError."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        producers = self._producers
        entry = producers.entries.get(producer_id)
        is_transactional = bool(attributes & TRANSACTIONAL_BIT)
        if entry is not None:
            if not is_transactional and entry.is_next(epoch, sequence):
                return entry
            found = entry.duplicate_of(epoch, sequence, (sequence + delta) & INT32_MAX)
            if found is not None:
                first_offset, last_offset, appended_ms = found
                append_time = appended_ms if self._config.is_log_append_time else -1
                return AppendInfo(first_offset, last_offset, timestamp, append_time, self._watermarks.log_start_offset, True, 1, -1)
        if is_transactional and verification is not UNCHECKED:
            producers.check_verified(producer_id, epoch, verification)
        first = self._watermarks.log_end_offset
        update = ProducerUpdate()
        producers.prepare_batch(
            update, producer_id, epoch, sequence, first, first + delta, timestamp, is_transactional,
            check_epoch=True, check_sequence=requires_sequence_checks,
        )  # fmt: skip
        return update

    def _append_internal(self, records: memoryview, leader_epoch: int, wall_ms: int) -> AppendInfo:
        """Append batches of a coordinator or of the raft leader. Control batches and any sequence are allowed."""
        headers = self._whole_batches(records)
        offset = self._watermarks.log_end_offset
        for position, size, header in headers:
            if size > self._config.max_message_bytes or size > self._config.segment_bytes:
                self._refuse_size(size)
            _PLACE.pack_into(records, position, offset, size - LOG_OVERHEAD, leader_epoch)
            offset += header[LAST_DELTA] + 1
        if not headers:
            raise ApiError(ErrorCode.INVALID_RECORD, f"no whole record batch in the append to {self._disk.name}")
        placed = [(position, size, HEADER.unpack_from(records, position)) for position, size, _ in headers]
        return self._append_batches(records, placed, wall_ms, check_epoch=True)

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> AppendInfo:
        """Append fetched batches byte for byte.

        Ignores an incomplete tail, and everything from the first batch on whose epoch is higher than `leader_epoch`, the epoch of the
        fetch (KAFKA-18723). `batches` of the result is 0 if no batch was whole. Raises UnexpectedAppendOffset if the first batch does not
        continue the log, ApiError(CORRUPT_MESSAGE) for a wrong CRC.
        """
        headers = self._whole_batches(records, INT32_MAX if leader_epoch is None else leader_epoch)
        end = self._watermarks.log_end_offset
        if not headers:
            return AppendInfo(end, end - 1, -1, -1, self._watermarks.log_start_offset, False, 0, -1)
        _, _, first = headers[0]
        if first[BASE_OFFSET] < end:
            self._begin_within(first)
        self._check_ascending(headers)
        return self._append_batches(records, headers, -1, check_epoch=False)

    def _begin_within(self, header: Header) -> None:
        """Handle a first fetched batch that begins before the log's end: allowed only in an empty log. Raises UnexpectedAppendOffset."""
        watermarks, first, last = self._watermarks, header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_DELTA]
        if not watermarks.log_end_offset == watermarks.log_start_offset <= last:
            raise UnexpectedAppendOffset(
                f"{self._disk.name} ends at {watermarks.log_end_offset}, but the fetched batch begins at {first}", first, last
            )
        # The leader's log start offset lies inside this batch: keep the batch whole.
        self._truncation.truncate_fully_and_start_at(first, 0)

    def _check_ascending(self, headers: list[PlacedBatch]) -> None:
        previous = self._watermarks.log_end_offset - 1
        for position, _, header in headers:
            first, delta = header[BASE_OFFSET], header[LAST_DELTA]
            if first <= previous or delta < 0:
                raise UnexpectedAppendOffset(
                    f"{self._disk.name}: offset {first} follows {previous} at byte {position} of the fetched batches", first, first + delta
                )
            previous = first + delta

    def _whole_batches(self, records: memoryview, epoch_max: int = INT32_MAX) -> list[PlacedBatch]:
        """The whole batches at the start of `records`, up to the first with a higher epoch than `epoch_max`, with their checksums
        verified. Raises ApiError(CORRUPT_MESSAGE)."""
        if self._disk.failure is not None:
            raise self._disk.failure
        if self._durability.is_cut:
            self._durability.sync_cut()
        found: list[PlacedBatch] = []
        position, end, unpack = 0, len(records), HEADER.unpack_from
        while position + OVERHEAD <= end:
            header: Header = unpack(records, position)
            size = header[LENGTH] + LOG_OVERHEAD
            if size < OVERHEAD or header[MAGIC] != 2:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self._disk.name}: no record batch at byte {position}")
            if position + size > end or header[LEADER_EPOCH] > epoch_max:
                break
            if crc32c(records[position + CRC_FROM : position + size]) != header[CRC]:
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self._disk.name}: the batch at offset {header[BASE_OFFSET]} is corrupt (stored crc = {header[CRC]})",
                )
            found.append((position, size, header))
            position += size
        return found

    def _append_batches(
        self, records: memoryview, headers: list[PlacedBatch], wall_ms: int, *, check_epoch: bool
    ) -> AppendInfo:
        update: ProducerUpdate | None = None
        entries: list[tuple[int, int, int, int]] = []
        largest = -1
        for position, size, header in headers:
            last = header[BASE_OFFSET] + header[LAST_DELTA]
            largest = max(largest, header[MAX_TIMESTAMP])
            entries.append((position, size, last, header[MAX_TIMESTAMP]))
            if header[PRODUCER_ID] >= 0:
                if update is None:
                    update = ProducerUpdate()
                prepare_producer(self._producers, update, records, position, header, check_epoch=check_epoch)
        end = position + size
        (_, _, first), watermarks = headers[0], self._watermarks
        first_offset = first[BASE_OFFSET]
        try:
            self._prepare_epochs(headers, update)
            segment = self._segments.active
            now_ms = max(wall_ms, segment.created_ms)
            if segment.should_roll(self._config, self._rolling.jitter_ms, end, last, largest, now_ms):
                segment = self._rolling.roll(now_ms, first_offset)
            segment.append_all(records[:end], entries)
            if not self._segments.size:
                self._durability.begun()
            self._segments.size += end
            watermarks.log_end_offset = last + 1
            if update is not None:
                segment.append_aborted(self._producers.complete(update))
        except BaseException as error:
            self._undo(error)
            raise
        self._producers.advance(last + 1, len(headers), end)
        return AppendInfo(first_offset, last, largest, -1, watermarks.log_start_offset, False, len(headers), header[LEADER_EPOCH])

    def _prepare_epochs(self, headers: list[PlacedBatch], update: ProducerUpdate | None) -> None:
        """Note the epochs that begin with these batches, each where the batch before it ended (see `epoch_cache`). Raises OSError, before
        anything is written, if descriptors are lacking."""
        if update is not None and any(completed.is_aborted for completed in update.completed):
            # The entry in the transaction index, which needs a descriptor, is written after the batches.
            self._disk.require_descriptors()
        end = self._watermarks.log_end_offset
        for _, _, header in headers:
            if header[LEADER_EPOCH] != self._epochs.latest and header[LEADER_EPOCH] >= 0:
                self._epochs.assign(header[LEADER_EPOCH], min(end, header[BASE_OFFSET]))
                self._durability.request_flush()
            end = header[BASE_OFFSET] + header[LAST_DELTA] + 1

    def _undo(self, error: BaseException) -> None:
        """Undo a failed append: the bytes it wrote must never be read, now or after a restart (KAFKA-19407)."""
        is_cut = self._segments.active.discard_after(self._segments.active.size)
        if isinstance(error, OSError):
            raise self._disk.fail("append to the log", error, is_half_done=not is_cut) from error
        if isinstance(error, StorageError):
            return
        # A bug of ours between write and publish: the state in memory may be wrong now.
        self._disk.give_up(StorageError(f"an append to {self._disk.name} failed halfway", path=self._disk.directory, cause=error))
