"""Turns of the event loop for work in steps: one step per turn, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

from minikafka.net.garbage import collect_young

if TYPE_CHECKING:
    from minikafka.broker.supervise import Supervisor

Item = TypeVar("Item")
#: Items processed in one turn, at a few microseconds each.
STEP_ITEMS = 256
#: Steps after which young objects are looked at for garbage: some ten thousand.
STEPS_PER_COLLECTION = 4


async def in_steps(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yields the items; after every STEP_ITEMS items, other tasks get a turn."""
    for number, item in enumerate(items, 1):
        yield item
        if number % STEP_ITEMS == 0:
            await asyncio.sleep(0)


class Turns:
    """Gives out one step per turn. Invariant: between two steps of tasks that `await next()`, the loop has served all other events."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pending: asyncio.Handle | None = None
        #: Steps so far.
        self.taken = 0

    async def next(self) -> None:
        """Wait for the next free turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._ask()
        await waiter

    def _ask(self) -> None:
        if self._pending is None and self._waiting:
            self._pending = self._supervisor.call_soon("work in steps", self._give)

    def _give(self) -> None:
        self._pending = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.taken += 1
                if self.taken % STEPS_PER_COLLECTION == 0:
                    collect_young()
                break
        self._ask()
