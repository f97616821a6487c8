"""AssignReplicasToDirs (API key 73)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, uuid


class _AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: int = field(int32, "0+")


class _AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_AssignReplicasToDirsRequestPartitionData] = field(array(_AssignReplicasToDirsRequestPartitionData), "0+")


class _AssignReplicasToDirsRequestDirectoryData(Struct):
    id: bytes = field(uuid, "0+")
    topics: list[_AssignReplicasToDirsRequestTopicData] = field(array(_AssignReplicasToDirsRequestTopicData), "0+")


class AssignReplicasToDirsRequest(Request, api_key=73, versions="0", flexible="0+", listeners=("controller",)):
    """AssignReplicasToDirsRequest, versions 0."""

    PartitionData: TypeAlias = _AssignReplicasToDirsRequestPartitionData
    TopicData: TypeAlias = _AssignReplicasToDirsRequestTopicData
    DirectoryData: TypeAlias = _AssignReplicasToDirsRequestDirectoryData

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+", default=-1)
    directories: list[_AssignReplicasToDirsRequestDirectoryData] = field(array(_AssignReplicasToDirsRequestDirectoryData), "0+")


class _AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")


class _AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[_AssignReplicasToDirsResponsePartitionData] = field(array(_AssignReplicasToDirsResponsePartitionData), "0+")


class _AssignReplicasToDirsResponseDirectoryData(Struct):
    id: bytes = field(uuid, "0+")
    topics: list[_AssignReplicasToDirsResponseTopicData] = field(array(_AssignReplicasToDirsResponseTopicData), "0+")


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    """AssignReplicasToDirsResponse, versions 0."""

    PartitionData: TypeAlias = _AssignReplicasToDirsResponsePartitionData
    TopicData: TypeAlias = _AssignReplicasToDirsResponseTopicData
    DirectoryData: TypeAlias = _AssignReplicasToDirsResponseDirectoryData

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    directories: list[_AssignReplicasToDirsResponseDirectoryData] = field(array(_AssignReplicasToDirsResponseDirectoryData), "0+")
