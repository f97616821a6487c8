"""InitializeShareGroupState (API key 83)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uuid


class _PartitionData(Struct):
    partition: int = field(int32, "0+")
    state_epoch: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")


class _InitializeStateData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class InitializeShareGroupStateRequest(Request, api_key=83, versions="0", flexible="0+", listeners=("broker",)):
    """InitializeShareGroupStateRequest, versions 0."""

    PartitionData: TypeAlias = _PartitionData
    InitializeStateData: TypeAlias = _InitializeStateData

    group_id: str = field(string, "0+")
    topics: list[_InitializeStateData] = field(array(_InitializeStateData), "0+")


class _PartitionResult(Struct):
    partition: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class _InitializeStateResult(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionResult] = field(array(_PartitionResult), "0+")


class InitializeShareGroupStateResponse(Response, api_key=83, versions="0", flexible="0+"):
    """InitializeShareGroupStateResponse, versions 0."""

    PartitionResult: TypeAlias = _PartitionResult
    InitializeStateResult: TypeAlias = _InitializeStateResult

    results: list[_InitializeStateResult] = field(array(_InitializeStateResult), "0+")
