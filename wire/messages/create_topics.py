"""CreateTopics (API key 19)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, string, uuid


class _CreatableReplicaAssignment(Struct):
    partition_index: int = field(int32, "0+", map_key=True)
    broker_ids: list[int] = field(array(int32), "0+")


class _CreatableTopicConfig(Struct):
    name: str = field(string, "0+", map_key=True)
    value: str | None = field(string, "0+", nullable="0+")


class _CreatableTopic(Struct):
    name: str = field(string, "0+", map_key=True)
    num_partitions: int = field(int32, "0+")
    replication_factor: int = field(int16, "0+")
    assignments: list[_CreatableReplicaAssignment] = field(array(_CreatableReplicaAssignment), "0+")
    configs: list[_CreatableTopicConfig] = field(array(_CreatableTopicConfig), "0+")


class CreateTopicsRequest(Request, api_key=19, versions="2-7", flexible="5+", listeners=("broker", "controller")):
    """CreateTopicsRequest, versions 2-7."""

    CreatableReplicaAssignment: TypeAlias = _CreatableReplicaAssignment
    CreatableTopicConfig: TypeAlias = _CreatableTopicConfig
    CreatableTopic: TypeAlias = _CreatableTopic

    topics: list[_CreatableTopic] = field(array(_CreatableTopic), "0+")
    timeout_ms: int = field(int32, "0+", default=60000)
    validate_only: bool = field(boolean, "1+", default=False)


class _CreatableTopicConfigs(Struct):
    name: str = field(string, "5+")
    value: str | None = field(string, "5+", nullable="5+")
    read_only: bool = field(boolean, "5+")
    config_source: int = field(int8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(boolean, "5+")


class _CreatableTopicResult(Struct):
    name: str = field(string, "0+", map_key=True)
    topic_id: bytes = field(uuid, "7+", ignorable=True)
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = field(int16, "5+", tag=0, ignorable=True)
    num_partitions: int = field(int32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(int16, "5+", default=-1, ignorable=True)
    configs: list[_CreatableTopicConfigs] | None = field(array(_CreatableTopicConfigs), "5+", nullable="5+", ignorable=True)


class CreateTopicsResponse(Response, api_key=19, versions="2-7", flexible="5+"):
    """CreateTopicsResponse, versions 2-7."""

    CreatableTopicConfigs: TypeAlias = _CreatableTopicConfigs
    CreatableTopicResult: TypeAlias = _CreatableTopicResult

    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    topics: list[_CreatableTopicResult] = field(array(_CreatableTopicResult), "0+")
