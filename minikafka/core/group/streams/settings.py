"""Configuration of the coordinator of streams groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from minikafka.late_dataclass import dataclass


@dataclass(slots=True, frozen=True)
class StreamsIntervals:
    """Settings of one group, from its own configuration or else the broker's; times in milliseconds, the lag in records. `assignor`: None
    for the broker's first one."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()
    assignor: str | None = None

    def assignment_configs(self) -> Mapping[str, str]:
        """The configuration of an assignment, as it is recorded."""
        configs = {"num.standby.replicas": str(self.num_standby_replicas)}
        if self.rack_aware_assignment_tags:
            configs["rack.aware.assignment.tags"] = ",".join(self.rack_aware_assignment_tags)
        return configs


@dataclass(slots=True, frozen=True)
class StreamsSettings:
    """`size_max`: `group.streams.max.size`. `assignors`: the broker's assignors; the first is the default. `intervals(group_id)` returns
    the settings of a group."""

    size_max: int = 2_147_483_647
    assignors: tuple[str, ...] = ("sticky",)
    intervals: Callable[[str], StreamsIntervals] = field(default=lambda group_id: StreamsIntervals())
