"""Virtual time: one scheduler for the whole simulated world, and an asyncio event loop for each of its processes.

The scheduler runs one callback at a time, in the order (due time, number), and jumps to the next due time when nothing is ready. A paused
process keeps its callbacks for later, a dead one loses them. Code on a `ProcessLoop` is ordinary asyncio: tasks, futures, `sleep`,
`wait_for`. The idea comes from FoundationDB's Flow and Rust's turmoil and madsim.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import Any

_set_running_loop = events._set_running_loop


class Handle:
    """A scheduled callback, like asyncio's Handle and TimerHandle."""

    __slots__ = ("_args", "_callback", "_when", "loop")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], loop: ProcessLoop, when: float = 0.0) -> None:
        self._callback: Callable[..., Any] | None = callback
        self._args = args
        self._when = when
        self.loop = loop

    def cancel(self) -> None:
        """The callback will not run."""
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._callback is None

    def when(self) -> float:
        """Due time in seconds of the loop's clock."""
        return self._when


class Scheduler:
    """Runs the callbacks of every process. `now` is in seconds since the world began and never goes back."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._order = 0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._stop_requested = False

    def ready(self, handle: Handle) -> None:
        """Run after everything that became ready before."""
        self._ready.append(handle)

    def at(self, when: float, handle: Handle) -> None:
        """Run at time `when`, after everything already scheduled for that time."""
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, handle))

    def stop(self) -> None:
        """Let `run` return after the callback that is running."""
        self._stop_requested = True

    def run(self, until: float) -> None:
        """Run until the time `until` (everything due before it has run) or until `stop`."""
        ready, timers, pop = self._ready, self._timers, heapq.heappop
        popleft = ready.popleft
        self._stop_requested = False
        current: ProcessLoop | None = None
        before = events._get_running_loop()
        try:
            while True:
                now = self.now
                while ready:
                    handle = popleft()
                    callback = handle._callback
                    if callback is None:
                        continue
                    loop = handle.loop
                    if loop.is_dead:
                        continue
                    if loop.paused_until > now:
                        loop.hold(handle)
                        continue
                    if loop is not current:
                        current = loop
                        _set_running_loop(loop)
                    self.steps += 1
                    try:
                        # Not in the task's context: no code that runs here uses context variables.
                        callback(*handle._args)
                    except Exception as error:
                        loop.call_exception_handler({"message": f"exception in callback {callback}", "exception": error})
                    if loop.turn_s:
                        loop.pause(now + loop.turn_s)
                    if self._stop_requested:
                        return
                if not timers or timers[0][0] > until:
                    break
                when, _, handle = pop(timers)
                self.now = when if when > now else now
                if handle._callback is not None:
                    ready.append(handle)
                while timers and timers[0][0] == when:
                    ready.append(pop(timers)[2])
            self.now = max(self.now, until)
        finally:
            _set_running_loop(before)


#: Any, because a type checker rejects a loop that does not implement sockets, signals and processes.
_Loop: Any = asyncio.AbstractEventLoop


class ProcessLoop(_Loop):  # type: ignore[misc]
    """The event loop of one simulated process. `rate`: seconds of its monotonic clock per second of the world. `turn_s`: how long every
    callback takes, to simulate an overloaded machine; 0: no time at all."""

    def __init__(self, scheduler: Scheduler, name: str, *, rate: float = 1.0, on_error: Callable[[str, dict[str, Any]], None]) -> None:
        self.name = name
        self.scheduler = scheduler
        self.is_dead = False
        self.paused_until = -1.0
        self.rate = rate
        self.turn_s = 0.0
        self._on_error = on_error
        self._held: list[Handle] = []
        self._put = scheduler._ready.append

    def __repr__(self) -> str:
        return f"ProcessLoop({self.name})"

    # -- life ------------------------------------------------------------------------------------------------------

    def pause(self, until: float) -> None:
        """Run nothing until the world's time `until`; then run everything that is due at once."""
        if until > self.paused_until and until > self.scheduler.now:
            self.paused_until = until

    def resume(self) -> None:
        """End the pause now."""
        if self.paused_until > self.scheduler.now:
            self.paused_until = self.scheduler.now
            self._release()

    def hold(self, handle: Handle) -> None:
        """Keep a callback until the pause ends."""
        if not self._held:
            self.scheduler.at(self.paused_until, Handle(self._release, (), _ALWAYS))
        self._held.append(handle)

    def _release(self) -> None:
        held, self._held = self._held, []
        for handle in held:
            self.scheduler.ready(handle)

    def kill(self) -> None:
        """End the process: none of its callbacks runs any more."""
        self.is_dead = True
        self._held.clear()

    # -- asyncio ---------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds of this process's monotonic clock."""
        rate = self.rate
        return self.scheduler.now if rate == 1.0 else self.scheduler.now * rate

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> Handle:
        """See asyncio."""
        handle = Handle(callback, args, self)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """See asyncio."""
        if self.rate != 1.0:
            return self.call_at(self.time() + delay, callback, *args)
        scheduler = self.scheduler
        now = scheduler.now
        when = now + delay if delay > 0.0 else now
        handle = Handle(callback, args, self, when)
        scheduler._order = order = scheduler._order + 1
        heappush(scheduler._timers, (when, order, handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """See asyncio."""
        handle = Handle(callback, args, self, when)
        # Rounding must not fire a timer too early: with another rate it fires a microsecond late.
        due = when if self.rate == 1.0 else when / self.rate + 1e-6
        self.scheduler.at(max(due, self.scheduler.now), handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None) -> asyncio.Task[Any]:
        """See asyncio."""
        # Named, because asyncio's own names count over the whole interpreter.
        return asyncio.Task(coro, loop=self, name=name or self.name, context=context)

    def get_debug(self) -> bool:
        """Always false."""
        return False

    def is_running(self) -> bool:
        """Whether the current callback runs on this loop."""
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        """Whether the process is dead."""
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an unhandled exception to the world, unless the process is dead."""
        if not self.is_dead:
            self._on_error(self.name, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """As `call_exception_handler`."""
        self.call_exception_handler(context)


_ALWAYS = ProcessLoop(Scheduler(), "scheduler", on_error=lambda name, context: None)
