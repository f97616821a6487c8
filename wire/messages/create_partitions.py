"""CreatePartitions (API key 37)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string


class _CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(int32), "0+")


class _CreatePartitionsTopic(Struct):
    name: str = field(string, "0+", map_key=True)
    count: int = field(int32, "0+")
    assignments: list[_CreatePartitionsAssignment] | None = field(array(_CreatePartitionsAssignment), "0+", nullable="0+")


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+", listeners=("broker", "controller")):
    """CreatePartitionsRequest, versions 0-3."""

    CreatePartitionsAssignment: TypeAlias = _CreatePartitionsAssignment
    CreatePartitionsTopic: TypeAlias = _CreatePartitionsTopic

    topics: list[_CreatePartitionsTopic] = field(array(_CreatePartitionsTopic), "0+")
    timeout_ms: int = field(int32, "0+")
    validate_only: bool = field(boolean, "0+")


class _CreatePartitionsTopicResult(Struct):
    name: str = field(string, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    """CreatePartitionsResponse, versions 0-3."""

    CreatePartitionsTopicResult: TypeAlias = _CreatePartitionsTopicResult

    throttle_time_ms: int = field(int32, "0+")
    results: list[_CreatePartitionsTopicResult] = field(array(_CreatePartitionsTopicResult), "0+")
