"""Vote (API key 52)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, int64, string, uint16, uuid


class _VoteRequestPartitionData(Struct):
    partition_index: int = field(int32, "0+")
    replica_epoch: int = field(int32, "0+")
    replica_id: int = field(int32, "0+")
    replica_directory_id: bytes = field(uuid, "1+", ignorable=True)
    voter_directory_id: bytes = field(uuid, "1+", ignorable=True)
    last_offset_epoch: int = field(int32, "0+")
    last_offset: int = field(int64, "0+")
    pre_vote: bool = field(boolean, "2+")


class _VoteRequestTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_VoteRequestPartitionData] = field(array(_VoteRequestPartitionData), "0+")


class VoteRequest(Request, api_key=52, versions="0-2", flexible="0+", listeners=("controller",)):
    """VoteRequest, versions 0-2."""

    PartitionData: TypeAlias = _VoteRequestPartitionData
    TopicData: TypeAlias = _VoteRequestTopicData

    cluster_id: str | None = field(string, "0+", nullable="0+", default=None)
    voter_id: int = field(int32, "1+", default=-1, ignorable=True)
    topics: list[_VoteRequestTopicData] = field(array(_VoteRequestTopicData), "0+")


class _VoteResponsePartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")
    vote_granted: bool = field(boolean, "0+")


class _VoteResponseTopicData(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_VoteResponsePartitionData] = field(array(_VoteResponsePartitionData), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "1+", map_key=True)
    host: str = field(string, "1+")
    port: int = field(uint16, "1+")


class VoteResponse(Response, api_key=52, versions="0-2", flexible="0+"):
    """VoteResponse, versions 0-2."""

    PartitionData: TypeAlias = _VoteResponsePartitionData
    TopicData: TypeAlias = _VoteResponseTopicData
    NodeEndpoint: TypeAlias = _NodeEndpoint

    error_code: int = field(int16, "0+")
    topics: list[_VoteResponseTopicData] = field(array(_VoteResponseTopicData), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "1+", tag=0)
