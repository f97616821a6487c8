"""ReadShareGroupStateSummary (API key 87)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uuid


class _PartitionData(Struct):
    partition: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _ReadStateSummaryData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class ReadShareGroupStateSummaryRequest(Request, api_key=87, versions="0-1", flexible="0+", listeners=("broker",)):
    """ReadShareGroupStateSummaryRequest, versions 0-1."""

    PartitionData: TypeAlias = _PartitionData
    ReadStateSummaryData: TypeAlias = _ReadStateSummaryData

    group_id: str = field(string, "0+")
    topics: list[_ReadStateSummaryData] = field(array(_ReadStateSummaryData), "0+")


class _PartitionResult(Struct):
    partition: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    state_epoch: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")
    delivery_complete_count: int = field(int32, "1+", default=-1, ignorable=True)


class _ReadStateSummaryResult(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionResult] = field(array(_PartitionResult), "0+")


class ReadShareGroupStateSummaryResponse(Response, api_key=87, versions="0-1", flexible="0+"):
    """ReadShareGroupStateSummaryResponse, versions 0-1."""

    PartitionResult: TypeAlias = _PartitionResult
    ReadStateSummaryResult: TypeAlias = _ReadStateSummaryResult

    results: list[_ReadStateSummaryResult] = field(array(_ReadStateSummaryResult), "0+")
