"""CRC-32C (Castagnoli, RFC 3720) over any buffer, without copying it."""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The checksum as an unsigned 32-bit number; `value` is the checksum of what came before."""
    checksum: int = _crc32c(data, value)
    return checksum
