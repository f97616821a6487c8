"""FetchSnapshot (API key 59)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import RecordsValue, Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, record_set, string, uint16, uuid


class _FetchSnapshotRequestSnapshotId(Struct):
    end_offset: int = field(int64, "0+")
    epoch: int = field(int32, "0+")


class _FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: int = field(int32, "0+")
    current_leader_epoch: int = field(int32, "0+")
    snapshot_id: _FetchSnapshotRequestSnapshotId = field(_FetchSnapshotRequestSnapshotId, "0+")
    position: int = field(int64, "0+")
    replica_directory_id: bytes = field(uuid, "1+", tag=0, ignorable=True)


class _FetchSnapshotRequestTopicSnapshot(Struct):
    name: str = field(string, "0+")
    partitions: list[_FetchSnapshotRequestPartitionSnapshot] = field(array(_FetchSnapshotRequestPartitionSnapshot), "0+")


class FetchSnapshotRequest(Request, api_key=59, versions="0-1", flexible="0+", listeners=("controller",)):
    """FetchSnapshotRequest, versions 0-1."""

    SnapshotId: TypeAlias = _FetchSnapshotRequestSnapshotId
    PartitionSnapshot: TypeAlias = _FetchSnapshotRequestPartitionSnapshot
    TopicSnapshot: TypeAlias = _FetchSnapshotRequestTopicSnapshot

    cluster_id: str | None = field(string, "0+", nullable="0+", default=None, tag=0)
    replica_id: int = field(int32, "0+", default=-1)
    max_bytes: int = field(int32, "0+", default=2147483647)
    topics: list[_FetchSnapshotRequestTopicSnapshot] = field(array(_FetchSnapshotRequestTopicSnapshot), "0+")


class _FetchSnapshotResponseSnapshotId(Struct):
    end_offset: int = field(int64, "0+")
    epoch: int = field(int32, "0+")


class _LeaderIdAndEpoch(Struct):
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    snapshot_id: _FetchSnapshotResponseSnapshotId = field(_FetchSnapshotResponseSnapshotId, "0+")
    current_leader: _LeaderIdAndEpoch = field(_LeaderIdAndEpoch, "0+", tag=0)
    size: int = field(int64, "0+")
    position: int = field(int64, "0+")
    unaligned_records: RecordsValue | None = field(record_set, "0+", default=None)


class _FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = field(string, "0+")
    partitions: list[_FetchSnapshotResponsePartitionSnapshot] = field(array(_FetchSnapshotResponsePartitionSnapshot), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "1+", map_key=True)
    host: str = field(string, "1+")
    port: int = field(uint16, "1+")


class FetchSnapshotResponse(Response, api_key=59, versions="0-1", flexible="0+"):
    """FetchSnapshotResponse, versions 0-1."""

    SnapshotId: TypeAlias = _FetchSnapshotResponseSnapshotId
    LeaderIdAndEpoch: TypeAlias = _LeaderIdAndEpoch
    PartitionSnapshot: TypeAlias = _FetchSnapshotResponsePartitionSnapshot
    TopicSnapshot: TypeAlias = _FetchSnapshotResponseTopicSnapshot
    NodeEndpoint: TypeAlias = _NodeEndpoint

    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    error_code: int = field(int16, "0+")
    topics: list[_FetchSnapshotResponseTopicSnapshot] = field(array(_FetchSnapshotResponseTopicSnapshot), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "1+", tag=0)
