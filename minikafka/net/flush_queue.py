"""Collects connections with queued bytes and lets them send at the end of a turn of the event loop."""

from __future__ import annotations

import asyncio
from typing import Protocol

from minikafka.net.turn_share import ServingTurns


class Flushable(Protocol):
    """A connection in the queue, or a watcher."""

    def flush(self) -> None:
        """Send now: the turn of the loop ends."""


class FlushQueue:
    """The connections of one loop that have something to send. `depth` is above 0 inside a read callback, which flushes at its end.
    `turns` tells a connection whether it may be served in this turn."""

    __slots__ = ("_connections", "_loop", "_scheduled", "depth", "turns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connections: list[Flushable] = []
        self._scheduled = False
        self.depth = 0
        self.turns = ServingTurns(loop)

    def add(self, connection: Flushable) -> None:
        """Flush `connection` when the current read callback ends, or on the loop's next turn outside of one."""
        self._connections.append(connection)
        if not self.depth and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Flush all connections in the queue."""
        self._scheduled = False
        while self._connections:
            connections, self._connections = self._connections, []
            for connection in connections:
                try:
                    connection.flush()
                except Exception as error:
                    # One failing connection must not hold back the others' responses.
                    context = {"message": f"sending to {connection} failed unexpectedly", "exception": error, "protocol": connection}
                    self._loop.call_exception_handler(context)
                    close = getattr(connection, "close", None)
                    if close is not None:
                        close("sending failed unexpectedly")
