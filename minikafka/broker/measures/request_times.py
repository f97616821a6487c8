"""What requests spend their time with, measured on a sample of them.

The phases are Kafka's (kafka.network.RequestChannel.Request.updateRequestMetrics), as this broker has them:

    request queue   from the bytes' arrival to the handler: the requests before it in the same read are served first
    local           in the handler
    remote          parked: in-sync replicas, enough bytes to fetch, the controller
    response queue  from the answer to the system call that sends it, at the end of the loop's turn
    response send   in that system call

Of each connection one request in 50 ms is timed: all of a connection that makes few. The others pay nothing for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

#: The time between two samples of a busy connection; longer when there are so many connections that it would be more samples a second.
INTERVAL_S = 0.05
SAMPLES_A_SECOND = 400
SAMPLES_KEPT = 256
#: Older samples say nothing about now (the memory of Kafka's histograms is as long).
WINDOW_S = 300.0
QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
PHASES = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")


class RequestTimes:
    """Samples by the request's name: a deque of (when it was sent, the six phases in ms)."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s`: seconds of a monotonic clock, finer than a millisecond."""
        self.now_s = now_s
        self.samples: dict[str, deque[tuple[float, ...]]] = {}
        self.connections = 0

    @property
    def interval_s(self) -> float:
        """For how long a connection that has been sampled is left alone."""
        return max(INTERVAL_S, self.connections / SAMPLES_A_SECOND)

    def record(self, name: str, at_s: float, phases_ms: Iterable[float]) -> None:
        """One request."""
        kept = self.samples.get(name)
        if kept is None:
            kept = self.samples[name] = deque(maxlen=SAMPLES_KEPT)
        kept.append((at_s, *phases_ms))

    def quantiles(self, name: str, phase: str) -> list[float]:
        """A phase's quantiles in ms, of the last five minutes; zeros if there was no such request, as Kafka has it."""
        since_s, number = self.now_s() - WINDOW_S, 1 + PHASES.index(phase)
        return quantiles_of([row[number] for row in self.samples.get(name, ()) if row[0] >= since_s])


def quantiles_of(values: list[float]) -> list[float]:
    """The values at QUANTILES; zeros of nothing."""
    if not values:
        return [0.0] * len(QUANTILES)
    values.sort()
    last = len(values) - 1
    return [values[round(share * last)] for _, share in QUANTILES]


class Sample:
    """One timed request on its way."""

    __slots__ = ("_answered_s", "_arrived_s", "_begun_s", "_flushes", "_handled_s", "_sending_s", "_times", "name")

    def __init__(self, times: RequestTimes, connection: Any) -> None:
        self._times = times
        self._begun_s = now_s = times.now_s()
        self._arrived_s = min(getattr(connection, "last_active_s", now_s), now_s)
        self._handled_s = 0.0
        self._answered_s = 0.0
        self._sending_s = 0.0
        self._flushes = 0
        self.name = ""

    def handled(self) -> None:
        """The handler has returned, answered or not."""
        if not self._answered_s:
            self._handled_s = self._times.now_s()

    def finish(self, connection: Any, ticket: int, pieces: list[Any]) -> None:
        """Hand the answer to the connection, and see when it leaves."""
        self._answered_s = self._times.now_s()
        watch = getattr(connection, "watch_flush", None)
        if watch is None or not pieces:
            connection.finish(ticket, pieces)
            self._sending_s = self._answered_s
            self._record(self._answered_s)
            return
        # Before and after the connection in the queue of those that send at the end of this turn.
        watch(self)
        connection.finish(ticket, pieces)
        watch(self)

    def flush(self) -> None:
        """The loop's turn ends: the connection sends next, or has sent."""
        self._flushes += 1
        if self._flushes == 1:
            self._sending_s = self._times.now_s()
        else:
            self._record(self._times.now_s())

    def _record(self, sent_s: float) -> None:
        arrived, begun, answered, sending = self._arrived_s, self._begun_s, self._answered_s, self._sending_s
        handled = self._handled_s or answered
        phases = (begun - arrived, handled - begun, answered - handled, sending - answered, sent_s - sending, sent_s - arrived)
        in_ms = [1000 * seconds for seconds in phases]
        self._times.record(self.name, sent_s, in_ms)
        if self.name in ("FetchConsumer", "FetchFollower"):
            self._times.record("Fetch", sent_s, in_ms)


class TimedAnswers:
    """Stands for a connection on a fast path, which only reserves and fills the place of an answer."""

    __slots__ = ("_connection", "_sample")

    def __init__(self, connection: Any, sample: Sample) -> None:
        self._connection = connection
        self._sample = sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def finish(self, ticket: int, pieces: list[Any]) -> None:
        """The answer."""
        self._sample.finish(self._connection, ticket, pieces)
