"""Measures how long turns of an event loop take and what the long ones run: a function that blocks the loop delays every client.

A timer on the loop measures how late it fires. A second thread samples the loop thread's stack when the timer is very late. All turns
longer than INTERVAL_S are seen, and some shorter ones. Together they cost about 0.4 % of a core at rest.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

from types import FrameType

from minikafka.late_dataclass import dataclass

logger = logging.getLogger("minikafka.loop")
INTERVAL_S = 0.05
#: After this time in one turn the thread samples the stack.
LONG_S = 0.08
#: A longer turn is a stall, and is logged; at most one line in WARNING_INTERVAL_S.
STALL_S = 0.1
WARNING_INTERVAL_S = 10.0
#: The longest turn is remembered for this long, and up to twice as long.
WINDOW_S = 60.0
UNKNOWN = "unknown"
#: A long turn with a smaller share of processor time than this was waiting for a processor.
IDLE_SHARE = 0.1
FRAMES_MAX = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the loop. `wall_s`: its length; `cpu_s`: the loop thread's CPU time in it; `what`: the functions that ran, outermost
    first."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    what: str = UNKNOWN


class LoopWatch:
    """Watches one loop. Call `start` in the thread that runs the loop, and `stop` at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._ended = threading.Event()
        self._timer_due_s = self._cpu_s = 0.0
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
        return max(self._longest, key=lambda turn: turn.wall_s)

    def forget(self) -> None:
        """Forget the longest turn, as a benchmark does before it measures."""
        self._longest = [Turn(), Turn()]

    def start(self) -> None:
        """Start watching."""
        self._loop_thread = threading.get_ident()
        self._window_s = time.monotonic()
        self._arm()
        self._thread = threading.Thread(target=self._sample, name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._sampled = None
        self._cpu_s = time.thread_time()
        self._timer_due_s = time.monotonic() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._on_timer)

    def _on_timer(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self._timer_due_s
        if now_s - self._window_s > WINDOW_S:
            self._window_s = now_s
            self._longest = [self._longest[1], Turn()]
        if late_s > self._longest[1].wall_s:
            turn = Turn(late_s, time.thread_time() - self._cpu_s, self._sampled or UNKNOWN)
            self._longest[1] = turn
        if late_s > STALL_S:
            self.stalls += 1
            self.stalled_s += late_s
            self._log_stall(now_s, late_s, time.thread_time() - self._cpu_s)
        self._arm()

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

    def _sample(self) -> None:
        """Sample the loop thread's stack in long turns. Runs in the other thread."""
        while not self._ended.wait(INTERVAL_S):
            if self._sampled is None and time.monotonic() - self._timer_due_s > LONG_S - INTERVAL_S:
                self._sampled = describe(sys._current_frames().get(self._loop_thread))


def describe(frame: FrameType | None) -> str:
    """The innermost minikafka functions on a stack, outermost first: "dispatch.Session.on_frame > produce._append"."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES_MAX:
        module = frame.f_globals.get("__name__", "")
        if isinstance(module, str) and module.startswith("minikafka."):
            names.append(f"{module.rpartition('.')[2]}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return " > ".join(reversed(names)) or UNKNOWN
