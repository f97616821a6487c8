"""ListOffsets (API key 2)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, string


class _ListOffsetsPartition(Struct):
    partition_index: int = field(int32, "0+")
    current_leader_epoch: int = field(int32, "4+", default=-1, ignorable=True)
    timestamp: int = field(int64, "0+")


class _ListOffsetsTopic(Struct):
    name: str = field(string, "0+")
    partitions: list[_ListOffsetsPartition] = field(array(_ListOffsetsPartition), "0+")


class ListOffsetsRequest(Request, api_key=2, versions="1-11", flexible="6+", listeners=("broker",)):
    """ListOffsetsRequest, versions 1-11."""

    ListOffsetsPartition: TypeAlias = _ListOffsetsPartition
    ListOffsetsTopic: TypeAlias = _ListOffsetsTopic

    replica_id: int = field(int32, "0+")
    isolation_level: int = field(int8, "2+")
    topics: list[_ListOffsetsTopic] = field(array(_ListOffsetsTopic), "0+")
    timeout_ms: int = field(int32, "10+", ignorable=True)


class _ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    timestamp: int = field(int64, "1+", default=-1)
    offset: int = field(int64, "1+", default=-1)
    leader_epoch: int = field(int32, "4+", default=-1)


class _ListOffsetsTopicResponse(Struct):
    name: str = field(string, "0+")
    partitions: list[_ListOffsetsPartitionResponse] = field(array(_ListOffsetsPartitionResponse), "0+")


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    """ListOffsetsResponse, versions 1-11."""

    ListOffsetsPartitionResponse: TypeAlias = _ListOffsetsPartitionResponse
    ListOffsetsTopicResponse: TypeAlias = _ListOffsetsTopicResponse

    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    topics: list[_ListOffsetsTopicResponse] = field(array(_ListOffsetsTopicResponse), "0+")
