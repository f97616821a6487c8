"""Configuration of share groups: the group's own value, else the broker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minikafka.core.group.share.settings import ShareIntervals, ShareSettings
from minikafka.core.metadata.image import RESOURCE_GROUP

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
        )

    @property
    def for_groups(self) -> ShareSettings:
        """The settings that each shard of the group coordinator gets."""
        config = self._config
        return ShareSettings(config.group_share_max_size, config.group_share_initialize_retry_interval_ms, self.intervals)
