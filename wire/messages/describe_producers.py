"""DescribeProducers (API key 61)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string


class _TopicRequest(Struct):
    name: str = field(string, "0+", map_key=True)
    partition_indexes: list[int] = field(array(int32), "0+")


class DescribeProducersRequest(Request, api_key=61, versions="0", flexible="0+", listeners=("broker",)):
    """DescribeProducersRequest, versions 0."""

    TopicRequest: TypeAlias = _TopicRequest

    topics: list[_TopicRequest] = field(array(_TopicRequest), "0+")


class _ProducerState(Struct):
    producer_id: int = field(int64, "0+")
    producer_epoch: int = field(int32, "0+")
    last_sequence: int = field(int32, "0+", default=-1)
    last_timestamp: int = field(int64, "0+", default=-1)
    coordinator_epoch: int = field(int32, "0+")
    current_txn_start_offset: int = field(int64, "0+", default=-1)


class _PartitionResponse(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    active_producers: list[_ProducerState] = field(array(_ProducerState), "0+")


class _TopicResponse(Struct):
    name: str = field(string, "0+")
    partitions: list[_PartitionResponse] = field(array(_PartitionResponse), "0+")


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    """DescribeProducersResponse, versions 0."""

    ProducerState: TypeAlias = _ProducerState
    PartitionResponse: TypeAlias = _PartitionResponse
    TopicResponse: TypeAlias = _TopicResponse

    throttle_time_ms: int = field(int32, "0+")
    topics: list[_TopicResponse] = field(array(_TopicResponse), "0+")
