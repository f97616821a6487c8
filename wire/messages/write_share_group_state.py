"""WriteShareGroupState (API key 85)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, string, uuid


class _StateBatch(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    delivery_state: int = field(int8, "0+")
    delivery_count: int = field(int16, "0+")


class _PartitionData(Struct):
    partition: int = field(int32, "0+")
    state_epoch: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")
    delivery_complete_count: int = field(int32, "1+", default=-1, ignorable=True)
    state_batches: list[_StateBatch] = field(array(_StateBatch), "0+")


class _WriteStateData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class WriteShareGroupStateRequest(Request, api_key=85, versions="0-1", flexible="0+", listeners=("broker",)):
    """WriteShareGroupStateRequest, versions 0-1."""

    StateBatch: TypeAlias = _StateBatch
    PartitionData: TypeAlias = _PartitionData
    WriteStateData: TypeAlias = _WriteStateData

    group_id: str = field(string, "0+")
    topics: list[_WriteStateData] = field(array(_WriteStateData), "0+")


class _PartitionResult(Struct):
    partition: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class _WriteStateResult(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionResult] = field(array(_PartitionResult), "0+")


class WriteShareGroupStateResponse(Response, api_key=85, versions="0-1", flexible="0+"):
    """WriteShareGroupStateResponse, versions 0-1."""

    PartitionResult: TypeAlias = _PartitionResult
    WriteStateResult: TypeAlias = _WriteStateResult

    results: list[_WriteStateResult] = field(array(_WriteStateResult), "0+")
