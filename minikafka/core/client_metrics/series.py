"""What clients have told, as samples: the newest value of each gauge, and the sum of what each counter has grown by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import NamedTuple

#: Samples that are kept of one client, and of all clients of a broker. What is told beyond them is not kept.
SERIES_OF_INSTANCE_MAX = 2000
SERIES_MAX = 20_000
#: What a client told last is kept for so long after its connection has ended, so that it can still be read.
KEPT_MS = 60_000

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value that a client tells. `is_counter`: it only grows; `is_delta`: it has grown by that since it was told last."""

    metric: str
    labels: Labels
    value: float
    is_counter: bool
    is_delta: bool


@dataclass(slots=True)
class Told:
    """All that one client has told, (metric, labels) -> value, and who it is."""

    labels: Labels
    expires_ms: int
    counters: dict[tuple[str, Labels], float] = field(default_factory=dict)
    gauges: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.counters) + len(self.gauges)


class Series:
    """By client instance. Invariant: each has a sample, so that there are SERIES_MAX at most."""

    def __init__(self) -> None:
        self.by_instance: dict[bytes, Told] = {}
        self.count = 0
        #: Points for which there was no room.
        self.dropped = 0

    def add(self, instance_id: bytes, who: Labels, points: Sequence[Point], expires_ms: int) -> None:
        """A client, whom `who` names, has told these; they are kept until `expires_ms` unless it tells more."""
        of_instance = self.by_instance.get(instance_id)
        if of_instance is None:
            of_instance = Told(who, expires_ms)
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
            # Who has told nothing that is kept is not kept either: ids cost nothing.
            self.by_instance[instance_id] = of_instance

    def leave(self, instance_id: bytes, now_ms: int) -> None:
        """A client has gone."""
        of_instance = self.by_instance.get(instance_id)
        if of_instance is not None:
            of_instance.expires_ms = now_ms + KEPT_MS

    def expire(self, now_ms: int) -> None:
        """Forget what has been kept for long enough."""
        for instance_id, of_instance in list(self.by_instance.items()):
            if of_instance.expires_ms <= now_ms:
                self.count -= len(of_instance)
                del self.by_instance[instance_id]

    def samples(self, samples_max: int, *, are_counters: bool) -> Iterator[list[tuple[dict[str, str], float]]]:
        """(labels, value) of all counters, or of all gauges, at most so many at a time; between them more may be told."""
        for of_instance in list(self.by_instance.values()):
            rows = iter(list((of_instance.counters if are_counters else of_instance.gauges).items()))
            while part := list(islice(rows, samples_max)):
                yield [(dict((("metric", metric), *of_instance.labels, *labels)), value) for (metric, labels), value in part]
