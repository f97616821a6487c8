"""Configuration of streams groups: the group's own value, else the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.core.group.streams.settings import StreamsIntervals, StreamsSettings
from minikafka.core.metadata.image import RESOURCE_GROUP

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.quorum.metadata_log import MetadataHost


class StreamsGroupSettings:
    """Reads the current values. A group's value is clamped to the broker's bounds, which may have changed since it was set."""

    def __init__(self, config: BrokerConfig, settings: Settings, metadata: MetadataHost) -> None:
        self._config = config
        self._settings = settings
        self._metadata = metadata

    def intervals(self, group_id: str) -> StreamsIntervals:
        """The settings of one group."""
        config, own = self._config, self._metadata.image.config(RESOURCE_GROUP, group_id)

        def number(name: str, default: int, low: int = 0, high: int | None = None) -> int:
            text = own.get(f"streams.{name}", "").strip()
            if not text.isdecimal():
                # Not set, or stored by an Apache Kafka controller that accepts more.
                return default
            return max(low, int(text) if high is None else min(int(text), high))

        tags = own.get("streams.rack.aware.assignment.tags")
        return StreamsIntervals(
            session_timeout_ms=number(
                "session.timeout.ms",
                config.group_streams_session_timeout_ms,
                config.group_streams_min_session_timeout_ms,
                config.group_streams_max_session_timeout_ms,
            ),
            heartbeat_interval_ms=number(
                "heartbeat.interval.ms",
                config.group_streams_heartbeat_interval_ms,
                config.group_streams_min_heartbeat_interval_ms,
                config.group_streams_max_heartbeat_interval_ms,
            ),
            assignment_interval_ms=number(
                "assignment.interval.ms",
                self._settings.group_streams_assignment_interval_ms,
                config.group_streams_min_assignment_interval_ms,
                config.group_streams_max_assignment_interval_ms,
            ),
            initial_rebalance_delay_ms=number("initial.rebalance.delay.ms", config.group_streams_initial_rebalance_delay_ms),
            task_offset_interval_ms=number(
                "task.offset.interval.ms",
                config.group_streams_task_offset_interval_ms,
                config.group_streams_min_task_offset_interval_ms,
            ),
            acceptable_recovery_lag=number("acceptable.recovery.lag", config.group_streams_acceptable_recovery_lag),
            num_standby_replicas=number(
                "num.standby.replicas", config.group_streams_num_standby_replicas, 0, config.group_streams_max_standby_replicas
            ),
            rack_aware_assignment_tags=tuple(config.group_streams_rack_aware_assignment_tags if tags is None else _listed(tags)),
            assignor=own.get("streams.assignor.name"),
        )

    @property
    def for_groups(self) -> StreamsSettings:
        """The settings that each shard of the group coordinator gets."""
        config = self._config
        return StreamsSettings(config.group_streams_max_size, tuple(config.group_streams_assignors), self.intervals)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
