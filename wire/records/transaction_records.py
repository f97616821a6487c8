"""Keys and values of `__transaction_state`."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Record, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, string


class TransactionLogKey(Record, record_type=0, versions="0"):
    """TransactionLogKey, versions 0."""

    transactional_id: str = field(string, "0")


class _PartitionsSchema(Struct):
    topic: str = field(string, "0+")
    partition_ids: list[int] = field(array(int32), "0+")


class TransactionLogValue(Record, record_type=0, versions="0-1", flexible="1+"):
    """TransactionLogValue, versions 0-1."""

    PartitionsSchema: TypeAlias = _PartitionsSchema

    producer_id: int = field(int64, "0+")
    previous_producer_id: int = field(int64, "1+", default=-1, tag=0, tagged="1+")
    next_producer_id: int = field(int64, "1+", default=-1, tag=1, tagged="1+")
    producer_epoch: int = field(int16, "0+")
    next_producer_epoch: int = field(int16, "1+", default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: int = field(int32, "0+")
    transaction_status: int = field(int8, "0+")
    transaction_partitions: list[_PartitionsSchema] | None = field(array(_PartitionsSchema), "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = field(int64, "0+")
    transaction_start_timestamp_ms: int = field(int64, "0+")
    client_transaction_version: int = field(int16, "1+", tag=2, tagged="1+")
