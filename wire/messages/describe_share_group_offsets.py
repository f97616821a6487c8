"""DescribeShareGroupOffsets (API key 90)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uuid


class _DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field(string, "0+")
    topics: list[_DescribeShareGroupOffsetsRequestTopic] | None = field(array(_DescribeShareGroupOffsetsRequestTopic), "0+", nullable="0+")


class DescribeShareGroupOffsetsRequest(Request, api_key=90, versions="0-1", flexible="0+", listeners=("broker",)):
    """DescribeShareGroupOffsetsRequest, versions 0-1."""

    DescribeShareGroupOffsetsRequestTopic: TypeAlias = _DescribeShareGroupOffsetsRequestTopic
    DescribeShareGroupOffsetsRequestGroup: TypeAlias = _DescribeShareGroupOffsetsRequestGroup

    groups: list[_DescribeShareGroupOffsetsRequestGroup] = field(array(_DescribeShareGroupOffsetsRequestGroup), "0+")


class _DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")
    leader_epoch: int = field(int32, "0+")
    lag: int = field(int64, "1+", default=-1, ignorable=True)
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class _DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(string, "0+")
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_DescribeShareGroupOffsetsResponsePartition] = field(array(_DescribeShareGroupOffsetsResponsePartition), "0+")


class _DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field(string, "0+")
    topics: list[_DescribeShareGroupOffsetsResponseTopic] = field(array(_DescribeShareGroupOffsetsResponseTopic), "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions="0-1", flexible="0+"):
    """DescribeShareGroupOffsetsResponse, versions 0-1."""

    DescribeShareGroupOffsetsResponsePartition: TypeAlias = _DescribeShareGroupOffsetsResponsePartition
    DescribeShareGroupOffsetsResponseTopic: TypeAlias = _DescribeShareGroupOffsetsResponseTopic
    DescribeShareGroupOffsetsResponseGroup: TypeAlias = _DescribeShareGroupOffsetsResponseGroup

    throttle_time_ms: int = field(int32, "0+")
    groups: list[_DescribeShareGroupOffsetsResponseGroup] = field(array(_DescribeShareGroupOffsetsResponseGroup), "0+")
