"""Unsigned variable-length integers (KIP-482)."""

from __future__ import annotations

from wire.errors import WireError


def read_unsigned_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The value (32 bits) and the position after it. Raises WireError when it is longer than five bytes; IndexError at the end."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
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
