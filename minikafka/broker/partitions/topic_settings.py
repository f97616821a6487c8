"""The topic configurations that matter to replicas: the log's configuration, and min.insync.replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.broker.config.topic_config import log_config
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage, PartitionRegistration
    from minikafka.storage.config import LogConfig


class TopicSettings:
    """Settings by topic, shared by the topic's partitions and kept until a configuration changes."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        #: The configurations that `_by_topic` was made from. The metadata use a new mapping whenever one changes.
        self._configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None
        self._by_topic: dict[str, tuple[LogConfig, int]] = {}

    def log_config(self, topic: str, image: MetadataImage) -> LogConfig:
        """The configuration of the topic's logs."""
        return self._of(topic, image)[0]

    def min_isr(self, topic: str, registration: PartitionRegistration, image: MetadataImage) -> int:
        """The topic's min.insync.replicas, but at most its number of replicas (KIP-966)."""
        return min(self._of(topic, image)[1], len(registration.replicas))

    @staticmethod
    def changed_topics(delta: MetadataDelta) -> frozenset[str] | None:
        """The topics whose settings may have changed; None for all."""
        if any(kind == RESOURCE_BROKER for kind, _ in delta.changed_configs):
            return None
        return frozenset(name for kind, name in delta.changed_configs if kind == RESOURCE_TOPIC)

    def _of(self, topic: str, image: MetadataImage) -> tuple[LogConfig, int]:
        if self._configs is not image.configs:
            self._configs = image.configs
            self._by_topic.clear()
        found = self._by_topic.get(topic)
        if found is None:
            overrides = image.config(RESOURCE_TOPIC, topic)
            defaults = {**image.config(RESOURCE_BROKER, ""), **image.config(RESOURCE_BROKER, str(self._config.node_id))}
            text = overrides.get("min.insync.replicas") or defaults.get("min.insync.replicas")
            found = log_config(self._config, overrides, defaults), int(text) if text else self._config.min_insync_replicas
            self._by_topic[topic] = found
        return found
