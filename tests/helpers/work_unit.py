"""A unit of work in which tests bound a turn of the loop, since the same work takes twice as long on a busy core."""

from __future__ import annotations

import functools
import time


def unit_s() -> float:
    """Processor time of a fixed piece of work, about a millisecond: the best of some."""
    best = 1.0
    for _ in range(20):
        began_s = time.thread_time()
        total = [str(number) for number in range(8_000)]
        best = min(best, time.thread_time() - began_s)
        del total
    return best


usual_unit_s = functools.cache(unit_s)
