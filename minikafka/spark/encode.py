"""Vectorised encoding of rows as record batches: Kafka's partitioner in numpy, rows sorted by partition and framed together (framing.py).

Needs numpy and pyarrow. The records of all batches share one buffer; each batch is a slice of it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from minikafka.spark.framing import Column, Pieces, frame, frame_records, header_tail, varint_bytes

__all__ = ["EncodedBatch", "build_batch", "encode_rows", "frame_records", "header_tail", "partitions_of", "varint_bytes"]
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AND_AFTER = struct.Struct(">hiqqqhii")
OVERHEAD = 61
RECORD_OVERHEAD = 24
_MURMUR_SEED, _MURMUR_M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def murmur2(array: pa.Array) -> Column:
    """Kafka's 32-bit murmur2 (org.apache.kafka.common.utils.Utils.murmur2) of every key, as uint32. Nulls hash as empty."""
    keys = Pieces(array)
    if len(keys.lengths) == 1 and len(keys) > 1:
        return _murmur2_alike(keys.data, len(keys), max(0, int(keys.lengths[0])))
    lengths = np.maximum(np.broadcast_to(keys.lengths, (len(keys),)), 0)
    starts = keys.offsets[:-1].astype(np.int64) - keys.begin
    data = np.concatenate((keys.data, np.zeros(4, np.uint8)))
    words = np.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    value = _MURMUR_SEED ^ lengths.astype(np.uint32)
    whole = lengths >> 2
    rows: Any = slice(None)
    for step in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > step) if (whole <= step).any() else slice(None)
        value[rows] = _mixed(value[rows], words[starts[rows] + 4 * step])
    rest = lengths & 3
    tail = starts + (whole << 2)
    for count, shift in ((3, 16), (2, 8), (1, 0)):
        rows = np.flatnonzero(rest >= count)
        value[rows] ^= data[tail[rows] + count - 1].astype(np.uint32) << np.uint32(shift)
    rows = np.flatnonzero(rest > 0)
    value[rows] *= _MURMUR_M
    return _finished(value)


def _murmur2_alike(data: Column, rows: int, length: int) -> Column:
    """murmur2 of contiguous keys of equal length (nulls have length 0)."""
    value = np.full(rows, _MURMUR_SEED ^ np.uint32(length), np.uint32)
    table = data[: rows * length].reshape(rows, length)
    for step in range(length >> 2):
        word = np.ndarray(shape=(rows,), dtype="<u4", buffer=table, offset=4 * step, strides=(length,))
        value = _mixed(value, word)
    at, rest = length & ~3, length & 3
    for index in range(rest):
        value ^= table[:, at + index].astype(np.uint32) << np.uint32(8 * index)
    if rest:
        value *= _MURMUR_M
    return _finished(value)


def _mixed(value: Column, word: Column) -> Column:
    k = word * _MURMUR_M
    k ^= k >> np.uint32(24)
    k *= _MURMUR_M
    return (value * _MURMUR_M) ^ k


def _finished(value: Column) -> Column:
    value ^= value >> np.uint32(13)
    value *= _MURMUR_M
    mixed: Column = value ^ (value >> np.uint32(15))
    return mixed


def crc32(array: pa.Array) -> Column:
    """zlib's CRC-32 of every key, as uint32, for librdkafka's `consistent` partitioner. Nulls hash as empty."""
    return np.array([zlib.crc32(key or b"") for key in array.to_pylist()], np.uint32)


def partitions_of(keys: pa.Array | None, rows: int, partitions: int, first_row: int = 0, partitioner: str = "murmur2") -> Column:
    """The partition of every row, chosen by its key. Rows without a key are distributed round-robin.

    "murmur2" is the default of Kafka's Java client (with the sign bit cleared), "crc32" that of librdkafka.
    """
    if keys is not None:
        hashed = crc32(keys) if partitioner == "crc32" else murmur2(keys) & np.uint32(0x7FFFFFFF)
        count = np.uint32(partitions)
        hashed = (hashed - hashed // count * count).astype(np.int64)  # numpy divides by a constant several times faster than by `%`
        if not keys.null_count:
            return hashed
    around = np.arange(first_row, first_row + rows, dtype=np.int64) % partitions
    return around if keys is None else np.where(np.asarray(keys.is_null()), around, hashed)


@dataclass(slots=True)
class EncodedBatch:
    """A finished batch for one partition: base offset 0, epoch -1, no producer yet (see `wire.batch.set_producer`)."""

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
    checksum: bool = True,
) -> Iterator[EncodedBatch]:
    """Encode rows as batches of about `batch_bytes` (before compression) each. `partition` holds the partition of each row.

    Rows of a partition keep their order.

    timestamps: int64 milliseconds; without them every record gets `now_ms`. headers: (name, values of all rows). tail: in place of
    headers, each row's encoded headers (see header_tail). checksum: False if the caller sets a producer id later.
    Raises ValueError for a record of more than 1 GiB.
    """
    if len(partition) == 0:
        return
    small = int(partition.max()) < 1 << 16
    order = np.argsort(partition.astype(np.uint16) if small else partition, kind="stable")  # 16 bits are sorted by radix
    sorted_partition = partition[order]
    tail = header_tail(headers) if headers else tail
    columns = [Pieces(column) if column is not None else None for column in (keys, values, tail)]
    size: Any = np.full(1, RECORD_OVERHEAD, np.int64)
    for column in filter(None, columns):
        size = size + np.maximum(column.sorted_lengths(order), 0)
    starts = _cuts(sorted_partition, size, batch_bytes)
    ends = np.append(starts[1:], len(order))
    counts = ends - starts
    offset_delta = np.arange(len(order)) - np.repeat(starts, counts)
    times = timestamps[order] if timestamps is not None else None
    base_time = times[starts] if times is not None else np.full(len(starts), now_ms, np.int64)
    time_delta = times - np.repeat(base_time, counts) if times is not None else np.zeros(1, np.int64)
    last_time = np.maximum.reduceat(times, starts) if times is not None else base_time
    assert columns[1] is not None
    offsets, buffer = frame(columns[0], columns[1], order, time_delta, offset_delta, columns[2])
    view = memoryview(buffer)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        records: Any = view[int(offsets[start]) : int(offsets[end])]
        if codec and compress is not None:
            records = compress(codec, records)
        data = build_batch(records, end - start, int(base_time[row]), int(last_time[row]), codec, checksum)
        yield EncodedBatch(int(sorted_partition[start]), end - start, data)


def _cuts(partition: Column, size: Column, batch_bytes: int) -> Column:
    """Row numbers where batches begin: at each new partition, and wherever the bytes since its start pass a multiple of `batch_bytes`."""
    first = np.flatnonzero(np.concatenate(([True], partition[1:] != partition[:-1])))
    runs = np.diff(np.append(first, len(partition)))
    before = np.arange(len(partition)) * size if len(size) == 1 else np.cumsum(size) - size
    block = (before - np.repeat(before[first], runs)) // batch_bytes
    return np.union1d(first, np.flatnonzero(block[1:] != block[:-1]) + 1)


def build_batch(records: Any, count: int, base_time: int, max_time: int, codec: int = 0, checksum: bool = True) -> bytearray:
    """A batch of framed (and compressed) records. Producer fields are -1. Without `checksum` the CRC is 0 until a producer is set."""
    header = HEADER.pack(0, OVERHEAD - 12 + len(records), -1, 2, 0, codec, count - 1, base_time, max_time, -1, -1, -1, count)
    batch = bytearray().join((header, records))
    if checksum:
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch
