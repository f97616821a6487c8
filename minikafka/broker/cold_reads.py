"""Look-ups in logs that keep nobody waiting for the disk: what they miss in memory is read on other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.broker.supervise import Ends, Supervisor
from minikafka.storage.cold_reads import NotInMemory, looking

if TYPE_CHECKING:
    from minikafka.net.network import Connection
    from minikafka.storage.slice import FileSlice

T = TypeVar("T")
#: Reads at once; others use the same threads.
READ_THROUGH_AT_ONCE = 2


class ColdReads:
    """Reads through what look-ups miss, for those who ask for it. All look-ups of a node share it."""

    def __init__(self, run_blocking: Callable[..., Awaitable[object]], supervisor: Supervisor) -> None:
        self._run_blocking = run_blocking
        self._supervisor = supervisor
        self._reading = asyncio.Semaphore(READ_THROUGH_AT_ONCE)

    def read(self, missing: NotInMemory) -> Awaitable[None]:
        """Read what a look-up misses, before it is made again. Nothing is done before it is awaited, which it need not be."""
        return _Reading(self._reading, partial(self._run_blocking, missing.read_through))

    def read_slices(self, slices: list[FileSlice]) -> Awaitable[None]:
        """Read records that will be sent; as `read`."""
        return _Reading(self._reading, partial(self._run_blocking, _read_through, slices))

    async def look(self, look: Callable[[], T]) -> T:
        """Make a look-up, perhaps several times; its result. Other work may be done meanwhile. Raises what it raises."""
        steps = looking(look)
        while True:
            try:
                missing = next(steps)
            except StopIteration as over:
                result: T = over.value
                return result
            await self.read(missing)

    def look_for(self, connection: Connection, name: str, look: Callable[[], T], use: Callable[[T], None]) -> None:
        """As `look`, for a request of a connection: calls `use` with the result, now if nothing is missing."""
        steps = looking(look)
        try:
            missing = next(steps)
        except StopIteration as over:
            use(over.value)
        else:
            self._supervisor.start(self._later(steps, missing, use), name, ends=Ends("connection", connection.close))

    async def _later(self, steps: Generator[NotInMemory, None, T], missing: NotInMemory, use: Callable[[T], None]) -> None:
        while True:
            await self.read(missing)
            try:
                missing = next(steps)
            except StopIteration as over:
                use(over.value)
                return


class _Reading:
    """A reading to come. A coroutine would warn if nobody awaits it: a fetch ends with its connection, before its next step."""

    __slots__ = ("_gate", "_run")

    def __init__(self, gate: asyncio.Semaphore, run: Callable[[], Awaitable[object]]) -> None:
        self._gate = gate
        self._run = run

    def __await__(self) -> Generator[Any, None, None]:
        return self._read().__await__()

    async def _read(self) -> None:
        async with self._gate:
            await self._run()


def _read_through(slices: list[FileSlice]) -> None:
    for one in slices:
        one.read_through()
