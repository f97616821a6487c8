"""One step of a look-up by timestamp: a batch that may hold the record, and the search in it; or the search for such a batch."""

from __future__ import annotations

from minikafka.storage.batch_scan import LOOKUP_BYTES, batches
from minikafka.storage.cold_reads import Source
from minikafka.storage.slice import FileSlice
from minikafka.storage.types import TimestampOffset
from minikafka.storage.validation import LIGHT_BYTES_MAX
from minikafka.wire.batch import OVERHEAD, RecordBatch
from minikafka.wire.batch_header import BASE_OFFSET, LAST_DELTA, MAX_TIMESTAMP, Header
from minikafka.wire.compression import is_larger_than
from minikafka.wire.errors import CorruptRecord

#: Whoever looks up a timestamp scans so many bytes of a segment, whose time index may not tell more: some milliseconds of small batches.
SCANNED_AT_ONCE_BYTES = 256 << 10
#: Bytes that another thread scans in one piece.
SCANNED_ELSEWHERE_BYTES = 16 << 20


def is_candidate(header: Header, timestamp: int, from_offset: int) -> bool:
    """Whether, by its header, a batch may hold a record at or after `from_offset` with a timestamp >= `timestamp`."""
    return header[MAX_TIMESTAMP] >= timestamp and header[BASE_OFFSET] + header[LAST_DELTA] >= from_offset


class TimestampCandidate:
    """A copy of a batch, so that another thread can search it while the log changes."""

    __slots__ = ("_batch", "_from_offset", "_timestamp")

    def __init__(self, batch: bytes | memoryview, timestamp: int, from_offset: int) -> None:
        """The look-up is for the first record at or after `from_offset` with a timestamp >= `timestamp`."""
        self._batch = RecordBatch(batch)
        self._timestamp = timestamp
        self._from_offset = from_offset

    @property
    def next_offset(self) -> int:
        """Where to continue if the record is not in this batch."""
        return self._batch.next_offset

    @property
    def is_heavy(self) -> bool:
        """Whether `find` may take long and belongs on another thread."""
        return is_larger_than(self._batch.compression, self._batch.view[OVERHEAD:], LIGHT_BYTES_MAX)

    def find(self, size_max: int) -> TimestampOffset | None:
        """The record; None if the batch does not hold it. Raises CorruptRecord, and TooLarge if it lies beyond `size_max` bytes."""
        found = self._batch.find_record(self._timestamp, self._from_offset, size_max)
        if found is None:
            return None
        offset, timestamp = found
        return TimestampOffset(timestamp, offset, self._batch.partition_leader_epoch)

    def release(self) -> None:
        """Holds nothing."""

    def largest(self, size_max: int) -> TimestampOffset:
        """The record with the batch's largest timestamp, or the batch's last record if the header is wrong. Raises as `find`."""
        batch = self._batch
        return self.find(size_max) or TimestampOffset(batch.max_timestamp, batch.last_offset, batch.partition_leader_epoch)


class TimestampScan:
    """A search for the batch, in a part of a segment that the time index does not tell apart: its timestamps are at most one that came
    before. The slice keeps the bytes as they are while another thread reads them, until the scan is dropped."""

    __slots__ = ("_from_offset", "_slice", "_timestamp", "next_offset")

    is_heavy = True

    def __init__(self, piece: FileSlice, timestamp: int, from_offset: int) -> None:
        """As that of TimestampCandidate."""
        self._slice = piece
        self._timestamp = timestamp
        self._from_offset = from_offset
        #: Where to continue if the record was not found.
        self.next_offset = from_offset

    def find(self, size_max: int) -> TimestampOffset | None:
        """The record; None if it is not in what one call scans. Raises OSError, and as that of TimestampCandidate."""
        piece, timestamp, from_offset = self._slice, self._timestamp, self._from_offset
        begin, position, end = piece.position, piece.position, piece.position + piece.size
        for at, size, header in batches(piece, begin, end, LOOKUP_BYTES):
            position, self.next_offset = at + size, max(header[BASE_OFFSET] + header[LAST_DELTA] + 1, from_offset)
            if is_candidate(header, timestamp, from_offset):
                return self._in_batch(at, size, size_max)
            if position - begin > SCANNED_ELSEWHERE_BYTES and self.next_offset > from_offset:
                return None
        if position < end:
            raise CorruptRecord(f"no valid batch at position {position} of a segment")
        return None

    def _in_batch(self, position: int, size: int, size_max: int) -> TimestampOffset | None:
        data, filled = memoryview(bytearray(size)), 0
        while filled < size:
            count = self._slice.pread_into(data[filled:], position + filled)
            if not count:
                raise CorruptRecord(f"no whole batch at position {position} of a segment")
            filled += count
        return TimestampCandidate(data.toreadonly(), self._timestamp, self._from_offset).find(size_max)

    def release(self) -> None:
        """The scan is over."""
        self._slice.release()


def first_candidate(source: Source, piece: FileSlice, timestamp: int, from_offset: int) -> TimestampCandidate | TimestampScan | None:
    """The first batch of a slice that may hold the record, or what is left to be scanned. Raises OSError, NotInMemory."""
    position, whole_end = piece.position, piece.position + piece.size
    end = min(whole_end, position + SCANNED_AT_ONCE_BYTES)
    try:
        for at, size, header in batches(source, position, end, LOOKUP_BYTES):
            if is_candidate(header, timestamp, from_offset):
                return TimestampCandidate(source.read(size, at), timestamp, from_offset)
            position = at + size
        return None if end == whole_end else TimestampScan(piece.rest(position), timestamp, from_offset)
    finally:
        piece.release()
