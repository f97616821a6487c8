"""Configuration of share groups: the group's own value, else the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.core.group.share.settings import ShareIntervals, ShareSettings
from minikafka.core.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC, MetadataImage
from minikafka.late_dataclass import dataclass

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.quorum.metadata_log import MetadataHost


@dataclass(frozen=True, slots=True)
class ShareGroupRules:
    """Configuration of one group's share partitions. `auto_offset_reset`: "latest", "earliest" or "by_duration:PT..."."""

    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: str
    is_read_committed: bool
    is_renew_enabled: bool
    #: "" where the group has none.
    dead_letter_topic: str = ""
    copies_dead_letters: bool = False


#: The level of the feature share.version from which on groups may have dead-letter queues (KIP-1191).
SHARE_VERSION, DEAD_LETTERS = "share.version", 2


def are_share_groups_enabled(image: MetadataImage) -> bool:
    """Whether the cluster's feature level enables share groups."""
    return image.features.get(SHARE_VERSION, 0) >= 1


class ShareGroupSettings:
    """Reads the current values."""

    def __init__(self, config: BrokerConfig, settings: Settings, metadata: MetadataHost) -> None:
        self._config = config
        self._settings = settings
        self._metadata = metadata

    def _number(self, group_id: str, name: str, default: int) -> int:
        text = self._metadata.image.config(RESOURCE_GROUP, group_id).get(name, "")
        # Apache Kafka's controllers may have stored a value that this version would refuse.
        return int(text) if text.strip().isdecimal() else default

    def intervals(self, group_id: str) -> ShareIntervals:
        """The intervals of a group's members."""
        config = self._config
        return ShareIntervals(
            session_timeout_ms=self._number(group_id, "share.session.timeout.ms", config.group_share_session_timeout_ms),
            heartbeat_interval_ms=self._number(group_id, "share.heartbeat.interval.ms", config.group_share_heartbeat_interval_ms),
            assignment_interval_ms=self._number(
                group_id, "share.assignment.interval.ms", self._settings.group_share_assignment_interval_ms
            ),
        )

    def rules(self, group_id: str) -> ShareGroupRules:
        """The configuration of a group's share partitions."""
        config, own = self._config, self._metadata.image.config(RESOURCE_GROUP, group_id)
        return ShareGroupRules(
            record_lock_duration_ms=self._number(group_id, "share.record.lock.duration.ms", config.group_share_record_lock_duration_ms),
            delivery_count_limit=self._number(group_id, "share.delivery.count.limit", config.group_share_delivery_count_limit),
            partition_max_record_locks=self._number(
                group_id, "share.partition.max.record.locks", config.group_share_partition_max_record_locks
            ),
            auto_offset_reset=own.get("share.auto.offset.reset", "latest"),
            is_read_committed=own.get("share.isolation.level", "read_uncommitted").strip().lower() == "read_committed",
            is_renew_enabled=own.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
            dead_letter_topic=own.get("errors.deadletterqueue.topic.name", "").strip() if self._has_dead_letters else "",
            copies_dead_letters=own.get("errors.deadletterqueue.copy.record.enable", "false").strip().lower() == "true",
        )

    @property
    def _has_dead_letters(self) -> bool:
        return self._metadata.image.features.get(SHARE_VERSION, 0) >= DEAD_LETTERS

    @property
    def message_bytes_max(self) -> int:
        """The maximum batch size of topics without a value of their own."""
        return self._settings.message_max_bytes

    def fault_of_dead_letter_topic(self, name: str) -> str | None:
        """Why archived records may not be written to this topic, or None. A missing topic may be created."""
        image, prefix = self._metadata.image, self._settings.errors_deadletterqueue_topic_name_prefix
        if not name:
            return "the group has no dead-letter queue any more"
        if name.startswith("__"):
            return f"the name of {name} begins with __"
        if name in image.topics_by_name:
            if image.config(RESOURCE_TOPIC, name).get("errors.deadletterqueue.group.enable", "false").strip().lower() != "true":
                return f"errors.deadletterqueue.group.enable is not set for {name}"
        elif not self._settings.errors_deadletterqueue_auto_create_topics_enable:
            return f"there is no topic {name}, and errors.deadletterqueue.auto.create.topics.enable is false"
        return None if name.startswith(prefix or "") else f"the name of {name} does not begin with {prefix}"

    @property
    def for_groups(self) -> ShareSettings:
        """The settings that each shard of the group coordinator gets."""
        config = self._config
        return ShareSettings(config.group_share_max_size, config.group_share_initialize_retry_interval_ms, self.intervals)
