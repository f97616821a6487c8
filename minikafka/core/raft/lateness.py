"""How late the turns of this node and the answers of its peers come, and how much longer it therefore waits for others.

Raft needs an election timeout well above the time of a broadcast (Ongaro and Ousterhout, section 5.6). On a machine whose cores are taken
many times over a turn of the loop takes longer than the configured timeouts, and no election would end. As TCP does for its
retransmissions (RFC 6298), the replica smooths what it measures; on a machine that keeps up the allowance is a few milliseconds.
"""

from __future__ import annotations

#: One long pause (a suspended process) must not make this node slow to notice a dead leader afterwards.
SAMPLE_MS_MAX = 1000
SMOOTHING = 8
ALLOWANCE_FACTOR = 8


class Lateness:
    """A smoothed measurement in ms. `allow(timeout_ms)` is the timeout to use."""

    __slots__ = ("_smoothed_ms",)

    def __init__(self) -> None:
        self._smoothed_ms = 0.0

    def observe(self, late_ms: int) -> None:
        """A deadline was handled, or an answer came, so much later than it could have."""
        sample_ms = min(max(late_ms, 0), SAMPLE_MS_MAX)
        self._smoothed_ms += (sample_ms - self._smoothed_ms) / SMOOTHING

    def allow(self, timeout_ms: int) -> int:
        """The timeout, longer by a multiple of what was measured."""
        return timeout_ms + int(ALLOWANCE_FACTOR * self._smoothed_ms)
