"""Variable-length integers: unsigned in messages (KIP-482), zigzag in records (org.apache.kafka.common.utils.ByteUtils)."""

from __future__ import annotations

from functools import lru_cache

from minikafka.wire.errors import CorruptRecord, WireError

ONE_BYTE = [bytes((value,)) for value in range(128)]


def read_unsigned_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The value (32 bits) and the position after it. Raises WireError if it is longer than five bytes, IndexError if it is cut short."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position
    raise WireError("a varint is longer than five bytes")


def append_unsigned_varint(out: bytearray, value: int) -> None:
    """Append the value's 7-bit groups, least significant first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@lru_cache(maxsize=1024)
def unsigned_varint(value: int) -> bytes:
    """The value's 7-bit groups, least significant first."""
    out = bytearray()
    append_unsigned_varint(out, value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed number of up to 64 bits."""
    value = (value << 1) ^ (value >> 63)
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(view: bytes | memoryview, position: int) -> tuple[int, int]:
    """The signed number at `position` and the position after it. Raises CorruptRecord beyond ten bytes, IndexError if it is cut short."""
    byte = view[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CorruptRecord("a varint in a record is longer than ten bytes")
    value &= 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1), position
