"""ShareGroupDescribe (API key 77)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string, uuid


class ShareGroupDescribeRequest(Request, api_key=77, versions="1", flexible="0+", listeners=("broker",)):
    """ShareGroupDescribeRequest, versions 1."""

    group_ids: list[str] = field(array(string), "0+")
    include_authorized_operations: bool = field(boolean, "0+")


class _TopicPartitions(Struct):
    topic_id: bytes = field(uuid, "0+")
    topic_name: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _Assignment(Struct):
    topic_partitions: list[_TopicPartitions] = field(array(_TopicPartitions), "0+")


class _Member(Struct):
    member_id: str = field(string, "0+")
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_epoch: int = field(int32, "0+")
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    subscribed_topic_names: list[str] = field(array(string), "0+")
    assignment: _Assignment = field(_Assignment, "0+")


class _DescribedGroup(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    group_id: str = field(string, "0+")
    group_state: str = field(string, "0+")
    group_epoch: int = field(int32, "0+")
    assignment_epoch: int = field(int32, "0+")
    assignor_name: str = field(string, "0+")
    members: list[_Member] = field(array(_Member), "0+")
    authorized_operations: int = field(int32, "0+", default=-2147483648)


class ShareGroupDescribeResponse(Response, api_key=77, versions="1", flexible="0+"):
    """ShareGroupDescribeResponse, versions 1."""

    TopicPartitions: TypeAlias = _TopicPartitions
    Assignment: TypeAlias = _Assignment
    Member: TypeAlias = _Member
    DescribedGroup: TypeAlias = _DescribedGroup

    throttle_time_ms: int = field(int32, "0+")
    groups: list[_DescribedGroup] = field(array(_DescribedGroup), "0+")
