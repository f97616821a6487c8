"""Metrics that clients have pushed, as samples: the newest value of each gauge and the total of each counter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice
from math import isfinite
from typing import NamedTuple

from minikafka.late_dataclass import dataclass

#: Most samples of one client, and of all clients of a broker. Further ones are dropped.
SERIES_OF_INSTANCE_MAX = 2000
SERIES_MAX = 20_000
#: How long a client's last samples are kept after its connection has ended, so that they can still be read.
KEPT_MS = 60_000

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value that a client pushes. `is_counter`: it only grows. `is_delta`: the value is the increase since the last push."""

    metric: str
    labels: Labels
    value: float
    is_counter: bool
    is_delta: bool


@dataclass(slots=True)
class InstanceSamples:
    """All samples of one client, (metric, labels) -> value. `labels` identify the client."""

    labels: Labels
    expires_ms: int
    counters: dict[tuple[str, Labels], float] = field(default_factory=dict)
    gauges: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.counters) + len(self.gauges)


class Series:
    """Samples by client instance. Invariant: each client has at least one sample, so that there are at most SERIES_MAX clients."""

    def __init__(self) -> None:
        self.by_instance: dict[bytes, InstanceSamples] = {}
        self.count = 0
        #: Number of points that were dropped for lack of room.
        self.dropped = 0

    def add(self, instance_id: bytes, client_labels: Labels, points: Sequence[Point], expires_ms: int) -> None:
        """A client has pushed points. `client_labels` identify it. They are kept until `expires_ms` unless it pushes again."""
        of_instance = self.by_instance.get(instance_id)
        if of_instance is None:
            of_instance = InstanceSamples(client_labels, expires_ms)
        of_instance.expires_ms = expires_ms
        before = len(of_instance)
        for point in points:
            values = of_instance.counters if point.is_counter else of_instance.gauges
            key = (point.metric, point.labels)
            if key in values:
                total = values[key] + point.value if point.is_delta else point.value
                values[key] = total if isfinite(total) else point.value
            elif len(of_instance) < SERIES_OF_INSTANCE_MAX and self.count + len(of_instance) - before < SERIES_MAX:
                values[key] = point.value
            else:
                self.dropped += 1
        self.count += len(of_instance) - before
        if of_instance:
            # A client without samples is not kept, because clients can make up any number of ids.
            self.by_instance[instance_id] = of_instance

    def leave(self, instance_id: bytes, now_ms: int) -> None:
        """A client's connection has ended: keep its samples for KEPT_MS."""
        of_instance = self.by_instance.get(instance_id)
        if of_instance is not None:
            of_instance.expires_ms = now_ms + KEPT_MS

    def expire(self, now_ms: int) -> None:
        """Drop the samples of clients that have expired."""
        for instance_id, of_instance in list(self.by_instance.items()):
            if of_instance.expires_ms <= now_ms:
                self.count -= len(of_instance)
                del self.by_instance[instance_id]

    def samples(self, samples_max: int, *, are_counters: bool) -> Iterator[list[tuple[dict[str, str], float]]]:
        """(labels, value) of all counters or of all gauges, in lists of at most `samples_max`. More may be pushed between two lists."""
        for of_instance in list(self.by_instance.values()):
            rows = iter(list((of_instance.counters if are_counters else of_instance.gauges).items()))
            while part := list(islice(rows, samples_max)):
                yield [(dict((("metric", metric), *of_instance.labels, *labels)), value) for (metric, labels), value in part]
