"""TxnOffsetCommit (API key 28)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string, uuid


class _TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(int32, "0+")
    committed_offset: int = field(int64, "0+")
    committed_leader_epoch: int = field(int32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(string, "0+", nullable="0+")


class _TxnOffsetCommitRequestTopic(Struct):
    name: str = field(string, "0-5", ignorable=True)
    topic_id: bytes = field(uuid, "6+", ignorable=True)
    partitions: list[_TxnOffsetCommitRequestPartition] = field(array(_TxnOffsetCommitRequestPartition), "0+")


class TxnOffsetCommitRequest(Request, api_key=28, versions="0-6", flexible="3+", listeners=("broker",)):
    """TxnOffsetCommitRequest, versions 0-6."""

    TxnOffsetCommitRequestPartition: TypeAlias = _TxnOffsetCommitRequestPartition
    TxnOffsetCommitRequestTopic: TypeAlias = _TxnOffsetCommitRequestTopic

    transactional_id: str = field(string, "0+")
    group_id: str = field(string, "0+")
    producer_id: int = field(int64, "0+")
    producer_epoch: int = field(int16, "0+")
    generation_id_or_member_epoch: int = field(int32, "3+", default=-1)
    member_id: str = field(string, "3+", default="")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    topics: list[_TxnOffsetCommitRequestTopic] = field(array(_TxnOffsetCommitRequestTopic), "0+")


class _TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")


class _TxnOffsetCommitResponseTopic(Struct):
    name: str = field(string, "0-5", ignorable=True)
    topic_id: bytes = field(uuid, "6+", ignorable=True)
    partitions: list[_TxnOffsetCommitResponsePartition] = field(array(_TxnOffsetCommitResponsePartition), "0+")


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-6", flexible="3+"):
    """TxnOffsetCommitResponse, versions 0-6."""

    TxnOffsetCommitResponsePartition: TypeAlias = _TxnOffsetCommitResponsePartition
    TxnOffsetCommitResponseTopic: TypeAlias = _TxnOffsetCommitResponseTopic

    throttle_time_ms: int = field(int32, "0+")
    topics: list[_TxnOffsetCommitResponseTopic] = field(array(_TxnOffsetCommitResponseTopic), "0+")
