"""StreamsGroupHeartbeat (API key 88)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, int64, string, uint16


class _KeyValue(Struct):
    key: str = field(string, "0+")
    value: str = field(string, "0+")


class _TopicInfo(Struct):
    name: str = field(string, "0+")
    partitions: int = field(int32, "0+")
    replication_factor: int = field(int16, "0+")
    topic_configs: list[_KeyValue] = field(array(_KeyValue), "0+")


class _CopartitionGroup(Struct):
    source_topics: list[int] = field(array(int16), "0+")
    source_topic_regex: list[int] = field(array(int16), "0+")
    repartition_source_topics: list[int] = field(array(int16), "0+")


class _Subtopology(Struct):
    subtopology_id: str = field(string, "0+")
    source_topics: list[str] = field(array(string), "0+")
    source_topic_regex: list[str] = field(array(string), "0+")
    state_changelog_topics: list[_TopicInfo] = field(array(_TopicInfo), "0+")
    repartition_sink_topics: list[str] = field(array(string), "0+")
    repartition_source_topics: list[_TopicInfo] = field(array(_TopicInfo), "0+")
    copartition_groups: list[_CopartitionGroup] = field(array(_CopartitionGroup), "0+")


class _Topology(Struct):
    epoch: int = field(int32, "0+")
    subtopologies: list[_Subtopology] = field(array(_Subtopology), "0+")


class _StreamsGroupHeartbeatRequestTaskIds(Struct):
    subtopology_id: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _StreamsGroupHeartbeatRequestEndpoint(Struct):
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class _TaskOffset(Struct):
    subtopology_id: str = field(string, "0+")
    partition: int = field(int32, "0+")
    offset: int = field(int64, "0+")


class StreamsGroupHeartbeatRequest(Request, api_key=88, versions="0-1", flexible="0+", listeners=("broker",)):
    """StreamsGroupHeartbeatRequest, versions 0 to 1."""

    KeyValue: TypeAlias = _KeyValue
    TopicInfo: TypeAlias = _TopicInfo
    CopartitionGroup: TypeAlias = _CopartitionGroup
    Subtopology: TypeAlias = _Subtopology
    Topology: TypeAlias = _Topology
    TaskIds: TypeAlias = _StreamsGroupHeartbeatRequestTaskIds
    Endpoint: TypeAlias = _StreamsGroupHeartbeatRequestEndpoint
    TaskOffset: TypeAlias = _TaskOffset

    group_id: str = field(string, "0+")
    member_id: str = field(string, "0+")
    member_epoch: int = field(int32, "0+")
    endpoint_information_epoch: int = field(int32, "0+")
    instance_id: str | None = field(string, "0+", nullable="0+", default=None)
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    topology: _Topology | None = field(_Topology, "0+", nullable="0+", default=None)
    active_tasks: list[_StreamsGroupHeartbeatRequestTaskIds] | None = field(
        array(_StreamsGroupHeartbeatRequestTaskIds), "0+", nullable="0+", default=None
    )
    standby_tasks: list[_StreamsGroupHeartbeatRequestTaskIds] | None = field(
        array(_StreamsGroupHeartbeatRequestTaskIds), "0+", nullable="0+", default=None
    )
    warmup_tasks: list[_StreamsGroupHeartbeatRequestTaskIds] | None = field(
        array(_StreamsGroupHeartbeatRequestTaskIds), "0+", nullable="0+", default=None
    )
    process_id: str | None = field(string, "0+", nullable="0+", default=None)
    user_endpoint: _StreamsGroupHeartbeatRequestEndpoint | None = field(
        _StreamsGroupHeartbeatRequestEndpoint, "0+", nullable="0+", default=None
    )
    client_tags: list[_KeyValue] | None = field(array(_KeyValue), "0+", nullable="0+", default=None)
    task_offsets: list[_TaskOffset] | None = field(array(_TaskOffset), "0+", nullable="0+", default=None)
    task_end_offsets: list[_TaskOffset] | None = field(array(_TaskOffset), "0+", nullable="0+", default=None)
    shutdown_application: bool = field(boolean, "0+", default=False)


class _Status(Struct):
    status_code: int = field(int8, "0+")
    status_detail: str = field(string, "0+")


class _StreamsGroupHeartbeatResponseTaskIds(Struct):
    subtopology_id: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _StreamsGroupHeartbeatResponseEndpoint(Struct):
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class _TopicPartition(Struct):
    topic: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _EndpointToPartitions(Struct):
    user_endpoint: _StreamsGroupHeartbeatResponseEndpoint = field(_StreamsGroupHeartbeatResponseEndpoint, "0+")
    active_partitions: list[_TopicPartition] = field(array(_TopicPartition), "0+")
    standby_partitions: list[_TopicPartition] = field(array(_TopicPartition), "0+")


class StreamsGroupHeartbeatResponse(Response, api_key=88, versions="0-1", flexible="0+"):
    """StreamsGroupHeartbeatResponse, versions 0 to 1."""

    Status: TypeAlias = _Status
    TaskIds: TypeAlias = _StreamsGroupHeartbeatResponseTaskIds
    Endpoint: TypeAlias = _StreamsGroupHeartbeatResponseEndpoint
    TopicPartition: TypeAlias = _TopicPartition
    EndpointToPartitions: TypeAlias = _EndpointToPartitions

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str = field(string, "0+")
    member_epoch: int = field(int32, "0+")
    heartbeat_interval_ms: int = field(int32, "0+")
    acceptable_recovery_lag_legacy: int = field(int32, "0")
    task_offset_interval_ms: int = field(int32, "0+")
    acceptable_recovery_lag: int = field(int64, "1+", default=-1, ignorable=True)
    status: list[_Status] | None = field(array(_Status), "0+", nullable="0+")
    active_tasks: list[_StreamsGroupHeartbeatResponseTaskIds] | None = field(
        array(_StreamsGroupHeartbeatResponseTaskIds), "0+", nullable="0+", default=None
    )
    standby_tasks: list[_StreamsGroupHeartbeatResponseTaskIds] | None = field(
        array(_StreamsGroupHeartbeatResponseTaskIds), "0+", nullable="0+", default=None
    )
    warmup_tasks: list[_StreamsGroupHeartbeatResponseTaskIds] | None = field(
        array(_StreamsGroupHeartbeatResponseTaskIds), "0+", nullable="0+", default=None
    )
    topology_description_required: bool = field(boolean, "1+", default=False)
    endpoint_information_epoch: int = field(int32, "0+")
    partitions_by_user_endpoint: list[_EndpointToPartitions] | None = field(array(_EndpointToPartitions), "0+", nullable="0+", default=None)
