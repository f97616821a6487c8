"""ShareAcknowledge (API key 79)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, int64, string, uuid


class _AcknowledgementBatch(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    acknowledge_types: list[int] = field(array(int8), "0+")


class _AcknowledgePartition(Struct):
    partition_index: int = field(int32, "0+", map_key=True)
    acknowledgement_batches: list[_AcknowledgementBatch] = field(array(_AcknowledgementBatch), "0+")


class _AcknowledgeTopic(Struct):
    topic_id: bytes = field(uuid, "0+", map_key=True)
    partitions: list[_AcknowledgePartition] = field(array(_AcknowledgePartition), "0+")


class ShareAcknowledgeRequest(Request, api_key=79, versions="1-2", flexible="0+", listeners=("broker",)):
    """ShareAcknowledgeRequest, versions 1-2."""

    AcknowledgementBatch: TypeAlias = _AcknowledgementBatch
    AcknowledgePartition: TypeAlias = _AcknowledgePartition
    AcknowledgeTopic: TypeAlias = _AcknowledgeTopic

    group_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+")
    share_session_epoch: int = field(int32, "0+")
    is_renew_ack: bool = field(boolean, "2+", default=False)
    topics: list[_AcknowledgeTopic] = field(array(_AcknowledgeTopic), "0+")


class _LeaderIdAndEpoch(Struct):
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _PartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    current_leader: _LeaderIdAndEpoch = field(_LeaderIdAndEpoch, "0+")


class _ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field(uuid, "0+", map_key=True)
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(int32, "0+")
    rack: str | None = field(string, "0+", nullable="0+", default=None)


class ShareAcknowledgeResponse(Response, api_key=79, versions="1-2", flexible="0+"):
    """ShareAcknowledgeResponse, versions 1-2."""

    LeaderIdAndEpoch: TypeAlias = _LeaderIdAndEpoch
    PartitionData: TypeAlias = _PartitionData
    ShareAcknowledgeTopicResponse: TypeAlias = _ShareAcknowledgeTopicResponse
    NodeEndpoint: TypeAlias = _NodeEndpoint

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(int32, "2+", ignorable=True)
    responses: list[_ShareAcknowledgeTopicResponse] = field(array(_ShareAcknowledgeTopicResponse), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "0+")
