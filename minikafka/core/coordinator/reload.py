"""When a shard that has failed is loaded again."""

from __future__ import annotations

PAUSE_MS_MIN, PAUSE_MS_MAX = 100, 30_000


class ReloadBackoff:
    """The pauses before a shard that keeps failing is loaded again: none at first, then from PAUSE_MS_MIN to PAUSE_MS_MAX, twice as long
    each time. A shard that has worked for PAUSE_MS_MAX begins anew. Work that fails the same way each time does not keep the broker busy.
    """

    __slots__ = ("_pause_ms", "_resumed_ms")

    def __init__(self) -> None:
        self._pause_ms = 0
        #: When the shard was loaded after its last failure; None: it has not failed yet.
        self._resumed_ms: int | None = None

    def failed(self, now_ms: int) -> int:
        """The shard has failed. Returns the pause before it is loaded again, in ms."""
        if self._resumed_ms is None or now_ms - self._resumed_ms >= PAUSE_MS_MAX:
            self._pause_ms = 0
        else:
            self._pause_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
        self._resumed_ms = now_ms + self._pause_ms
        return self._pause_ms
