"""How long the turns of an event loop take, and what the long ones run: whoever holds the loop holds up every client.

A timer on the loop measures by how much it is late; a thread beside it looks at what the loop's thread is doing when that gets much. Turns
are seen that take longer than INTERVAL_S, some of shorter ones too. Both together cost some 0.4 % of a core at rest.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType

logger = logging.getLogger("minikafka.loop")
INTERVAL_S = 0.05
#: From here on the thread looks at what runs.
LONG_S = 0.08
#: From here on a turn is a stall, and a line in the log; at most one line in LINES_BETWEEN_S.
STALL_S = 0.1
LINES_BETWEEN_S = 10.0
#: For so long, and up to twice as long, the longest turn is remembered.
WINDOW_S = 60.0
UNKNOWN = "unknown"
FRAMES_MAX = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """`wall_s`: how long; `cpu_s`: processor time of the loop's thread in it; `what`: the functions that ran, outermost first."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    what: str = UNKNOWN


class LoopWatch:
    """Watches one loop, from the thread that runs it. `start` it there; `stop` it at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._ended = threading.Event()
        self._due_s = self._cpu_s = 0.0
        self._seen: str | None = None
        self._window_s = 0.0
        self._longest = [Turn(), Turn()]
        self._told_s = -LINES_BETWEEN_S
        self._untold = 0
        #: Turns of more than STALL_S so far, and the time that they took.
        self.stalls = 0
        self.stalled_s = 0.0

    @property
    def longest(self) -> Turn:
        """The longest turn of the last minute or two."""
        return max(self._longest, key=lambda turn: turn.wall_s)

    def forget(self) -> None:
        """Begin anew, as a benchmark does before it measures."""
        self._longest = [Turn(), Turn()]

    def start(self) -> None:
        """Begin to watch."""
        self._loop_thread = threading.get_ident()
        self._window_s = time.monotonic()
        self._arm()
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._seen = None
        self._cpu_s = time.thread_time()
        self._due_s = time.monotonic() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._beat)

    def _beat(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self._due_s
        if now_s - self._window_s > WINDOW_S:
            self._window_s = now_s
            self._longest = [self._longest[1], Turn()]
        if late_s > self._longest[1].wall_s:
            turn = Turn(late_s, time.thread_time() - self._cpu_s, self._seen or UNKNOWN)
            self._longest[1] = turn
        if late_s > STALL_S:
            self.stalls += 1
            self.stalled_s += late_s
            self._tell(now_s, late_s, time.thread_time() - self._cpu_s)
        self._arm()

    def _tell(self, now_s: float, late_s: float, cpu_s: float) -> None:
        self._untold += 1
        if now_s - self._told_s < LINES_BETWEEN_S:
            return
        more = f", {self._untold} such since the last line" if self._untold > 1 else ""
        logger.warning("the event loop was held for %.0f ms (%.0f ms of CPU) by %s%s", 1000 * late_s, 1000 * cpu_s, self._seen, more)
        self._told_s, self._untold = now_s, 0

    def _look(self) -> None:
        """(The other thread.)"""
        while not self._ended.wait(INTERVAL_S):
            if self._seen is None and time.monotonic() - self._due_s > LONG_S - INTERVAL_S:
                self._seen = describe(sys._current_frames().get(self._loop_thread))


def describe(frame: FrameType | None) -> str:
    """The innermost of this project's functions on a stack, outermost first: "dispatch.Session.on_frame > produce._append"."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES_MAX:
        module = frame.f_globals.get("__name__", "")
        if isinstance(module, str) and module.startswith("minikafka."):
            names.append(f"{module.rpartition('.')[2]}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return " > ".join(reversed(names)) or UNKNOWN
