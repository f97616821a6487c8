"""Measures how long turns of an event loop take and what the long ones run: a function that blocks the loop delays every client.

A second thread looks at the processor time of the loop's thread: every INTERVAL_S while the loop has work, every REST_S while it has next
to none. While it works, the thread asks the loop at each look to say when the turn is over, and samples the stack once the turn has become
long. A turn counts from that look, so up to INTERVAL_S of it, after a rest up to REST_S, is missing. All stalls that are longer than
STALL_S by as much are counted, and some shorter ones. A loop that rests is asked only every ASKED_S: a turn that waits without using
processor time, such as one for a disk, may be missed there if it is shorter than that. At rest, this costs less than 0.1 % of a core.

The thread does not look at the frames of the loop's thread, which is not safe (`thread_stack`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from minikafka.late_dataclass import dataclass
from minikafka.net.thread_stack import UNKNOWN, describe

logger = logging.getLogger("minikafka.loop")
INTERVAL_S = 0.05
#: A loop that uses a smaller share of a core than RESTING_SHARE is looked at so often.
REST_S = 0.1
RESTING_SHARE = 0.05
#: It is asked so often whether its turn is over.
ASKED_S = 0.5
#: After this time in one turn the thread samples the stack.
LONG_S = 0.08
#: A longer turn is a stall, and is logged; at most one line in WARNING_INTERVAL_S.
STALL_S = 0.1
WARNING_INTERVAL_S = 10.0
#: The longest turn is remembered for this long, and up to twice as long.
WINDOW_S = 60.0
#: A long turn with a smaller share of processor time than this was waiting for a processor.
IDLE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the loop. `wall_s`: its length; `cpu_s`: the loop thread's CPU time in it; `what`: the functions that ran, outermost
    first."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    what: str = UNKNOWN


class LoopWatch:
    """Watches one loop. Call `start` in a callback or coroutine of the loop, and `stop` at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._has_ended = False
        #: When the loop was asked last.
        self._asked_s = 0.0
        #: Since when the loop has been asked, and its thread's CPU time before; None: it has answered.
        self._turn: tuple[float, float] | None = None
        #: The sampled stack of this turn; None while it is not sampled. Set by the other thread.
        self._sampled: str | None = None
        self._window_s = 0.0
        #: The longest turns of the last window and of this one.
        self._longest = [Turn(), Turn()]
        self._last_warning_s = -WARNING_INTERVAL_S
        self._unlogged_stalls = 0
        #: Number of turns longer than STALL_S so far, and their total time.
        self.stalls = 0
        self.stalled_s = 0.0

    @property
    def longest(self) -> Turn:
        """The longest turn of the last minute or two."""
        self._begin_window()
        return max(self._longest, key=lambda turn: turn.wall_s)

    def forget(self) -> None:
        """Forget the longest turn, as a benchmark does before it measures."""
        self._longest = [Turn(), Turn()]

    def start(self) -> None:
        """Start watching."""
        self._loop_thread = threading.get_ident()
        self._window_s = time.monotonic()
        self._thread = threading.Thread(target=self._watch, args=(_cpu_clock(),), name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._has_ended = True

    def _begin_window(self) -> None:
        windows = (time.monotonic() - self._window_s) // WINDOW_S
        if windows:
            self._window_s += windows * WINDOW_S
            self._longest = [self._longest[1] if windows == 1 else Turn(), Turn()]

    # -- in the other thread -----------------------------------------------------------------------------------------

    def _watch(self, cpu_clock: Callable[[], float]) -> None:
        try:
            self._look_again_and_again(cpu_clock)
        except Exception:
            logger.exception("turns of the event loop are no longer measured")

    def _look_again_and_again(self, cpu_clock: Callable[[], float]) -> None:
        now_s, cpu_s, pause_s = time.monotonic(), cpu_clock(), INTERVAL_S
        while not self._has_ended:
            # Not an event's wait, which costs twice as much.
            time.sleep(pause_s)
            due_s, before_s, cpu_before_s = now_s + pause_s, now_s, cpu_s
            try:
                now_s, cpu_s = time.monotonic(), cpu_clock()
            except OSError:
                return  # the loop's thread has ended
            is_at_rest = cpu_s - cpu_before_s < RESTING_SHARE * (now_s - before_s)
            self._look(due_s, now_s, cpu_before_s, is_at_rest=is_at_rest)
            pause_s = REST_S if is_at_rest and self._turn is None else INTERVAL_S

    def _look(self, due_s: float, now_s: float, cpu_s: float, *, is_at_rest: bool) -> None:
        """Look at the loop's thread. `due_s`: when this look was due; `cpu_s`: the thread's CPU time at the last look."""
        turn = self._turn
        if turn is not None:
            if self._sampled is None and now_s - turn[0] > LONG_S - INTERVAL_S:
                what = describe(self._loop_thread)
                self._sampled = None if what == UNKNOWN else what
        # A late look has waited for a function that did not let other threads run, or for a processor.
        elif not is_at_rest or now_s - due_s > INTERVAL_S or now_s - self._asked_s >= ASKED_S:
            self._sampled = None
            self._turn, self._asked_s = (due_s, cpu_s), now_s
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._turn_ends)

    # -- in the loop -------------------------------------------------------------------------------------------------

    def _turn_ends(self) -> None:
        assert self._turn is not None
        since_s, cpu_since_s = self._turn
        now_s = time.monotonic()
        took_s, cpu_s = now_s - since_s, time.thread_time() - cpu_since_s
        self._begin_window()
        if took_s > self._longest[1].wall_s:
            self._longest[1] = Turn(took_s, cpu_s, self._sampled or UNKNOWN)
        if took_s > STALL_S:
            self.stalls += 1
            self.stalled_s += took_s
            self._log_stall(now_s, took_s, cpu_s)
        self._sampled, self._turn = None, None

    def _log_stall(self, now_s: float, late_s: float, cpu_s: float) -> None:
        self._unlogged_stalls += 1
        if now_s - self._last_warning_s < WARNING_INTERVAL_S:
            return
        if self._sampled is not None:
            cause = f" by {self._sampled}"
        else:
            cause = ", because the process got no processor time" if cpu_s < IDLE_SHARE * late_s else ""
        more = f"; {self._unlogged_stalls} stalls since the last such line" if self._unlogged_stalls > 1 else ""
        logger.warning("the event loop was blocked for %.0f ms (%.0f ms of CPU)%s%s", 1000 * late_s, 1000 * cpu_s, cause, more)
        self._last_warning_s, self._unlogged_stalls = now_s, 0


def _cpu_clock() -> Callable[[], float]:
    """The clock of this thread's CPU time, for other threads; macOS has only the process's."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
