"""Durations and rates of what happens seldom: flushes, commits of the metadata log, elections."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from minikafka.broker.measures.request_times import SAMPLES_KEPT, WINDOW_S, quantiles_of

#: Kafka's metrics.num.samples and metrics.sample.window.ms: a rate is over the last one to two of them.
SAMPLE_MS = 30_000


class Durations:
    """How long something took, in ms. Without a fine clock it is only counted."""

    def __init__(self, now_s: Callable[[], float] | None) -> None:
        self._now_s = now_s
        self._kept: deque[tuple[float, float]] = deque(maxlen=SAMPLES_KEPT)
        self.count = 0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the body; what raises is not counted."""
        begun_s = 0.0 if self._now_s is None else self._now_s()
        yield
        self.count += 1
        if self._now_s is not None:
            now_s = self._now_s()
            self._kept.append((now_s, 1000 * (now_s - begun_s)))

    def quantiles(self) -> list[float]:
        """Of the last five minutes."""
        if self._now_s is None:
            return quantiles_of([])
        since_s = self._now_s() - WINDOW_S
        return quantiles_of([took_ms for at_s, took_ms in self._kept if at_s >= since_s])


class Window:
    """Values of the last 30 to 60 s (org.apache.kafka.common.metrics.stats.SampledStat): rate, average, maximum. Milliseconds."""

    def __init__(self) -> None:
        #: The halves: (begin, count, sum, maximum), the newest last.
        self._halves: deque[tuple[int, int, float, float]] = deque(maxlen=2)

    def record(self, value: float, now_ms: int) -> None:
        """Something happened now."""
        halves = self._halves
        if halves and now_ms - halves[-1][0] < SAMPLE_MS:
            begin, count, total, largest = halves[-1]
            halves[-1] = (begin, count + 1, total + value, max(largest, value))
        else:
            halves.append((now_ms, 1, value, value))

    def _living(self, now_ms: int) -> list[tuple[int, int, float, float]]:
        return [half for half in self._halves if now_ms - half[0] < 2 * SAMPLE_MS]

    def rate(self, now_ms: int) -> float:
        """Sum of the values a second; as Kafka's Rate, over no less than one sample's time."""
        living = self._living(now_ms)
        if not living:
            return 0.0
        return 1000 * sum(half[2] for half in living) / max(now_ms - living[0][0], SAMPLE_MS)

    def average(self, now_ms: int) -> float:
        """NaN when there is nothing to average, as Kafka's Avg."""
        living = self._living(now_ms)
        count = sum(half[1] for half in living)
        return sum(half[2] for half in living) / count if count else float("nan")

    def largest(self, now_ms: int) -> float:
        """NaN when there is nothing, as Kafka's Max."""
        return max((half[3] for half in self._living(now_ms)), default=float("nan"))
