"""Rates of counters, from their values at earlier scrapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from math import expm1

WINDOW_MS = 60_000
AVERAGED_MS = 15 * 60_000
#: Readings that are closer together count as one: several scrapers may come at once.
APART_MS = 1_000


class Readings:
    """Earlier values of counters with their times, by key, back to the newest reading that is at least a minute old."""

    def __init__(self) -> None:
        self._read: dict[Hashable, deque[tuple[int, float]]] = {}
        self._averages: dict[Hashable, tuple[int, float, float]] = {}

    def rate(self, key: Hashable, count: float, now_ms: int) -> float:
        """Increase per second over about the last minute, or since the first reading; 0 at the first reading."""
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

    def moving_average(self, key: Hashable, count: float, now_ms: int) -> float:
        """Exponentially weighted increase per second, with a time constant of 15 minutes (Kafka's meters).

        0 at the first reading. The second reading sets the initial average.
        """
        last = self._averages.get(key)
        if last is None:
            self._averages[key] = (now_ms, count, -1.0)
            return 0.0
        at_ms, before, average = last
        elapsed_ms = now_ms - at_ms
        if elapsed_ms < APART_MS:
            return max(average, 0.0)
        rate = max(count - before, 0) * 1000 / elapsed_ms
        average = rate if average < 0 else average - expm1(-elapsed_ms / AVERAGED_MS) * (rate - average)
        self._averages[key] = (now_ms, count, average)
        return average

    def keep(self, kind: str, keys: set[Hashable]) -> None:
        """Forget the keys (kind, …) that are not in `keys`."""
        for key in [*self._read, *self._averages]:
            if isinstance(key, tuple) and key[0] == kind and key not in keys:
                self._read.pop(key, None)
                self._averages.pop(key, None)
