"""What a consumer makes of the records inside of a batch: offsets, timestamps, sizes (DefaultRecordBatch, DefaultRecord)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from helpers.log_oracle_codecs import unpacked

if TYPE_CHECKING:
    from helpers.log_oracle import Log, Role, Stored

CONTROL, APPEND_TIME, CODECS = 0x20, 0x08, 0x07
HEADER_BYTES, BASE_TIMESTAMP = 61, slice(27, 35)


class Inner(NamedTuple):
    """A record of a batch. `body`: what follows its offset delta."""

    attributes: int
    time_delta: int
    offset_delta: int
    body: bytes


def by_records(log: Log, batches: list[Stored], role: Role) -> Iterator[str]:
    """A consumer gets the records of a batch one by one. Their offsets rise within the batch, without a gap where no cleaner was, and the
    latest of their timestamps is that of the batch, by which look-ups by time choose it."""
    for batch in batches:
        if batch.is_sound and (wrong := _complaint(batch, batch.base >= role.cleaned_to)):
            yield f"broker {log.broker}: {wrong}"


@lru_cache(maxsize=300_000)
def _complaint(batch: Stored, is_dense: bool) -> str:
    """What a consumer of a batch would notice. Most batches are those of the base, and come again in each case."""
    found = decoded(batch)
    if found is None:
        return f"the records at {batch.base} cannot be decoded"
    deltas, span = [one.offset_delta for one in found], batch.last - batch.base
    if deltas != sorted(set(deltas)) or (deltas and not 0 <= deltas[0] <= deltas[-1] <= span):
        return f"the records at {batch.base} have offset deltas {deltas}"
    if is_dense and len(deltas) != span + 1:
        return f"{len(deltas)} records at {batch.base} take {span + 1} offsets"
    if batch.attributes & CONTROL and batch.producer >= 0 and found and not _is_end(found[0].body):
        return f"the marker at {batch.base} ends no transaction"
    first = int.from_bytes(batch.raw[BASE_TIMESTAMP], "big", signed=True)
    newest = max((first + one.time_delta for one in found), default=batch.max_time)
    if not batch.attributes & (CONTROL | APPEND_TIME) and newest != batch.max_time:
        return f"the latest record at {batch.base} is of {newest}, the batch says {batch.max_time}"
    return ""


def _is_end(body: bytes) -> bool:
    """Whether the record ends a transaction: versions from 0 on, a commit or an abort, a coordinator's epoch (EndTransactionMarker)."""
    size, at = _number(body, 0, 5)
    key, at = body[at : at + max(size, 0)], at + max(size, 0)
    size, at = _number(body, at, 5)
    value = body[at : at + max(size, 0)]
    return key[:1] < b"\x80" and key[2:4] in {b"\0\0", b"\0\1"} and len(value) >= 6 and value[0] < 0x80


def decoded(batch: Stored) -> list[Inner] | None:
    """The records of a batch; None where a consumer ends with an error."""
    unpacked = _unpacked(batch)
    if unpacked is None:
        return None
    data, position = unpacked, HEADER_BYTES
    found = []
    try:
        for _ in range(batch.count):
            size, position = _number(data, position, 5)
            end = position + size
            if size < 0 or end > len(data):
                return None
            attributes = data[position]
            time_delta, at = _number(data, position + 1, 10)
            offset_delta, at = _number(data, at, 5)
            body = data[at:end]
            if _end_of_body(data, at) != end:
                return None
            found.append(Inner(attributes, time_delta, offset_delta, body))
            position = end
    except (IndexError, ValueError):
        return None
    return found if position == len(data) else None


def _unpacked(batch: Stored) -> bytes | None:
    """The batch without its compression."""
    codec = batch.attributes & CODECS
    if codec == 0:
        return batch.raw
    data = unpacked(codec, batch.raw[HEADER_BYTES:])
    return None if data is None else batch.raw[:HEADER_BYTES] + data


def _end_of_body(data: bytes, at: int) -> int:
    """Behind key, value and headers. Raises ValueError, IndexError."""
    for _ in range(2):
        size, at = _number(data, at, 5)
        at += max(size, 0)
    count, at = _number(data, at, 5)
    if not 0 <= count <= len(data):
        raise ValueError(count)
    for _ in range(count):
        size, at = _number(data, at, 5)
        if size < 0:
            raise ValueError(size)
        size, at = _number(data, at + size, 5)
        at += max(size, 0)
    return at


def _number(data: bytes, position: int, bytes_max: int) -> tuple[int, int]:
    """A zigzag varint. Raises ValueError if it is longer than one of its type can be."""
    value = 0
    for number in range(bytes_max):
        byte = data[position + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            bits = 32 if bytes_max == 5 else 64
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), position + number + 1
    raise ValueError("a number does not end")
