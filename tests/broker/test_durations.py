"""Durations of syncs, which end on other threads than the one that shows them."""

from __future__ import annotations

import time

from minikafka.broker.measures.durations import Durations


def test_they_are_shown_while_a_sync_ends() -> None:
    """ "deque mutated during iteration": the page of metrics failed."""
    durations = Durations(time.perf_counter)

    class Then(float):
        """A time at which another sync ends as soon as somebody looks at it."""

        def __ge__(self, other: float) -> bool:
            durations.end(0.0)
            return True

    durations._kept.extend((Then(), 7.0) for _ in range(3))
    assert durations.quantiles()[0] == 7.0 and durations.count == 3
