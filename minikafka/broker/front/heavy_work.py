"""Long computations for requests, run in a thread, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.broker.supervise import Ends

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.net.network import Connection

Result = TypeVar("Result")


class HeavyWork:
    """Runs one computation at a time, first come first served: demanding clients share one thread and leave the others for disk access.

    Invariant: a waiting caller holds at most its own request. Each computation bounds its own memory."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._turn = asyncio.Lock()
        #: Computations done so far.
        self.pieces = 0

    def start(self, request: Coroutine[Any, Any, None], name: str, connection: Connection) -> asyncio.Task[None]:
        """Serve a request that will call `run`. A failure closes its connection."""
        return self._environment.supervisor.start(request, name, ends=Ends("connection", connection.close))

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The function's result. The function must not touch anything that others change. Raises what it raises."""
        async with self._turn:
            self.pieces += 1
            result: Result = await self._environment.run_blocking(function, *arguments)
            return result
