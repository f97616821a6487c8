"""The state of the cluster at one offset of the metadata log. An image never changes after it has been published.

`MetadataDelta` builds the next image from this one by copying only what its records touch (copy on write), so an
image may be kept for as long as it is useful, and comparing two partitions is comparing two references.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from minikafka.core.authorizer.index import AclIndex, number_of_id
from minikafka.core.java_hash import names_in_table_order
from minikafka.core.metadata.versions import DIRECTORIES, NEWEST
from minikafka.core.sharded_map import ShardedMap
from minikafka.wire.records.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

NO_LEADER = -1
NO_LEADER_CHANGE = -2

RECOVERED = 0
RECOVERING = 1

#: Reserved directory ids (KIP-858): not assigned yet, lost, and migrating from a broker without directory ids.
DIRECTORY_UNASSIGNED = bytes(16)
DIRECTORY_LOST = bytes(15) + b"\x01"
DIRECTORY_MIGRATING = bytes(15) + b"\x02"
#: Ids below 100 are reserved (DirectoryId.reserved).
DIRECTORY_RESERVED_MAX = 100

#: ConfigResource types of ConfigRecord.
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

Resource = tuple[int, str]
QuotaEntity = tuple[tuple[str, str | None], ...]
Endpoint = tuple[str, int, int]


def is_reserved_directory(directory: bytes) -> bool:
    """Whether the id is one of the first hundred, which never name a real directory (KIP-858)."""
    return directory[:15] == bytes(15) and directory[15] < DIRECTORY_RESERVED_MAX


class PartitionRegistration:
    """One partition in the metadata. Immutable. Broker ids are in tuples; `directories` has one 16-byte directory id per replica."""

    __slots__ = (
        "adding_replicas",
        "directories",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "removing_replicas",
        "replicas",
    )

    def __init__(
        self,
        replicas: Iterable[int],
        isr: Iterable[int],
        leader: int,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        *,
        directories: Iterable[bytes] | None = None,
        elr: Iterable[int] = (),
        last_known_elr: Iterable[int] = (),
        adding_replicas: Iterable[int] = (),
        removing_replicas: Iterable[int] = (),
        leader_recovery_state: int = RECOVERED,
    ) -> None:
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.directories = tuple(directories) if directories is not None else (DIRECTORY_UNASSIGNED,) * len(self.replicas)
        self.elr = tuple(elr)
        self.last_known_elr = tuple(last_known_elr)
        self.adding_replicas = tuple(adding_replicas)
        self.removing_replicas = tuple(removing_replicas)
        self.leader_recovery_state = leader_recovery_state

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        """The state in a PartitionRecord. Records before version 1 have no directories."""
        directories = record.directories
        if len(directories) != len(record.replicas):
            directories = [DIRECTORY_MIGRATING] * len(record.replicas)
        return cls(
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            directories=directories,
            elr=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            leader_recovery_state=record.leader_recovery_state,
        )

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """The partition after `change`. A leader in the record, even the same one, bumps the leader epoch; any change the partition
        epoch."""
        replicas = self.replicas if change.replicas is None else change.replicas
        directories: Iterable[bytes] = self.directories
        if change.directories is not None:
            directories = change.directories
        elif change.replicas is not None:
            directory_of = dict(zip(self.replicas, self.directories, strict=True))
            directories = [directory_of.get(replica, DIRECTORY_UNASSIGNED) for replica in change.replicas]
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        state = self.leader_recovery_state if change.leader_recovery_state == -1 else change.leader_recovery_state
        return PartitionRegistration(
            replicas,
            self.isr if change.isr is None else change.isr,
            leader,
            leader_epoch,
            self.partition_epoch + 1,
            directories=directories,
            elr=self.elr if change.eligible_leader_replicas is None else change.eligible_leader_replicas,
            last_known_elr=self.last_known_elr if change.last_known_elr is None else change.last_known_elr,
            adding_replicas=self.adding_replicas if change.adding_replicas is None else change.adding_replicas,
            removing_replicas=self.removing_replicas if change.removing_replicas is None else change.removing_replicas,
            leader_recovery_state=state,
        )

    def to_record(self, topic_id: bytes, index: int) -> PartitionRecord:
        """The PartitionRecord (version 2) of this state."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.elr) if self.elr else None,
            last_known_elr=list(self.last_known_elr) if self.last_known_elr else None,
        )

    def without_elr(self) -> PartitionRegistration:
        """The same partition with no eligible leader outside the ISR (ClearElrRecord). As any change, it moves the partition epoch
        (ReplicationControlManager.removeTopicElrs, TopicDelta.maybeClearElr)."""
        return PartitionRegistration(
            self.replicas,
            self.isr,
            self.leader,
            self.leader_epoch,
            self.partition_epoch + 1,
            directories=self.directories,
            adding_replicas=self.adding_replicas,
            removing_replicas=self.removing_replicas,
            leader_recovery_state=self.leader_recovery_state,
        )

    def directory(self, broker_id: int) -> bytes:
        """The directory id of the replica on `broker_id`; UNASSIGNED if the broker has no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        return DIRECTORY_UNASSIGNED

    @property
    def has_leader(self) -> bool:
        """Whether a broker leads the partition."""
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> int:
        """The first replica, or NO_LEADER if there are no replicas."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed (KIP-455)."""
        return bool(self.adding_replicas or self.removing_replicas)

    def elected_unclean_after(self, before: PartitionRegistration) -> bool:
        """Whether this leader was out of sync when it was elected: such a leader starts in recovery (PartitionChangeBuilder).

        A leader outside the old in-sync set is not always unclean: the record that ends a reassignment can let a replica join the set and
        lead. Kafka's controllers count that as unclean nevertheless (ControllerMetricsChanges).
        """
        return self.leader_recovery_state == RECOVERING and self.leader not in (NO_LEADER, *before.isr, *before.elr)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionRegistration):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in PartitionRegistration.__slots__)

    def __hash__(self) -> int:
        return hash((self.replicas, self.isr, self.leader, self.leader_epoch, self.partition_epoch))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in PartitionRegistration.__slots__ if name != "directories")
        return f"PartitionRegistration({fields})"


class TopicImage:
    """A topic and its partitions by index."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: dict[int, PartitionRegistration] | None = None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionRegistration] = {} if partitions is None else partitions

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicImage):
            return NotImplemented
        return self.name == other.name and self.topic_id == other.topic_id and self.partitions == other.partitions

    def __hash__(self) -> int:
        return hash(self.topic_id)

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {len(self.partitions)} partitions)"


def _listed(features: Mapping[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """Features in the order of Kafka's hash tables, as in Kafka's snapshots. Registrations have any order, but snapshots must be equal."""
    return [(name, features[name]) for name in names_in_table_order(features)]


class BrokerRegistration:
    """A registered broker. Immutable. `listeners`: name -> (host, port, security protocol id). `unfence_offset`: the offset of the record
    that registered or last fenced the broker; it must have reached that offset to be unfenced."""

    __slots__ = (
        "broker_id",
        "cordoned_log_dirs",
        "epoch",
        "features",
        "fenced",
        "in_controlled_shutdown",
        "incarnation_id",
        "listeners",
        "log_dirs",
        "rack",
        "unfence_offset",
    )

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        incarnation_id: bytes,
        listeners: Mapping[str, Endpoint],
        features: Mapping[str, tuple[int, int]],
        rack: str | None,
        fenced: bool,
        in_controlled_shutdown: bool,
        log_dirs: Iterable[bytes],
        cordoned_log_dirs: Iterable[bytes] | None = None,
        unfence_offset: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.incarnation_id = incarnation_id
        self.listeners = dict(listeners)
        self.features = dict(features)
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = tuple(log_dirs)
        self.cordoned_log_dirs = None if cordoned_log_dirs is None else tuple(cordoned_log_dirs)
        self.unfence_offset = unfence_offset

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord, offset: int) -> BrokerRegistration:
        """The registration in a record at `offset`."""
        return cls(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            {endpoint.name: (endpoint.host, endpoint.port, endpoint.security_protocol) for endpoint in record.end_points},
            {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features},
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.log_dirs,
            record.cordoned_log_dirs,
            offset,
        )

    def to_record(self) -> RegisterBrokerRecord:
        """The RegisterBrokerRecord (version 4) of this state."""
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                for name, (host, port, protocol) in self.listeners.items()
            ],
            features=[
                RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in _listed(self.features)
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.log_dirs),
            cordoned_log_dirs=None if self.cordoned_log_dirs is None else list(self.cordoned_log_dirs),
        )

    def changed(
        self,
        *,
        fenced: bool | None = None,
        in_controlled_shutdown: bool | None = None,
        log_dirs: Iterable[bytes] | None = None,
        cordoned_log_dirs: Iterable[bytes] | None = None,
        unfence_offset: int | None = None,
    ) -> BrokerRegistration:
        """A copy with the given fields replaced; None keeps a field."""
        return BrokerRegistration(
            self.broker_id,
            self.epoch,
            self.incarnation_id,
            self.listeners,
            self.features,
            self.rack,
            self.fenced if fenced is None else fenced,
            self.in_controlled_shutdown if in_controlled_shutdown is None else in_controlled_shutdown,
            self.log_dirs if log_dirs is None else log_dirs,
            self.cordoned_log_dirs if cordoned_log_dirs is None else cordoned_log_dirs,
            self.unfence_offset if unfence_offset is None else unfence_offset,
        )

    @property
    def is_active(self) -> bool:
        """Whether the broker is unfenced and not shutting down, so that it may join ISRs and lead (KIP-841)."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory: bytes) -> bool:
        """Whether `directory` is online. UNASSIGNED and MIGRATING count as online, LOST does not."""
        if directory in {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING}:
            return True
        # A registration in a record of before 3.7-IV2 has no directories, which says nothing about disks (KAFKA-16162).
        return directory in self.log_dirs or (not self.log_dirs and directory != DIRECTORY_LOST)

    @property
    def directory_of_new_replica(self) -> bytes:
        """The only directory, UNASSIGNED if there are several, MIGRATING if the registration has none."""
        if not self.log_dirs:
            return DIRECTORY_MIGRATING
        return self.log_dirs[0] if len(self.log_dirs) == 1 else DIRECTORY_UNASSIGNED

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BrokerRegistration):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in BrokerRegistration.__slots__ if name != "unfence_offset")

    def __hash__(self) -> int:
        return hash((self.broker_id, self.epoch))

    def __repr__(self) -> str:
        state = "fenced" if self.fenced else "shutting down" if self.in_controlled_shutdown else "active"
        return f"BrokerRegistration({self.broker_id}, epoch={self.epoch}, {state}, rack={self.rack!r})"


class ControllerRegistration:
    """A registered controller (KIP-919). `listeners` as in BrokerRegistration."""

    __slots__ = ("controller_id", "features", "incarnation_id", "listeners", "zk_migration_ready")

    def __init__(
        self,
        controller_id: int,
        incarnation_id: bytes,
        listeners: Mapping[str, Endpoint],
        features: Mapping[str, tuple[int, int]],
        zk_migration_ready: bool = False,
    ) -> None:
        self.controller_id = controller_id
        self.incarnation_id = incarnation_id
        self.listeners = dict(listeners)
        self.features = dict(features)
        self.zk_migration_ready = zk_migration_ready

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        """The registration in a record."""
        return cls(
            record.controller_id,
            record.incarnation_id,
            {endpoint.name: (endpoint.host, endpoint.port, endpoint.security_protocol) for endpoint in record.end_points},
            {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features},
            record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        """The RegisterControllerRecord of this state."""
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                RegisterControllerRecord.ControllerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                for name, (host, port, protocol) in self.listeners.items()
            ],
            features=[
                RegisterControllerRecord.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in _listed(self.features)
            ],
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ControllerRegistration):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in ControllerRegistration.__slots__)

    def __hash__(self) -> int:
        return hash((self.controller_id, self.incarnation_id))


class MetadataImage:
    """The cluster after the records up to and including `offset` (written in leader epoch `epoch`). Do not change it.

    `configs`: (resource type, name) -> property -> value. `client_quotas`: entity -> key -> value, an entity being
    its (type, name) pairs in order of type, name None for the default. `next_producer_id` starts the next block.
    """

    __slots__ = (
        "acl_index",
        "acls",
        "brokers",
        "client_quotas",
        "configs",
        "controllers",
        "delegation_tokens",
        "epoch",
        "features",
        "next_producer_id",
        "offset",
        "producer_ids_broker",
        "scram",
        "topics_by_id",
        "topics_by_name",
    )

    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.topics_by_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.next_producer_id = 0
        self.producer_ids_broker: tuple[int, int] = (-1, -1)
        self.scram: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.acls: ShardedMap[bytes, AccessControlEntryRecord] = ShardedMap(number_of_id)
        self.acl_index = AclIndex()
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}

    def copy(self) -> MetadataImage:
        """Another image that shares every part with this one."""
        image = MetadataImage.__new__(MetadataImage)
        for name in MetadataImage.__slots__:
            setattr(image, name, getattr(self, name))
        return image

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        """The partition, or None."""
        found = self.topics_by_name.get(topic)
        return None if found is None else found.partitions.get(index)

    def partition_by_id(self, topic_id: bytes, index: int) -> PartitionRegistration | None:
        """The partition, or None."""
        found = self.topics_by_id.get(topic_id)
        return None if found is None else found.partitions.get(index)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and unfenced, so that metadata responses list it."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def alive_brokers(self) -> Iterator[BrokerRegistration]:
        """The unfenced brokers in order of registration."""
        return (broker for broker in self.brokers.values() if not broker.fenced)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The overrides of a resource; empty if there are none."""
        return self.configs.get((resource_type, name), {})

    @property
    def is_elr_enabled(self) -> bool:
        """Whether leaders may be elected from the eligible leader replicas (KIP-966)."""
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    @property
    def has_directories(self) -> bool:
        """Whether metadata.version is one with the log directories of brokers and replicas (KIP-858)."""
        return self.features.get(METADATA_VERSION, NEWEST) >= DIRECTORIES

    def __repr__(self) -> str:
        return f"MetadataImage(offset={self.offset}, {len(self.brokers)} brokers, {len(self.topics_by_id)} topics)"


def empty_image() -> MetadataImage:
    """The image before the first record."""
    return MetadataImage()
