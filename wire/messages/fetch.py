"""Fetch (API key 1)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import RecordsValue, Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, int64, record_set, string, uuid


class _ReplicaState(Struct):
    replica_id: int = field(int32, "15+", default=-1)
    replica_epoch: int = field(int64, "15+", default=-1)


class _FetchPartition(Struct):
    partition: int = field(int32, "0+")
    current_leader_epoch: int = field(int32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(int64, "0+")
    last_fetched_epoch: int = field(int32, "12+", default=-1)
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(int32, "0+")
    replica_directory_id: bytes = field(uuid, "17+", tag=0, ignorable=True)
    high_watermark: int = field(int64, "18+", default=9223372036854775807, tag=1, ignorable=True)


class _FetchTopic(Struct):
    topic: str = field(string, "0-12", ignorable=True)
    topic_id: bytes = field(uuid, "13+", ignorable=True)
    partitions: list[_FetchPartition] = field(array(_FetchPartition), "0+")


class _ForgottenTopic(Struct):
    topic: str = field(string, "7-12", ignorable=True)
    topic_id: bytes = field(uuid, "13+", ignorable=True)
    partitions: list[int] = field(array(int32), "7+")


class FetchRequest(Request, api_key=1, versions="4-18", flexible="12+", listeners=("broker", "controller")):
    """FetchRequest, versions 4-18."""

    ReplicaState: TypeAlias = _ReplicaState
    FetchPartition: TypeAlias = _FetchPartition
    FetchTopic: TypeAlias = _FetchTopic
    ForgottenTopic: TypeAlias = _ForgottenTopic

    cluster_id: str | None = field(string, "12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = field(int32, "0-14", default=-1)
    replica_state: _ReplicaState = field(_ReplicaState, "15+", tag=1)
    max_wait_ms: int = field(int32, "0+")
    min_bytes: int = field(int32, "0+")
    max_bytes: int = field(int32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = field(int8, "4+", ignorable=True)
    session_id: int = field(int32, "7+", ignorable=True)
    session_epoch: int = field(int32, "7+", default=-1, ignorable=True)
    topics: list[_FetchTopic] = field(array(_FetchTopic), "0+")
    forgotten_topics_data: list[_ForgottenTopic] = field(array(_ForgottenTopic), "7+")
    rack_id: str = field(string, "11+", default="", ignorable=True)


class _EpochEndOffset(Struct):
    epoch: int = field(int32, "12+", default=-1)
    end_offset: int = field(int64, "12+", default=-1)


class _LeaderIdAndEpoch(Struct):
    leader_id: int = field(int32, "12+", default=-1)
    leader_epoch: int = field(int32, "12+", default=-1)


class _SnapshotId(Struct):
    end_offset: int = field(int64, "0+", default=-1)
    epoch: int = field(int32, "0+", default=-1)


class _AbortedTransaction(Struct):
    producer_id: int = field(int64, "4+")
    first_offset: int = field(int64, "4+")


class _PartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    high_watermark: int = field(int64, "0+")
    last_stable_offset: int = field(int64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    diverging_epoch: _EpochEndOffset = field(_EpochEndOffset, "12+", tag=0)
    current_leader: _LeaderIdAndEpoch = field(_LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: _SnapshotId = field(_SnapshotId, "12+", tag=2)
    aborted_transactions: list[_AbortedTransaction] | None = field(array(_AbortedTransaction), "4+", nullable="4+", ignorable=True)
    preferred_read_replica: int = field(int32, "11+", default=-1)
    records: RecordsValue | None = field(record_set, "0+", nullable="0+", default=None)


class _FetchableTopicResponse(Struct):
    topic: str = field(string, "0-12", ignorable=True)
    topic_id: bytes = field(uuid, "13+", ignorable=True)
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "16+", map_key=True)
    host: str = field(string, "16+")
    port: int = field(int32, "16+")
    rack: str | None = field(string, "16+", nullable="16+", default=None)


class FetchResponse(Response, api_key=1, versions="4-18", flexible="12+"):
    """FetchResponse, versions 4-18."""

    EpochEndOffset: TypeAlias = _EpochEndOffset
    LeaderIdAndEpoch: TypeAlias = _LeaderIdAndEpoch
    SnapshotId: TypeAlias = _SnapshotId
    AbortedTransaction: TypeAlias = _AbortedTransaction
    PartitionData: TypeAlias = _PartitionData
    FetchableTopicResponse: TypeAlias = _FetchableTopicResponse
    NodeEndpoint: TypeAlias = _NodeEndpoint

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    error_code: int = field(int16, "7+", ignorable=True)
    session_id: int = field(int32, "7+")
    responses: list[_FetchableTopicResponse] = field(array(_FetchableTopicResponse), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "16+", tag=0)
