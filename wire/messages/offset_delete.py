"""OffsetDelete (API key 47)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string


class _OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(int32, "0+")


class _OffsetDeleteRequestTopic(Struct):
    name: str = field(string, "0+", map_key=True)
    partitions: list[_OffsetDeleteRequestPartition] = field(array(_OffsetDeleteRequestPartition), "0+")


class OffsetDeleteRequest(Request, api_key=47, versions="0", listeners=("broker",)):
    """OffsetDeleteRequest, versions 0."""

    OffsetDeleteRequestPartition: TypeAlias = _OffsetDeleteRequestPartition
    OffsetDeleteRequestTopic: TypeAlias = _OffsetDeleteRequestTopic

    group_id: str = field(string, "0+")
    topics: list[_OffsetDeleteRequestTopic] = field(array(_OffsetDeleteRequestTopic), "0+")


class _OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(int32, "0+", map_key=True)
    error_code: int = field(int16, "0+")


class _OffsetDeleteResponseTopic(Struct):
    name: str = field(string, "0+", map_key=True)
    partitions: list[_OffsetDeleteResponsePartition] = field(array(_OffsetDeleteResponsePartition), "0+")


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    """OffsetDeleteResponse, versions 0."""

    OffsetDeleteResponsePartition: TypeAlias = _OffsetDeleteResponsePartition
    OffsetDeleteResponseTopic: TypeAlias = _OffsetDeleteResponseTopic

    error_code: int = field(int16, "0+")
    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    topics: list[_OffsetDeleteResponseTopic] = field(array(_OffsetDeleteResponseTopic), "0+")
