"""StreamsGroupDescribe (API key 89)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, int64, string, uint16


class StreamsGroupDescribeRequest(Request, api_key=89, versions="0-1", flexible="0+", listeners=("broker",)):
    """StreamsGroupDescribeRequest, versions 0 to 1."""

    group_ids: list[str] = field(array(string), "0+")
    include_authorized_operations: bool = field(boolean, "0+")
    include_topology_description: bool = field(boolean, "1+", default=False)


class _KeyValue(Struct):
    key: str = field(string, "0+")
    value: str = field(string, "0+")


class _TopicInfo(Struct):
    name: str = field(string, "0+")
    partitions: int = field(int32, "0+")
    replication_factor: int = field(int16, "0+")
    topic_configs: list[_KeyValue] = field(array(_KeyValue), "0+")


class _Subtopology(Struct):
    subtopology_id: str = field(string, "0+")
    source_topics: list[str] = field(array(string), "0+")
    repartition_sink_topics: list[str] = field(array(string), "0+")
    state_changelog_topics: list[_TopicInfo] = field(array(_TopicInfo), "0+")
    repartition_source_topics: list[_TopicInfo] = field(array(_TopicInfo), "0+")


class _Topology(Struct):
    epoch: int = field(int32, "0+")
    subtopologies: list[_Subtopology] | None = field(array(_Subtopology), "0+", nullable="0+", default=None)


class _Endpoint(Struct):
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class _TaskOffset(Struct):
    subtopology_id: str = field(string, "0+")
    partition: int = field(int32, "0+")
    offset: int = field(int64, "0+")


class _TaskIds(Struct):
    subtopology_id: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _Assignment(Struct):
    active_tasks: list[_TaskIds] = field(array(_TaskIds), "0+")
    standby_tasks: list[_TaskIds] = field(array(_TaskIds), "0+")
    warmup_tasks: list[_TaskIds] = field(array(_TaskIds), "0+")


class _Member(Struct):
    member_id: str = field(string, "0+")
    member_epoch: int = field(int32, "0+")
    instance_id: str | None = field(string, "0+", nullable="0+", default=None)
    rack_id: str | None = field(string, "0+", nullable="0+", default=None)
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    topology_epoch: int = field(int32, "0+")
    process_id: str = field(string, "0+")
    user_endpoint: _Endpoint | None = field(_Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[_KeyValue] = field(array(_KeyValue), "0+")
    task_offsets: list[_TaskOffset] = field(array(_TaskOffset), "0+")
    task_end_offsets: list[_TaskOffset] = field(array(_TaskOffset), "0+")
    assignment: _Assignment = field(_Assignment, "0+")
    target_assignment: _Assignment = field(_Assignment, "0+")
    is_classic: bool = field(boolean, "0+")


class _TopologyDescriptionNode(Struct):
    name: str = field(string, "1+")
    node_type: int = field(int8, "1+")
    source_topics: list[str] = field(array(string), "1+")
    sink_topic: str | None = field(string, "1+", nullable="1+", default=None)
    stores: list[str] = field(array(string), "1+")
    successors: list[str] = field(array(string), "1+")


class _TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(string, "1+")
    nodes: list[_TopologyDescriptionNode] = field(array(_TopologyDescriptionNode), "1+")


class _TopologyDescriptionGlobalStore(Struct):
    source: _TopologyDescriptionNode = field(_TopologyDescriptionNode, "1+")
    processor: _TopologyDescriptionNode = field(_TopologyDescriptionNode, "1+")


class _TopologyDescription(Struct):
    subtopologies: list[_TopologyDescriptionSubtopology] = field(array(_TopologyDescriptionSubtopology), "1+")
    global_stores: list[_TopologyDescriptionGlobalStore] = field(array(_TopologyDescriptionGlobalStore), "1+")


class _DescribedGroup(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    group_id: str = field(string, "0+")
    group_state: str = field(string, "0+")
    group_epoch: int = field(int32, "0+")
    assignment_epoch: int = field(int32, "0+")
    topology: _Topology | None = field(_Topology, "0+", nullable="0+", default=None)
    members: list[_Member] = field(array(_Member), "0+")
    authorized_operations: int = field(int32, "0+", default=-2147483648)
    topology_description: _TopologyDescription | None = field(_TopologyDescription, "1+", nullable="1+", default=None)
    topology_description_status: int = field(int8, "1+", default=0)
    assignor_name: str | None = field(string, "1+", nullable="1+", default=None, ignorable=True)


class StreamsGroupDescribeResponse(Response, api_key=89, versions="0-1", flexible="0+"):
    """StreamsGroupDescribeResponse, versions 0 to 1."""

    KeyValue: TypeAlias = _KeyValue
    TopicInfo: TypeAlias = _TopicInfo
    Subtopology: TypeAlias = _Subtopology
    Topology: TypeAlias = _Topology
    Endpoint: TypeAlias = _Endpoint
    TaskOffset: TypeAlias = _TaskOffset
    TaskIds: TypeAlias = _TaskIds
    Assignment: TypeAlias = _Assignment
    Member: TypeAlias = _Member
    TopologyDescriptionNode: TypeAlias = _TopologyDescriptionNode
    TopologyDescriptionSubtopology: TypeAlias = _TopologyDescriptionSubtopology
    TopologyDescriptionGlobalStore: TypeAlias = _TopologyDescriptionGlobalStore
    TopologyDescription: TypeAlias = _TopologyDescription
    DescribedGroup: TypeAlias = _DescribedGroup

    throttle_time_ms: int = field(int32, "0+")
    groups: list[_DescribedGroup] = field(array(_DescribedGroup), "0+")
