"""Walking over the batches of a file. Only headers are decoded, and the records of transaction markers.

A file is read forwards through one buffer. A batch that is larger than the buffer is read whole only after its checksum was found
right, so that a corrupt length costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Protocol

from minikafka.storage.producer_state import ProducerStateManager, ProducerUpdate
from minikafka.wire.batch import CONTROL_BIT, HEADER, LOG_OVERHEAD, OVERHEAD, TRANSACTIONAL_BIT, RecordBatch
from minikafka.wire.batch_header import BASE_OFFSET, CRC, LAST_DELTA, LENGTH, MAGIC, Header
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import CorruptRecord

CRC_FROM = 21
BATCH_LENGTH_MIN = OVERHEAD - LOG_OVERHEAD
INT32_MAX = 2**31 - 1
#: Bytes that a scan, or a look-up, reads at once.
SCAN_BYTES = 1 << 20
LOOKUP_BYTES = 64 << 10

#: Base offset, batch length and last offset delta: enough to step over a batch.
STEP = Struct(">qi11xi")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1


class Readable(Protocol):
    """The source of a walk: a file, or the file of a slice."""

    def pread_into(self, buffer: memoryview, position: int, /) -> int: ...


class _Window:
    """A piece of a file in one buffer, which moves forwards. `view` holds the bytes of the file from `start` (inclusive) to `filled`
    (exclusive)."""

    __slots__ = ("_file", "filled", "start", "view")

    def __init__(self, file: Readable, position: int, end: int, size: int) -> None:
        self._file = file
        self.view = memoryview(bytearray(max(min(size, end - position), OVERHEAD)))
        self.start = self.filled = position

    def load(self, position: int, count: int) -> bool:
        """Read `count` bytes from `position`, into a larger buffer if necessary. False if the file ends earlier."""
        if count > len(self.view):
            self.view = memoryview(bytearray(count))
        self.start = self.filled = position
        view = self.view
        while self.filled - position < count:
            got = self._file.pread_into(view[self.filled - position :], self.filled)
            if got <= 0:
                return False
            self.filled += got
        return True

    def checksum(self, position: int, size: int) -> int:
        """CRC-32C of `size` bytes of the file, read in pieces of the buffer's size; -1 if the file ends earlier."""
        crc = 0
        while size > 0:
            count = min(size, len(self.view))
            if not self.load(position, count):
                return -1
            crc = crc32c(self.view[:count], crc)
            position += count
            size -= count
        return crc


def batches(file: Readable, position: int, end: int, window_bytes: int = SCAN_BYTES) -> Iterator[tuple[int, int, Header]]:
    """(position, size, header) of the whole batches between two positions of a file. Only lengths are checked. Raises OSError."""
    window, unpack = _Window(file, position, end, window_bytes), HEADER.unpack_from
    view, start, filled = window.view, window.start, window.filled
    while position + OVERHEAD <= end:
        if position + OVERHEAD > filled:
            if not window.load(position, OVERHEAD):
                return
            start, filled = window.start, window.filled
        header: Header = unpack(view, position - start)
        size = header[LENGTH] + LOG_OVERHEAD
        if size < OVERHEAD or position + size > end:
            return
        yield position, size, header
        position += size


def checked_batches(
    file: Readable, position: int, end: int, window_bytes: int = SCAN_BYTES
) -> Iterator[tuple[int, int, Header, memoryview]]:
    """As `batches`, with the bytes of each batch, which stay valid until the next batch is asked for. Raises CorruptRecord for the first
    batch with a wrong checksum, and OSError."""
    window, unpack = _Window(file, position, end, window_bytes), HEADER.unpack_from
    view, start, filled = window.view, window.start, window.filled
    while position + OVERHEAD <= end:
        if position + OVERHEAD > filled:
            if not window.load(position, OVERHEAD):
                return
            start, filled = window.start, window.filled
        header: Header = unpack(view, position - start)
        size = header[LENGTH] + LOG_OVERHEAD
        if size < OVERHEAD or position + size > end:
            return
        if position + size > filled:
            if size > len(view):
                _check(header, window.checksum(position + CRC_FROM, size - CRC_FROM))
            if not window.load(position, size):
                return
            view, start, filled = window.view, window.start, window.filled
        batch = view[position - start : position - start + size]
        _check(header, crc32c(batch[CRC_FROM:]))
        yield position, size, header, batch
        position += size


def _check(header: Header, crc: int) -> None:
    if crc != header[CRC]:
        raise CorruptRecord(f"the batch at offset {header[BASE_OFFSET]} is corrupt (stored crc = {header[CRC]})")


def valid_batches(file: Readable, size: int, base_offset: int) -> Iterator[tuple[int, int, Header, memoryview]]:
    """The longest valid prefix of a segment of `size` bytes: batches with magic 2, the right length and CRC, and offsets that ascend from
    the segment's base offset and fit into its index."""
    next_offset = base_offset
    try:
        for position, batch_size, header, batch in checked_batches(file, 0, size):
            first_offset, last_offset = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_DELTA]
            if (
                header[MAGIC] != 2
                or first_offset < next_offset
                or header[LAST_DELTA] < 0
                or last_offset - base_offset > INT32_MAX
            ):
                return
            next_offset = last_offset + 1
            yield position, batch_size, header, batch
    except CorruptRecord:
        return


def marker_of(batch: RecordBatch) -> tuple[bool, int, int] | None:
    """(is_abort, coordinator epoch, timestamp) of an end-of-transaction batch. None for other control batches, and for markers whose
    record was compacted away."""
    for record in batch.records():
        key, value = record.key, record.value
        if key is None or value is None or len(key) < _MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
            return None
        _, kind = _MARKER_KEY.unpack_from(key)
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
        return kind == _ABORT, coordinator_epoch, record.timestamp
    return None


def prepare_producer(
    producers: ProducerStateManager,
    update: ProducerUpdate,
    view: memoryview,
    position: int,
    header: Header,
    *,
    check_epoch: bool = False,
    check_sequence: bool = False,
) -> None:
    """Add a batch with a producer id (data or marker) to `update`. `view` is read only for a marker. Raises ApiError only if asked to
    check."""
    first_offset, _, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
    if attributes & CONTROL_BIT:
        marker = marker_of(RecordBatch(view, position))
        if marker is not None:
            is_abort, coordinator_epoch, timestamp = marker
            producers.prepare_marker(
                update, producer_id, epoch, is_abort, coordinator_epoch, first_offset, timestamp, check_epoch=check_epoch
            )
        return
    producers.prepare_batch(
        update,
        producer_id,
        epoch,
        sequence,
        first_offset,
        first_offset + delta,
        max_timestamp,
        bool(attributes & TRANSACTIONAL_BIT),
        check_epoch=check_epoch,
        check_sequence=check_sequence,
    )
