"""One record of a batch (org.apache.kafka.common.record.DefaultRecord)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minikafka.wire.errors import CorruptRecord
from minikafka.wire.varint import decode_varint, encode_varint

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """`offset` is absolute and `timestamp` in milliseconds since 1970; `headers` are (key, value) in order, keys may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class _Varints(dict[int, bytes]):
    """Encoded numbers. Those of one and two bytes are kept once they have been used."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if -64 <= value < 8192:
            self[value] = encoded
        return encoded


_VARINTS = _Varints()
_NULL = encode_varint(-1)


def encode_record(offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bytes:
    """The record with its length in front."""
    varints = _VARINTS
    parts = [b"\0", varints[timestamp_delta], varints[offset_delta]]
    for part in (key, value):
        if part is None:
            parts.append(_NULL)
        else:
            parts.append(varints[len(part)])
            parts.append(part)
    parts.append(varints[len(headers)])
    for name, content in headers:
        text = name.encode()
        parts += [encode_varint(len(text)), text]
        if content is None:
            parts.append(_NULL)
        else:
            parts += [encode_varint(len(content)), content]
    body = b"".join(parts)
    return varints[len(body)] + body


def decode_records(
    data: bytes | bytearray | memoryview, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    """The `count` records of a batch's uncompressed body. Raises CorruptRecord unless the body holds exactly these.

    `log_append_time` replaces every timestamp if the topic uses LogAppendTime.
    """
    body = data if type(data) is bytes else bytes(data)
    size, position, new = len(body), 0, tuple.__new__
    try:
        # Most numbers take one byte and are read inline: the record's length, the two deltas, the lengths of key and value, in this order.
        for _ in range(count):
            length = body[position]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = decode_varint(body, position)
            end = position + length
            if length < 0 or end > size:
                raise CorruptRecord(f"a record claims {length} bytes, but only {size - position} are left")
            timestamp = body[position + 1]
            if timestamp < 0x80:
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
                position += 2
            else:
                timestamp, position = decode_varint(body, position + 1)
            offset = body[position]
            if offset < 0x80:
                offset = (offset >> 1) ^ -(offset & 1)
                position += 1
            else:
                offset, position = decode_varint(body, position)
            key, position = (None, position + 1) if body[position] == 1 else _decode_bytes(body, position, end)
            value, position = _decode_bytes(body, position, end)
            if body[position]:
                headers, position = _decode_headers(body, position, end)
            else:
                headers = []
                position += 1
            if position != end:
                raise CorruptRecord(f"a record of {length} bytes contains {position - end + length}")
            stamped = base_timestamp + timestamp if log_append_time is None else log_append_time
            yield new(Record, (base_offset + offset, stamped, key, value, headers))
    except IndexError as error:
        raise CorruptRecord("the records are truncated") from error
    if position != size:
        raise CorruptRecord(f"{size - position} bytes follow the last record of the batch")


def _decode_headers(body: bytes, position: int, end: int) -> tuple[list[Header], int]:
    count, position = decode_varint(body, position)
    if not 0 <= count <= end - position:
        raise CorruptRecord(f"a record claims {count} headers in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _decode_bytes(body, position, end)
        if name is None:
            raise CorruptRecord("a header's key is null")
        content, position = _decode_bytes(body, position, end)
        headers.append((name.decode(errors="replace"), content))
    return headers, position


def _decode_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = body[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = decode_varint(body, position)
    if length < 0:
        return None, position
    after = position + length
    if after > end:
        raise CorruptRecord(f"a field claims {length} bytes, but its record has only {end - position} left")
    return body[position:after], after
