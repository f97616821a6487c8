"""EndQuorumEpoch (API key 54)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uint16, uuid


class _ReplicaInfo(Struct):
    candidate_id: int = field(int32, "1+")
    candidate_directory_id: bytes = field(uuid, "1+")


class _EndQuorumEpochRequestPartitionData(Struct):
    partition_index: int = field(int32, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    preferred_successors: list[int] = field(array(int32), "0", ignorable=True)
    preferred_candidates: list[_ReplicaInfo] = field(array(_ReplicaInfo), "1+", ignorable=True)


class _EndQuorumEpochRequestTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_EndQuorumEpochRequestPartitionData] = field(array(_EndQuorumEpochRequestPartitionData), "0+")


class _LeaderEndpoint(Struct):
    name: str = field(string, "1+", map_key=True)
    host: str = field(string, "1+")
    port: int = field(uint16, "1+")


class EndQuorumEpochRequest(Request, api_key=54, versions="0-1", flexible="1+", listeners=("controller",)):
    """EndQuorumEpochRequest, versions 0-1."""

    ReplicaInfo: TypeAlias = _ReplicaInfo
    PartitionData: TypeAlias = _EndQuorumEpochRequestPartitionData
    TopicData: TypeAlias = _EndQuorumEpochRequestTopicData
    LeaderEndpoint: TypeAlias = _LeaderEndpoint

    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    topics: list[_EndQuorumEpochRequestTopicData] = field(array(_EndQuorumEpochRequestTopicData), "0+")
    leader_endpoints: list[_LeaderEndpoint] = field(array(_LeaderEndpoint), "1+", ignorable=True)


class _EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_EndQuorumEpochResponsePartitionData] = field(array(_EndQuorumEpochResponsePartitionData), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "1+", map_key=True)
    host: str = field(string, "1+")
    port: int = field(uint16, "1+")


class EndQuorumEpochResponse(Response, api_key=54, versions="0-1", flexible="1+"):
    """EndQuorumEpochResponse, versions 0-1."""

    PartitionData: TypeAlias = _EndQuorumEpochResponsePartitionData
    TopicData: TypeAlias = _EndQuorumEpochResponseTopicData
    NodeEndpoint: TypeAlias = _NodeEndpoint

    error_code: int = field(int16, "0+")
    topics: list[_EndQuorumEpochResponseTopicData] = field(array(_EndQuorumEpochResponseTopicData), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "1+", tag=0)
