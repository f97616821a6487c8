"""Data that clients and brokers store in control records and in group subscriptions."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Data, Struct, field
from minikafka.wire.types import array, boolean, bytes_, int16, int32, int64, string, uint16, uuid


class _ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = field(string, "0+", map_key=True)
    partitions: list[int] = field(array(int32), "0+")


class ConsumerProtocolAssignment(Data, versions="0-3"):
    """ConsumerProtocolAssignment, versions 0-3."""

    TopicPartition: TypeAlias = _ConsumerProtocolAssignmentTopicPartition

    assigned_partitions: list[_ConsumerProtocolAssignmentTopicPartition] = field(array(_ConsumerProtocolAssignmentTopicPartition), "0+")
    user_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)


class _ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = field(string, "1+", map_key=True)
    partitions: list[int] = field(array(int32), "1+")


class ConsumerProtocolSubscription(Data, versions="0-3"):
    """ConsumerProtocolSubscription, versions 0-3."""

    TopicPartition: TypeAlias = _ConsumerProtocolSubscriptionTopicPartition

    topics: list[str] = field(array(string), "0+")
    user_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    owned_partitions: list[_ConsumerProtocolSubscriptionTopicPartition] = field(
        array(_ConsumerProtocolSubscriptionTopicPartition), "1+", ignorable=True
    )
    generation_id: int = field(int32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(string, "3+", nullable="3+", default=None, ignorable=True)


class ControlRecordTypeSchema(Data, versions="0"):
    """ControlRecordTypeSchema, versions 0."""

    type: int = field(int16, "0+")


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    """DefaultPrincipalData, versions 0."""

    type: str = field(string, "0+")
    name: str = field(string, "0+")
    token_authenticated: bool = field(boolean, "0+")


class EndTxnMarker(Data, versions="0"):
    """EndTxnMarker, versions 0."""

    coordinator_epoch: int = field(int32, "0+")


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    """KRaftVersionRecord, versions 0."""

    version: int = field(int16, "0+")
    k_raft_version: int = field(int16, "0+")


class _LeaderChangeMessageVoter(Struct):
    voter_id: int = field(int32, "0+")
    voter_directory_id: bytes = field(uuid, "1+")


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    """LeaderChangeMessage, versions 0-1."""

    Voter: TypeAlias = _LeaderChangeMessageVoter

    version: int = field(int16, "0+")
    leader_id: int = field(int32, "0+")
    voters: list[_LeaderChangeMessageVoter] = field(array(_LeaderChangeMessageVoter), "0+")
    granting_voters: list[_LeaderChangeMessageVoter] = field(array(_LeaderChangeMessageVoter), "0+")


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    """SnapshotFooterRecord, versions 0."""

    version: int = field(int16, "0+")


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    """SnapshotHeaderRecord, versions 0."""

    version: int = field(int16, "0+")
    last_contained_log_timestamp: int = field(int64, "0+")


class _Endpoint(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class _KRaftVersionFeature(Struct):
    min_supported_version: int = field(int16, "0+")
    max_supported_version: int = field(int16, "0+")


class _VotersRecordVoter(Struct):
    voter_id: int = field(int32, "0+")
    voter_directory_id: bytes = field(uuid, "0+")
    endpoints: list[_Endpoint] = field(array(_Endpoint), "0+")
    k_raft_version_feature: _KRaftVersionFeature = field(_KRaftVersionFeature, "0+")


class VotersRecord(Data, versions="0", flexible="0+"):
    """VotersRecord, versions 0."""

    Endpoint: TypeAlias = _Endpoint
    KRaftVersionFeature: TypeAlias = _KRaftVersionFeature
    Voter: TypeAlias = _VotersRecordVoter

    version: int = field(int16, "0+")
    voters: list[_VotersRecordVoter] = field(array(_VotersRecordVoter), "0+")
