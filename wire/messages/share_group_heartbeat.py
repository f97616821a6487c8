"""ShareGroupHeartbeat (API key 76)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uuid


class ShareGroupHeartbeatRequest(Request, api_key=76, versions="1", flexible="0+", listeners=("broker",)):
    """ShareGroupHeartbeatRequest, versions 1."""

    group_id: str = field(string, "0+")
    member_id: str = field(string, "0+")
    member_epoch: int = field(int32, "0+")
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(array(string), "0+", nullable="0+", default=None)


class _TopicPartitions(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _Assignment(Struct):
    topic_partitions: list[_TopicPartitions] = field(array(_TopicPartitions), "0+")


class ShareGroupHeartbeatResponse(Response, api_key=76, versions="1", flexible="0+"):
    """ShareGroupHeartbeatResponse, versions 1."""

    TopicPartitions: TypeAlias = _TopicPartitions
    Assignment: TypeAlias = _Assignment

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_epoch: int = field(int32, "0+")
    heartbeat_interval_ms: int = field(int32, "0+")
    assignment: _Assignment | None = field(_Assignment, "0+", nullable="0+", default=None)
