"""The five codecs of record batches.

gzip and zstd are plain frames, lz4 is the LZ4 frame format of independent blocks, snappy is read raw and in the xerial framing that Kafka's
Java code writes (a 16-byte header, then blocks of length and raw snappy) and written in that framing. As in Kafka's Java code several
members of gzip, frames of zstd and streams of snappy are read, and one frame of lz4. Decompression is bounded: it stops with CorruptRecord
when the output would exceed what the caller allows, whatever the input claims.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from enum import IntEnum

from minikafka.wire.errors import CorruptRecord

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
#: Bytes decompressed at a time, and compressed bytes given to a decompressor at a time.
WINDOW_BYTES = 1 << 16
INPUT_BYTES = 1 << 14
#: What snappy makes of incompressible records has a sixth and so many bytes more (MaxCompressedLength).
_SNAPPY_BYTES_MORE = 32
#: A snappy copy of three bytes gives at most 64.
SNAPPY_RATIO_MAX = 64
LZ4_LEVEL_DEFAULT = 0
ZSTD_LEVEL_DEFAULT = 3
GZIP_WINDOW = 31
#: Java reads so much at a time. It looks for another member if it has not read all, or if so much is left (GZIPInputStream.readTrailer).
_GZIP_READ_BYTES, _GZIP_REST_MIN = 8192, 27
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
#: Of the descriptor of a frame of lz4: version 1 and independent blocks; bits that Kafka reserves (one is for dictionaries).
_LZ4_FLAGS, _LZ4_FLAGS_MASK, _LZ4_SIZES_MASK = 0x60, 0xE3, 0x8F
_ZSTD_SKIPPABLE, _ZSTD_HEADER_BYTES_MAX = 0x184D2A50, 18

_LZ4_MAGIC, _LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x184D2204, 0x10, 0x08, 0x04
_ZSTD_MAGIC, _ZSTD_RLE, _ZSTD_RESERVED = 0xFD2FB528, 1, 3
#: Deflate makes up to 1032 of 1; what is better than this is looked at, so that a trailer that is cut does not pass for another size.
_GZIP_RATIO_MAX = 128
_GZIP_BYTES_MIN = 18
_UINT32 = struct.Struct("<I")
_SNAPPY_SIZE = struct.Struct(">i")
#: Blocks that a look at a stream steps over: these take some 0.1 ms. Usual ones hold 32 KiB and more.
BLOCKS_MAX = 512
#: Blocks of snappy and members of gzip that a look decompresses. Each takes several microseconds, however small it is.
PIECES_MAX = 64
#: A look decompresses no stream that is longer than this times the size that it asks for, and these bytes. Each block of gzip or zstd may
#: bring tables of its own, so that a stream takes longer than its size tells: 64 KiB several milliseconds.
_LOOK_RATIO, _LOOK_RATIO_TABLES, _LOOK_BYTES = 2, 0.25, 1024
#: Bytes of a name in a header of gzip that are searched for its end at a time.
NAME_PIECE_BYTES = 4096

_CUT = "the compressed records are truncated"

Buffer = bytes | bytearray | memoryview


class TooLarge(CorruptRecord):
    """The decompressed records are larger than the caller allows, or in more blocks."""


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
    """Compress whole records. `level` is on the codec's own scale; None is its default."""
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
        if len(data) > size_max:
            raise _too_large(size_max)
        return bytes(data)
    windows = decompressed_windows(codec, data, size_max)
    first = next(windows, b"")
    second = next(windows, None)
    return first if second is None else b"".join((first, second, *windows))


def decompressed_windows(codec: CompressionType | int, data: Buffer, size_max: int, blocks_max: int = sys.maxsize) -> Iterator[bytes]:
    """The records of a batch in pieces of at most WINDOW_BYTES, each decompressed only when it is asked for.

    Raises CorruptRecord for damaged input, TooLarge as soon as the output exceeds `size_max` bytes or is in more than `blocks_max` blocks
    of snappy or lz4 or of the first frame of zstd, or members of gzip. A raw snappy block cannot be read in part and gives one piece of its
    own size, which is at most SNAPPY_RATIO_MAX times the compressed size."""
    try:
        total = 0
        for window in _windows(codec, data, size_max, blocks_max):
            total += len(window)
            if total > size_max:
                raise _too_large(size_max)
            yield window
    except CorruptRecord:
        raise
    except Exception as error:  # each library has an exception of its own for damaged input
        raise CorruptRecord(f"the {CompressionType(codec).name.lower()} records are damaged: {error}") from error


def is_larger_than(codec: CompressionType | int, data: Buffer, size: int) -> bool:
    """Whether the records take more than `size` bytes, or it would take long to tell: they are in very many blocks, or compressed not much.
    Decompresses no more than `size` bytes, of a stream and in a number of blocks that are bounded. False for damaged input."""
    if codec == CompressionType.NONE:
        return len(data) > size
    ratio = _LOOK_RATIO_TABLES if codec in (CompressionType.GZIP, CompressionType.ZSTD) else _LOOK_RATIO
    if len(data) > ratio * size + _LOOK_BYTES:
        return True
    blocks_max = PIECES_MAX if codec in (CompressionType.GZIP, CompressionType.SNAPPY) else BLOCKS_MAX
    try:
        for _ in decompressed_windows(codec, data, size, blocks_max):
            pass
    except TooLarge:
        return True
    except CorruptRecord:
        return False
    return False


def is_whole_stream(
    codec: CompressionType | int, view: memoryview, size_min: int, size_max: int, blocks_max: int | None = None
) -> bool:  # fmt: skip
    """Whether the compressed records are of the usual form and end where `view` ends. If not, only decompressing tells whether Kafka's Java
    code reads them, which allows more.

    Takes a few microseconds, since it steps over the blocks without decompressing them: it finds streams that are cut or go on, not
    damaged blocks. False for more than `blocks_max` blocks, by default BLOCKS_MAX. gzip has no blocks that can be stepped over: the size
    at its end must fit, which is at least `size_min`. Raw snappy has none either, and is decompressed up to `size_max` bytes; above that
    this is False. False for other codecs and for none."""
    if blocks_max is None:
        blocks_max = BLOCKS_MAX
    try:
        if codec == CompressionType.GZIP:
            return _is_whole_gzip(view, size_min)
        if codec == CompressionType.SNAPPY:
            return _is_whole_snappy(view, size_max, blocks_max)
        if codec == CompressionType.LZ4:
            return _is_whole_lz4(view, blocks_max)
        return codec == CompressionType.ZSTD and _is_whole_zstd(view, blocks_max)
    except (struct.error, IndexError):  # a field lies behind the end
        return False
    except TooLarge:
        return False


def _is_whole_gzip(view: memoryview, size_min: int) -> bool:
    size = len(view)
    return (
        size >= _GZIP_BYTES_MIN
        and view[0] == 0x1F
        and view[1] == 0x8B
        and size_min <= _UINT32.unpack_from(view, size - 4)[0] <= size * _GZIP_RATIO_MAX
    )


def _is_whole_snappy(view: memoryview, size_max: int, blocks_max: int) -> bool:
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        try:
            return len(view) <= _SNAPPY_BYTES_MORE + size_max + size_max // 6 and len(_decompress_snappy_block(view, size_max)) >= 0
        except Exception:  # the library has an exception of its own for damaged input
            return False
    position, end, unpack = len(XERIAL_HEADER), len(view), _SNAPPY_SIZE.unpack_from
    if position == end:
        return False
    for _ in range(blocks_max):
        if position == end:
            return True
        (size,) = unpack(view, position)
        if size <= 0:
            return False
        position += 4 + size
    return False


def _is_whole_lz4(view: memoryview, blocks_max: int) -> bool:
    end = _lz4_end_mark(view, blocks_max)
    is_empty = end == 7 + (view[4] & _LZ4_CONTENT_SIZE)
    return bool(end) and not is_empty and not any(view[end : end + 4]) and end + 4 + (view[4] & _LZ4_CONTENT_CHECKSUM) == len(view)


def _lz4_end_mark(view: memoryview, blocks_max: int) -> int:
    """Position of the mark at the end of the frame; 0 if it is not of the form that Kafka reads. Raises struct.error if there is none,
    TooLarge if there are more blocks."""
    flags, sizes = view[4], view[5]
    if _UINT32.unpack_from(view)[0] != _LZ4_MAGIC or flags & _LZ4_FLAGS_MASK != _LZ4_FLAGS or sizes & _LZ4_SIZES_MASK:
        return 0
    position, size_max = 7 + (flags & _LZ4_CONTENT_SIZE), 1 << 8 + 2 * (sizes >> 4)
    overhead, unpack = 4 + (4 if flags & _LZ4_BLOCK_CHECKSUMS else 0), _UINT32.unpack_from
    for _ in range(blocks_max):
        # The highest bit says that the block is not compressed.
        size = unpack(view, position)[0] & 0x7FFFFFFF
        if not size:
            return position
        if size > size_max:
            return 0
        position += overhead + size
    raise _too_many(blocks_max)


def _is_whole_zstd(view: memoryview, blocks_max: int) -> bool:
    descriptor = view[4]
    # One frame with neither a dictionary nor the reserved bit.
    if _UINT32.unpack_from(view)[0] != _ZSTD_MAGIC or descriptor & 0x0B:
        return False
    is_single, size_code, content = descriptor >> 5 & 1, descriptor >> 6, 0
    position = 6 - is_single + (1 << size_code if size_code else is_single)
    for _ in range(blocks_max):
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        kind, size = block >> 1 & 3, block >> 3
        if kind == _ZSTD_RESERVED:
            return False
        position += 3 + (1 if kind == _ZSTD_RLE else size)
        content += size
        if block & 1:
            return content > 0 and position + (descriptor & 4) == len(view)
    return False


def _too_large(size_max: int) -> TooLarge:
    return TooLarge(f"the records are larger than {size_max} bytes")


def _too_many(blocks_max: int) -> TooLarge:
    return TooLarge(f"the records are in more than {blocks_max} blocks")


def _windows(codec: CompressionType | int, data: Buffer, size_max: int, blocks_max: int) -> Iterator[bytes]:
    if codec == CompressionType.NONE:
        view = memoryview(data)
        return (bytes(view[start : start + WINDOW_BYTES]) for start in range(0, len(view), WINDOW_BYTES))
    if codec == CompressionType.GZIP:
        return _gzip_windows(memoryview(data), blocks_max)
    if codec == CompressionType.SNAPPY:
        return _snappy_windows(memoryview(data), size_max, blocks_max)
    if codec == CompressionType.LZ4:
        return _lz4_windows(memoryview(data), blocks_max)
    if codec == CompressionType.ZSTD:
        return _zstd_windows(data, blocks_max)
    raise CorruptRecord(f"codec {int(codec)} is unknown")


def _gzip_windows(view: memoryview, members_max: int) -> Iterator[bytes]:
    position = read_from = _gzip_header(view, 0)
    for _ in range(members_max):
        member = _GzipMember()
        yield from member.windows(view, position)
        end = member.end
        read_to = min(len(view), read_from + -(-(end - read_from) // _GZIP_READ_BYTES) * _GZIP_READ_BYTES)
        member.check(view[end : end + 8])
        if max(read_to, end + 8) >= len(view) and read_to - end < _GZIP_REST_MIN:
            return
        try:
            position = _gzip_header(view, end + 8)
        except CorruptRecord:  # whatever follows, it is no member
            return
        if position >= read_to:
            read_from = position
    raise _too_many(members_max)


class _GzipMember:
    """`end`: where the compressed data end."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(-15)
        self._crc = self._size = self.end = 0

    def windows(self, view: memoryview, position: int) -> Iterator[bytes]:
        """Decompress the data at `position`. Each call copies the input that it does not consume, so the input is given in small pieces."""
        decoder = self._decoder
        while not decoder.eof:
            piece: Buffer = view[position : position + INPUT_BYTES]
            position += len(piece)
            window = decoder.decompress(piece, WINDOW_BYTES)
            while window:
                self._crc, self._size = zlib.crc32(window, self._crc), self._size + len(window)
                yield window
                window = b"" if decoder.eof else decoder.decompress(decoder.unconsumed_tail, WINDOW_BYTES)
            if not len(piece) and not decoder.eof:
                raise CorruptRecord(_CUT)
        self.end = position - len(decoder.unused_data)

    def check(self, trailer: memoryview) -> None:
        """Raises CorruptRecord if the trailer does not fit."""
        if len(trailer) < 8:
            raise CorruptRecord(_CUT)
        if struct.unpack("<II", trailer) != (self._crc, self._size & 0xFFFFFFFF):
            raise CorruptRecord("the gzip records do not match their checksum")


def _gzip_header(view: memoryview, position: int) -> int:
    """Where the compressed data begin (GZIPInputStream.readHeader). Raises CorruptRecord."""
    start, flags = position, view[position + 3] if position + 10 <= len(view) else 0
    if position + 10 > len(view) or bytes(view[position : position + 3]) != b"\x1f\x8b\x08":
        raise CorruptRecord("no gzip header")
    position += 10
    if flags & _GZIP_EXTRA:
        position += 2 + int.from_bytes(view[position : position + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            position = _behind_zero(view, position)
    if flags & _GZIP_HEADER_CRC:
        if int.from_bytes(view[position : position + 2], "little") != zlib.crc32(view[start:position]) & 0xFFFF:
            raise CorruptRecord("the gzip header does not match its checksum")
        position += 2
    if position > len(view):
        raise CorruptRecord(_CUT)
    return position


def _behind_zero(view: memoryview, position: int) -> int:
    """Where the text at `position` is over, behind the byte 0 that ends it; behind the end of `view` if there is none."""
    while position < len(view):
        found = bytes(view[position : position + NAME_PIECE_BYTES]).find(0)
        if found >= 0:
            return position + found + 1
        position += NAME_PIECE_BYTES
    return len(view) + 1


def _lz4_windows(view: memoryview, blocks_max: int) -> Iterator[bytes]:
    import lz4.frame

    if len(view) < 6 or view[4] & _LZ4_FLAGS_MASK != _LZ4_FLAGS or view[5] & _LZ4_SIZES_MASK:
        raise CorruptRecord("the lz4 frame has a descriptor that Kafka refuses, such as blocks that depend on each other")
    decoder = lz4.frame.LZ4FrameDecompressor()
    for part in _lz4_frame_of_java(view, blocks_max):
        for start in range(0, len(part), INPUT_BYTES):
            window = decoder.decompress(bytes(part[start : start + INPUT_BYTES]), WINDOW_BYTES)
            while True:
                if window:
                    yield window
                if decoder.eof:
                    return
                if decoder.needs_input:
                    break
                window = decoder.decompress(b"", WINDOW_BYTES)
    raise CorruptRecord(_CUT)


def _lz4_frame_of_java(view: memoryview, blocks_max: int) -> tuple[Buffer, ...]:
    """The frame in parts, without what Kafka's Java code does not look at: the size and the checksum of the content. To Java, any block of
    size 0 is the end, to the library only one that is compressed. Raises CorruptRecord, TooLarge."""
    flags = view[4]
    try:
        end = _lz4_end_mark(view, blocks_max)
    except struct.error:
        return (view,)
    if not end:
        return (view,)
    if end + 4 + (flags & _LZ4_CONTENT_CHECKSUM) > len(view):
        raise CorruptRecord(_CUT)
    head = 6 + (flags & _LZ4_CONTENT_SIZE)
    if _xxh32(view[4:head]) >> 8 & 0xFF != view[head]:
        raise CorruptRecord("the lz4 frame's descriptor does not match its checksum")
    descriptor = bytes((flags & ~(_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM), view[5]))
    return bytes(view[:4]) + descriptor + bytes((_xxh32(descriptor) >> 8 & 0xFF,)), view[head + 1 : end], bytes(4)


def _xxh32(data: Buffer) -> int:
    """xxHash32 of less than 16 bytes, with seed 0."""
    words, mask = len(data) // 4, 0xFFFFFFFF
    value = 374761393 + len(data)
    for (word,) in _UINT32.iter_unpack(data[: 4 * words]):
        value = (value + word * 3266489917) & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
    for byte in data[4 * words :]:
        value = (value + byte * 374761393) & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def _zstd_windows(data: Buffer, blocks_max: int) -> Iterator[bytes]:
    import zstandard

    _check_first_zstd_frame(memoryview(data), blocks_max)
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while window := reader.read(WINDOW_BYTES):
            yield window


def _check_first_zstd_frame(view: memoryview, blocks_max: int) -> None:
    """Raises CorruptRecord if the first frame is cut: the library would return what there is, and Java refuses it, but none behind it.
    Raises TooLarge if it has more blocks."""
    import zstandard

    head = bytes(view[:_ZSTD_HEADER_BYTES_MAX])
    if int.from_bytes(head[:4], "little") & ~15 == _ZSTD_SKIPPABLE:
        position, is_last = 8 + int.from_bytes(head[4:8], "little"), True
    else:
        position, is_last = zstandard.frame_header_size(head) if head else 0, not head
    blocks = 0
    while not is_last and position + 3 <= len(view):
        blocks += 1
        if blocks > blocks_max:
            raise _too_many(blocks_max)
        block = int.from_bytes(view[position : position + 3], "little")
        is_last, is_repeated = bool(block & 1), block >> 1 & 3 == _ZSTD_RLE
        position += 3 + (1 if is_repeated else block >> 3)
        if is_last and zstandard.get_frame_parameters(head).has_checksum:
            position += 4
    if not is_last or position > len(view):
        raise CorruptRecord(_CUT)


def _compress_snappy(view: memoryview) -> bytes:
    import cramjam

    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + XERIAL_BLOCK_BYTES])))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _snappy_windows(view: memoryview, size_max: int, blocks_max: int) -> Iterator[bytes]:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _decompress_snappy_block(view, size_max)
        return
    position, size_left, blocks = 0, size_max, -1
    while position + 4 <= len(view):  # what is shorter ends the stream, and another stream may follow (SnappyInputStream)
        blocks += 1  # the first header is none, others are
        if blocks > blocks_max:
            raise _too_many(blocks_max)
        if view[position : position + 4] == XERIAL_MAGIC[:4]:
            header = bytes(view[position : position + len(XERIAL_HEADER)])
            # Java looks at the version of later headers only.
            is_old = position > 0 and int.from_bytes(header[8:12], "big", signed=True) < 1
            if len(header) < len(XERIAL_HEADER) or header[:8] != XERIAL_MAGIC or is_old:
                raise CorruptRecord("a snappy header is not valid")
            position += len(XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= len(view) - position:
            raise CorruptRecord(f"a snappy block claims {size} bytes, but only {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + size], size_left)
        size_left -= len(block)
        yield block
        position += size


def _decompress_snappy_block(view: memoryview, size_max: int) -> bytes:
    import cramjam

    size, shift = 0, 0
    for byte in view[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > SNAPPY_RATIO_MAX * len(view):
        raise CorruptRecord(f"a snappy block of {len(view)} bytes claims to contain {size}")
    if size > size_max:
        raise _too_large(size_max)
    return bytes(cramjam.snappy.decompress_raw(bytes(view)))
