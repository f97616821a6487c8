"""The step from one image to the next: apply records in order, then take `.image()`. It also lists what has changed.

No other code interprets metadata records: brokers and the active controller both use this.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from minikafka.core.authorizer.acl import Acl
from minikafka.core.metadata.image import (
    RESOURCE_TOPIC,
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    Resource,
    TopicImage,
    empty_image,
)
from minikafka.steps import Steps, at_once, paced
from minikafka.wire.records.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

K = TypeVar("K")
#: Records applied, or partitions compared, in one step.
STEP_RECORDS = 256


class MetadataError(Exception):
    """A record that contradicts the image it is applied to: the log is damaged, or other software wrote it."""


class TopicDelta:
    """The changes of one topic. `changed`: index -> new state of the partition. `previous`: index -> old state (absent for a new one)."""

    __slots__ = ("changed", "is_new", "name", "previous", "topic_id")

    def __init__(self, name: str, topic_id: bytes, is_new: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_new = is_new
        self.changed: dict[int, PartitionRegistration] = {}
        self.previous: dict[int, PartitionRegistration] = {}

    def __repr__(self) -> str:
        return f"TopicDelta({self.name!r}, {'new, ' if self.is_new else ''}{len(self.changed)} partitions)"


class MetadataDelta:
    """Applies records to a copy-on-write successor of `base`.

    changed_topics: topic id -> TopicDelta (created or with changed partitions); deleted_topics: topic id -> the
    topic as it was in `base`; changed_brokers: id -> registration now, None when gone; changed_controllers likewise;
    changed_acls: id -> record, None when gone; changed_configs: the resources whose overrides changed; features_changed, quotas_changed,
    scram_changed, tokens_changed.
    A topic that is deleted and created again with its name is in both, under its two ids.
    """

    __slots__ = (
        "_image",
        "_owned",
        "_owned_topics",
        "base",
        "changed_acls",
        "changed_brokers",
        "changed_configs",
        "changed_controllers",
        "changed_topics",
        "deleted_topics",
        "features_changed",
        "is_snapshot",
        "producer_ids_changed",
        "quotas_changed",
        "scram_changed",
        "tokens_changed",
    )

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self._image = base.copy()
        self._owned: set[str] = set()
        self._owned_topics: set[bytes] = set()
        self.changed_topics: dict[bytes, TopicDelta] = {}
        self.deleted_topics: dict[bytes, TopicImage] = {}
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        self.changed_controllers: dict[int, ControllerRegistration | None] = {}
        self.changed_configs: dict[Resource, None] = {}
        self.features_changed = False
        self.quotas_changed = False
        self.scram_changed = False
        self.changed_acls: dict[bytes, AccessControlEntryRecord | None] = {}
        self.tokens_changed = False
        self.producer_ids_changed = False
        self.is_snapshot = False

    def apply(self, record: Any, offset: int = -1) -> None:
        """Apply one metadata record (of any version). Raises MetadataError when it contradicts the image.

        `offset` is the record's offset in the log. A broker's registration keeps its own, and that of the record that fenced it.
        """
        method = _METHODS.get(type(record))
        if method is None:
            raise MetadataError(f"the metadata log holds a record that is not a metadata record: {type(record).__name__}")
        method(self, record, offset)
        if offset >= 0:
            self._image.offset = offset

    def apply_all(self, records: Iterable[Any], first_offset: int = -1) -> None:
        """Apply records that follow each other in the log."""
        for index, record in enumerate(records):
            self.apply(record, -1 if first_offset < 0 else first_offset + index)

    def image(self, offset: int | None = None, epoch: int | None = None) -> MetadataImage:
        """The image after the records applied so far; apply nothing more to this delta afterwards."""
        if offset is not None:
            self._image.offset = offset
        if epoch is not None:
            self._image.epoch = epoch
        return self._image

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed, apart from offset and epoch."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_brokers
            or self.changed_controllers
            or self.changed_configs
            or self.features_changed
            or self.quotas_changed
            or self.scram_changed
            or self.changed_acls
            or self.tokens_changed
            or self.producer_ids_changed
            or self.is_snapshot
        )

    @classmethod
    def from_snapshot(cls, base: MetadataImage, records: Iterable[Any], offset: int, epoch: int) -> MetadataDelta:
        """The step from `base` to the image of a snapshot's records. It lists only the differences."""
        return at_once(cls.from_snapshot_in_steps(base, records, offset, epoch))

    @classmethod
    def from_snapshot_in_steps(cls, base: MetadataImage, records: Iterable[Any], offset: int, epoch: int) -> Steps[MetadataDelta]:
        """As `from_snapshot`."""
        fresh = cls(empty_image())
        for record, is_step in paced(records, STEP_RECORDS):
            fresh.apply(record)
            if is_step:
                yield
        return (yield from cls.between(base, fresh.image(offset, epoch)))

    @classmethod
    def between(cls, base: MetadataImage, image: MetadataImage) -> Steps[MetadataDelta]:
        """The step from `base` to an image that need not have come from it."""
        delta = cls(base)
        delta._image = image
        delta.is_snapshot = True
        yield from delta._compare_topics(base, image)
        yield from _compare(base.brokers, image.brokers, delta.changed_brokers)
        yield from _compare(base.controllers, image.controllers, delta.changed_controllers)
        changed_configs: dict[Resource, Any] = {}
        yield from _compare(base.configs, image.configs, changed_configs)
        delta.changed_configs = dict.fromkeys(changed_configs)
        yield from _compare(base.acls, image.acls, delta.changed_acls)
        delta.features_changed = base.features != image.features
        delta.quotas_changed = base.client_quotas != image.client_quotas
        delta.scram_changed = base.scram != image.scram
        delta.tokens_changed = base.delegation_tokens != image.delegation_tokens
        delta.producer_ids_changed = base.next_producer_id != image.next_producer_id
        return delta

    def _compare_topics(self, base: MetadataImage, image: MetadataImage) -> Steps[None]:
        for topic_id, topic in base.topics_by_id.items():
            if topic_id not in image.topics_by_id:
                self.deleted_topics[topic_id] = topic
        for topic_id, topic in image.topics_by_id.items():
            if topic_id not in base.topics_by_id:
                self.changed_topics[topic_id] = TopicDelta(topic.name, topic_id, True)
        partitions = ((topic, index, partition) for topic in image.topics_by_id.values() for index, partition in topic.partitions.items())
        for (topic, index, partition), is_step in paced(partitions, STEP_RECORDS):
            if is_step:
                yield
            before = base.topics_by_id.get(topic.topic_id)
            old = None if before is None else before.partitions.get(index)
            if old is not partition and old != partition:
                delta = self._topic_delta(topic)
                delta.changed[index] = partition
                if old is not None:
                    delta.previous[index] = old

    # -- copy on write ---------------------------------------------------------------------------------------------

    def _own(self, name: str) -> Any:
        container = getattr(self._image, name)
        if name not in self._owned:
            self._owned.add(name)
            container = container.copy()
            setattr(self._image, name, container)
        return container

    def _own_topic(self, topic_id: bytes) -> TopicImage:
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"the metadata log changes a topic that does not exist: id {topic_id.hex()}")
        if topic_id not in self._owned_topics:
            self._owned_topics.add(topic_id)
            topic = TopicImage(topic.name, topic_id, dict(topic.partitions))
            self._own("topics_by_id")[topic_id] = topic
            self._own("topics_by_name")[topic.name] = topic
        return topic

    def _topic_delta(self, topic: TopicImage) -> TopicDelta:
        delta = self.changed_topics.get(topic.topic_id)
        if delta is None:
            delta = self.changed_topics[topic.topic_id] = TopicDelta(topic.name, topic.topic_id, False)
        return delta

    def _set_partition(self, topic: TopicImage, index: int, partition: PartitionRegistration) -> None:
        delta = self._topic_delta(topic)
        previous = topic.partitions.get(index)
        if previous is not None and index not in delta.changed:
            delta.previous[index] = previous
        delta.changed[index] = partition
        topic.partitions[index] = partition

    # -- records ---------------------------------------------------------------------------------------------------

    def _topic(self, record: TopicRecord, _: int) -> None:
        if record.name in self._image.topics_by_name:
            raise MetadataError(f"the metadata log creates topic {record.name!r} twice")
        topic = TopicImage(record.name, record.topic_id)
        self._owned_topics.add(record.topic_id)
        self._own("topics_by_id")[record.topic_id] = topic
        self._own("topics_by_name")[record.name] = topic
        self.changed_topics[record.topic_id] = TopicDelta(record.name, record.topic_id, True)

    def _partition(self, record: PartitionRecord, _: int) -> None:
        self._set_partition(self._own_topic(record.topic_id), record.partition_id, PartitionRegistration.from_record(record))

    def _partition_change(self, record: PartitionChangeRecord, _: int) -> None:
        topic = self._own_topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise MetadataError(f"the metadata log changes partition {topic.name}-{record.partition_id}, which does not exist")
        self._set_partition(topic, record.partition_id, partition.merge(record))

    def _remove_topic(self, record: RemoveTopicRecord, _: int) -> None:
        topic = self._own("topics_by_id").pop(record.topic_id, None)
        if topic is None:
            raise MetadataError(f"the metadata log removes a topic that does not exist: id {record.topic_id.hex()}")
        del self._own("topics_by_name")[topic.name]
        self.changed_topics.pop(record.topic_id, None)
        before = self.base.topics_by_id.get(record.topic_id)
        if before is not None:
            self.deleted_topics[record.topic_id] = before
        resource = (RESOURCE_TOPIC, topic.name)
        if resource in self._image.configs:
            del self._own("configs")[resource]
            self.changed_configs[resource] = None

    def _clear_elr(self, record: ClearElrRecord, _: int) -> None:
        if record.topic_name:
            found = self._image.topics_by_name.get(record.topic_name)
            if found is None:
                raise MetadataError(f"the metadata log clears eligible leaders of topic {record.topic_name!r}, which does not exist")
            topics = [found]
        else:
            topics = list(self._image.topics_by_id.values())
        for topic in topics:
            for index, partition in topic.partitions.items():
                if partition.elr or partition.last_known_elr:
                    self._set_partition(self._own_topic(topic.topic_id), index, partition.without_elr())

    def _register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        self._set_broker(BrokerRegistration.from_record(record, offset))

    def _set_broker(self, broker: BrokerRegistration) -> None:
        self._own("brokers")[broker.broker_id] = broker
        self.changed_brokers[broker.broker_id] = broker

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            found = "not registered" if broker is None else f"registered with epoch {broker.epoch}"
            raise MetadataError(f"the metadata log changes broker {broker_id} of epoch {epoch}, which is {found}")
        return broker

    def _unregister_broker(self, record: UnregisterBrokerRecord, _: int) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self._own("brokers")[record.broker_id]
        self.changed_brokers[record.broker_id] = None

    def _fence_broker(self, record: FenceBrokerRecord, offset: int) -> None:
        self._set_broker(self._registered(record.id, record.epoch).changed(fenced=True, unfence_offset=offset))

    def _unfence_broker(self, record: UnfenceBrokerRecord, _: int) -> None:
        self._set_broker(self._registered(record.id, record.epoch).changed(fenced=False))

    def _broker_change(self, record: BrokerRegistrationChangeRecord, offset: int) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self._set_broker(
            broker.changed(
                fenced=None if record.fenced == 0 else record.fenced > 0,
                in_controlled_shutdown=True if record.in_controlled_shutdown > 0 else None,
                log_dirs=record.log_dirs or None,
                cordoned_log_dirs=record.cordoned_log_dirs,
                unfence_offset=offset if record.fenced > 0 else None,
            )
        )

    def _register_controller(self, record: RegisterControllerRecord, _: int) -> None:
        controller = ControllerRegistration.from_record(record)
        self._own("controllers")[controller.controller_id] = controller
        self.changed_controllers[controller.controller_id] = controller

    def _unregister_controller(self, record: UnregisterControllerRecord, _: int) -> None:
        self._own("controllers").pop(record.controller_id, None)
        self.changed_controllers[record.controller_id] = None

    def _config(self, record: ConfigRecord, _: int) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._own("configs")
        values = dict(configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[resource] = values
        else:
            configs.pop(resource, None)
        self.changed_configs[resource] = None

    def _feature_level(self, record: FeatureLevelRecord, _: int) -> None:
        features = self._own("features")
        if record.feature_level == 0:
            features.pop(record.name, None)
        else:
            features[record.name] = record.feature_level
        self.features_changed = True

    def _client_quota(self, record: ClientQuotaRecord, _: int) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self._own("client_quotas")
        values = dict(quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)
        self.quotas_changed = True

    def _producer_ids(self, record: ProducerIdsRecord, _: int) -> None:
        self._image.next_producer_id = record.next_producer_id
        self._image.producer_ids_broker = (record.broker_id, record.broker_epoch)
        self.producer_ids_changed = True

    def _scram(self, record: UserScramCredentialRecord, _: int) -> None:
        self._own("scram")[record.name, record.mechanism] = record
        self.scram_changed = True

    def _remove_scram(self, record: RemoveUserScramCredentialRecord, _: int) -> None:
        self._own("scram").pop((record.name, record.mechanism), None)
        self.scram_changed = True

    def _acl(self, record: AccessControlEntryRecord, _: int) -> None:
        self._forget_acl(record.id)
        self._own("acls")[record.id] = self.changed_acls[record.id] = record
        self._own("acl_index").add(record.id, Acl.of_record(record))

    def _remove_acl(self, record: RemoveAccessControlEntryRecord, _: int) -> None:
        self._forget_acl(record.id)
        self.changed_acls[record.id] = None

    def _forget_acl(self, acl_id: bytes) -> None:
        before = self._own("acls").pop(acl_id, None)
        if before is not None:
            self._own("acl_index").remove(acl_id, Acl.of_record(before))

    def _delegation_token(self, record: DelegationTokenRecord, _: int) -> None:
        self._own("delegation_tokens")[record.token_id] = record
        self.tokens_changed = True

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord, _: int) -> None:
        self._own("delegation_tokens").pop(record.token_id, None)
        self.tokens_changed = True

    def _nothing(self, record: Any, _: int) -> None:
        """Records that do not change the image. The reader of the log holds back a metadata transaction until it ends."""


def _compare(base: Mapping[K, Any], image: Mapping[K, Any], changed: dict[K, Any]) -> Steps[None]:
    """Note in `changed` what an image has under the keys where it differs from `base`, None where it has nothing."""
    for key, is_step in paced(itertools.chain(base, image), STEP_RECORDS):
        if is_step:
            yield
        found = image.get(key)
        if found != base.get(key):
            changed[key] = found


_METHODS: dict[type, Callable[[MetadataDelta, Any, int], None]] = {
    RegisterBrokerRecord: MetadataDelta._register_broker,
    UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    UnregisterControllerRecord: MetadataDelta._unregister_controller,
    TopicRecord: MetadataDelta._topic,
    PartitionRecord: MetadataDelta._partition,
    ConfigRecord: MetadataDelta._config,
    PartitionChangeRecord: MetadataDelta._partition_change,
    FenceBrokerRecord: MetadataDelta._fence_broker,
    UnfenceBrokerRecord: MetadataDelta._unfence_broker,
    RemoveTopicRecord: MetadataDelta._remove_topic,
    DelegationTokenRecord: MetadataDelta._delegation_token,
    UserScramCredentialRecord: MetadataDelta._scram,
    FeatureLevelRecord: MetadataDelta._feature_level,
    ClientQuotaRecord: MetadataDelta._client_quota,
    ProducerIdsRecord: MetadataDelta._producer_ids,
    BrokerRegistrationChangeRecord: MetadataDelta._broker_change,
    AccessControlEntryRecord: MetadataDelta._acl,
    RemoveAccessControlEntryRecord: MetadataDelta._remove_acl,
    NoOpRecord: MetadataDelta._nothing,
    ZkMigrationStateRecord: MetadataDelta._nothing,
    RemoveUserScramCredentialRecord: MetadataDelta._remove_scram,
    BeginTransactionRecord: MetadataDelta._nothing,
    EndTransactionRecord: MetadataDelta._nothing,
    AbortTransactionRecord: MetadataDelta._nothing,
    RemoveDelegationTokenRecord: MetadataDelta._remove_delegation_token,
    RegisterControllerRecord: MetadataDelta._register_controller,
    ClearElrRecord: MetadataDelta._clear_elr,
}
