"""Keys and values of `__share_group_state`."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Record, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Record, record_type=0, versions="0"):
    """ShareSnapshotKey, versions 0."""

    group_id: str = field(string, "0")
    topic_id: bytes = field(uuid, "0")
    partition: int = field(int32, "0")


class _ShareSnapshotValueStateBatch(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    delivery_state: int = field(int8, "0+")
    delivery_count: int = field(int16, "0+")


class ShareSnapshotValue(Record, record_type=0, versions="0", flexible="0+"):
    """ShareSnapshotValue, versions 0."""

    StateBatch: TypeAlias = _ShareSnapshotValueStateBatch

    snapshot_epoch: int = field(int32, "0+")
    state_epoch: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")
    delivery_complete_count: int = field(int32, "0+", default=-1, tag=0)
    create_timestamp: int = field(int64, "0+")
    write_timestamp: int = field(int64, "0+")
    state_batches: list[_ShareSnapshotValueStateBatch] = field(array(_ShareSnapshotValueStateBatch), "0+")


class ShareUpdateKey(Record, record_type=1, versions="0"):
    """ShareUpdateKey, versions 0."""

    group_id: str = field(string, "0")
    topic_id: bytes = field(uuid, "0")
    partition: int = field(int32, "0")


class _ShareUpdateValueStateBatch(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    delivery_state: int = field(int8, "0+")
    delivery_count: int = field(int16, "0+")


class ShareUpdateValue(Record, record_type=1, versions="0", flexible="0+"):
    """ShareUpdateValue, versions 0."""

    StateBatch: TypeAlias = _ShareUpdateValueStateBatch

    snapshot_epoch: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")
    delivery_complete_count: int = field(int32, "0+", default=-1, tag=0)
    state_batches: list[_ShareUpdateValueStateBatch] = field(array(_ShareUpdateValueStateBatch), "0+")
