"""BeginQuorumEpoch (API key 53)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uint16, uuid


class _BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: int = field(int32, "0+")
    voter_directory_id: bytes = field(uuid, "1+", ignorable=True)
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _BeginQuorumEpochRequestTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_BeginQuorumEpochRequestPartitionData] = field(array(_BeginQuorumEpochRequestPartitionData), "0+")


class _LeaderEndpoint(Struct):
    name: str = field(string, "1+", map_key=True)
    host: str = field(string, "1+")
    port: int = field(uint16, "1+")


class BeginQuorumEpochRequest(Request, api_key=53, versions="0-1", flexible="1+", listeners=("controller",)):
    """BeginQuorumEpochRequest, versions 0-1."""

    PartitionData: TypeAlias = _BeginQuorumEpochRequestPartitionData
    TopicData: TypeAlias = _BeginQuorumEpochRequestTopicData
    LeaderEndpoint: TypeAlias = _LeaderEndpoint

    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    voter_id: int = field(int32, "1+", default=-1, ignorable=True)
    topics: list[_BeginQuorumEpochRequestTopicData] = field(array(_BeginQuorumEpochRequestTopicData), "0+")
    leader_endpoints: list[_LeaderEndpoint] = field(array(_LeaderEndpoint), "1+", ignorable=True)


class _BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_BeginQuorumEpochResponsePartitionData] = field(array(_BeginQuorumEpochResponsePartitionData), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "1+", map_key=True)
    host: str = field(string, "1+")
    port: int = field(uint16, "1+")


class BeginQuorumEpochResponse(Response, api_key=53, versions="0-1", flexible="1+"):
    """BeginQuorumEpochResponse, versions 0-1."""

    PartitionData: TypeAlias = _BeginQuorumEpochResponsePartitionData
    TopicData: TypeAlias = _BeginQuorumEpochResponseTopicData
    NodeEndpoint: TypeAlias = _NodeEndpoint

    error_code: int = field(int16, "0+")
    topics: list[_BeginQuorumEpochResponseTopicData] = field(array(_BeginQuorumEpochResponseTopicData), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "1+", tag=0)
