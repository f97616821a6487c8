"""Walking over the records of a batch without holding them in memory: keys and values are skipped, window by window.

The checks, their order and their error messages are those of org.apache.kafka.common.record.DefaultRecord.readFrom.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minikafka.wire.compression import decompressed_windows
from minikafka.wire.errors import CorruptRecord

VARINT_BITS_MAX = 35
VARLONG_BITS_MAX = 70
VARLONG_BYTES_MAX = 10
PREMATURE_END = "Incorrect declared batch size, premature EOF reached"

Buffer = bytes | bytearray | memoryview


class RecordOutline(NamedTuple):
    """A record without its contents; both deltas count from the batch's base. `key_size` is -1 without a key."""

    offset_delta: int
    timestamp_delta: int
    key_size: int


def scan_records(codec: int, body: Buffer, count: int, size_max: int) -> Iterator[RecordOutline]:
    """The outlines of the `count` records in a batch's `body`, decompressed only as far as the caller iterates.

    Raises CorruptRecord unless the body holds exactly these, and TooLarge once they take more than `size_max` bytes."""
    windows = decompressed_windows(codec, body, size_max) if codec else iter((body,))
    source = _Source(windows, -1 if codec else len(body))
    try:
        for _ in range(count):
            yield source.record()
    except IndexError:
        raise CorruptRecord(PREMATURE_END) from None
    if not source.is_at_end():
        raise CorruptRecord("Incorrect declared batch size, records still remaining in file")


class _Source:
    """Reads the bytes of the windows in sequence. Windows are joined only where a number may straddle two of them."""

    __slots__ = ("_data", "_position", "_size", "_start", "_windows")

    def __init__(self, windows: Iterator[Buffer], size: int) -> None:
        """`size` is the total number of bytes, -1 if it is unknown (compressed records)."""
        self._windows = windows
        self._size = size
        self._data: Buffer = b""
        self._position = 0
        #: Position of `_data[0]` among all bytes.
        self._start = 0

    def is_at_end(self) -> bool:
        """Whether no byte is left."""
        return self._position >= len(self._data) and not self._ahead(1)

    def record(self) -> RecordOutline:
        """Step over one record. Raises CorruptRecord; IndexError at the end of the bytes."""
        length = self._varint()
        end = self._start + self._position + length
        if length < 0 or (self._size >= 0 and end > self._size):
            left = "" if self._size < 0 else f" {self._size - end + length}"
            raise CorruptRecord(
                f"Invalid record size: expected {length} bytes in record payload, but instead the buffer has only{left} remaining bytes."
            )
        self._skip(1)
        timestamp_delta = self._varint(VARLONG_BITS_MAX)
        offset_delta = self._varint()
        key_size = self._varint()
        self._skip(max(key_size, 0))
        self._skip(max(self._varint(), 0))
        self._headers(end)
        position = self._start + self._position
        if position != end:
            raise CorruptRecord(
                f"Invalid record size: expected to read {length} bytes in record payload, but instead read {position - end + length}"
            )
        return RecordOutline(offset_delta, timestamp_delta, key_size)

    def _headers(self, end: int) -> None:
        count = self._varint()
        if count < 0:
            raise CorruptRecord(f"Found invalid number of record headers {count}")
        if count > end - self._start - self._position:
            raise CorruptRecord(f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer")
        for _ in range(count):
            size = self._varint()
            if size < 0:
                raise CorruptRecord(f"Invalid negative header key size {size}")
            self._skip(size)
            self._skip(max(self._varint(), 0))
            if self._start + self._position > end:
                return

    def _varint(self, bits_max: int = VARINT_BITS_MAX) -> int:
        position = self._position
        if position + VARLONG_BYTES_MAX > len(self._data):
            self._ahead(VARLONG_BYTES_MAX)
            position = self._position
        data = self._data
        byte = data[position]
        position += 1
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            if shift >= bits_max:
                raise CorruptRecord("Varint is too long")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self._position = position
        return (value >> 1) ^ -(value & 1)

    def _skip(self, size: int) -> None:
        position = self._position + size
        while position > len(self._data):
            window = next(self._windows, None)
            if window is None:
                raise IndexError
            position -= len(self._data)
            self._start += len(self._data)
            self._data = window
        self._position = position

    def _ahead(self, size: int) -> bool:
        """Make `size` bytes, or all that are left, available in `_data`. False if no byte is left."""
        while len(self._data) - self._position < size:
            window = next(self._windows, None)
            if window is None:
                break
            self._start += self._position
            self._data = bytes(self._data[self._position :]) + window
            self._position = 0
        return self._position < len(self._data)
