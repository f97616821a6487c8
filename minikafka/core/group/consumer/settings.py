"""Configuration of the coordinator of consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from minikafka.core.group.consumer.policy import MigrationPolicy
from minikafka.core.group.consumer.topics import NoTopics, Topics
from minikafka.late_dataclass import dataclass


@dataclass(slots=True, frozen=True)
class ConsumerGroupConfig:
    """The broker's properties `group.consumer.*`; times in milliseconds."""

    assignors: tuple[str, ...] = ("uniform", "range")
    size_max: int = 2_147_483_647
    regex_refresh_interval_ms: int = 600_000
    migration: MigrationPolicy = field(default_factory=MigrationPolicy)


@dataclass(slots=True, frozen=True)
class GroupIntervals:
    """Intervals of one group, from its own configuration or else the broker's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = field(default=1_000)


@dataclass(slots=True, frozen=True)
class ConsumerSettings:
    """Settings of a shard for its consumer groups. `intervals(group_id)` returns the intervals of a group."""

    config: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    topics: Topics = field(default_factory=NoTopics)
    intervals: Callable[[str], GroupIntervals] = field(default=lambda group_id: GroupIntervals())
