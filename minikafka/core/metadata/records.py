"""An image as records: the content of a metadata snapshot, in the order of Kafka's (MetadataImage.write)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minikafka.core.metadata.image import METADATA_VERSION, MetadataImage
from minikafka.wire.records.metadata_records import ClientQuotaRecord, ConfigRecord, FeatureLevelRecord, ProducerIdsRecord, TopicRecord


def image_records(image: MetadataImage) -> Iterator[Any]:
    """Records that make `image` when they are applied to the empty image."""
    if METADATA_VERSION in image.features:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.features[METADATA_VERSION])
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker.to_record()
    for controller in image.controllers.values():
        yield controller.to_record()
    for topic in image.topics_by_id.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition.to_record(topic.topic_id, index)
    for (kind, name), values in image.configs.items():
        for key, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    for entity, quotas in image.client_quotas.items():
        for key, number in quotas.items():
            yield ClientQuotaRecord(
                entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=part) for kind, part in entity],
                key=key,
                value=number,
                remove=False,
            )
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.delegation_tokens.values()
