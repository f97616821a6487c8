"""ConsumerGroupHeartbeat (API key 68)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uuid


class _ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions="0-1", flexible="0+", listeners=("broker",)):
    """ConsumerGroupHeartbeatRequest, versions 0-1."""

    TopicPartitions: TypeAlias = _ConsumerGroupHeartbeatRequestTopicPartitions

    group_id: str = field(string, "0+")
    member_id: str = field(string, "0+")
    member_epoch: int = field(int32, "0+")
    instance_id: str | None = field(string, "0+", nullable="0+", default=None)
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = field(array(string), "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(string, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(string, "0+", nullable="0+", default=None)
    topic_partitions: list[_ConsumerGroupHeartbeatRequestTopicPartitions] | None = field(
        array(_ConsumerGroupHeartbeatRequestTopicPartitions), "0+", nullable="0+", default=None
    )


class _ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _Assignment(Struct):
    topic_partitions: list[_ConsumerGroupHeartbeatResponseTopicPartitions] = field(
        array(_ConsumerGroupHeartbeatResponseTopicPartitions), "0+"
    )


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    """ConsumerGroupHeartbeatResponse, versions 0-1."""

    TopicPartitions: TypeAlias = _ConsumerGroupHeartbeatResponseTopicPartitions
    Assignment: TypeAlias = _Assignment

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_epoch: int = field(int32, "0+")
    heartbeat_interval_ms: int = field(int32, "0+")
    assignment: _Assignment | None = field(_Assignment, "0+", nullable="0+", default=None)
