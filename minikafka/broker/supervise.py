"""Supervises a node's background work: no unexpected exception goes unnoticed.

When a task or a callback fails, its state is unknown. So the node ends with an error, like Kafka's with its
`ProcessTerminatingFaultHandler`; the next start recovers from the disk as after a crash. If the failure concerns only a part of the node,
`Ends` names the part that ends instead: one connection, the controller's term, one shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from minikafka.late_dataclass import dataclass
from minikafka.net import tasks

T = TypeVar("T")
logger = logging.getLogger("minikafka.node")
NODE = "node"


class BrokenInvariant(Exception):
    """A node cannot continue because of an unexpected exception, which is the cause of this one."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The part of a node that an unexpected exception ends instead of the node."""

    #: The label of the metric: connection, term, shard, …
    kind: str
    #: Called with the reason.
    end: Callable[[str], object]


class Supervisor:
    """Starts the tasks and timers of one node and handles their exceptions.

    `failed` is set to the reason when the node cannot continue; `broken` is set, too, if that is an unexpected exception, also when the
    node is stopping already. `unexpected` counts unexpected exceptions by the kind of what they ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        self.broken: asyncio.Future[None] = loop.create_future()
        self.unexpected: Counter[str] = Counter()
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    # -- work ------------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, T], name: str, *, ends: Ends | None = None) -> asyncio.Task[T]:
        """Run `work` in the background until it ends or the node stops."""
        task = tasks.start(self._loop, work, name, lambda error: self.caught(name, error, ends))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_later(
        self, delay_s: float, name: str, work: Callable[..., object], *arguments: Any, ends: Ends | None = None
    ) -> asyncio.TimerHandle:
        """Call `work(*arguments)` in `delay_s` seconds."""
        return self._loop.call_later(delay_s, self._call, name, ends, work, arguments)

    def call_soon(self, name: str, work: Callable[..., object], *arguments: Any, ends: Ends | None = None) -> asyncio.Handle:
        """Call `work(*arguments)` in the loop's next turn."""
        return self._loop.call_soon(self._call, name, ends, work, arguments)

    def _call(self, name: str, ends: Ends | None, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        except Exception as error:
            self.caught(name, error, ends)

    @contextmanager
    def watching(self, name: str, *, ends: Ends | None = None) -> Iterator[None]:
        """Handle exceptions of the body. Use it in callbacks that other parts call."""
        try:
            yield
        except Exception as error:
            self.caught(name, error, ends)

    # -- exceptions ------------------------------------------------------------------------------------------------

    def caught(self, name: str, error: BaseException, ends: Ends | None = None) -> None:
        """Handle an unexpected exception of `name`: log it, count it, and end the part of the node that it concerns."""
        if self._closed:
            return
        kind = NODE if ends is None else ends.kind
        self.unexpected[kind] += 1
        logger.critical("%s failed unexpectedly, which ends the %s: %s", name, kind, _named(error), exc_info=error)
        reason = f"{name} failed unexpectedly: {_named(error)}"
        if ends is None:
            self.break_down(reason, error)
            return
        try:
            ends.end(reason)
        except Exception as second:
            logger.critical("the %s cannot be ended", kind, exc_info=second)
            self.break_down(f"{reason}; the {kind} cannot be ended: {_named(second)}", second)

    def break_down(self, reason: str, error: BaseException) -> None:
        """End the node because of an unexpected exception."""
        broken = BrokenInvariant(reason)
        broken.__cause__ = error
        if not self.broken.done():
            self.broken.set_result(None)
        self.fail(broken)

    def fail(self, reason: BaseException) -> None:
        """End the node. Only the first reason is kept."""
        if not self.failed.done():
            self.failed.set_result(reason)

    @property
    def is_broken(self) -> bool:
        """Whether an unexpected exception ends the node. Nothing in its memory can be trusted then."""
        return self.broken.done()

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler (`loop.set_exception_handler`), for exceptions that no task, timer or handler has caught.

        A failed callback ends the node. An exception with a `transport` or `protocol` ends only its connection, which the reporting code
        closes. A failed task belongs to a library and ends only itself: all tasks of the node are started by the supervisor.
        """
        error = context.get("exception")
        if not isinstance(error, Exception):
            loop.default_exception_handler(context)
        elif "transport" in context or "protocol" in context:
            self.caught(context.get("message", "a connection"), error, Ends("connection", _nothing))
        elif "handle" in context:
            self.caught(context.get("message", "a callback"), error)
        else:
            self.caught(context.get("message", "a task"), error, Ends("task", _nothing))

    def close(self) -> None:
        """The node has stopped: cancel the remaining tasks and ignore their exceptions."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _nothing(reason: str) -> None:
    """Nothing is left to end."""
