"""The first encoder, kept as it was, as the yardstick for the faster one: the same rows must give the same bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

Column = np.ndarray[Any, Any]
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AND_AFTER = struct.Struct(">hiqqqhii")
OVERHEAD = 61
_MURMUR_SEED, _MURMUR_M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def binary_parts(array: pa.Array) -> tuple[Column, Column, pa.Buffer]:
    """(starts, lengths, data) of a binary array; null has length -1."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1 + array.offset)[array.offset :].astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_null()), -1, lengths)
    return offsets[:-1], lengths, array.buffers()[2]


def murmur2(array: pa.Array) -> Column:
    """Kafka's 32-bit murmur2 (org.apache.kafka.common.utils.Utils.murmur2) of every key, as uint32. Nulls hash as empty."""
    starts, lengths, buffer = binary_parts(array)
    lengths = np.maximum(lengths, 0)
    raw = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.empty(0, np.uint8)
    data = np.concatenate((raw, np.zeros(4, np.uint8)))
    words = np.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    value = _MURMUR_SEED ^ lengths.astype(np.uint32)
    whole = lengths >> 2
    rows: Any = slice(None)
    for step in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > step) if (whole <= step).any() else slice(None)
        k = words[starts[rows] + 4 * step] * _MURMUR_M
        k ^= k >> np.uint32(24)
        value[rows] = (value[rows] * _MURMUR_M) ^ (k * _MURMUR_M)
    rest = lengths & 3
    tail = starts + (whole << 2)
    for count, shift in ((3, 16), (2, 8), (1, 0)):
        rows = np.flatnonzero(rest >= count)
        value[rows] ^= data[tail[rows] + count - 1].astype(np.uint32) << np.uint32(shift)
    rows = np.flatnonzero(rest > 0)
    value[rows] *= _MURMUR_M
    value ^= value >> np.uint32(13)
    value *= _MURMUR_M
    return value ^ (value >> np.uint32(15))


def crc32(array: pa.Array) -> Column:
    """zlib's CRC-32 of every key, as uint32: what librdkafka's `consistent` partitioner takes. Nulls hash as empty."""
    return np.array([zlib.crc32(key or b"") for key in array.to_pylist()], np.uint32)


def partitions_of(keys: pa.Array | None, rows: int, partitions: int, first_row: int = 0, partitioner: str = "murmur2") -> Column:
    """The partition of every row by its key; rows without a key go round.

    "murmur2" is the default of Kafka's Java client (the sign bit taken off), "crc32" that of librdkafka.
    """
    around = (np.arange(first_row, first_row + rows, dtype=np.int64) % partitions).astype(np.int64)
    if keys is None:
        return around
    if partitioner == "crc32":
        hashed = crc32(keys).astype(np.int64) % partitions
    else:
        hashed = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    if keys.null_count:
        return np.where(np.asarray(keys.is_null()), around, hashed)
    return hashed


def varint_lengths(values: Column) -> Column:
    """Bytes of each value (uint64, zigzag already applied) as a varint."""
    lengths = np.ones(len(values), np.int64)
    bound = np.uint64(128)
    for _ in range(9):
        above = values >= bound
        if not above.any():
            break
        lengths += above
        bound = np.uint64(int(bound) << 7) if int(bound) < 1 << 63 else bound
    return lengths


def zigzag(values: Column) -> Column:
    signed = values.astype(np.int64)
    return ((signed << 1) ^ (signed >> 63)).view(np.uint64)


def _scatter_varint(out: Column, at: Column, values: Column, lengths: Column) -> None:
    longest = int(lengths.max(initial=1))
    for index in range(longest):
        rows: Any = slice(None) if index == 0 else np.flatnonzero(lengths > index)
        byte = ((values[rows] >> np.uint64(7 * index)) & np.uint64(0x7F)).astype(np.uint8)
        byte |= np.where(lengths[rows] > index + 1, np.uint8(0x80), np.uint8(0))
        out[at[rows] + index] = byte


def frame_records(
    keys: pa.Array | None, values: pa.Array, timestamp_delta: Column | None, offset_delta: Column, tail: pa.Array | None = None
) -> tuple[Column, pa.Buffer]:
    """All records framed, behind each other: (int64 offsets of length n + 1, data). `tail`: header count and headers of each record."""
    rows = len(values)
    tail_length = binary_parts(tail)[1] if tail is not None else 1
    key_length = binary_parts(keys)[1] if keys is not None else np.full(rows, -1, np.int64)
    value_length = binary_parts(values)[1]
    fields = [zigzag(key_length)]
    time_field = zigzag(timestamp_delta) if timestamp_delta is not None else np.zeros(rows, np.uint64)
    offset_field, value_field = zigzag(offset_delta), zigzag(value_length)
    lengths = {
        name: varint_lengths(field)
        for name, field in (("time", time_field), ("offset", offset_field), ("key", fields[0]), ("value", value_field))
    }
    body = (
        1
        + lengths["time"]
        + lengths["offset"]
        + lengths["key"]
        + np.maximum(key_length, 0)
        + lengths["value"]
        + np.maximum(value_length, 0)
        + tail_length
    )
    total = zigzag(body)
    total_length = varint_lengths(total)
    prefix_size = total_length + 1 + lengths["time"] + lengths["offset"] + lengths["key"]
    prefix_offsets = np.concatenate(([0], np.cumsum(prefix_size)))
    prefix = np.zeros(int(prefix_offsets[-1]), np.uint8)
    at = prefix_offsets[:-1]
    _scatter_varint(prefix, at, total, total_length)
    at = at + total_length + 1
    _scatter_varint(prefix, at, time_field, lengths["time"])
    at = at + lengths["time"]
    _scatter_varint(prefix, at, offset_field, lengths["offset"])
    _scatter_varint(prefix, at + lengths["offset"], fields[0], lengths["key"])
    middle_offsets = np.concatenate(([0], np.cumsum(lengths["value"])))
    middle = np.zeros(int(middle_offsets[-1]), np.uint8)
    _scatter_varint(middle, middle_offsets[:-1], value_field, lengths["value"])
    parts = [_binary(prefix, prefix_offsets)]
    if keys is not None:
        parts.append(keys)
    parts += [_binary(middle, middle_offsets), values, pa.scalar(b"\0", pa.binary()) if tail is None else tail]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b"")
    offsets = np.frombuffer(joined.buffers()[1], np.int32, rows + 1 + joined.offset)[joined.offset :].astype(np.int64)
    return offsets, joined.buffers()[2]


def header_tail(headers: list[tuple[str, pa.Array]]) -> pa.Array:
    """What follows the value of each record: varint count, then varint name length, name, varint value length (-1 null), value."""
    parts: list[Any] = [pa.scalar(varint_bytes(len(headers)), pa.binary())]
    for name, values in headers:
        encoded = name.encode()
        lengths = zigzag(binary_parts(values)[1])
        sizes = varint_lengths(lengths)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        data = np.zeros(int(offsets[-1]), np.uint8)
        _scatter_varint(data, offsets[:-1], lengths, sizes)
        parts += [pa.scalar(varint_bytes(len(encoded)) + encoded, pa.binary()), _binary(data, offsets), values]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b"")


def varint_bytes(value: int) -> bytes:
    """A small number as a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _binary(data: Column, offsets: Column) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


@dataclass(slots=True)
class EncodedBatch:
    """A finished batch for one partition: base offset 0, epoch -1, no producer yet (see `stamp_producer`)."""

    partition: int
    records: int
    data: bytearray
    rows_end: int = 0


def encode_rows(
    keys: pa.Array | None,
    values: pa.Array,
    partition: Column,
    *,
    batch_bytes: int,
    now_ms: int,
    timestamps: Column | None = None,
    codec: int = 0,
    compress: Callable[[int, memoryview], bytes] | None = None,
    headers: list[tuple[str, pa.Array]] | None = None,
    tail: pa.Array | None = None,
) -> Iterator[EncodedBatch]:
    """Batches of at most about `batch_bytes` (before compression) for rows whose partitions are given.

    Rows of a partition keep their order.

    timestamps: int64 milliseconds, else every record gets `now_ms`. headers: (name, values of all rows);
    tail: instead of them, the encoded headers of each row (see header_tail).
    Raises ValueError for a record of more than 1 GiB.
    """
    small = len(partition) > 0 and int(partition.max()) < 1 << 16
    order = np.argsort(partition.astype(np.uint16) if small else partition, kind="stable")  # 16 bits are sorted by radix
    sorted_partition = partition[order]
    take = pa.array(order)
    values = values.take(take)
    keys = keys.take(take) if keys is not None else None
    tail = header_tail(headers) if headers else tail
    tail = tail.take(take) if tail is not None else None
    times = timestamps[order] if timestamps is not None else None
    size = np.maximum(binary_parts(values)[1], 0) + 24
    if keys is not None:
        size = size + np.maximum(binary_parts(keys)[1], 0)
    if tail is not None:
        size = size + binary_parts(tail)[1]
    starts = _cuts(sorted_partition, size, batch_bytes)
    ends = np.append(starts[1:], len(order))
    counts = ends - starts
    offset_delta = np.arange(len(order)) - np.repeat(starts, counts)
    base_time = times[starts] if times is not None else np.full(len(starts), now_ms, np.int64)
    time_delta = times - np.repeat(base_time, counts) if times is not None else None
    last_time = np.maximum.reduceat(times, starts) if times is not None and len(starts) else base_time
    offsets, buffer = frame_records(keys, values, time_delta, offset_delta, tail)
    view = memoryview(buffer)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        records: Any = view[int(offsets[start]) : int(offsets[end])]
        if codec and compress is not None:
            records = compress(codec, records)
        data = build_batch(records, end - start, int(base_time[row]), int(last_time[row]), codec)
        yield EncodedBatch(int(sorted_partition[start]), end - start, data)


def _cuts(partition: Column, size: Column, batch_bytes: int) -> Column:
    """Row numbers where batches begin: at each new partition, and where the bytes since the partition's start pass a multiple."""
    if len(partition) == 0:
        return np.empty(0, np.int64)
    first = np.concatenate(([True], partition[1:] != partition[:-1]))
    before = np.cumsum(size) - size
    since = before - np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(partition))))
    block = since // batch_bytes
    return np.flatnonzero(first | np.concatenate(([True], block[1:] != block[:-1])))


def build_batch(records: Any, count: int, base_time: int, max_time: int, codec: int = 0) -> bytearray:
    """A batch around framed (and compressed) records; producer fields are -1."""
    batch = bytearray(OVERHEAD + len(records))
    batch[OVERHEAD:] = records
    HEADER.pack_into(batch, 0, 0, OVERHEAD - 12 + len(records), -1, 2, 0, codec, count - 1, base_time, max_time, -1, -1, -1, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def stamp_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set the producer fields of a batch and its CRC."""
    struct.pack_into(">qhi", batch, 43, producer_id, producer_epoch, base_sequence)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
