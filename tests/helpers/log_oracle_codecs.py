"""How Kafka's clients unpack a batch's records, codec by codec. Only zstd is done by a library."""

from __future__ import annotations

import gzip
import struct
import zlib

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL = b"\x82SNAPPY\x00"
LZ4_MAGIC, INCOMPRESSIBLE = 0x184D2204, 1 << 31
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def unpacked(codec: int, data: bytes) -> bytes | None:
    """The records; None where a consumer ends with an error."""
    try:
        return {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}[codec](data)
    except (EOFError, ValueError, IndexError, KeyError, struct.error, zlib.error):
        return None


def _gzip(data: bytes) -> bytes:
    """Members as GZIPInputStream reads them out of fills of 8 KiB: the next one if anything is unread, or more than 26 bytes are; what does
    not begin as one is ignored."""
    found, at = b"", _gzip_body(data, 0)
    fills = at
    while True:
        inflate = zlib.decompressobj(-15)
        part = inflate.decompress(data[at:])
        if not inflate.eof:
            raise EOFError
        end = len(data) - len(inflate.unused_data)
        if struct.unpack_from("<II", data, end) != (zlib.crc32(part), len(part) % (1 << 32)):
            raise ValueError("trailer")
        found += part
        while fills < end:
            fills += 8192
        if len(data) <= max(fills, end + 8) and len(data) - end <= 26:
            return found
        try:
            at = _gzip_body(data, end + 8)
        except (ValueError, IndexError, struct.error):
            return found
        fills = max(fills, at)


def _gzip_body(data: bytes, start: int) -> int:
    magic, method, flags = struct.unpack_from("<HBB6x", data, start)
    if (magic, method) != (0x8B1F, 8):
        raise ValueError(magic)
    at = start + 10
    if flags & 4:
        at += 2 + struct.unpack_from("<H", data, at)[0]
    for flag in (8, 16):
        if flags & flag:
            at = data.index(0, at) + 1
    if flags & 2:
        if struct.unpack_from("<H", data, at)[0] != zlib.crc32(data[start:at]) & 0xFFFF:
            raise ValueError("header")
        at += 2
    if at > len(data):
        raise ValueError("cut")
    return at


def _snappy(data: bytes) -> bytes:
    """Blocks behind a header of 16 bytes, which another stream may follow (SnappyInputStream), or one block."""
    if data[:8] != XERIAL:
        return _snappy_block(data)
    found, position = b"", 0
    while len(data) - position >= 4:
        if data[position : position + 4] == XERIAL[:4]:
            if len(data) - position < 16 or data[position : position + 8] != XERIAL or struct.unpack_from(">i", data, position + 8)[0] < 1:
                raise ValueError("header")
            position += 16
            continue
        size = struct.unpack_from(">i", data, position)[0]
        if not 0 <= size <= len(data) - position - 4:
            raise ValueError(size)
        found += _snappy_block(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def _snappy_block(data: bytes) -> bytes:
    """Literals and copies of what came before, behind the size of all."""
    size = shift = position = 0
    while True:
        byte = data[position]
        size, shift, position = size | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            break
    found = bytearray()
    while position < len(data):
        tag = data[position]
        kind, position = tag & 3, position + 1
        if kind == 0:
            length, more = (tag >> 2) + 1, max(0, (tag >> 2) - 59)
            if more:
                length, position = int.from_bytes(data[position : position + more], "little") + 1, position + more
            if position + length > len(data):
                raise ValueError(length)
            found += data[position : position + length]
            position += length
            continue
        length, width = ((tag >> 2 & 7) + 4, 1) if kind == 1 else ((tag >> 2) + 1, 2 if kind == 2 else 4)
        if position + width > len(data):
            raise ValueError(width)
        back = int.from_bytes(data[position : position + width], "little") + ((tag >> 5) << 8 if kind == 1 else 0)
        position += width
        _repeat(found, back, length)
    if len(found) != size:
        raise ValueError(size)
    return bytes(found)


def _repeat(found: bytearray, back: int, length: int) -> None:
    if not 0 < back <= len(found):
        raise ValueError(back)
    for _ in range(length):
        found.append(found[-back])


def _lz4(data: bytes) -> bytes:
    """One frame of independent blocks; what follows its end mark is not looked at, nor a checksum of all (Lz4BlockInputStream)."""
    magic, flags, sizes = struct.unpack_from("<IBB", data)
    position = 6 + (8 if flags & 8 else 0)
    if magic != LZ4_MAGIC or flags >> 6 != 1 or not flags & 0x20 or flags & 3 or sizes & 0x8F or sizes >> 4 < 4:
        raise ValueError("descriptor")
    if _xxhash32(data[4:position]) >> 8 & 0xFF != data[position]:
        raise ValueError("checksum of the descriptor")
    position += 1
    block_max, found = 1 << (2 * (sizes >> 4) + 8), b""
    while (size := struct.unpack_from("<I", data, position)[0]) & ~INCOMPRESSIBLE:
        position, length = position + 4, size & ~INCOMPRESSIBLE
        block = data[position : position + length]
        if length > block_max or len(block) < length:
            raise ValueError(length)
        position += length
        if flags & 0x10:
            if struct.unpack_from("<I", data, position)[0] != _xxhash32(block):
                raise ValueError("checksum of a block")
            position += 4
        part = block if size & INCOMPRESSIBLE else _lz4_block(block)
        if len(part) > block_max:
            raise ValueError(len(part))
        found += part
    return found


def _lz4_block(data: bytes) -> bytes:
    found, position = bytearray(), 0
    while position < len(data):
        token = data[position]
        length, position = _lz4_length(data, position + 1, token >> 4)
        if position + length > len(data):
            raise ValueError(length)
        found += data[position : position + length]
        position += length
        if position == len(data):
            break
        back, position = struct.unpack_from("<H", data, position)[0], position + 2
        length, position = _lz4_length(data, position, token & 15)
        _repeat(found, back, length + 4)
    return bytes(found)


def _lz4_length(data: bytes, position: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            length, position = length + data[position], position + 1
            if data[position - 1] != 255:
                break
    return length, position


def _xxhash32(data: bytes) -> int:
    one, two, three, four, five = _PRIMES

    def turned(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    position, value = 0, five
    if len(data) >= 16:
        lanes = [one + two, two, 0, -one]
        while position + 16 <= len(data):
            for number, word in enumerate(struct.unpack_from("<4I", data, position)):
                lanes[number] = turned(lanes[number] + word * two, 13) * one
            position += 16
        value = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    value += len(data)
    while position + 4 <= len(data):
        value = turned(value + struct.unpack_from("<I", data, position)[0] * three, 17) * four
        position += 4
    for byte in data[position:]:
        value = turned(value + byte * five, 11) * one
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * two & 0xFFFFFFFF
    value = (value ^ value >> 13) * three & 0xFFFFFFFF
    return value ^ value >> 16


def _zstd(data: bytes) -> bytes:
    """All frames; a consumer looks for the end of the last one, too (ensureNoneRemaining)."""
    import zstandard

    found = b""
    while data:
        if int.from_bytes(data[:4], "little") & 0xFFFFFFF0 == 0x184D2A50:  # a frame to skip
            size = struct.unpack_from("<I", data, 4)[0]
            if len(data) < 8 + size:
                raise ValueError(size)
            data = data[8 + size :]
            continue
        one = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        try:
            found += one.decompress(data)
        except zstandard.ZstdError as error:
            raise ValueError from error
        if not one.eof:
            raise EOFError
        data = one.unused_data
    return found


def packed(codec: int, data: bytes) -> bytes:
    """As producers write it."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        import cramjam

        block = bytes(cramjam.snappy.compress_raw(data))
        return XERIAL + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
        return frame
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=len(data) % 2 == 0).compress(data)
