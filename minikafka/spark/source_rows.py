"""Batches as rows: what `format("minikafka")` gives to Spark, as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from minikafka.spark.logformat import CODEC_MASK, CODECS, CONTROL_BIT, TIMESTAMP_TYPE_BIT, Batches
from minikafka.spark.records import RecordColumns, decode_records
from minikafka.spark.source_loss import corrupt
from minikafka.spark.source_ranges import Range

Flags = np.ndarray[Any, Any]
ROWS_A_BATCH = 1 << 16
#: What is decompressed at once, as it is stored; a batch that is larger alone.
COMPRESSED_BYTES = 256 << 10


def batch_rows(batches: Batches, source_range: Range, schema: pa.Schema, shown: Flags) -> Iterator[pa.RecordBatch]:
    rows = np.flatnonzero(shown & (batches.base_offset >= source_range.begin) & (batches.base_offset < source_range.end))
    if len(rows) == 0:
        return
    header = batches.header[rows]
    stored = header["crc"].astype(np.int64)
    codec = header["attributes"] & CODEC_MASK
    columns: dict[str, Any] = {
        "topic": [source_range.topic] * len(rows), "partition": np.full(len(rows), source_range.partition, np.int32),
        "broker": [source_range.broker] * len(rows), "baseOffset": header["base_offset"].astype(np.int64),
        "lastOffset": batches.last_offset[rows], "leaderEpoch": header["epoch"].astype(np.int32), "crc": stored,
        "crcValid": stored == batches.crc[rows], "attributes": header["attributes"].astype(np.int32),
        "compression": [CODECS[one] if one < len(CODECS) else str(one) for one in codec.tolist()],
        "isControl": (header["attributes"] & CONTROL_BIT) != 0,
        "baseTimestamp": header["base_timestamp"].astype(np.int64), "maxTimestamp": header["max_timestamp"].astype(np.int64),
        "producerId": header["producer_id"].astype(np.int64), "producerEpoch": header["producer_epoch"].astype(np.int32),
        "baseSequence": header["base_sequence"].astype(np.int32), "records": header["count"].astype(np.int32),
        "sizeInBytes": batches.size[rows].astype(np.int32), "position": batches.position[rows],
    }  # fmt: skip
    yield pa.RecordBatch.from_arrays([pa.array(columns[one.name], one.type) for one in schema], schema=schema)


def record_rows(batches: Batches, source_range: Range, schema: pa.Schema, shown: Flags, place: str) -> Iterator[pa.RecordBatch]:
    """`place`: where the batches were read. Raises CorruptBatchError for records that do not decode."""
    control = (batches.header["attributes"] & CONTROL_BIT) != 0
    chosen = np.flatnonzero(shown & ~control & (batches.last_offset >= source_range.begin) & (batches.base_offset < source_range.end))
    for part in _parts(batches, chosen):
        yield from _decoded_rows(batches, part, source_range, schema, place)


def _parts(batches: Batches, chosen: Flags) -> Iterator[Flags]:
    """Batches that are decoded together: of those that are compressed only so many bytes, for nobody knows how large they will be."""
    if not (batches.header["attributes"][chosen] & CODEC_MASK).any():
        if len(chosen):
            yield chosen
        return
    ends = np.cumsum(batches.size[chosen])
    start = 0
    while start < len(chosen):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + COMPRESSED_BYTES, "right")))
        yield chosen[start:stop]
        start = stop


def _decoded_rows(batches: Batches, chosen: Flags, source_range: Range, schema: pa.Schema, place: str) -> Iterator[pa.RecordBatch]:
    records, wrong = decode_records(batches, chosen)
    if wrong:
        index, text = min(wrong.items())
        first, last = int(batches.base_offset[index]), int(batches.last_offset[index])
        raise corrupt(source_range.topic, source_range.partition, first, last + 1, text, place)
    keys, values = key_and_value(records)
    header = batches.header[records.batch]
    appended = (header["attributes"] & TIMESTAMP_TYPE_BIT) != 0
    time_ms = np.where(appended, header["max_timestamp"].astype(np.int64), records.timestamp)
    inside = (records.offset >= source_range.begin) & (records.offset < source_range.end)
    rows = np.flatnonzero(inside)
    for start in range(0, len(rows), ROWS_A_BATCH):
        part = rows[start : start + ROWS_A_BATCH]
        whole = len(part) == len(records)
        columns: dict[str, Any] = {
            "key": keys if whole else keys.take(pa.array(part)), "value": values if whole else values.take(pa.array(part)),
            "topic": pa.array([source_range.topic] * len(part), pa.string()),
            "partition": pa.array(np.full(len(part), source_range.partition, np.int32)),
            "offset": pa.array(records.offset[part]), "timestamp": pa.array(time_ms[part] * 1000).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(appended[part].astype(np.int32)),
        }  # fmt: skip
        if "headers" in schema.names:
            listed = [[{"key": name.decode("utf-8", "replace"), "value": value} for name, value in records.headers(index)] or None
                     for index in part.tolist()]  # fmt: skip
            columns["headers"] = pa.array(listed, schema.field("headers").type)
        yield pa.RecordBatch.from_arrays([columns[one.name].cast(one.type) for one in schema], schema=schema)


def key_and_value(records: RecordColumns) -> tuple[pa.Array, pa.Array]:
    """Keys and values as Arrow arrays without touching a byte in Python: one array whose elements are all stretches of the data,
    of which every fourth is a key and every fourth a value."""
    count = len(records)
    edges = np.empty(4 * count + 1, np.int32)
    for place, start, length in ((0, records.key_start, records.key_length), (2, records.value_start, records.value_length)):
        edges[place:-1:4], edges[place + 1 : -1 : 4] = start, start + np.maximum(length, 0)
    edges[-1] = edges[-2] if count else 0
    stretches = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(edges), pa.py_buffer(records.data)])
    rows = np.arange(count, dtype=np.int64) * 4
    keys = stretches.take(pa.array(rows, mask=records.key_length < 0))
    values = stretches.take(pa.array(rows + 2, mask=records.value_length < 0))
    return keys, values
