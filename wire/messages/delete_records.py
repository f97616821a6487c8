"""DeleteRecords (API key 21)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string


class _DeleteRecordsPartition(Struct):
    partition_index: int = field(int32, "0+")
    offset: int = field(int64, "0+")


class _DeleteRecordsTopic(Struct):
    name: str = field(string, "0+")
    partitions: list[_DeleteRecordsPartition] = field(array(_DeleteRecordsPartition), "0+")


class DeleteRecordsRequest(Request, api_key=21, versions="0-2", flexible="2+", listeners=("broker",)):
    """DeleteRecordsRequest, versions 0-2."""

    DeleteRecordsPartition: TypeAlias = _DeleteRecordsPartition
    DeleteRecordsTopic: TypeAlias = _DeleteRecordsTopic

    topics: list[_DeleteRecordsTopic] = field(array(_DeleteRecordsTopic), "0+")
    timeout_ms: int = field(int32, "0+")


class _DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(int32, "0+", map_key=True)
    low_watermark: int = field(int64, "0+")
    error_code: int = field(int16, "0+")


class _DeleteRecordsTopicResult(Struct):
    name: str = field(string, "0+", map_key=True)
    partitions: list[_DeleteRecordsPartitionResult] = field(array(_DeleteRecordsPartitionResult), "0+")


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    """DeleteRecordsResponse, versions 0-2."""

    DeleteRecordsPartitionResult: TypeAlias = _DeleteRecordsPartitionResult
    DeleteRecordsTopicResult: TypeAlias = _DeleteRecordsTopicResult

    throttle_time_ms: int = field(int32, "0+")
    topics: list[_DeleteRecordsTopicResult] = field(array(_DeleteRecordsTopicResult), "0+")
