"""What a request makes a broker compute for long: done beside the loop, one piece at a time."""

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
    """One piece at a time, in order of coming: peers that ask for much share one thread, and leave the others to the disk.

    Invariant: whoever asks holds at most its own request meanwhile; what a piece may take in memory is its own bound."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._turn = asyncio.Lock()
        #: Pieces of work done so far.
        self.pieces = 0

    def start(self, request: Coroutine[Any, Any, None], name: str, connection: Connection) -> None:
        """Serve a request of a connection that will `run` something."""
        self._environment.supervisor.start(request, name, ends=Ends("connection", connection.close))

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The function's result; it may touch nothing that others change. Raises what it raises."""
        async with self._turn:
            self.pieces += 1
            result: Result = await self._environment.run_blocking(function, *arguments)
            return result
