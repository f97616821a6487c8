"""This broker's replication throttles as set in the metadata: rates per broker, and throttled replicas per topic (KIP-73)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.broker.config.properties import INT64_MAX
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from minikafka.core.replication_quota import ReplicationQuota, throttled_partitions

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage


class ReplicationThrottles:
    """`leader` limits what throttled followers fetch from here; `follower` limits what this broker fetches for throttled replicas. In-sync
    replicas are never throttled."""

    def __init__(self, settings: Settings, metadata: MetadataHost, broker_id: int) -> None:
        """Create it after `settings`, which must learn of a change first."""
        self._settings = settings
        self._broker_id = broker_id
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()
        self._watchers: list[Callable[[], None]] = []
        metadata.subscribe(self._on_metadata)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when rates or throttled replicas may have changed."""
        self._watchers.append(callback)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not any(kind in {RESOURCE_TOPIC, RESOURCE_BROKER} for kind, _ in delta.changed_configs):
            return
        self._configure(self.leader, self._settings.leader_replication_throttled_rate, "leader", image)
        self._configure(self.follower, self._settings.follower_replication_throttled_rate, "follower", image)
        for callback in self._watchers:
            callback()

    def _configure(self, quota: ReplicationQuota, rate: int, side: str, image: MetadataImage) -> None:
        topics = {}
        for (kind, name), values in image.configs.items():
            text = values.get(f"{side}.replication.throttled.replicas") if kind == RESOURCE_TOPIC else None
            if text:
                found = throttled_partitions([entry.strip() for entry in text.split(",")], self._broker_id)
                if found is None or found:
                    topics[name] = found
        quota.configure(None if rate == INT64_MAX else rate, topics)
