"""AlterShareGroupOffsets (API key 91)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uuid


class _AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field(int32, "0+")
    start_offset: int = field(int64, "0+")


class _AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(string, "0+", map_key=True)
    partitions: list[_AlterShareGroupOffsetsRequestPartition] = field(array(_AlterShareGroupOffsetsRequestPartition), "0+")


class AlterShareGroupOffsetsRequest(Request, api_key=91, versions="0", flexible="0+", listeners=("broker",)):
    """AlterShareGroupOffsetsRequest, versions 0."""

    AlterShareGroupOffsetsRequestPartition: TypeAlias = _AlterShareGroupOffsetsRequestPartition
    AlterShareGroupOffsetsRequestTopic: TypeAlias = _AlterShareGroupOffsetsRequestTopic

    group_id: str = field(string, "0+")
    topics: list[_AlterShareGroupOffsetsRequestTopic] = field(array(_AlterShareGroupOffsetsRequestTopic), "0+")


class _AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class _AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(string, "0+", map_key=True)
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_AlterShareGroupOffsetsResponsePartition] = field(array(_AlterShareGroupOffsetsResponsePartition), "0+")


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions="0", flexible="0+"):
    """AlterShareGroupOffsetsResponse, versions 0."""

    AlterShareGroupOffsetsResponsePartition: TypeAlias = _AlterShareGroupOffsetsResponsePartition
    AlterShareGroupOffsetsResponseTopic: TypeAlias = _AlterShareGroupOffsetsResponseTopic

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    responses: list[_AlterShareGroupOffsetsResponseTopic] = field(array(_AlterShareGroupOffsetsResponseTopic), "0+")
