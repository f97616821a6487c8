"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """Monotonic and wall time of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000
