"""Records of the metadata log `__cluster_metadata`."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Record, Struct, field
from minikafka.wire.types import array, boolean, bytes_, float64, int8, int16, int32, int64, string, uint16, uuid


class AbortTransactionRecord(Record, record_type=25, versions="0", flexible="0+"):
    """AbortTransactionRecord, versions 0."""

    reason: str | None = field(string, "0+", nullable="0+", default=None, tag=0)


class AccessControlEntryRecord(Record, record_type=18, versions="0", flexible="0+"):
    """AccessControlEntryRecord, versions 0."""

    id: bytes = field(uuid, "0+")
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    pattern_type: int = field(int8, "0+")
    principal: str = field(string, "0+")
    host: str = field(string, "0+")
    operation: int = field(int8, "0+")
    permission_type: int = field(int8, "0+")


class BeginTransactionRecord(Record, record_type=23, versions="0", flexible="0+"):
    """BeginTransactionRecord, versions 0."""

    name: str | None = field(string, "0+", nullable="0+", default=None, tag=0)


class BrokerRegistrationChangeRecord(Record, record_type=17, versions="0-3", flexible="0+"):
    """BrokerRegistrationChangeRecord, versions 0-3."""

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+")
    fenced: int = field(int8, "0+", tag=0)
    in_controlled_shutdown: int = field(int8, "1+", tag=1)
    log_dirs: list[bytes] = field(array(uuid), "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = field(array(uuid), "3+", nullable="3+", default=None, tag=3)


class ClearElrRecord(Record, record_type=28, versions="0", flexible="0+"):
    """ClearElrRecord, versions 0."""

    topic_name: str = field(string, "0+")


class _EntityData(Struct):
    entity_type: str = field(string, "0+")
    entity_name: str | None = field(string, "0+", nullable="0+")


class ClientQuotaRecord(Record, record_type=14, versions="0", flexible="0+"):
    """ClientQuotaRecord, versions 0."""

    EntityData: TypeAlias = _EntityData

    entity: list[_EntityData] = field(array(_EntityData), "0+")
    key: str = field(string, "0+")
    value: float = field(float64, "0+")
    remove: bool = field(boolean, "0+")


class ConfigRecord(Record, record_type=4, versions="0", flexible="0+"):
    """ConfigRecord, versions 0."""

    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    name: str = field(string, "0+")
    value: str | None = field(string, "0+", nullable="0+")


class DelegationTokenRecord(Record, record_type=10, versions="0", flexible="0+"):
    """DelegationTokenRecord, versions 0."""

    owner: str = field(string, "0+")
    requester: str = field(string, "0+")
    renewers: list[str] = field(array(string), "0+")
    issue_timestamp: int = field(int64, "0+")
    max_timestamp: int = field(int64, "0+")
    expiration_timestamp: int = field(int64, "0+")
    token_id: str = field(string, "0+")


class EndTransactionRecord(Record, record_type=24, versions="0", flexible="0+"):
    """EndTransactionRecord, versions 0."""


class FeatureLevelRecord(Record, record_type=12, versions="0", flexible="0+"):
    """FeatureLevelRecord, versions 0."""

    name: str = field(string, "0+")
    feature_level: int = field(int16, "0+")


class FenceBrokerRecord(Record, record_type=7, versions="0", flexible="0+"):
    """FenceBrokerRecord, versions 0."""

    id: int = field(int32, "0+")
    epoch: int = field(int64, "0+")


class NoOpRecord(Record, record_type=20, versions="0", flexible="0+"):
    """NoOpRecord, versions 0."""


class PartitionChangeRecord(Record, record_type=5, versions="0-2", flexible="0+"):
    """PartitionChangeRecord, versions 0-2."""

    partition_id: int = field(int32, "0+", default=-1)
    topic_id: bytes = field(uuid, "0+")
    isr: list[int] | None = field(array(int32), "0+", nullable="0+", default=None, tag=0)
    leader: int = field(int32, "0+", default=-2, tag=1)
    replicas: list[int] | None = field(array(int32), "0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = field(array(int32), "0+", nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = field(array(int32), "0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = field(int8, "0+", default=-1, tag=5)
    directories: list[bytes] | None = field(array(uuid), "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = field(array(int32), "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = field(array(int32), "2+", nullable="2+", default=None, tag=7)


class PartitionRecord(Record, record_type=3, versions="0-2", flexible="0+"):
    """PartitionRecord, versions 0-2."""

    partition_id: int = field(int32, "0+", default=-1)
    topic_id: bytes = field(uuid, "0+")
    replicas: list[int] = field(array(int32), "0+")
    isr: list[int] = field(array(int32), "0+")
    removing_replicas: list[int] = field(array(int32), "0+")
    adding_replicas: list[int] = field(array(int32), "0+")
    leader: int = field(int32, "0+", default=-1)
    leader_recovery_state: int = field(int8, "0+", tag=0)
    leader_epoch: int = field(int32, "0+", default=-1)
    partition_epoch: int = field(int32, "0+", default=-1)
    directories: list[bytes] = field(array(uuid), "1+")
    eligible_leader_replicas: list[int] | None = field(array(int32), "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = field(array(int32), "2+", nullable="2+", default=None, tag=2)


class ProducerIdsRecord(Record, record_type=15, versions="0", flexible="0+"):
    """ProducerIdsRecord, versions 0."""

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+", default=-1)
    next_producer_id: int = field(int64, "0+")


class _BrokerEndpoint(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")
    security_protocol: int = field(int16, "0+")


class _BrokerFeature(Struct):
    name: str = field(string, "0+", map_key=True)
    min_supported_version: int = field(int16, "0+")
    max_supported_version: int = field(int16, "0+")


class RegisterBrokerRecord(Record, record_type=0, versions="0-4", flexible="0+"):
    """RegisterBrokerRecord, versions 0-4."""

    BrokerEndpoint: TypeAlias = _BrokerEndpoint
    BrokerFeature: TypeAlias = _BrokerFeature

    broker_id: int = field(int32, "0+")
    is_migrating_zk_broker: bool = field(boolean, "2+", default=False)
    incarnation_id: bytes = field(uuid, "0+")
    broker_epoch: int = field(int64, "0+")
    end_points: list[_BrokerEndpoint] = field(array(_BrokerEndpoint), "0+")
    features: list[_BrokerFeature] = field(array(_BrokerFeature), "0+")
    rack: str | None = field(string, "0+", nullable="0+")
    fenced: bool = field(boolean, "0+", default=True)
    in_controlled_shutdown: bool = field(boolean, "1+", default=False)
    log_dirs: list[bytes] = field(array(uuid), "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(uuid), "4+", nullable="4+", default=None, tag=1)


class _ControllerEndpoint(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")
    security_protocol: int = field(int16, "0+")


class _ControllerFeature(Struct):
    name: str = field(string, "0+", map_key=True)
    min_supported_version: int = field(int16, "0+")
    max_supported_version: int = field(int16, "0+")


class RegisterControllerRecord(Record, record_type=27, versions="0", flexible="0+"):
    """RegisterControllerRecord, versions 0."""

    ControllerEndpoint: TypeAlias = _ControllerEndpoint
    ControllerFeature: TypeAlias = _ControllerFeature

    controller_id: int = field(int32, "0+")
    incarnation_id: bytes = field(uuid, "0+")
    zk_migration_ready: bool = field(boolean, "0+")
    end_points: list[_ControllerEndpoint] = field(array(_ControllerEndpoint), "0+")
    features: list[_ControllerFeature] = field(array(_ControllerFeature), "0+")


class RemoveAccessControlEntryRecord(Record, record_type=19, versions="0", flexible="0+"):
    """RemoveAccessControlEntryRecord, versions 0."""

    id: bytes = field(uuid, "0+")


class RemoveDelegationTokenRecord(Record, record_type=26, versions="0", flexible="0+"):
    """RemoveDelegationTokenRecord, versions 0."""

    token_id: str = field(string, "0+")


class RemoveTopicRecord(Record, record_type=9, versions="0", flexible="0+"):
    """RemoveTopicRecord, versions 0."""

    topic_id: bytes = field(uuid, "0+")


class RemoveUserScramCredentialRecord(Record, record_type=22, versions="0", flexible="0+"):
    """RemoveUserScramCredentialRecord, versions 0."""

    name: str = field(string, "0+")
    mechanism: int = field(int8, "0+")


class TopicRecord(Record, record_type=2, versions="0", flexible="0+"):
    """TopicRecord, versions 0."""

    name: str = field(string, "0+")
    topic_id: bytes = field(uuid, "0+")


class UnfenceBrokerRecord(Record, record_type=8, versions="0", flexible="0+"):
    """UnfenceBrokerRecord, versions 0."""

    id: int = field(int32, "0+")
    epoch: int = field(int64, "0+")


class UnregisterBrokerRecord(Record, record_type=1, versions="0", flexible="0+"):
    """UnregisterBrokerRecord, versions 0."""

    broker_id: int = field(int32, "0+")
    broker_epoch: int = field(int64, "0+")


class UnregisterControllerRecord(Record, record_type=29, versions="0", flexible="0+"):
    """UnregisterControllerRecord, versions 0 (KIP-1312)."""

    controller_id: int = field(int32, "0+")


class UserScramCredentialRecord(Record, record_type=11, versions="0", flexible="0+"):
    """UserScramCredentialRecord, versions 0."""

    name: str = field(string, "0+")
    mechanism: int = field(int8, "0+")
    salt: bytes = field(bytes_, "0+")
    stored_key: bytes = field(bytes_, "0+")
    server_key: bytes = field(bytes_, "0+")
    iterations: int = field(int32, "0+")


class ZkMigrationStateRecord(Record, record_type=21, versions="0", flexible="0+"):
    """ZkMigrationStateRecord, versions 0."""

    zk_migration_state: int = field(int8, "0+")
