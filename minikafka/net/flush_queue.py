"""What is sent at the end of a loop's turn."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Flushable(Protocol):
    """What stands in a queue to send, or watches it."""

    def flush(self) -> None:
        """The loop's turn ends."""


class FlushQueue:
    """Connections of one loop with something to send; flushed together at the end of a wake-up."""

    __slots__ = ("_connections", "_loop", "_scheduled", "depth")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connections: list[Flushable] = []
        self._scheduled = False
        self.depth = 0

    def add(self, connection: Flushable) -> None:
        """Flush `connection` when the current read callback ends, or on the loop's next turn outside of one."""
        self._connections.append(connection)
        if not self.depth and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what has been queued."""
        self._scheduled = False
        while self._connections:
            connections, self._connections = self._connections, []
            for connection in connections:
                try:
                    connection.flush()
                except Exception as error:
                    # One that fails must not keep the others' answers back.
                    context = {"message": f"sending to {connection} failed inside", "exception": error, "protocol": connection}
                    self._loop.call_exception_handler(context)
                    close = getattr(connection, "close", None)
                    if close is not None:
                        close("sending failed inside")
