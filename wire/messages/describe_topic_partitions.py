"""DescribeTopicPartitions (API key 75)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string, uuid


class _TopicRequest(Struct):
    name: str = field(string, "0+")


class _DescribeTopicPartitionsRequestCursor(Struct):
    topic_name: str = field(string, "0+")
    partition_index: int = field(int32, "0+")


class DescribeTopicPartitionsRequest(Request, api_key=75, versions="0", flexible="0+", listeners=("broker",)):
    """DescribeTopicPartitionsRequest, versions 0."""

    TopicRequest: TypeAlias = _TopicRequest
    Cursor: TypeAlias = _DescribeTopicPartitionsRequestCursor

    topics: list[_TopicRequest] = field(array(_TopicRequest), "0+")
    response_partition_limit: int = field(int32, "0+", default=2000)
    cursor: _DescribeTopicPartitionsRequestCursor | None = field(_DescribeTopicPartitionsRequestCursor, "0+", nullable="0+", default=None)


class _DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(int16, "0+")
    partition_index: int = field(int32, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(int32), "0+")
    isr_nodes: list[int] = field(array(int32), "0+")
    eligible_leader_replicas: list[int] | None = field(array(int32), "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = field(array(int32), "0+", nullable="0+", default=None)
    offline_replicas: list[int] = field(array(int32), "0+", ignorable=True)


class _DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(int16, "0+")
    name: str | None = field(string, "0+", nullable="0+", map_key=True)
    topic_id: bytes = field(uuid, "0+", ignorable=True)
    is_internal: bool = field(boolean, "0+", default=False, ignorable=True)
    partitions: list[_DescribeTopicPartitionsResponsePartition] = field(array(_DescribeTopicPartitionsResponsePartition), "0+")
    topic_authorized_operations: int = field(int32, "0+", default=-2147483648)


class _DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: str = field(string, "0+")
    partition_index: int = field(int32, "0+")


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    """DescribeTopicPartitionsResponse, versions 0."""

    DescribeTopicPartitionsResponsePartition: TypeAlias = _DescribeTopicPartitionsResponsePartition
    DescribeTopicPartitionsResponseTopic: TypeAlias = _DescribeTopicPartitionsResponseTopic
    Cursor: TypeAlias = _DescribeTopicPartitionsResponseCursor

    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    topics: list[_DescribeTopicPartitionsResponseTopic] = field(array(_DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: _DescribeTopicPartitionsResponseCursor | None = field(
        _DescribeTopicPartitionsResponseCursor, "0+", nullable="0+", default=None
    )
