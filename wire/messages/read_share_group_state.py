"""ReadShareGroupState (API key 84)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, string, uuid


class _PartitionData(Struct):
    partition: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _ReadStateData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class ReadShareGroupStateRequest(Request, api_key=84, versions="0", flexible="0+", listeners=("broker",)):
    """ReadShareGroupStateRequest, versions 0."""

    PartitionData: TypeAlias = _PartitionData
    ReadStateData: TypeAlias = _ReadStateData

    group_id: str = field(string, "0+")
    topics: list[_ReadStateData] = field(array(_ReadStateData), "0+")


class _StateBatch(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    delivery_state: int = field(int8, "0+")
    delivery_count: int = field(int16, "0+")


class _PartitionResult(Struct):
    partition: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    state_epoch: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")
    state_batches: list[_StateBatch] = field(array(_StateBatch), "0+")


class _ReadStateResult(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionResult] = field(array(_PartitionResult), "0+")


class ReadShareGroupStateResponse(Response, api_key=84, versions="0", flexible="0+"):
    """ReadShareGroupStateResponse, versions 0."""

    StateBatch: TypeAlias = _StateBatch
    PartitionResult: TypeAlias = _PartitionResult
    ReadStateResult: TypeAlias = _ReadStateResult

    results: list[_ReadStateResult] = field(array(_ReadStateResult), "0+")
