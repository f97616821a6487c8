"""Configuration of the coordinator of share groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from minikafka.late_dataclass import dataclass


@dataclass(slots=True, frozen=True)
class ShareIntervals:
    """Intervals of one group, from its own configuration or else the broker's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(slots=True, frozen=True)
class ShareSettings:
    """`size_max`: `group.share.max.size`. `initialize_retry_ms`: the pause before states are requested again. `intervals(group_id)` returns
    the intervals of a group."""

    size_max: int = 200
    initialize_retry_ms: int = 30_000
    intervals: Callable[[str], ShareIntervals] = field(default=lambda group_id: ShareIntervals())
