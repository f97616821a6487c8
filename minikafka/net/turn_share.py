"""How long one piece of work, and all connections together, may go on in a turn of the event loop before they give the loop back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
#: The time of a piece of work in a turn, without its last step.
SHARE_S = 0.005
#: For how long connections are served, together, before the loop has to turn. A period may begin in the midst of a turn, so a turn takes at
#: most twice this and what the last connection takes.
SERVING_S = 0.004


class TurnShares:
    """Begins shares of turns by a monotonic clock."""

    __slots__ = ("_monotonic_s",)

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s

    def begin(self) -> Callable[[], bool]:
        """Begin some work. The returned function tells after each step whether the rest must wait for another turn."""
        monotonic_s = self._monotonic_s
        over_s = monotonic_s() + SHARE_S
        return lambda: monotonic_s() >= over_s

    def take_some(self, steps: Generator[None, None, T]) -> bool:
        """Take a share of steps now. Returns whether these were all; else `take` goes on with them."""
        is_over = self.begin()
        return all(not is_over() for _ in steps)

    async def take(self, steps: Generator[None, None, T]) -> T:
        """Take steps, a share of them in each turn; their result."""
        is_over = self.begin()
        while True:
            try:
                next(steps)
            except StopIteration as over:
                result: T = over.value
                return result
            if is_over():
                await asyncio.sleep(0)
                is_over = self.begin()


class ServingTurns:
    """Lets the connections of a loop take turns: however many have requests at once, timers and other work are not kept waiting.

    A connection that finds the period over, and asks `admits` in vain, waits for a later turn of the loop. Connections are served in the
    order in which they began to wait, before those that have not waited.
    """

    __slots__ = ("_has_turned", "_loop", "_waiting", "over_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Until this monotonic time connections are served at once.
        self.over_s = 0.0
        #: Whether the loop has turned since the period began.
        self._has_turned = True
        self._waiting: deque[Callable[[], None]] = deque()

    def admits(self, now_s: float) -> bool:
        """Whether a connection may be served now. Begins a period if the last one is over and the loop has turned since it began."""
        if now_s < self.over_s:
            return True
        if not self._has_turned:
            return False
        self._has_turned = False
        self.over_s = now_s + SERVING_S
        self._loop.call_soon(self._next_turn)
        return True

    def wait(self, serve: Callable[[], None]) -> None:
        """Call `serve` in a later turn. Only after `admits` has refused: the next turn is then scheduled."""
        self._waiting.append(serve)

    def _next_turn(self) -> None:
        self._has_turned = True
        waiting = self._waiting
        while waiting and self.admits(monotonic()):
            waiting.popleft()()
