"""Durations and rates of rare events: flushes, commits of the metadata log, elections."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from minikafka.broker.measures.request_times import SAMPLES_KEPT, WINDOW_S, quantiles_of

#: Kafka's metrics.sample.window.ms; with metrics.num.samples of 2, a rate covers the last one to two windows.
SAMPLE_MS = 30_000


class Durations:
    """Durations of an event, in ms. Without a fine clock, events are only counted."""

    def __init__(self, now_s: Callable[[], float] | None) -> None:
        self._now_s = now_s
        self._kept: deque[tuple[float, float]] = deque(maxlen=SAMPLES_KEPT)
        self.count = 0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the body. A body that raises is not counted."""
        began_s = self.begin()
        yield
        self.end(began_s)

    def begin(self) -> float:
        """The time, for `end`."""
        return 0.0 if self._now_s is None else self._now_s()

    def end(self, began_s: float) -> None:
        """The event that began at `began_s` ends now."""
        self.count += 1
        if self._now_s is not None:
            now_s = self._now_s()
            self._kept.append((now_s, 1000 * (now_s - began_s)))

    def quantiles(self) -> list[float]:
        """Quantiles of the last five minutes, in ms."""
        if self._now_s is None:
            return quantiles_of([])
        since_s = self._now_s() - WINDOW_S
        # A copy: syncs end on other threads.
        return quantiles_of([took_ms for at_s, took_ms in tuple(self._kept) if at_s >= since_s])


class Window:
    """Rate, average and maximum of the values of the last 30 to 60 s (org.apache.kafka.common.metrics.stats.SampledStat)."""

    def __init__(self) -> None:
        #: Up to two sample windows: (begin, count, sum, maximum), the newest last.
        self._samples: deque[tuple[int, int, float, float]] = deque(maxlen=2)

    def record(self, value: float, now_ms: int) -> None:
        """Record one value."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < SAMPLE_MS:
            begin, count, total, largest = samples[-1]
            samples[-1] = (begin, count + 1, total + value, max(largest, value))
        else:
            samples.append((now_ms, 1, value, value))

    def _recent(self, now_ms: int) -> list[tuple[int, int, float, float]]:
        return [sample for sample in self._samples if now_ms - sample[0] < 2 * SAMPLE_MS]

    def rate(self, now_ms: int) -> float:
        """Sum of the values per second, over at least one sample window, like Kafka's Rate."""
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        return 1000 * sum(sample[2] for sample in recent) / max(now_ms - recent[0][0], SAMPLE_MS)

    def average(self, now_ms: int) -> float:
        """The average; NaN without values, like Kafka's Avg."""
        recent = self._recent(now_ms)
        count = sum(sample[1] for sample in recent)
        return sum(sample[2] for sample in recent) / count if count else float("nan")

    def largest(self, now_ms: int) -> float:
        """The maximum; NaN without values, like Kafka's Max."""
        return max((sample[3] for sample in self._recent(now_ms)), default=float("nan"))
