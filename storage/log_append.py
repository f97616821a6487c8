"""Appending to a log: as leader what a client or coordinator sent, as follower what was fetched.

The order is check, write, publish. A batch that must not be stored changes nothing; bytes of a failed write are cut off
again. The path of a plain client batch costs a few microseconds: one unpack, one CRC, one pwrite.
"""

from __future__ import annotations

from itertools import takewhile
from struct import Struct

from minikafka.storage.batch_scan import (
    BASE_OFFSET,
    CRC,
    CRC_FROM,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    Header,
    prepare_producer,
)
from minikafka.storage.errors import StorageError, UnexpectedAppendOffset
from minikafka.storage.log_state import LogState
from minikafka.storage.producer_state import UNCHECKED, ProducerEntry, ProducerUpdate, Verification
from minikafka.storage.types import AppendInfo
from minikafka.storage.validation import (
    RECORD_BYTES_MIN,
    SMALL_BATCH_RECORDS,
    Fitting,
    HeavyBatch,
    check_client_header,
    fit_to_topic,
    is_heavy,
    is_simple_record,
    one_batch,
)
from minikafka.wire.batch import CONTROL_BIT, HEADER, LOG_OVERHEAD, OVERHEAD, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import ApiError, ErrorCode

# Base offset, batch length, partition leader epoch: the fields in front of the CRC that a leader sets.
_PLACE = Struct(">qii")
_ODD_BITS = 0x04 | TIMESTAMP_TYPE_BIT


class LogAppends(LogState):
    """The appending half of `storage.log.Log`."""

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        wall_ms: int,
        *,
        origin: str = "client",
        requires_sequence_checks: bool = True,
        verification: Verification | None = UNCHECKED,
        fitting: Fitting = Fitting.HERE,
    ) -> AppendInfo:
        """Append one client batch (several for origin "coordinator" and "raft"). Offsets and epoch are patched into
        `records`, which must be writable. `verification`: what a batch that begins a transaction needs; None for none.
        Raises ApiError, with nothing appended, for what must not be stored; StorageError if the disk fails."""
        if origin != "client":
            return self._append_internal(records, leader_epoch, wall_ms)
        if self.failure is not None:
            raise self.failure
        if self.is_cut:
            self.sync_cut()
        size = len(records)
        if size < OVERHEAD:
            one_batch(records)
        header: Header = HEADER.unpack_from(records)
        base, length, _, magic, crc, attributes, delta, base_timestamp, timestamp, producer_id, _, sequence, count = (
            header
        )
        if length + LOG_OVERHEAD != size or magic != 2:
            records = one_batch(records)
            size = len(records)
        if size > self._batch_bytes_max:
            self._refuse_size(size)
        if crc32c(records[CRC_FROM:]) != crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc}) in {self.name}")
        if (
            base != 0
            or count != delta + 1
            or delta < 0
            or attributes & CONTROL_BIT
            or (producer_id >= 0 > sequence)
            or count * RECORD_BYTES_MIN > size - OVERHEAD
        ):
            check_client_header(header, self.name, self._records_bytes_max)
        append_time, config = -1, self.config
        if (
            not self._is_plain
            or attributes & _ODD_BITS
            or timestamp > wall_ms + self._after_max_ms
            or base_timestamp < wall_ms - self._before_max_ms
            or (
                count <= SMALL_BATCH_RECORDS
                and not (count == 1 and timestamp == base_timestamp and is_simple_record(records, size))
            )
        ):
            if fitting is not Fitting.DONE:
                if fitting is Fitting.ELSEWHERE and is_heavy(records, header, config):
                    raise HeavyBatch
                records = fit_to_topic(records, header, config, wall_ms, self.name)
                header = HEADER.unpack_from(records)
                size, timestamp = len(records), header[MAX_TIMESTAMP]
            if config.is_log_append_time:
                append_time = timestamp
        first = self.log_end_offset
        last = first + delta
        admitted: ProducerEntry | ProducerUpdate | AppendInfo | None = None
        if producer_id >= 0:
            admitted = self._admit(header, first, last, requires_sequence_checks, verification)
            if isinstance(admitted, AppendInfo):
                return admitted
        _PLACE.pack_into(records, 0, first, size - LOG_OVERHEAD, leader_epoch)
        try:
            if leader_epoch != self.epochs.latest:
                self.epochs.assign(leader_epoch, first)
            segment = self._active
            if segment.should_roll(config, self._jitter_ms, size, last, timestamp, wall_ms):
                segment = self.roll(wall_ms, first)
            segment.append(records, size, last, timestamp)
        except BaseException as error:
            self._undo(error)
            raise
        self.size += size
        self.log_end_offset = last + 1
        if isinstance(admitted, ProducerEntry):
            last_sequence = (sequence + delta) & 0x7FFFFFFF
            admitted.add_batch(admitted.epoch, last_sequence, last, delta, timestamp)
        elif isinstance(admitted, ProducerUpdate):
            self.producer_state.publish(admitted)
        self.producer_state.advance(last + 1)
        if last - self.recovery_point >= self._flush_messages:
            self.flush()
        return AppendInfo(first, last, timestamp, append_time, self.log_start_offset, False, 1, leader_epoch)

    def is_heavy(self, records: memoryview) -> bool:
        """Whether a client's batch must go through `prepare` before it is appended, because that takes long."""
        if len(records) < OVERHEAD:
            return False
        header: Header = HEADER.unpack_from(records)
        return len(records) <= self._batch_bytes_max and is_heavy(records, header, self.config)

    def prepare(self, records: memoryview, wall_ms: int) -> memoryview:
        """A client's batch as the topic wants it, for an append with Fitting.DONE. Touches nothing of the log, so it may run beside
        everything else; `records` must be the caller's own. Raises ApiError for what must not be stored."""
        records = one_batch(records)
        config, header = self.config, HEADER.unpack_from(records)
        if len(records) > self._batch_bytes_max:
            self._refuse_size(len(records))
        if crc32c(records[CRC_FROM:]) != header[CRC]:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header[CRC]}) in {self.name}")
        check_client_header(header, self.name, self._records_bytes_max)
        return fit_to_topic(records, header, config, wall_ms, self.name)

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

    def _admit(
        self, header: Header, first: int, last: int, requires_sequence_checks: bool, verification: Verification | None
    ) -> ProducerEntry | ProducerUpdate | AppendInfo:
        """What a batch with a producer id means: the entry it simply continues, an update to publish after the write, or
        the answer of the time it was appended before. Raises ApiError."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        producers = self.producer_state
        entry = producers.entries.get(producer_id)
        is_transactional = bool(attributes & TRANSACTIONAL_BIT)
        if entry is not None:
            if not is_transactional and entry.is_next(epoch, sequence):
                return entry
            found = entry.duplicate_of(epoch, sequence, (sequence + delta) & 0x7FFFFFFF)
            if found is not None:
                append_time = found[2] if self.config.is_log_append_time else -1
                return AppendInfo(found[0], found[1], timestamp, append_time, self.log_start_offset, True, 1, -1)
        if is_transactional and verification is not UNCHECKED:
            producers.check_verified(producer_id, epoch, sequence, verification)
        update = ProducerUpdate()
        producers.prepare_batch(
            update,
            producer_id,
            epoch,
            sequence,
            first,
            last,
            timestamp,
            is_transactional,
            check_epoch=True,
            check_sequence=requires_sequence_checks,
        )
        return update

    def _append_internal(self, records: memoryview, leader_epoch: int, wall_ms: int) -> AppendInfo:
        """Batches of a coordinator or of the raft leader: control batches and any sequence may be there. Offsets
        follow the end of the log."""
        headers = self._whole_batches(records)
        offset = self.log_end_offset
        for position, size, header in headers:
            if size > self.config.max_message_bytes or size > self.config.segment_bytes:
                self._refuse_size(size)
            _PLACE.pack_into(records, position, offset, size - LOG_OVERHEAD, leader_epoch)
            offset += header[LAST_DELTA] + 1
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
            if header[BASE_OFFSET] <= previous or header[LAST_DELTA] < 0:
                raise UnexpectedAppendOffset(
                    f"{self.name}: offset {header[BASE_OFFSET]} follows {previous} at byte {position} of the fetched batches",
                    header[BASE_OFFSET],
                    header[BASE_OFFSET] + header[LAST_DELTA],
                )
            previous = header[BASE_OFFSET] + header[LAST_DELTA]
        return self._append_batches(records, headers, -1, check_epoch=False)

    def _whole_batches(self, records: memoryview) -> list[tuple[int, int, Header]]:
        """Checked batches from the start of `records`. Raises ApiError(CORRUPT_MESSAGE)."""
        if self.failure is not None:
            raise self.failure
        if self.is_cut:
            self.sync_cut()
        found: list[tuple[int, int, Header]] = []
        position, end, unpack = 0, len(records), HEADER.unpack_from
        while position + OVERHEAD <= end:
            header: Header = unpack(records, position)
            size = header[LENGTH] + LOG_OVERHEAD
            if size < OVERHEAD or header[MAGIC] != 2:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: no record batch at byte {position}")
            if position + size > end:
                break
            if crc32c(records[position + CRC_FROM : position + size]) != header[CRC]:
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.name}: the batch at offset {header[BASE_OFFSET]} is corrupt (stored crc = {header[CRC]})",
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
            last = header[BASE_OFFSET] + header[LAST_DELTA]
            largest = max(largest, header[MAX_TIMESTAMP])
            entries.append((position, size, last, header[MAX_TIMESTAMP]))
            if header[PRODUCER_ID] >= 0:
                prepare_producer(self.producer_state, update, records, position, header, check_epoch=check_epoch)
        first_offset, epoch = headers[0][2][0], headers[-1][2][2]
        end = entries[-1][0] + entries[-1][1]
        try:
            if any(completed.is_aborted for completed in update.completed):
                # Its entry in the transaction index is written behind the batches.
                self.require_descriptors()
            for _, _, header in headers:
                if header[LEADER_EPOCH] != self.epochs.latest and header[LEADER_EPOCH] >= 0:
                    self.epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
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
            self._undo(error)
            raise
        self.producer_state.advance(last + 1)
        if last - self.recovery_point >= self._flush_messages:
            self.flush()
        return AppendInfo(first_offset, last, largest, -1, self.log_start_offset, False, len(headers), epoch)

    def _undo(self, error: BaseException) -> None:
        """A failed append: what it wrote must never be read, now or after a restart (KAFKA-19407)."""
        is_cut = self._active.discard_after(self._active.size)
        if isinstance(error, OSError):
            raise self.fail("append to the log", error, is_half_done=not is_cut) from error
        if isinstance(error, StorageError):
            return
        # A bug of ours between write and publish: what is in memory may not be true any more.
        self.give_up(StorageError(f"an append to {self.name} failed half-way", path=self.directory, cause=error))
