"""The five codecs of record batches.

gzip and zstd are plain frames, lz4 is the LZ4 frame format, snappy is read raw and in the xerial framing that Kafka's Java code writes (a
16-byte header, then blocks of length and raw snappy) and written in that framing. Decompression is bounded: it stops with CorruptRecord
when the output would exceed what the caller allows, whatever the input claims.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Any

from wire.errors import WireError

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
CHUNK_BYTES = 1 << 16
LZ4_LEVEL_DEFAULT = 0
ZSTD_LEVEL_DEFAULT = 3
GZIP_WINDOW = 31

Buffer = bytes | bytearray | memoryview


class CorruptRecord(WireError):
    """A record batch whose bytes cannot be what a producer wrote."""


class CompressionType(IntEnum):
    """The codec bits of a batch's attributes; names are those of the `compression.type` property."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """"none", "gzip", "snappy", "lz4" or "zstd"; "uncompressed" is Kafka's other word for none."""
        try:
            return cls.NONE if name == "uncompressed" else cls[name.upper()]
        except KeyError:
            raise ValueError(f"{name!r} is not a codec: none, gzip, snappy, lz4, zstd") from None


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Compress whole records. `level` is the codec's own; None means its default."""
    if codec is CompressionType.NONE:
        return bytes(data)
    if codec is CompressionType.GZIP:
        encoder = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WINDOW)
        return encoder.compress(data) + encoder.flush()
    if codec is CompressionType.SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec is CompressionType.LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            bytes(data),
            compression_level=LZ4_LEVEL_DEFAULT if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return frame
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)


def decompress(codec: CompressionType | int, data: Buffer, size_max: int) -> bytes:
    """The records of a batch. Raises CorruptRecord for damaged input and for output beyond `size_max` bytes."""
    if codec == CompressionType.NONE:
        return _bounded(bytes(data), size_max)
    try:
        if codec == CompressionType.GZIP:
            return _decompress_stream(zlib.decompressobj(GZIP_WINDOW), data, size_max)
        if codec == CompressionType.SNAPPY:
            return _decompress_snappy(memoryview(data), size_max)
        if codec == CompressionType.LZ4:
            return _decompress_lz4(data, size_max)
        if codec == CompressionType.ZSTD:
            return _decompress_zstd(data, size_max)
    except CorruptRecord:
        raise
    except Exception as error:  # each library has an exception of its own for damaged input
        raise CorruptRecord(f"the {CompressionType(codec).name.lower()} records are damaged: {error}") from error
    raise CorruptRecord(f"codec {int(codec)} is not known")


def _bounded(data: bytes, size_max: int) -> bytes:
    if len(data) > size_max:
        raise CorruptRecord(f"the records are larger than {size_max} bytes")
    return data


def _decompress_stream(decoder: Any, data: Buffer, size_max: int) -> bytes:
    out = decoder.decompress(data, size_max + 1)
    if not decoder.eof and len(out) <= size_max:
        raise CorruptRecord("the compressed records are cut short")
    return _bounded(out, size_max)


def _decompress_lz4(data: Buffer, size_max: int) -> bytes:
    import lz4.frame

    decoder = lz4.frame.LZ4FrameDecompressor()
    return _decompress_stream(decoder, bytes(data), size_max)


def _decompress_zstd(data: Buffer, size_max: int) -> bytes:
    import zstandard

    out = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            out += chunk
            if len(out) > size_max:
                raise CorruptRecord(f"the records are larger than {size_max} bytes")
    if not out and len(data):
        # An empty frame decodes to nothing; a cut one must not pass for it.
        zstandard.ZstdDecompressor().decompressobj().decompress(bytes(data))
        raise CorruptRecord("the compressed records are cut short")
    return bytes(out)


def _compress_snappy(view: memoryview) -> bytes:
    import cramjam

    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + XERIAL_BLOCK_BYTES])))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _decompress_snappy(view: memoryview, size_max: int) -> bytes:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    position, out = len(XERIAL_HEADER), bytearray()
    while position < len(view):
        if position + 4 > len(view):
            raise CorruptRecord("a snappy block's length is cut short")
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= len(view) - position:
            raise CorruptRecord(f"a snappy block claims {size} bytes, {len(view) - position} are there")
        out += _decompress_snappy_block(view[position : position + size], size_max - len(out))
        position += size
    return bytes(out)


def _decompress_snappy_block(view: memoryview, size_max: int) -> bytes:
    import cramjam

    size, shift = 0, 0
    for byte in view[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > size_max:
        raise CorruptRecord(f"the records are larger than {size_max} bytes")
    return bytes(cramjam.snappy.decompress_raw(bytes(view)))
