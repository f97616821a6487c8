"""Produce (API key 0)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import RecordsValue, Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, record_set, string, uuid


class _PartitionProduceData(Struct):
    index: int = field(int32, "0+")
    records: RecordsValue | None = field(record_set, "0+", nullable="0+", default=None)


class _TopicProduceData(Struct):
    name: str = field(string, "0-12", ignorable=True, map_key=True)
    topic_id: bytes = field(uuid, "13+", ignorable=True, map_key=True)
    partition_data: list[_PartitionProduceData] = field(array(_PartitionProduceData), "0+")


class ProduceRequest(Request, api_key=0, versions="3-13", flexible="9+", listeners=("broker",)):
    """ProduceRequest, versions 3-13."""

    PartitionProduceData: TypeAlias = _PartitionProduceData
    TopicProduceData: TypeAlias = _TopicProduceData

    transactional_id: str | None = field(string, "3+", nullable="3+", default=None)
    acks: int = field(int16, "0+")
    timeout_ms: int = field(int32, "0+")
    topic_data: list[_TopicProduceData] = field(array(_TopicProduceData), "0+")


class _BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(int32, "8+")
    batch_index_error_message: str | None = field(string, "8+", nullable="8+", default=None)


class _LeaderIdAndEpoch(Struct):
    leader_id: int = field(int32, "10+", default=-1)
    leader_epoch: int = field(int32, "10+", default=-1)


class _PartitionProduceResponse(Struct):
    index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    base_offset: int = field(int64, "0+")
    log_append_time_ms: int = field(int64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    record_errors: list[_BatchIndexAndErrorMessage] = field(array(_BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = field(string, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: _LeaderIdAndEpoch = field(_LeaderIdAndEpoch, "10+", tag=0)


class _TopicProduceResponse(Struct):
    name: str = field(string, "0-12", ignorable=True, map_key=True)
    topic_id: bytes = field(uuid, "13+", ignorable=True, map_key=True)
    partition_responses: list[_PartitionProduceResponse] = field(array(_PartitionProduceResponse), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "10+", map_key=True)
    host: str = field(string, "10+")
    port: int = field(int32, "10+")
    rack: str | None = field(string, "10+", nullable="10+", default=None)


class ProduceResponse(Response, api_key=0, versions="3-13", flexible="9+"):
    """ProduceResponse, versions 3-13."""

    BatchIndexAndErrorMessage: TypeAlias = _BatchIndexAndErrorMessage
    LeaderIdAndEpoch: TypeAlias = _LeaderIdAndEpoch
    PartitionProduceResponse: TypeAlias = _PartitionProduceResponse
    TopicProduceResponse: TypeAlias = _TopicProduceResponse
    NodeEndpoint: TypeAlias = _NodeEndpoint

    responses: list[_TopicProduceResponse] = field(array(_TopicProduceResponse), "0+")
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "10+", tag=0)
