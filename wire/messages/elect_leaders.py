"""ElectLeaders (API key 43)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class _TopicPartitions(Struct):
    topic: str = field(string, "0+", map_key=True)
    partitions: list[int] = field(array(int32), "0+")


class ElectLeadersRequest(Request, api_key=43, versions="0-2", flexible="2+", listeners=("broker", "controller")):
    """ElectLeadersRequest, versions 0-2."""

    TopicPartitions: TypeAlias = _TopicPartitions

    election_type: int = field(int8, "1+")
    topic_partitions: list[_TopicPartitions] | None = field(array(_TopicPartitions), "0+", nullable="0+")
    timeout_ms: int = field(int32, "0+", default=60000)


class _PartitionResult(Struct):
    partition_id: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")


class _ReplicaElectionResult(Struct):
    topic: str = field(string, "0+")
    partition_result: list[_PartitionResult] = field(array(_PartitionResult), "0+")


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    """ElectLeadersResponse, versions 0-2."""

    PartitionResult: TypeAlias = _PartitionResult
    ReplicaElectionResult: TypeAlias = _ReplicaElectionResult

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "1+")
    replica_election_results: list[_ReplicaElectionResult] = field(array(_ReplicaElectionResult), "0+")
