"""ShareFetch (API key 78)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import RecordsValue, Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, int64, record_set, string, uuid


class _AcknowledgementBatch(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    acknowledge_types: list[int] = field(array(int8), "0+")


class _FetchPartition(Struct):
    partition_index: int = field(int32, "0+", map_key=True)
    partition_max_bytes: int = field(int32, "0")
    acknowledgement_batches: list[_AcknowledgementBatch] = field(array(_AcknowledgementBatch), "0+")


class _FetchTopic(Struct):
    topic_id: bytes = field(uuid, "0+", map_key=True)
    partitions: list[_FetchPartition] = field(array(_FetchPartition), "0+")


class _ForgottenTopic(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class ShareFetchRequest(Request, api_key=78, versions="1-2", flexible="0+", listeners=("broker",)):
    """ShareFetchRequest, versions 1-2."""

    AcknowledgementBatch: TypeAlias = _AcknowledgementBatch
    FetchPartition: TypeAlias = _FetchPartition
    FetchTopic: TypeAlias = _FetchTopic
    ForgottenTopic: TypeAlias = _ForgottenTopic

    group_id: str | None = field(string, "0+", nullable="0+", default=None)
    member_id: str | None = field(string, "0+", nullable="0+")
    share_session_epoch: int = field(int32, "0+")
    max_wait_ms: int = field(int32, "0+")
    min_bytes: int = field(int32, "0+")
    max_bytes: int = field(int32, "0+", default=2147483647)
    max_records: int = field(int32, "1+")
    batch_size: int = field(int32, "1+")
    share_acquire_mode: int = field(int8, "2+", ignorable=True)
    is_renew_ack: bool = field(boolean, "2+", default=False)
    topics: list[_FetchTopic] = field(array(_FetchTopic), "0+")
    forgotten_topics_data: list[_ForgottenTopic] = field(array(_ForgottenTopic), "0+")


class _LeaderIdAndEpoch(Struct):
    leader_id: int = field(int32, "0+")
    leader_epoch: int = field(int32, "0+")


class _AcquiredRecords(Struct):
    first_offset: int = field(int64, "0+")
    last_offset: int = field(int64, "0+")
    delivery_count: int = field(int16, "0+")


class _PartitionData(Struct):
    partition_index: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    acknowledge_error_code: int = field(int16, "0+")
    acknowledge_error_message: str | None = field(string, "0+", nullable="0+", default=None)
    current_leader: _LeaderIdAndEpoch = field(_LeaderIdAndEpoch, "0+")
    records: RecordsValue | None = field(record_set, "0+", nullable="0", default=None)
    acquired_records: list[_AcquiredRecords] = field(array(_AcquiredRecords), "0+")


class _ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(uuid, "0+", map_key=True)
    partitions: list[_PartitionData] = field(array(_PartitionData), "0+")


class _NodeEndpoint(Struct):
    node_id: int = field(int32, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(int32, "0+")
    rack: str | None = field(string, "0+", nullable="0+", default=None)


class ShareFetchResponse(Response, api_key=78, versions="1-2", flexible="0+"):
    """ShareFetchResponse, versions 1-2."""

    LeaderIdAndEpoch: TypeAlias = _LeaderIdAndEpoch
    AcquiredRecords: TypeAlias = _AcquiredRecords
    PartitionData: TypeAlias = _PartitionData
    ShareFetchableTopicResponse: TypeAlias = _ShareFetchableTopicResponse
    NodeEndpoint: TypeAlias = _NodeEndpoint

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(int32, "1+")
    responses: list[_ShareFetchableTopicResponse] = field(array(_ShareFetchableTopicResponse), "0+")
    node_endpoints: list[_NodeEndpoint] = field(array(_NodeEndpoint), "0+")
