"""Turns columns into framed records, all rows at once, in any order, without a Python object per row.

A record is: varint length, attributes 0, varint timestamp delta, varint offset delta, varint key length, key, varint value length,
value, varint header count and headers (org.apache.kafka.common.record.DefaultRecord). The fields before the key take at most 16 bytes in
practice, and are composed as two little-endian words per row. These words, all keys and all values are concatenated in one buffer and
divided into slices. One `take` of slices (Arrow's C++) then writes all records one after another.

Columns with the same value for all rows have length 1 and are broadcast. Needs numpy and pyarrow.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column = np.ndarray[Any, Any]
WORD = 8
_VARINT_MORE = np.array([0, 0, 0x80, 0x8080, 0x808080, 0x80808080], np.uint64)
_WORD_BYTES_MAX = 5
_buffers = threading.local()


def binary_parts(array: pa.Array) -> tuple[Column, Column, pa.Buffer]:
    """(starts, lengths, data) of a binary array. A null has length -1."""
    offsets = _offsets(array).astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_null()), -1, lengths)
    return offsets[:-1], lengths, array.buffers()[2]


def _offsets(array: pa.Array) -> Column:
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1 + array.offset)[array.offset :]


class Pieces:
    """A binary column: `lengths` (-1 null; one element if all are equal) and the location of its bytes."""

    def __init__(self, array: pa.Array) -> None:
        offsets = _offsets(array)
        self.offsets = offsets
        self.begin, self.end = int(offsets[0]), int(offsets[-1])
        buffer = array.buffers()[2]
        self.data = np.frombuffer(buffer, np.uint8)[self.begin : self.end] if self.end > self.begin else np.empty(0, np.uint8)
        self.nulls = np.asarray(array.is_null()) if array.null_count else None
        lengths = np.diff(offsets)
        if self.nulls is not None:
            lengths = np.where(self.nulls, -1, lengths)
        alike = len(lengths) > 0 and lengths.min() == lengths.max()
        self.lengths: Column = (lengths[:1] if alike else lengths).astype(np.int64)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sorted_lengths(self, order: Column | None) -> Column:
        return self.lengths if order is None or len(self.lengths) == 1 else self.lengths[order]


# ---- varints ------------------------------------------------------------------------------------------------------------------


def zigzag(values: Column) -> Column:
    signed = values.astype(np.int64)
    return ((signed << 1) ^ (signed >> 63)).view(np.uint64)


def varint_lengths(values: Column) -> Column:
    """Bytes of each value (uint64, zigzag already applied) as a varint."""
    lengths = np.ones(len(values), np.int64)
    highest = int(values.max(initial=0))
    for index in range(1, 10):
        if highest < 1 << (7 * index):
            break
        lengths += values >= np.uint64(1 << (7 * index))
    return lengths


def varint_words(values: Column) -> tuple[Column, Column] | None:
    """(bytes of each varint as a little-endian uint64, lengths); None if one is longer than 5 bytes."""
    highest = int(values.max(initial=0))
    if highest < len(_SMALL_WORDS):
        found = values.view(np.int64)
        return _SMALL_WORDS[found], _SMALL_LENGTHS[found]
    lengths = varint_lengths(values)
    longest = int(lengths.max(initial=1))
    if longest > _WORD_BYTES_MAX:
        return None
    words = values & np.uint64(0x7F)
    for index in range(1, longest):
        words |= (values << np.uint64(index)) & np.uint64(0x7F << (8 * index))
    words |= _VARINT_MORE[lengths]
    return words, lengths


_SMALL = np.arange(1 << 14, dtype=np.uint64)
_SMALL_LENGTHS = varint_lengths(_SMALL)
_SMALL_WORDS = np.where(_SMALL < 128, _SMALL, _SMALL & np.uint64(0x7F) | np.uint64(0x80) | (_SMALL >> np.uint64(7)) << np.uint64(8))


def scatter_varint(out: Column, at: Column, values: Column, lengths: Column) -> None:
    """Write varints of any length to the positions `at`."""
    values, lengths = np.broadcast_to(values, at.shape), np.broadcast_to(lengths, at.shape)
    for index in range(int(lengths.max(initial=1))):
        rows: Any = slice(None) if index == 0 else np.flatnonzero(lengths > index)
        byte = ((values[rows] >> np.uint64(7 * index)) & np.uint64(0x7F)).astype(np.uint8)
        byte |= np.where(lengths[rows] > index + 1, np.uint8(0x80), np.uint8(0))
        out[at[rows] + index] = byte


def varint_bytes(value: int) -> bytes:
    """A small number as a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


# ---- records ------------------------------------------------------------------------------------------------------------------


def frame(
    keys: Pieces | None, values: Pieces, order: Column | None, time_delta: Column, offset_delta: Column, tail: Pieces | None = None
) -> tuple[Column, pa.Buffer]:
    """The rows in `order` (None: unchanged) as concatenated records: (int64 offsets of length n + 1, data).

    `time_delta` and `offset_delta` are in the order of the result; keys, values and tails (see header_tail) in the order of the table.
    """
    key_length = keys.sorted_lengths(order) if keys is not None else np.full(1, -1, np.int64)
    value_length, tail_length = values.sorted_lengths(order), tail.sorted_lengths(order) if tail is not None else 1
    fields = [Varints(zigzag(time_delta)), Varints(zigzag(offset_delta)), Varints(zigzag(key_length))]
    middle = Varints(zigzag(value_length))
    body = 1 + middle.lengths + np.maximum(key_length, 0) + np.maximum(value_length, 0) + tail_length
    for field in fields:
        body = body + field.lengths
    slots, prefix_length = _slots(len(offset_delta), [Varints(zigzag(body)), *fields], middle)
    return _join(keys, values, tail, order, slots, prefix_length, middle.lengths)


class Varints:
    """Values (zigzag applied) with their encoded lengths, and their bytes as little-endian words if none is longer than 5 bytes."""

    def __init__(self, values: Column) -> None:
        found = varint_words(values)
        self.values = values
        self.words: Any
        self.words, self.lengths = found if found is not None else (None, varint_lengths(values))


def _slots(rows: int, fields: list[Varints], middle: Varints) -> tuple[Column, Column]:
    """A slot of words for each row, and the number of its bytes before the key. A slot is a word whose last byte is 0, the varints of
    `fields` with a 0 byte after the first one, and, as its last word, the value's length."""
    prefix_length = 1 + sum((field.lengths for field in fields[1:]), start=fields[0].lengths)
    longest = int(prefix_length.max(initial=1))
    if longest > 2 * WORD or any(field.words is None for field in fields):
        slots = np.zeros((rows, 6), np.uint64)
        at = np.arange(rows, dtype=np.int64) * (6 * WORD) + WORD
        for number, field in enumerate(fields):
            scatter_varint(slots.view(np.uint8).reshape(-1), at, field.values, field.lengths)
            at = at + field.lengths + (1 if number == 0 else 0)
    else:
        slots = np.empty((rows, 3 if longest <= WORD else 4), np.uint64)
        slots[:, 0] = 0
        low = high = np.zeros(1, np.uint64)
        shift = np.zeros(1, np.uint64)
        for number, field in enumerate(fields):
            low = low | (field.words << shift)
            if longest > WORD:  # a shift by 64 or more gives 0
                high = high | (field.words >> (np.uint64(64) - shift)) | (field.words << (shift - np.uint64(64)))
            shift = shift + ((field.lengths.view(np.uint64) + np.uint64(number == 0)) << np.uint64(3))
        slots[:, 1] = low
        if longest > WORD:
            slots[:, 2] = high
    slots[:, -1] = middle.words
    return slots, prefix_length


def _join(
    keys: Pieces | None,
    values: Pieces,
    tail: Pieces | None,
    order: Column | None,
    slots: Column,
    prefix_length: Column,
    middle_length: Column,
) -> tuple[Column, pa.Buffer]:
    """Put all slices in one array and take them. A record without headers ends with a 0 byte, which is the first byte of the next slot."""
    rows = len(slots)
    columns = [column for column in (keys, values, tail) if column is not None]
    slot = slots.shape[1] * WORD
    base = np.arange(rows, dtype=np.int64) * slot
    stretches = sum(len(column) for column in columns) + 4 * rows
    offsets = _reused("offsets", stretches + 3, np.int64)
    heads = offsets[: 4 * rows].reshape(rows, 4)
    lead = WORD if tail is not None else WORD - 1
    np.add(base, lead, out=heads[:, 0])
    np.add(base, WORD + prefix_length, out=heads[:, 1])
    np.add(base, slot - WORD, out=heads[:, 2])
    np.add(base, slot - WORD + middle_length, out=heads[:, 3])
    end, place = rows * slot, 4 * rows
    total = end + sum(len(column.data) for column in columns)
    data = _reused("data", total + 1, np.uint8)
    data[:end] = slots.view(np.uint8).reshape(-1)
    chosen: list[Column] = []
    empty = stretches
    for column in columns:
        data[end : end + len(column.data)] = column.data
        np.add(column.offsets[:-1], end - column.begin, out=offsets[place : place + len(column)])
        found = order + place if order is not None else np.arange(place, place + len(column))
        if column.nulls is not None:
            found[column.nulls if order is None else column.nulls[order]] = empty
        chosen.append(found)
        end, place = end + len(column.data), place + len(column)
    data[end] = 0
    offsets[-3:] = end, end, end + 1
    parts: list[Column] = [np.arange(0, 4 * rows, 4), *chosen]
    parts.insert(2 if keys is not None else 1, np.arange(2, 4 * rows, 4))
    joined, ends = _take(offsets, data, parts, empty)
    return ends[:: len(parts)] + (1 if tail is None else 0), joined


def _take(offsets: Column, data: Column, parts: list[Column], empty: int) -> tuple[pa.Buffer, Column]:
    """The concatenated bytes of each row's parts, and the end of each part. `empty`: index of the slice before the last one."""
    rows = len(parts[0])
    index = _reused("index", rows * len(parts) + 1, np.int64)
    table = index[:-1].reshape(rows, len(parts))
    for number, part in enumerate(parts):
        table[:, number] = part
    index[-1] = empty + 1
    array = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    joined = pc.take(array, pa.array(index), boundscheck=False)
    return joined.buffers()[2], np.frombuffer(joined.buffers()[1], np.int64, len(index) + 1)


def _reused(name: str, size: int, kind: Any) -> Column:
    """A buffer of this thread that is reused: fetching fresh pages costs more than writing to them."""
    held: Column | None = getattr(_buffers, name, None)
    if held is None or len(held) < size:
        held = np.empty(size + (size >> 2), kind)
        if held.nbytes <= _REUSED_BYTES_MAX:
            setattr(_buffers, name, held)
    return held[:size]


_REUSED_BYTES_MAX = 64 << 20


def frame_records(
    keys: pa.Array | None, values: pa.Array, timestamp_delta: Column | None, offset_delta: Column, tail: pa.Array | None = None
) -> tuple[Column, pa.Buffer]:
    """All records framed and concatenated: (int64 offsets of length n + 1, data). `tail`: header count and headers of each record."""
    times = np.zeros(1, np.int64) if timestamp_delta is None else timestamp_delta
    return frame(
        Pieces(keys) if keys is not None else None, Pieces(values), None, times, offset_delta, Pieces(tail) if tail is not None else None
    )


def header_tail(headers: list[tuple[str, pa.Array]]) -> pa.Array:
    """The bytes after the value of each record: varint count, then for each header varint name length, name, varint value length (-1
    null), value."""
    parts: list[Any] = [pa.scalar(varint_bytes(len(headers)), pa.binary())]
    for name, values in headers:
        encoded = name.encode()
        lengths = zigzag(binary_parts(values)[1])
        sizes = varint_lengths(lengths)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        data = np.zeros(int(offsets[-1]), np.uint8)
        scatter_varint(data, offsets[:-1], lengths, sizes)
        sized = pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])
        parts += [pa.scalar(varint_bytes(len(encoded)) + encoded, pa.binary()), sized, values]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b"")
