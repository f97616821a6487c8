"""The phases of requests, measured on a sample of them.

The phases are Kafka's (kafka.network.RequestChannel.Request.updateRequestMetrics), mapped to this broker:

    request queue   from arrival to the handler: earlier requests of the same read are served first
    local           in the handler
    remote          parked, waiting for in-sync replicas, for enough bytes to fetch, or for the controller
    response queue  from the answer to the system call that sends it, at the end of the turn
    response send   in that system call

At most one request per 50 ms is timed on each connection. The others cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from minikafka.net.stand_in import StandIn

#: Time between two samples of a connection. It is longer if many connections would exceed SAMPLES_A_SECOND.
INTERVAL_S = 0.05
SAMPLES_A_SECOND = 400
SAMPLES_KEPT = 256
#: Older samples are ignored, as in Kafka's histograms.
WINDOW_S = 300.0
QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
PHASES = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")


class RequestTimes:
    """Samples by request name: deques of (time when the answer was sent in s, the six phases in ms)."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s`: a monotonic clock in seconds, with a resolution below a millisecond."""
        self.now_s = now_s
        self.samples: dict[str, deque[tuple[float, ...]]] = {}
        self.connections = 0

    @property
    def interval_s(self) -> float:
        """Minimum time between two samples of one connection."""
        return max(INTERVAL_S, self.connections / SAMPLES_A_SECOND)

    def record(self, name: str, at_s: float, phases_ms: Iterable[float]) -> None:
        """Record one request."""
        kept = self.samples.get(name)
        if kept is None:
            kept = self.samples[name] = deque(maxlen=SAMPLES_KEPT)
        kept.append((at_s, *phases_ms))

    def quantiles(self, name: str, phase: str) -> list[float]:
        """A phase's quantiles of the last five minutes, in ms; zeros without requests, as in Kafka."""
        since_s, number = self.now_s() - WINDOW_S, 1 + PHASES.index(phase)
        return quantiles_of([row[number] for row in self.samples.get(name, ()) if row[0] >= since_s])


def quantiles_of(values: list[float]) -> list[float]:
    """The values at QUANTILES; zeros without values."""
    if not values:
        return [0.0] * len(QUANTILES)
    values.sort()
    last = len(values) - 1
    return [values[round(share * last)] for _, share in QUANTILES]


class Sample:
    """A timed request in progress."""

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
        """The handler has returned, with or without an answer."""
        if not self._answered_s:
            self._handled_s = self._times.now_s()

    def finish(self, connection: Any, ticket: int, pieces: list[Any]) -> None:
        """Pass the answer to the connection, and record when it is sent."""
        self._answered_s = self._times.now_s()
        watch = getattr(connection, "watch_flush", None)
        if watch is None or not pieces:
            connection.finish(ticket, pieces)
            self._sending_s = self._answered_s
            self._record(self._answered_s)
            return
        # Queued before and after the connection, whose data is sent at the end of this turn.
        watch(self)
        connection.finish(ticket, pieces)
        watch(self)

    def flush(self) -> None:
        """Called twice at the end of the turn: before the connection sends, and afterwards."""
        self._flushes += 1
        if self._flushes == 1:
            self._sending_s = self._times.now_s()
        else:
            self._record(self._times.now_s())

    def _record(self, sent_s: float) -> None:
        arrived, started, answered, sending = self._arrived_s, self._begun_s, self._answered_s, self._sending_s
        handled = self._handled_s or answered
        phases = (started - arrived, handled - started, answered - handled, sending - answered, sent_s - sending, sent_s - arrived)
        in_ms = [1000 * seconds for seconds in phases]
        self._times.record(self.name, sent_s, in_ms)
        if self.name in ("FetchConsumer", "FetchFollower"):
            self._times.record("Fetch", sent_s, in_ms)


class TimedAnswers(StandIn):
    """Wraps a connection for a fast path, to time the answer."""

    __slots__ = ("_sample",)

    #: A timed request is served by itself.
    bytes_behind = 0

    def __init__(self, connection: Any, sample: Sample) -> None:
        super().__init__(connection)
        self._sample = sample

    def finish(self, ticket: int, pieces: list[Any]) -> None:
        """Pass the answer to the connection."""
        self._sample.finish(self._connection, ticket, pieces)
