"""AlterPartitionReassignments (API key 45)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string


class _ReassignablePartition(Struct):
    partition_index: int = field(int32, "0+")
    replicas: list[int] | None = field(array(int32), "0+", nullable="0+", default=None)


class _ReassignableTopic(Struct):
    name: str = field(string, "0+")
    partitions: list[_ReassignablePartition] = field(array(_ReassignablePartition), "0+")


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions="0-1", flexible="0+", listeners=("broker", "controller")):
    """AlterPartitionReassignmentsRequest, versions 0-1."""

    ReassignablePartition: TypeAlias = _ReassignablePartition
    ReassignableTopic: TypeAlias = _ReassignableTopic

    timeout_ms: int = field(int32, "0+", default=60000)
    allow_replication_factor_change: bool = field(boolean, "1+", default=True)
    topics: list[_ReassignableTopic] = field(array(_ReassignableTopic), "0+")


class _ReassignablePartitionResponse(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")


class _ReassignableTopicResponse(Struct):
    name: str = field(string, "0+")
    partitions: list[_ReassignablePartitionResponse] = field(array(_ReassignablePartitionResponse), "0+")


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    """AlterPartitionReassignmentsResponse, versions 0-1."""

    ReassignablePartitionResponse: TypeAlias = _ReassignablePartitionResponse
    ReassignableTopicResponse: TypeAlias = _ReassignableTopicResponse

    throttle_time_ms: int = field(int32, "0+")
    allow_replication_factor_change: bool = field(boolean, "1+", default=True, ignorable=True)
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    responses: list[_ReassignableTopicResponse] = field(array(_ReassignableTopicResponse), "0+")
