"""ListPartitionReassignments (API key 46)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string


class _ListPartitionReassignmentsTopics(Struct):
    name: str = field(string, "0+")
    partition_indexes: list[int] = field(array(int32), "0+")


class ListPartitionReassignmentsRequest(Request, api_key=46, versions="0", flexible="0+", listeners=("broker", "controller")):
    """ListPartitionReassignmentsRequest, versions 0."""

    ListPartitionReassignmentsTopics: TypeAlias = _ListPartitionReassignmentsTopics

    timeout_ms: int = field(int32, "0+", default=60000)
    topics: list[_ListPartitionReassignmentsTopics] | None = field(
        array(_ListPartitionReassignmentsTopics), "0+", nullable="0+", default=None
    )


class _OngoingPartitionReassignment(Struct):
    partition_index: int = field(int32, "0+")
    replicas: list[int] = field(array(int32), "0+")
    adding_replicas: list[int] = field(array(int32), "0+")
    removing_replicas: list[int] = field(array(int32), "0+")


class _OngoingTopicReassignment(Struct):
    name: str = field(string, "0+")
    partitions: list[_OngoingPartitionReassignment] = field(array(_OngoingPartitionReassignment), "0+")


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    """ListPartitionReassignmentsResponse, versions 0."""

    OngoingPartitionReassignment: TypeAlias = _OngoingPartitionReassignment
    OngoingTopicReassignment: TypeAlias = _OngoingTopicReassignment

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    topics: list[_OngoingTopicReassignment] = field(array(_OngoingTopicReassignment), "0+")
