"""Loaded by the brokers of a fuzzed cluster (this directory is in their PYTHONPATH): their watch measures every turn of the loop.

The watch itself (`minikafka.net.loop_watch`) looks from time to time. So its processor time is that of all turns since the last look, and
the longest turn is the one that took longest by the clock: on a busy machine, one that waited for a processor. Here each turn is measured
from the moment when the selector returns to its next call, in processor time of the loop's thread, and that of the longest counts. uvloop
cannot be measured so, and is left out.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from minikafka.net.loop_watch import LoopWatch, Turn
from minikafka.net.thread_stack import UNKNOWN, describe

sys.modules["uvloop"] = None  # type: ignore[assignment]
#: A turn that takes longer by the clock is looked at by the other thread, so often.
LOOKED_AT_S = 0.005
#: Codecs are compiled at their first use, several in a turn when several APIs are used for the first time; and the test kit imports what
#: makes a page of metrics in a turn. Neither is what is looked for.
NOT_LOOKED_FOR = ("compiler.", "control.")

_start = LoopWatch.start


def longest(watch: LoopWatch) -> Turn:
    """The turn of the last minute or two that used the most processor time."""
    watch._begin_window()
    return max(watch._longest, key=lambda turn: turn.cpu_s)


def start(watch: LoopWatch) -> None:
    """As `LoopWatch.start`; measures every turn from now on."""
    selector: Any = watch._loop._selector  # type: ignore[attr-defined]
    select, turn_began = selector.select, [0.0, 0.0]

    def select_between_turns(timeout: float | None = None) -> Any:
        cpu_s = time.thread_time() - turn_began[1]
        if cpu_s > watch._longest[1].cpu_s:
            what = watch._sampled or UNKNOWN
            if not any(name in what for name in NOT_LOOKED_FOR):
                watch._longest[1] = Turn(time.monotonic() - turn_began[0], cpu_s, what)
        turn_began[0] = 0.0
        events = select(timeout)
        watch._sampled = None
        turn_began[:] = time.monotonic(), time.thread_time()
        return events

    def sample() -> None:
        while not watch._has_ended:
            time.sleep(LOOKED_AT_S)
            began_s = turn_began[0]
            if began_s and watch._sampled is None and time.monotonic() - began_s > LOOKED_AT_S:
                watch._sampled = describe(watch._loop_thread)

    _start(watch)
    turn_began[:] = time.monotonic(), time.thread_time()
    selector.select = select_between_turns
    threading.Thread(target=sample, name="exact-turns", daemon=True).start()


LoopWatch.start = start  # type: ignore[method-assign]
LoopWatch._watch = lambda watch, cpu_clock: None  # type: ignore[method-assign]
LoopWatch.longest = property(longest)  # type: ignore[assignment]
