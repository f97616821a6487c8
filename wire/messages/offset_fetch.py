"""OffsetFetch (API key 9)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, int64, string, uuid


class _OffsetFetchRequestTopic(Struct):
    name: str = field(string, "0-7")
    partition_indexes: list[int] = field(array(int32), "0-7")


class _OffsetFetchRequestTopics(Struct):
    name: str = field(string, "8-9", ignorable=True)
    topic_id: bytes = field(uuid, "10+", ignorable=True)
    partition_indexes: list[int] = field(array(int32), "8+")


class _OffsetFetchRequestGroup(Struct):
    group_id: str = field(string, "8+")
    member_id: str | None = field(string, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = field(int32, "9+", default=-1, ignorable=True)
    topics: list[_OffsetFetchRequestTopics] | None = field(array(_OffsetFetchRequestTopics), "8+", nullable="8+")


class OffsetFetchRequest(Request, api_key=9, versions="1-10", flexible="6+", listeners=("broker",)):
    """OffsetFetchRequest, versions 1-10."""

    OffsetFetchRequestTopic: TypeAlias = _OffsetFetchRequestTopic
    OffsetFetchRequestTopics: TypeAlias = _OffsetFetchRequestTopics
    OffsetFetchRequestGroup: TypeAlias = _OffsetFetchRequestGroup

    group_id: str = field(string, "0-7")
    topics: list[_OffsetFetchRequestTopic] | None = field(array(_OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[_OffsetFetchRequestGroup] = field(array(_OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(boolean, "7+", default=False)


class _OffsetFetchResponsePartition(Struct):
    partition_index: int = field(int32, "0-7")
    committed_offset: int = field(int64, "0-7")
    committed_leader_epoch: int = field(int32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(string, "0-7", nullable="0-7")
    error_code: int = field(int16, "0-7")


class _OffsetFetchResponseTopic(Struct):
    name: str = field(string, "0-7")
    partitions: list[_OffsetFetchResponsePartition] = field(array(_OffsetFetchResponsePartition), "0-7")


class _OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(int32, "8+")
    committed_offset: int = field(int64, "8+")
    committed_leader_epoch: int = field(int32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(string, "8+", nullable="8+")
    error_code: int = field(int16, "8+")


class _OffsetFetchResponseTopics(Struct):
    name: str = field(string, "8-9", ignorable=True)
    topic_id: bytes = field(uuid, "10+", ignorable=True)
    partitions: list[_OffsetFetchResponsePartitions] = field(array(_OffsetFetchResponsePartitions), "8+")


class _OffsetFetchResponseGroup(Struct):
    group_id: str = field(string, "8+")
    topics: list[_OffsetFetchResponseTopics] = field(array(_OffsetFetchResponseTopics), "8+")
    error_code: int = field(int16, "8+")


class OffsetFetchResponse(Response, api_key=9, versions="1-10", flexible="6+"):
    """OffsetFetchResponse, versions 1-10."""

    OffsetFetchResponsePartition: TypeAlias = _OffsetFetchResponsePartition
    OffsetFetchResponseTopic: TypeAlias = _OffsetFetchResponseTopic
    OffsetFetchResponsePartitions: TypeAlias = _OffsetFetchResponsePartitions
    OffsetFetchResponseTopics: TypeAlias = _OffsetFetchResponseTopics
    OffsetFetchResponseGroup: TypeAlias = _OffsetFetchResponseGroup

    throttle_time_ms: int = field(int32, "3+", ignorable=True)
    topics: list[_OffsetFetchResponseTopic] = field(array(_OffsetFetchResponseTopic), "0-7")
    error_code: int = field(int16, "2-7", ignorable=True)
    groups: list[_OffsetFetchResponseGroup] = field(array(_OffsetFetchResponseGroup), "8+")
