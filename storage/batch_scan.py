"""Walking over batches in a file: only headers are read, records only of transaction markers."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from storage.producer_state import ProducerStateManager, ProducerUpdate
from wire.batch import HEADER, LOG_OVERHEAD, OVERHEAD, RecordBatch
from wire.compression import CorruptRecord
from wire.crc import crc32c

TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
CODEC_MASK = 0x07
CRC_FROM = 21
BATCH_LENGTH_MIN = OVERHEAD - LOG_OVERHEAD
INT32_MAX = 2**31 - 1

# base offset, batch length, ..., last offset delta: enough to step over a batch.
STEP = Struct(">qi11xi")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1

# Fields of wire.batch.HEADER, as unpacked.
Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def batches(view: memoryview, position: int, end: int) -> Iterator[tuple[int, int, Header]]:
    """(position, size, header) of the whole batches in view[position:end], unchecked but for their length."""
    unpack = HEADER.unpack_from
    while position + OVERHEAD <= end:
        header: Header = unpack(view, position)
        size = header[1] + LOG_OVERHEAD
        if size < OVERHEAD or position + size > end:
            return
        yield position, size, header
        position += size


def check_batch(view: memoryview, position: int, size: int, header: Header) -> None:
    """Raises CorruptRecord if the batch is not what its checksum says."""
    if crc32c(view[position + CRC_FROM : position + size]) != header[4]:
        raise CorruptRecord(f"the batch at offset {header[0]} is corrupt (stored crc = {header[4]})")


def valid_batches(view: memoryview, base_offset: int) -> Iterator[tuple[int, int, Header]]:
    """The longest valid prefix of a segment: magic 2, right length and CRC, offsets that ascend from the base offset
    of the segment and fit in its index."""
    next_offset = base_offset
    for position, size, header in batches(view, 0, len(view)):
        first_offset, last_offset = header[0], header[0] + header[6]
        if (
            header[3] != 2
            or first_offset < next_offset
            or header[6] < 0
            or last_offset - base_offset > INT32_MAX
            or crc32c(view[position + CRC_FROM : position + size]) != header[4]
        ):
            return
        next_offset = last_offset + 1
        yield position, size, header


def marker_of(batch: RecordBatch) -> tuple[bool, int, int] | None:
    """(is_abort, coordinator epoch, timestamp) of an end-of-transaction batch. None for other control batches and for
    those whose record was compacted away."""
    for record in batch.records():
        key, value = record.key, record.value
        if key is None or value is None or len(key) < _MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
            return None
        kind = _MARKER_KEY.unpack_from(key)[1]
        if kind not in (_ABORT, _COMMIT):
            return None
        return kind == _ABORT, _MARKER_VALUE.unpack_from(value)[1], record.timestamp
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
    """Take a batch with a producer id (data or marker) into `update`. Raises ApiError only if asked to check."""
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
