"""Metadata (API key 3)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string, uuid


class _MetadataRequestTopic(Struct):
    topic_id: bytes = field(uuid, "10+", ignorable=True)
    name: str | None = field(string, "0+", nullable="10+")


class MetadataRequest(Request, api_key=3, versions="0-13", flexible="9+", listeners=("broker",)):
    """MetadataRequest, versions 0-13."""

    MetadataRequestTopic: TypeAlias = _MetadataRequestTopic

    topics: list[_MetadataRequestTopic] | None = field(array(_MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = field(boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = field(boolean, "8-10")
    include_topic_authorized_operations: bool = field(boolean, "8+")


class _MetadataResponseBroker(Struct):
    node_id: int = field(int32, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(int32, "0+")
    rack: str | None = field(string, "1+", nullable="1+", default=None, ignorable=True)


class _MetadataResponsePartition(Struct):
    error_code: int = field(int16, "0+")
    partition_index: int = field(int32, "0+")
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(int32), "0+")
    isr_nodes: list[int] = field(array(int32), "0+")
    offline_replicas: list[int] = field(array(int32), "5+", ignorable=True)


class _MetadataResponseTopic(Struct):
    error_code: int = field(int16, "0+")
    name: str | None = field(string, "0+", nullable="12+", map_key=True)
    topic_id: bytes = field(uuid, "10+", ignorable=True)
    is_internal: bool = field(boolean, "1+", default=False, ignorable=True)
    partitions: list[_MetadataResponsePartition] = field(array(_MetadataResponsePartition), "0+")
    topic_authorized_operations: int = field(int32, "8+", default=-2147483648)


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    """MetadataResponse, versions 0-13."""

    MetadataResponseBroker: TypeAlias = _MetadataResponseBroker
    MetadataResponsePartition: TypeAlias = _MetadataResponsePartition
    MetadataResponseTopic: TypeAlias = _MetadataResponseTopic

    throttle_time_ms: int = field(int32, "3+", ignorable=True)
    brokers: list[_MetadataResponseBroker] = field(array(_MetadataResponseBroker), "0+")
    cluster_id: str | None = field(string, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(int32, "1+", default=-1, ignorable=True)
    topics: list[_MetadataResponseTopic] = field(array(_MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = field(int32, "8-10", default=-2147483648)
    error_code: int = field(int16, "13+", ignorable=True)
