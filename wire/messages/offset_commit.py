"""OffsetCommit (API key 8)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uuid


class _OffsetCommitRequestPartition(Struct):
    partition_index: int = field(int32, "0+")
    committed_offset: int = field(int64, "0+")
    committed_leader_epoch: int = field(int32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = field(string, "0+", nullable="0+")


class _OffsetCommitRequestTopic(Struct):
    name: str = field(string, "0-9", ignorable=True)
    topic_id: bytes = field(uuid, "10+", ignorable=True)
    partitions: list[_OffsetCommitRequestPartition] = field(array(_OffsetCommitRequestPartition), "0+")


class OffsetCommitRequest(Request, api_key=8, versions="2-10", flexible="8+", listeners=("broker",)):
    """OffsetCommitRequest, versions 2-10."""

    OffsetCommitRequestPartition: TypeAlias = _OffsetCommitRequestPartition
    OffsetCommitRequestTopic: TypeAlias = _OffsetCommitRequestTopic

    group_id: str = field(string, "0+")
    generation_id_or_member_epoch: int = field(int32, "1+", default=-1, ignorable=True)
    member_id: str = field(string, "1+", ignorable=True)
    group_instance_id: str | None = field(string, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(int64, "2-4", default=-1, ignorable=True)
    topics: list[_OffsetCommitRequestTopic] = field(array(_OffsetCommitRequestTopic), "0+")


class _OffsetCommitResponsePartition(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")


class _OffsetCommitResponseTopic(Struct):
    name: str = field(string, "0-9", ignorable=True)
    topic_id: bytes = field(uuid, "10+", ignorable=True)
    partitions: list[_OffsetCommitResponsePartition] = field(array(_OffsetCommitResponsePartition), "0+")


class OffsetCommitResponse(Response, api_key=8, versions="2-10", flexible="8+"):
    """OffsetCommitResponse, versions 2-10."""

    OffsetCommitResponsePartition: TypeAlias = _OffsetCommitResponsePartition
    OffsetCommitResponseTopic: TypeAlias = _OffsetCommitResponseTopic

    throttle_time_ms: int = field(int32, "3+", ignorable=True)
    topics: list[_OffsetCommitResponseTopic] = field(array(_OffsetCommitResponseTopic), "0+")
