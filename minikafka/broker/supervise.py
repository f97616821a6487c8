"""The owner of a node's background work: an exception that nobody expected never ends anything in silence.

A task or a callback that fails leaves a state that nobody knows. So the node ends, loudly, as Kafka's does by its
`ProcessTerminatingFaultHandler`; its next life recovers from the disk as after a crash. Where less is concerned, `Ends` says what ends in
the node's place: one connection, the controller's term, one shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from minikafka.net import tasks

T = TypeVar("T")
logger = logging.getLogger("minikafka.node")
NODE = "node"


class BrokenInvariant(Exception):
    """A node cannot go on, because of an exception that nobody expected; its cause is that exception."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What an unexpected exception ends in the node's place."""

    #: The label of the metric: connection, term, shard, …
    kind: str
    #: Called with the reason.
    end: Callable[[str], object]


class Supervisor:
    """Starts the tasks and timers of one node and hears of their exceptions.

    `failed` is set to the reason when the node cannot go on. `unexpected` counts exceptions that nobody expected, by what they ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        self.unexpected: Counter[str] = Counter()
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    # -- work ------------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, T], name: str, *, ends: Ends | None = None) -> asyncio.Task[T]:
        """Run `work` in the background until it ends or the node stops."""
        task = tasks.start(self._loop, work, name, lambda error: self.caught(name, error, ends))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_later(
        self, delay_s: float, name: str, work: Callable[..., object], *arguments: Any, ends: Ends | None = None
    ) -> asyncio.TimerHandle:
        """Call `work(*arguments)` in `delay_s` seconds."""
        return self._loop.call_later(delay_s, self._call, name, ends, work, arguments)

    def call_soon(self, name: str, work: Callable[..., object], *arguments: Any, ends: Ends | None = None) -> asyncio.Handle:
        """Call `work(*arguments)` in a turn of its own."""
        return self._loop.call_soon(self._call, name, ends, work, arguments)

    def _call(self, name: str, ends: Ends | None, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        except Exception as error:
            self.caught(name, error, ends)

    @contextmanager
    def watching(self, name: str, *, ends: Ends | None = None) -> Iterator[None]:
        """Around what somebody else calls: its exceptions end here."""
        try:
            yield
        except Exception as error:
            self.caught(name, error, ends)

    # -- exceptions ------------------------------------------------------------------------------------------------

    def caught(self, name: str, error: BaseException, ends: Ends | None = None) -> None:
        """`name` has raised what nobody expected: say so, count it, and end what it concerns."""
        if self._closed:
            return
        kind = NODE if ends is None else ends.kind
        self.unexpected[kind] += 1
        logger.critical("%s failed inside, which ends the %s: %s", name, kind, _named(error), exc_info=error)
        reason = f"{name} failed inside: {_named(error)}"
        if ends is None:
            self.break_down(reason, error)
            return
        try:
            ends.end(reason)
        except Exception as second:
            logger.critical("the %s cannot be ended", kind, exc_info=second)
            self.break_down(f"{reason}; the {kind} cannot be ended: {_named(second)}", second)

    def break_down(self, reason: str, error: BaseException) -> None:
        """A broken invariant of ours: the node ends."""
        broken = BrokenInvariant(reason)
        broken.__cause__ = error
        self.fail(broken)

    def fail(self, reason: BaseException) -> None:
        """The node cannot go on. The first reason counts."""
        if not self.failed.done():
            self.failed.set_result(reason)

    @property
    def is_broken(self) -> bool:
        """Whether the node ends because of an exception that nobody expected: nothing that it has in memory can be relied on."""
        return self.failed.done() and isinstance(self.failed.result(), BrokenInvariant)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler (`loop.set_exception_handler`), for what no task, timer or handler has caught.

        A callback that fails ends the node. What asyncio says of a connection (`transport`, `protocol`) ends that connection, which whoever
        says so sees to. A task or future whose exception nobody fetched belongs to a library, for ours are started here.
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
        """The node has stopped: cancel what still runs, and take no notice of what that brings."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _nothing(reason: str) -> None:
    """It has ended by itself."""
