"""DeleteShareGroupState (API key 86)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uuid


class _PartitionData(Struct):
    partition: int = field(int32, "0+")


class _DeleteStateData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class DeleteShareGroupStateRequest(Request, api_key=86, versions="0", flexible="0+", listeners=("broker",)):
    """DeleteShareGroupStateRequest, versions 0."""

    PartitionData: TypeAlias = _PartitionData
    DeleteStateData: TypeAlias = _DeleteStateData

    group_id: str = field(string, "0+")
    topics: list[_DeleteStateData] = field(array(_DeleteStateData), "0+")


class _PartitionResult(Struct):
    partition: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class _DeleteStateResult(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_PartitionResult] = field(array(_PartitionResult), "0+")


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    """DeleteShareGroupStateResponse, versions 0."""

    PartitionResult: TypeAlias = _PartitionResult
    DeleteStateResult: TypeAlias = _DeleteStateResult

    results: list[_DeleteStateResult] = field(array(_DeleteStateResult), "0+")
