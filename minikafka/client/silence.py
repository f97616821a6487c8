"""Tells the user of a command that no broker answers, while its clients go on trying."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from minikafka.client.errors import TRANSPORT_ERRORS, NoBrokers

Answer = TypeVar("Answer")
#: Called with the brokers' addresses, and for how many seconds the client goes on at most (None: unknown), when none of them has answered
#: for a while. Commands set it.
on_silence: ContextVar[Callable[[str, float | None], None] | None] = ContextVar("on_silence", default=None)
#: For how long nothing may be heard: before the first answer, and later, when a broker may need its time for an answer.
FIRST_S, LATER_S = 1.0, 2.5


class Silence:
    """Watches one client while it waits for brokers. A failed attempt ends no silence, so that attempts that fail soon are noticed, too."""

    def __init__(self, addresses: Callable[[], str], heard_s: Callable[[], float], is_first: Callable[[], bool]) -> None:
        """`heard_s`: when a broker last answered, by the loop's clock."""
        self._addresses = addresses
        self._heard_s = heard_s
        self._is_first = is_first
        self._waiting = 0
        self._until_s: float | None = None
        #: Stays when it has fired, until somebody answers: each silence is told once.
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watched(self, until_s: float | None = None, *, more_s: float = 0.0) -> Iterator[None]:
        """Somebody waits here for a broker, until this time of the loop. `more_s`: a broker may take as much longer to answer."""
        say = on_silence.get()
        if say is None:
            yield
            return
        self._waiting += 1
        if until_s is not None:
            self._until_s = until_s
        if self._timer is None:
            self._begin(say, more_s)
        is_answered = True
        try:
            yield
        except (NoBrokers, *TRANSPORT_ERRORS):
            is_answered = False
            raise
        finally:
            self._waiting -= 1
            if is_answered and not self._waiting:
                self.end()

    async def during(self, work: Awaitable[Answer], *, more_s: float = 0.0) -> Answer:
        """The result of `work`, watched."""
        with self.watched(more_s=more_s):
            return await work

    def end(self) -> None:
        """Somebody has answered, or nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._until_s = None

    def _begin(self, say: Callable[[str, float | None], None], more_s: float) -> None:
        loop = asyncio.get_running_loop()
        delay_s = (FIRST_S if self._is_first() else LATER_S) + more_s
        self._timer = loop.call_later(delay_s, self._look, say, more_s, loop.time())

    def _look(self, say: Callable[[str, float | None], None], more_s: float, begun_s: float) -> None:
        if self._heard_s() > begun_s:
            self._timer = None
            if self._waiting:
                self._begin(say, more_s)
        else:
            left_s = None if self._until_s is None else max(self._until_s - asyncio.get_running_loop().time(), 0.0)
            say(self._addresses(), left_s)
