"""OffsetForLeaderEpoch (API key 23)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, int64, string


class _OffsetForLeaderPartition(Struct):
    partition: int = field(int32, "0+")
    current_leader_epoch: int = field(int32, "2+", default=-1, ignorable=True)
    leader_epoch: int = field(int32, "0+")


class _OffsetForLeaderTopic(Struct):
    topic: str = field(string, "0+", map_key=True)
    partitions: list[_OffsetForLeaderPartition] = field(array(_OffsetForLeaderPartition), "0+")


class OffsetForLeaderEpochRequest(Request, api_key=23, versions="2-4", flexible="4+", listeners=("broker",)):
    """OffsetForLeaderEpochRequest, versions 2-4."""

    OffsetForLeaderPartition: TypeAlias = _OffsetForLeaderPartition
    OffsetForLeaderTopic: TypeAlias = _OffsetForLeaderTopic

    replica_id: int = field(int32, "3+", default=-2, ignorable=True)
    topics: list[_OffsetForLeaderTopic] = field(array(_OffsetForLeaderTopic), "0+")


class _EpochEndOffset(Struct):
    error_code: int = field(int16, "0+")
    partition: int = field(int32, "0+")
    leader_epoch: int = field(int32, "1+", default=-1, ignorable=True)
    end_offset: int = field(int64, "0+", default=-1)


class _OffsetForLeaderTopicResult(Struct):
    topic: str = field(string, "0+", map_key=True)
    partitions: list[_EpochEndOffset] = field(array(_EpochEndOffset), "0+")


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="2-4", flexible="4+"):
    """OffsetForLeaderEpochResponse, versions 2-4."""

    EpochEndOffset: TypeAlias = _EpochEndOffset
    OffsetForLeaderTopicResult: TypeAlias = _OffsetForLeaderTopicResult

    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    topics: list[_OffsetForLeaderTopicResult] = field(array(_OffsetForLeaderTopicResult), "0+")
