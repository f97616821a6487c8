"""Records inside batches: decompression by libraries, decoding in own code, in lockstep over many batches with numpy.

Record r of *all* batches is decoded at once, so the cost of an interpreter step is shared by as many records as there are batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minikafka.counted import counted
from minikafka.spark.logformat import CODEC_MASK, CODECS, DELETE_HORIZON_BIT, Batches, FormatError

RECORDS_BYTES_MAX = 256 << 20
LOCKSTEP_MIN = 128
SCALAR_BYTES_MAX = 64 << 20
GZIP_PIECE_BYTES = 512
#: What Java reads at a time, and the least that may be another member: trailer, header, trailer.
GZIP_FILL_BYTES, GZIP_REST_BYTES_MIN = 8192, 27
GZIP_MAGIC = b"\x1f\x8b\x08"
LZ4_INDEPENDENT_BLOCKS = 0x20
ZSTD_SKIPPABLE, ZSTD_HEADER_BYTES_MAX = 0x184D2A50, 18
XERIAL_MAGIC = b"\x82SNAPPY\x00"
_U8 = np.uint64


class TooLargeError(FormatError):
    """Records that unpack to more than is held in memory: they may be sound."""


class Unread(str):
    """Why a batch was not decoded, where nothing is wrong with it that was seen."""

    __slots__ = ()


def decompress(codec: int, data: memoryview, bytes_max: int = RECORDS_BYTES_MAX) -> bytes | memoryview:
    """The records of one batch. Raises FormatError for an unknown codec or a broken frame, TooLargeError for more than `bytes_max`
    bytes."""
    if codec == 0:
        return data
    if codec >= len(CODECS):
        raise FormatError(f"unknown compression codec {codec}")
    try:
        result = _DECOMPRESS[codec](data, bytes_max)
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(f"{CODECS[codec]} data does not decompress: {error}") from error
    if len(result) > bytes_max:
        raise TooLargeError(f"{CODECS[codec]} data grows beyond {bytes_max} bytes")
    return result


def _gzip(data: memoryview, bytes_max: int) -> bytes:
    """All members that Java reads (GZIPInputStream): it looks for another one unless it has read all, in fills of GZIP_FILL_BYTES, and less
    is left than a member takes. It ignores what follows and does not begin as a member does."""
    result = bytearray()
    filled_from = position = _gzip_body(data, 0)
    while True:
        end = _gzip_member(data, position, result, bytes_max)
        filled_to = filled_from + -(-(end - filled_from) // GZIP_FILL_BYTES) * GZIP_FILL_BYTES
        is_all_read = max(filled_to, end + 8) >= len(data)
        if len(result) > bytes_max or (is_all_read and len(data) - end < GZIP_REST_BYTES_MIN):
            return bytes(result)
        try:
            position = _gzip_body(data, end + 8)
        except FormatError:
            return bytes(result)
        filled_from = position if position >= filled_to else filled_from


def _gzip_body(data: memoryview, position: int) -> int:
    """Where the compressed data of the member at `position` begin. Raises FormatError."""
    begin, flags = position, data[position + 3] if position + 10 <= len(data) else 0
    if position + 10 > len(data) or data[position : position + 3] != GZIP_MAGIC:
        raise FormatError("gzip data has no header")
    position += 10
    if flags & 4:  # an extra field
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (8, 16):  # a name, a comment
        while flags & flag:
            position += 1
            if position > len(data) or data[position - 1] == 0:
                break
    if flags & 2:
        position += 2
        if int.from_bytes(data[position - 2 : position], "little") != zlib.crc32(data[begin : position - 2]) & 0xFFFF:
            raise FormatError("the checksum of a gzip header is wrong")
    if position > len(data):
        raise FormatError("gzip data is truncated")
    return position


def _gzip_member(data: memoryview, position: int, result: bytearray, bytes_max: int) -> int:
    """Append the data at `position` to the result, at most up to one byte more than `bytes_max`. Returns their end.

    zlib copies what it was given behind a member's end. So it is given pieces that grow with the member, not all the rest each time.
    """
    inflate, before = zlib.decompressobj(-15), len(result)
    size = GZIP_PIECE_BYTES
    while not inflate.eof and len(result) <= bytes_max:
        piece = data[position : position + size]
        if not piece:
            raise FormatError("gzip data is truncated")
        result += inflate.decompress(piece, bytes_max + 1 - len(result))
        position += len(piece)
        size *= 2
    end = position - len(inflate.unused_data)
    if len(result) <= bytes_max:
        crc, length = zlib.crc32(memoryview(result)[before:]), len(result) - before
        if len(data) < end + 8 or data[end : end + 8] != crc.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little"):
            raise FormatError("the checksum of gzip data is wrong or missing")
    return end


def _snappy(data: memoryview, bytes_max: int) -> bytes:
    import cramjam

    if bytes(data[:8]) != XERIAL_MAGIC:
        _snappy_size(data, bytes_max)
        return bytes(cramjam.snappy.decompress_raw(data))
    position, blocks, total = 0, [], 0
    while position + 4 <= len(data):  # what is shorter ends the stream, and another stream may follow (SnappyInputStream)
        if data[position : position + 4] == XERIAL_MAGIC[:4]:
            _xerial_header(data[position : position + 16])
            position += 16
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise FormatError("snappy block is truncated")
        total += _snappy_size(data[position : position + size], bytes_max - total)
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[position : position + size])))
        position += size
    return b"".join(blocks)


def _xerial_header(header: memoryview) -> None:
    """Raises FormatError for a header that Java refuses (SnappyCodec)."""
    if len(header) < 16 or bytes(header[:8]) != XERIAL_MAGIC or int.from_bytes(header[8:12], "big", signed=True) < 1:
        raise FormatError("snappy header is not valid")


def _snappy_size(data: memoryview, bytes_max: int) -> int:
    """The size that a raw snappy block announces, checked before anything is allocated."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > bytes_max:
        raise TooLargeError(f"snappy data grows beyond {bytes_max} bytes")
    return size


def _lz4(data: memoryview, bytes_max: int) -> bytes:
    import lz4.frame

    if len(data) > 4 and not data[4] & LZ4_INDEPENDENT_BLOCKS:
        raise FormatError("lz4 blocks depend on each other, which Kafka's clients refuse")
    frame = lz4.frame.LZ4FrameDecompressor()
    result: bytes = frame.decompress(data, bytes_max + 1)
    if not frame.eof and len(result) <= bytes_max:
        raise FormatError("lz4 frame is truncated")
    return result


def _zstd(data: memoryview, bytes_max: int) -> bytes:
    import io

    import zstandard

    _whole_zstd_frames(data)
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    with decompressor.stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
        return reader.read(bytes_max + 1)


def _whole_zstd_frames(data: memoryview) -> None:
    """Raises FormatError if the last frame is not whole: the library then returns what there is."""
    import zstandard

    position = 0
    while position < len(data):
        if int.from_bytes(data[position : position + 4], "little") & ~15 == ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        rest = bytes(data[position : position + ZSTD_HEADER_BYTES_MAX])
        has_checksum, is_last = zstandard.get_frame_parameters(rest).has_checksum, False
        position += zstandard.frame_header_size(rest)
        while not is_last and position + 3 <= len(data):
            block = int.from_bytes(data[position : position + 3], "little")
            is_last, is_repeated = bool(block & 1), block >> 1 & 3 == 1
            position += 3 + (1 if is_repeated else block >> 3)
        position += 4 if has_checksum else 0
        if not is_last or position > len(data):
            raise FormatError("zstd frame is truncated")
    if position > len(data):
        raise FormatError("zstd frame is truncated")


_DECOMPRESS = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}


@dataclass(slots=True)
class RecordColumns:
    """Records of several batches as columns, in batch order. Lengths are -1 for null; starts point into `data`."""

    data: np.ndarray[Any, Any]
    batch: np.ndarray[Any, Any]
    offset: np.ndarray[Any, Any]
    timestamp: np.ndarray[Any, Any]
    key_start: np.ndarray[Any, Any]
    key_length: np.ndarray[Any, Any]
    value_start: np.ndarray[Any, Any]
    value_length: np.ndarray[Any, Any]
    headers_start: np.ndarray[Any, Any]
    headers_count: np.ndarray[Any, Any]

    def __len__(self) -> int:
        return len(self.offset)

    def key(self, index: int) -> bytes | None:
        return self._slice(self.key_start[index], self.key_length[index])

    def value(self, index: int) -> bytes | None:
        return self._slice(self.value_start[index], self.value_length[index])

    def headers(self, index: int) -> list[tuple[bytes, bytes | None]]:
        position, result = int(self.headers_start[index]), []
        for _ in range(int(self.headers_count[index])):
            length, position = read_varint(self.data, position)
            name = self.data[position : position + length].tobytes()
            position += length
            length, position = read_varint(self.data, position)
            result.append((name, None if length < 0 else self.data[position : position + length].tobytes()))
            position += max(length, 0)
        return result

    def _slice(self, start: Any, length: Any) -> bytes | None:
        return None if length < 0 else self.data[int(start) : int(start) + int(length)].tobytes()


def read_varint(data: Any, position: int) -> tuple[int, int]:
    """One zigzag varint (up to 64 bits) of a byte sequence: (value, position behind it)."""
    byte = int(data[position])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = shift = 0
    while True:
        byte = int(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise FormatError("varint is too long")


class _Cursor:
    """One position per batch in one byte array; reads a field of every batch at once. Reads past a batch's end mark it bad."""

    def __init__(self, data: np.ndarray[Any, Any], position: np.ndarray[Any, Any]) -> None:
        self.data, self.position = data, position

    def varint(self) -> np.ndarray[Any, Any]:
        byte = self.data.take(self.position, mode="clip")
        self.position = self.position + 1
        value = (byte & 0x7F).astype(_U8)
        open_ = np.flatnonzero(byte >= 0x80)
        shift = 7
        while len(open_) and shift <= 63:
            byte = self.data.take(self.position[open_], mode="clip")
            self.position[open_] += 1
            value[open_] |= (byte & 0x7F).astype(_U8) << _U8(shift)
            open_ = open_[byte >= 0x80]
            shift += 7
        return (value >> _U8(1)).view(np.int64) ^ -(value & _U8(1)).view(np.int64)

    def skip(self, lengths: np.ndarray[Any, Any]) -> None:
        self.position = self.position + np.maximum(lengths, 0)


Column = np.ndarray[Any, Any]
#: Called once a step with rows of the sections, offsets, timestamps, and the places
#: (key start, key length, value start, value length, headers start, headers count).
Visitor = Callable[[Column, Column, Column, tuple[Column, ...]], None]


@dataclass(slots=True)
class _Sections:
    """The decompressed record sections of some batches: `indexes` of the batches, and where each section lies in `data`."""

    data: Column
    indexes: Column
    starts: Column
    ends: Column


def decode_records(batches: Batches, chosen: Column | None = None) -> tuple[RecordColumns, dict[int, str]]:
    """Decode the records of all (or the `chosen` indexes of) batches.

    Returns the columns and, for batches that cannot be decoded, {batch index: what is wrong}; those give no records. Of the too large ones
    that is an Unread.
    Rules: records fill the batch exactly, each record fills its length exactly, offset deltas rise and end at or before
    lastOffsetDelta (KIP-98, DefaultRecord.readFrom).
    """
    wrong: dict[int, str] = {}
    sections = _sections(batches, np.arange(len(batches)) if chosen is None else np.asarray(chosen), wrong)
    rows: list[tuple[Column, ...]] = []
    _lockstep(sections, batches, wrong, lambda alive, offset, timestamp, places: rows.append((alive, offset, timestamp, *places)))
    return _collect(sections.data, sections.indexes, rows, wrong), wrong


def check_records(batches: Batches) -> tuple[Column, dict[int, str]]:
    """Decode every record without keeping it.

    Returns the largest record timestamp of every batch (int64 minimum where none was decoded) and what is wrong, as decode_records.
    """
    wrong: dict[int, str] = {}
    sections = _sections(batches, np.arange(len(batches)), wrong)
    largest = np.full(len(sections.indexes), np.iinfo(np.int64).min, np.int64)

    def visit(alive: Column, offset: Column, timestamp: Column, places: tuple[Column, ...]) -> None:
        if alive[0] == alive[-1]:  # all of one batch
            largest[alive[0]] = max(largest[alive[0]], timestamp.max())
        else:
            largest[alive] = np.maximum(largest[alive], timestamp)

    _lockstep(sections, batches, wrong, visit)
    result = np.full(len(batches), np.iinfo(np.int64).min, np.int64)
    result[sections.indexes] = largest
    return result, wrong


def _sections(batches: Batches, indexes: Column, wrong: dict[int, str]) -> _Sections:
    parts: list[Any] = []
    good: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    total = 0
    compressed = bool((batches.header["attributes"][indexes] & CODEC_MASK).any())
    for index in indexes.tolist():
        if batches.header["magic"][index] != 2:
            wrong[index] = f"records of magic {int(batches.header['magic'][index])} are not read"
            continue
        if not compressed:
            start = int(batches.position[index]) - batches.window_start + 61
            size = int(batches.size[index]) - 61
        else:
            try:
                body = decompress(int(batches.header["attributes"][index]) & CODEC_MASK, batches.body(index), RECORDS_BYTES_MAX)
            except FormatError as error:
                wrong[index] = Unread(error) if isinstance(error, TooLargeError) else str(error)
                continue
            parts.append(body)
            start, size = total, len(body)
            total += size
        good.append(index)
        starts.append(start)
        ends.append(start + size)
    data = np.frombuffer(b"".join(parts) if compressed else batches.window, np.uint8)
    return _Sections(data, np.array(good, np.int64), np.array(starts, np.int64), np.array(ends, np.int64))


def _lockstep(sections: _Sections, batches: Batches, wrong: dict[int, str], visit: Visitor) -> None:
    data, indexes, starts, ends = sections.data, sections.indexes, sections.starts, sections.ends
    header = batches.header[indexes]
    counts = header["count"].astype(np.int64)
    impossible = (counts < 0) | (counts > (ends - starts))
    for index in indexes[impossible].tolist():
        wrong[index] = f"{counted(int(batches.header['count'][index]), 'record')} cannot fit in its bytes"
    alive = np.flatnonzero(~impossible)
    if len(alive) < LOCKSTEP_MIN:
        _one_by_one(sections, batches, alive, wrong, visit)
        return
    previous = np.full(len(indexes), -1, np.int64)
    position = starts.copy()
    base_offset, base_timestamp = header["base_offset"].astype(np.int64), header["base_timestamp"].astype(np.int64)
    last_delta = header["last_delta"].astype(np.int64)
    step = 0
    while len(alive := alive[counts[alive] > step]):
        fields, position[alive], bad = _one_record(data, position[alive], ends[alive])
        time_delta, offset_delta = fields[0], fields[1]
        bad |= (offset_delta <= previous[alive]) | (offset_delta > last_delta[alive])
        previous[alive] = offset_delta
        if bad.any():
            for index in indexes[alive[bad]].tolist():
                wrong[index] = f"record {step} does not decode or breaks the order of offsets"
            kept = ~bad
            alive, fields = alive[kept], tuple(field[kept] for field in fields)
            time_delta, offset_delta = fields[0], fields[1]
        if len(alive):
            visit(alive, base_offset[alive] + offset_delta, base_timestamp[alive] + time_delta, fields[2:])
        step += 1
    finished = position == ends
    for index in indexes[~finished].tolist():
        wrong.setdefault(index, "bytes are left after its last record")


def _one_by_one(sections: _Sections, batches: Batches, alive: Column, wrong: dict[int, str], visit: Visitor) -> None:
    """As _lockstep, batch after batch: with few batches a step over all of them costs more than it saves."""
    data = sections.data.tobytes() if sections.data.nbytes < SCALAR_BYTES_MAX else memoryview(sections.data)  # type: ignore[arg-type]
    for row in alive.tolist():
        header = batches.header[sections.indexes[row]]
        index, count, last_delta = int(sections.indexes[row]), int(header["count"]), int(header["last_delta"])
        rows: list[tuple[int, ...]] = []
        position, end = int(sections.starts[row]), int(sections.ends[row])
        previous = -1
        for step in range(count):
            try:
                fields, position = _record_at(data, position, end)
            except (FormatError, IndexError):
                fields = None
            if fields is None or not previous < fields[1] <= last_delta:
                wrong[index] = f"record {step} does not decode or breaks the order of offsets"
                break
            previous = fields[1]
            rows.append(fields)
        else:
            if position != end:
                wrong.setdefault(index, "bytes are left after its last record")
        if rows:
            columns = np.array(rows, np.int64).T
            offset, timestamp = columns[1] + int(header["base_offset"]), columns[0] + int(header["base_timestamp"])
            visit(np.full(len(rows), row), offset, timestamp, tuple(columns[2:]))


def _record_at(data: Any, position: int, end: int) -> tuple[tuple[int, ...], int]:
    """One record: ((time delta, offset delta, places of key, value and headers), position behind). Raises FormatError, IndexError."""
    length, position = read_varint(data, position)
    record_end = position + length
    if length < 6 or record_end > end:
        raise FormatError("record length")
    time_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key_length, key_start = read_varint(data, position)
    if key_length < -1 or key_length > record_end - key_start:
        raise FormatError("key length")
    value_length, value_start = read_varint(data, key_start + max(key_length, 0))
    if value_length < -1 or value_length > record_end - value_start:
        raise FormatError("value length")
    count, headers_start = read_varint(data, value_start + max(value_length, 0))
    position = headers_start
    if not 0 <= count <= record_end - headers_start:
        raise FormatError("header count")
    for _ in range(count):
        for shortest in (0, -1):
            length, position = read_varint(data, position)
            if length < shortest or length > record_end - position:
                raise FormatError("header length")
            position += max(length, 0)
    if position != record_end:
        raise FormatError("record end")
    return (time_delta, offset_delta, key_start, key_length, value_start, value_length, headers_start, count), record_end


def _one_record(data: np.ndarray[Any, Any], position: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
    """The next record at each position: ((time delta, offset delta, key/value/header places), position behind, bad flags)."""
    cursor = _Cursor(data, position)
    length = cursor.varint()
    bad = (length < 6) | (length > ends - cursor.position)
    record_end = np.where(bad, ends, cursor.position + np.where(bad, 0, length))
    cursor.position = cursor.position + 1
    time_delta = cursor.varint()
    offset_delta = cursor.varint()
    key_length = cursor.varint()
    key_start = cursor.position
    bad |= (key_length < -1) | (key_length > ends - key_start)
    cursor.skip(np.where(bad, 0, key_length))
    value_length = cursor.varint()
    value_start = cursor.position
    bad |= (value_length < -1) | (value_length > ends - value_start)
    cursor.skip(np.where(bad, 0, value_length))
    count = cursor.varint()
    headers_start = cursor.position.copy()
    bad |= (count < 0) | (count > ends - headers_start)
    _skip_headers(data, cursor, np.where(bad, 0, count), ends, bad)
    bad |= cursor.position != record_end
    return (
        (time_delta, offset_delta, key_start, key_length, value_start, value_length, headers_start, count),
        np.where(bad, position, record_end),
        bad,
    )


def _skip_headers(
    data: np.ndarray[Any, Any], cursor: _Cursor, count: np.ndarray[Any, Any], ends: np.ndarray[Any, Any], bad: np.ndarray[Any, Any]
) -> None:
    left = count.copy()
    while len(rows := np.flatnonzero(left > 0)):
        inner = _Cursor(data, cursor.position[rows])
        for null_allowed in (False, True):
            length = inner.varint()
            broken = (length < (-1 if null_allowed else 0)) | (length > ends[rows] - inner.position)
            bad[rows[broken]] = True
            left[rows[broken]] = 0
            inner.skip(np.where(broken, 0, length))
        cursor.position[rows] = inner.position
        left[rows] -= 1


def _collect(data: np.ndarray[Any, Any], indexes: np.ndarray[Any, Any], rows: list[Any], wrong: dict[int, str]) -> RecordColumns:
    if not rows:
        empty = np.empty(0, np.int64)
        return RecordColumns(data, *(empty,) * 9)
    batch = indexes[np.concatenate([row[0] for row in rows])]
    columns = [np.concatenate([row[n] for row in rows]) for n in range(1, 9)]
    order = np.lexsort((columns[0], batch))
    if wrong:
        order = order[~np.isin(batch[order], list(wrong))]
    return RecordColumns(data, batch[order], *(column[order] for column in columns))


def has_delete_horizon(batches: Batches) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = (batches.header["attributes"] & DELETE_HORIZON_BIT) != 0
    return found
