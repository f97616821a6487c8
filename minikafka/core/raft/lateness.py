"""How late this node's event loop and its peers' answers are, and how much longer this node therefore waits for others.

Raft needs an election timeout well above the time of a broadcast (Ongaro and Ousterhout, section 5.6). On an overloaded machine one turn of
the event loop can take longer than the configured timeouts, and no election would succeed. The replica smooths its measurements, as TCP
does for its retransmission timeout (RFC 6298). On a machine that keeps up, the allowance is a few milliseconds.
"""

from __future__ import annotations

#: Limits one sample, so that one long pause (a suspended process) does not make this node slow to notice a dead leader afterwards.
SAMPLE_MS_MAX = 1000
SMOOTHING = 8
ALLOWANCE_FACTOR = 8


class Lateness:
    """A smoothed delay in ms. `allow(timeout_ms)` is the timeout to use."""

    __slots__ = ("_smoothed_ms",)

    def __init__(self) -> None:
        self._smoothed_ms = 0.0

    def observe(self, late_ms: int) -> None:
        """A deadline was handled, or an answer arrived, `late_ms` later than it could have been."""
        sample_ms = min(max(late_ms, 0), SAMPLE_MS_MAX)
        self._smoothed_ms += (sample_ms - self._smoothed_ms) / SMOOTHING

    def allow(self, timeout_ms: int) -> int:
        """The timeout plus a multiple of the measured delay."""
        return timeout_ms + int(ALLOWANCE_FACTOR * self._smoothed_ms)
