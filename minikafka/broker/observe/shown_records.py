"""The last records of fetched bytes, formatted for the page: as text if possible, and truncated if long."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from minikafka.wire.batch import RecordBatch, iterate_batches
from minikafka.wire.errors import WireError
from minikafka.wire.record import Record

#: Bound on the shown bytes of a key, a value, or a header's name or value, and on the shown headers of one record.
BYTES_SHOWN_MAX = 2048
HEADERS_SHOWN_MAX = 20
#: Batches that are larger when decompressed are not shown.
DECOMPRESSED_BYTES_MAX = 16 << 20
#: The prefix that serializers of schema registries write: a zero byte and the schema id in four bytes.
SCHEMA_PREFIX_BYTES = 5
#: A larger number is probably not a schema id.
SCHEMAS_MAX = 1 << 20


def last_records(data: bytes, begin: int, end: int, count: int) -> list[dict[str, Any]]:
    """The last `count` records with offsets in [`begin`, `end`), the newest first. Transaction markers are left out.

    Call it in a thread. Raises WireError.
    """
    kept: deque[Record] = deque(maxlen=count)
    for batch in iterate_batches(data):
        # Most batches are skipped by their header.
        if batch.last_offset >= max(begin, end - count) and batch.base_offset < end and not batch.is_control:
            kept.extend(record for record in _records(batch) if begin <= record.offset < end)
    return [_row(record) for record in reversed(kept)]


def next_offset(data: bytes, begin: int) -> int:
    """The offset after the last complete batch; `begin` if there is none. Raises WireError."""
    reached = begin
    for batch in iterate_batches(data):
        reached = batch.next_offset
    return reached


def _records(batch: RecordBatch) -> Sequence[Record]:
    try:
        batch.check()
        return deque(batch.records(DECOMPRESSED_BYTES_MAX), maxlen=1000)
    except WireError as error:
        note = f"not shown: {error}".encode()
        return [Record(batch.last_offset, batch.max_timestamp, None, note)]


def _row(record: Record) -> dict[str, Any]:
    headers = [{"key": name[:BYTES_SHOWN_MAX], **shown(value)} for name, value in record.headers[:HEADERS_SHOWN_MAX]]
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": shown(record.key, may_have_schema=True),
        "value": shown(record.value, may_have_schema=True),
        "headers": headers,
        "headers_total": len(record.headers),
    }


def shown(data: bytes | None, *, may_have_schema: bool = False) -> dict[str, Any]:
    """`format` (null, json, text, schema with the schema id, or hex), the text, whether it is truncated, and the full size in bytes."""
    if data is None:
        return {"format": "null", "text": "", "bytes": 0, "cut": False}
    head = bytes(data[:BYTES_SHOWN_MAX])
    about = {"bytes": len(data), "cut": len(data) > len(head)}
    text = _text_of(head, is_cut=about["cut"] is True)
    if text is not None:
        return {"format": "json" if not about["cut"] and _is_json(text) else "text", "text": text, **about}
    schema = int.from_bytes(head[1:SCHEMA_PREFIX_BYTES], "big")
    if may_have_schema and head[0] == 0 and len(head) > SCHEMA_PREFIX_BYTES and schema < SCHEMAS_MAX:
        return {"format": "schema", "schema": schema, "text": head[SCHEMA_PREFIX_BYTES:].hex(" "), **about}
    return {"format": "hex", "text": head.hex(" "), **about}


def _text_of(data: bytes, *, is_cut: bool = False) -> str | None:
    """The text; None if the bytes are not UTF-8 or contain control characters."""
    for drop in range(4 if is_cut else 1):
        try:
            text = data[: len(data) - drop].decode()
        except UnicodeDecodeError:
            continue
        return None if any(ord(c) < 32 and c not in "\t\r\n" for c in text) else text
    return None


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
