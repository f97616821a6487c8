"""AlterReplicaLogDirs (API key 34)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string


class _AlterReplicaLogDirTopic(Struct):
    name: str = field(string, "0+", map_key=True)
    partitions: list[int] = field(array(int32), "0+")


class _AlterReplicaLogDir(Struct):
    path: str = field(string, "0+", map_key=True)
    topics: list[_AlterReplicaLogDirTopic] = field(array(_AlterReplicaLogDirTopic), "0+")


class AlterReplicaLogDirsRequest(Request, api_key=34, versions="1-2", flexible="2+", listeners=("broker",)):
    """AlterReplicaLogDirsRequest, versions 1-2."""

    AlterReplicaLogDirTopic: TypeAlias = _AlterReplicaLogDirTopic
    AlterReplicaLogDir: TypeAlias = _AlterReplicaLogDir

    dirs: list[_AlterReplicaLogDir] = field(array(_AlterReplicaLogDir), "0+")


class _AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")


class _AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(string, "0+")
    partitions: list[_AlterReplicaLogDirPartitionResult] = field(array(_AlterReplicaLogDirPartitionResult), "0+")


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="1-2", flexible="2+"):
    """AlterReplicaLogDirsResponse, versions 1-2."""

    AlterReplicaLogDirPartitionResult: TypeAlias = _AlterReplicaLogDirPartitionResult
    AlterReplicaLogDirTopicResult: TypeAlias = _AlterReplicaLogDirTopicResult

    throttle_time_ms: int = field(int32, "0+")
    results: list[_AlterReplicaLogDirTopicResult] = field(array(_AlterReplicaLogDirTopicResult), "0+")
