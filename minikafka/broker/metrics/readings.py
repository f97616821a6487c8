"""Rates of what is only counted: from what counters said at earlier scrapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

WINDOW_MS = 60_000
#: Readings closer together are one: several scrapers may come at once.
APART_MS = 1_000


class Readings:
    """By key, what a counter said and when, back to the first reading that is a minute old."""

    def __init__(self) -> None:
        self._read: dict[Hashable, deque[tuple[int, float]]] = {}

    def rate(self, key: Hashable, count: float, now_ms: int) -> float:
        """Increase a second since about a minute ago (since the first reading, when that is less; 0 at the first)."""
        read = self._read.get(key)
        if read is None:
            read = self._read[key] = deque([(now_ms, count)])
            return 0.0
        if now_ms - read[-1][0] >= APART_MS:
            read.append((now_ms, count))
        while len(read) > 2 and now_ms - read[1][0] >= WINDOW_MS:
            read.popleft()
        at_ms, before = read[0]
        return max(count - before, 0) * 1000 / (now_ms - at_ms) if now_ms > at_ms else 0.0

    def keep(self, kind: str, keys: set[Hashable]) -> None:
        """Forget keys (kind, …) that are not among `keys`."""
        for key in [key for key in self._read if isinstance(key, tuple) and key[0] == kind and key not in keys]:
            del self._read[key]
