"""StreamsGroupTopologyDescriptionUpdate (API key 93)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class _TopologyDescriptionNode(Struct):
    name: str = field(string, "0+")
    node_type: int = field(int8, "0+")
    source_topics: list[str] = field(array(string), "0+")
    sink_topic: str | None = field(string, "0+", nullable="0+", default=None)
    stores: list[str] = field(array(string), "0+")
    successors: list[str] = field(array(string), "0+")


class _TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(string, "0+")
    nodes: list[_TopologyDescriptionNode] = field(array(_TopologyDescriptionNode), "0+")


class _TopologyDescriptionGlobalStore(Struct):
    source: _TopologyDescriptionNode = field(_TopologyDescriptionNode, "0+")
    processor: _TopologyDescriptionNode = field(_TopologyDescriptionNode, "0+")


class _TopologyDescription(Struct):
    subtopologies: list[_TopologyDescriptionSubtopology] = field(array(_TopologyDescriptionSubtopology), "0+")
    global_stores: list[_TopologyDescriptionGlobalStore] = field(array(_TopologyDescriptionGlobalStore), "0+")


class StreamsGroupTopologyDescriptionUpdateRequest(Request, api_key=93, versions="0", flexible="0+", listeners=("broker",)):
    """StreamsGroupTopologyDescriptionUpdateRequest, versions 0."""

    TopologyDescriptionNode: TypeAlias = _TopologyDescriptionNode
    TopologyDescriptionSubtopology: TypeAlias = _TopologyDescriptionSubtopology
    TopologyDescriptionGlobalStore: TypeAlias = _TopologyDescriptionGlobalStore
    TopologyDescription: TypeAlias = _TopologyDescription

    group_id: str = field(string, "0+")
    member_id: str = field(string, "0+")
    topology_epoch: int = field(int32, "0+")
    topology_description: _TopologyDescription = field(_TopologyDescription, "0+")


class StreamsGroupTopologyDescriptionUpdateResponse(Response, api_key=93, versions="0", flexible="0+"):
    """StreamsGroupTopologyDescriptionUpdateResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
