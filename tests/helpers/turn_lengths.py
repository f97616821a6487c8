"""The longest callback of an event loop, in processor time and in units of work."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from helpers.work_unit import unit_s, usual_unit_s

#: Processor time of a turn, in units of `unit_s`: what is promised is 20 ms, and a unit is half a millisecond where nothing else runs.
#: The longest take some 28. Served in one turn, most of these frames take 500.
TURN_UNITS = 40
#: Whatever is long by chance is not so in each of so many attempts.
ATTEMPTS = 5


class Turns:
    """The longest callback of the loop, in processor time."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.what = ""


@contextmanager
def measured() -> Iterator[Turns]:
    """Measure every callback. The collector of garbage runs when it wants: without it the figure is that of the work."""
    turns, run = Turns(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began_s = time.thread_time()
        run(handle)
        took_s = time.thread_time() - began_s
        if took_s > turns.longest_s:
            turns.longest_s, turns.what = took_s, repr(handle)[:200]

    gc.disable()
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield turns
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.enable()


async def too_long(work: Callable[[], Awaitable[Any]], units: int = TURN_UNITS) -> str:
    """What of `work` makes a turn long, and how long; empty if nothing does. A unit is measured anew after whatever seems long, and the
    slowest so far counts: neighbours come and go meanwhile."""
    slowest_s = usual_unit_s()
    for _ in range(ATTEMPTS):
        with measured() as turns:
            await work()
        if turns.longest_s > units * slowest_s:
            slowest_s = max(slowest_s, unit_s())
        if turns.longest_s <= units * slowest_s:
            return ""
    return f"{1000 * turns.longest_s:.1f} ms of {1000 * units * slowest_s:.1f} in {turns.what}"
