"""Small record batches for tests, made without the code under test."""

from __future__ import annotations

import struct

from crc32c import crc32c

T0 = 1_700_000_000_000


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(offset_delta: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    for field in (key, value):
        body += varint(-1) if field is None else varint(len(field)) + field
    body += varint(0)
    return varint(len(body)) + body


def batch(
    *values: bytes,
    base_offset: int = 0,
    epoch: int = -1,
    timestamp: int = T0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    key: bytes | None = b"k",
    payload: bytes | None = None,
    count: int | None = None,
    delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """A batch of the values; `producer` is (id, epoch, base sequence). `payload` stands in for the records."""
    records = b"".join(record(i, value, key) for i, value in enumerate(values)) if payload is None else payload
    count = len(values) if count is None else count
    delta = count - 1 if delta is None else delta
    max_timestamp = timestamp if max_timestamp is None else max_timestamp
    head = struct.pack(">hiqqqhii", attributes, delta, timestamp, max_timestamp, *producer, count)
    crc = crc32c(head + records)
    return bytearray(struct.pack(">qiibI", base_offset, 49 + len(records), epoch, 2, crc) + head + records)


def marker(
    producer_id: int, producer_epoch: int, *, abort: bool, coordinator_epoch: int = 0, timestamp: int = T0, **fields: int
) -> bytearray:
    """An end-of-transaction marker."""
    key, value = struct.pack(">hh", 0, 0 if abort else 1), struct.pack(">hi", 0, coordinator_epoch)
    payload = record(0, value, key)
    producer = (producer_id, producer_epoch, -1)
    return batch(payload=payload, count=1, attributes=0x30, producer=producer, timestamp=timestamp, **fields)
