"""Control records: transaction markers, and the records that the metadata quorum writes into its log and snapshots.

The key is int16 version 0 and int16 type (org.apache.kafka.common.record.ControlRecordType); values are int16 version + fields for markers,
and declared messages for the quorum's records.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from minikafka.late_dataclass import dataclass
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import CorruptRecord
from minikafka.wire.message import Data
from minikafka.wire.record import Record
from minikafka.wire.records.client_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """Second field of a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CLASSES: dict[ControlType, type[Data]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """COMMIT or ABORT of a producer's transaction."""

    type: ControlType
    coordinator_epoch: int


def control_type(record: Record) -> ControlType:
    """The type in a control record's key. Raises CorruptRecord."""
    key = record.key
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord("a control record has no key")
    _, number = _KEY.unpack_from(key)
    try:
        return ControlType(number)
    except ValueError:
        raise CorruptRecord(f"control record type {number} is unknown") from None


def decode_control(record: Record) -> EndTransactionMarker | Data:
    """The content of a control record. Raises CorruptRecord or WireError."""
    kind, value = control_type(record), record.value
    if value is None:
        raise CorruptRecord(f"a {kind.name} control record has no value")
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        if len(value) < _MARKER.size:
            raise CorruptRecord("a transaction marker is truncated")
        return EndTransactionMarker(kind, _MARKER.unpack_from(value)[1])
    version = int.from_bytes(value[:2], "big") if kind is not ControlType.LEADER_CHANGE else 0
    cls = _CLASSES[kind]
    return cls.decode(min(version, cls.MAX_VERSION), value)


def control_record(kind: ControlType, message: Data, timestamp: int, version: int = 0) -> Record:
    """A control record of the quorum."""
    return Record(0, timestamp, _KEY.pack(0, kind), message.encode(version), ())


def control_batch(
    records: list[Record], *, base_offset: int, partition_leader_epoch: int
) -> bytearray:
    """One control batch of the quorum."""
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=partition_leader_epoch, is_control=True)


def end_transaction_batch(
    kind: ControlType, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """The batch that ends a producer's transaction in one partition (78 bytes)."""
    record = Record(0, timestamp, _KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch), ())
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True
    )
