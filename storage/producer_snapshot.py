"""`.snapshot` files: the state of a log's producers up to an offset (ProducerStateManager, version 1)."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from minikafka.storage.errors import CorruptFile
from minikafka.wire.crc import crc32c

_VERSION = 1
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_FROM = 6


class ProducerSnapshotEntry(NamedTuple):
    """The state of one producer id. `last_sequence` and `last_offset` are -1 without a batch of the epoch, `txn_first_offset` is -1 if no
    transaction is open, `coordinator_epoch` is -1 if there was no marker yet."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: list[ProducerSnapshotEntry]) -> bytes:
    """The file's bytes. Entries are in the order of Java's HashMap<Long, ...>, so that the bytes equal Kafka's."""
    buckets = 16
    while len(entries) > buckets * 3 // 4:
        buckets *= 2
    ordered = sorted(entries, key=lambda entry: _java_bucket(entry.producer_id, buckets))
    data = bytearray(_HEADER.pack(_VERSION, 0, len(ordered)))
    for entry in ordered:
        data += _ENTRY.pack(*entry)
    data[2:_CRC_FROM] = crc32c(memoryview(data)[_CRC_FROM:]).to_bytes(4, "big")
    return bytes(data)


def decode_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Raises CorruptFile."""
    if len(data) < _HEADER.size:
        raise CorruptFile(f"{len(data)} bytes are too short")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptFile(f"version {version} is not {_VERSION}")
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise CorruptFile("the checksum is wrong")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptFile(f"{count} entries announced in {len(data)} bytes")
    return [ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :])]


def _java_bucket(value: int, buckets: int) -> int:
    hashed = (value ^ (value >> 32)) & 0xFFFFFFFF
    return (hashed ^ (hashed >> 16)) & (buckets - 1)
