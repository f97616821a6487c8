"""What a share group's coordinator is told by the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class ShareIntervals:
    """What holds for one group: its own configuration, or else the broker's; ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(slots=True, frozen=True)
class ShareSettings:
    """`group.share.max.size`, the pause before states are initialized again, and `intervals(group id)`."""

    size_max: int = 200
    initialize_retry_ms: int = 30_000
    intervals: Callable[[str], ShareIntervals] = field(default=lambda group_id: ShareIntervals())
