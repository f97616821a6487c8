"""DescribeQuorum (API key 55)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uint16, uuid


class _DescribeQuorumRequestPartitionData(Struct):
    partition_index: int = field(int32, "0+")


class _DescribeQuorumRequestTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_DescribeQuorumRequestPartitionData] = field(array(_DescribeQuorumRequestPartitionData), "0+")


class DescribeQuorumRequest(Request, api_key=55, versions="0-2", flexible="0+", listeners=("broker", "controller")):
    """DescribeQuorumRequest, versions 0-2."""

    PartitionData: TypeAlias = _DescribeQuorumRequestPartitionData
    TopicData: TypeAlias = _DescribeQuorumRequestTopicData

    topics: list[_DescribeQuorumRequestTopicData] = field(array(_DescribeQuorumRequestTopicData), "0+")


class _ReplicaState(Struct):
    replica_id: int = field(int32, "0+")
    replica_directory_id: bytes = field(uuid, "2+")
    log_end_offset: int = field(int64, "0+")
    last_fetch_timestamp: int = field(int64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(int64, "1+", default=-1, ignorable=True)


class _DescribeQuorumResponsePartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "2+", nullable="2+", ignorable=True)
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    high_watermark: int = field(int64, "0+")
    current_voters: list[_ReplicaState] = field(array(_ReplicaState), "0+")
    observers: list[_ReplicaState] = field(array(_ReplicaState), "0+")


class _DescribeQuorumResponseTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_DescribeQuorumResponsePartitionData] = field(array(_DescribeQuorumResponsePartitionData), "0+")


class _Listener(Struct):
    name: str = field(string, "2+", map_key=True)
    host: str = field(string, "2+")
    port: int = field(uint16, "2+")


class _Node(Struct):
    node_id: int = field(int32, "2+", map_key=True)
    listeners: list[_Listener] = field(array(_Listener), "2+")


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    """DescribeQuorumResponse, versions 0-2."""

    ReplicaState: TypeAlias = _ReplicaState
    PartitionData: TypeAlias = _DescribeQuorumResponsePartitionData
    TopicData: TypeAlias = _DescribeQuorumResponseTopicData
    Listener: TypeAlias = _Listener
    Node: TypeAlias = _Node

    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "2+", nullable="2+", ignorable=True)
    topics: list[_DescribeQuorumResponseTopicData] = field(array(_DescribeQuorumResponseTopicData), "0+")
    nodes: list[_Node] = field(array(_Node), "2+")
