"""Keeps the order of a connection's requests that go to the controller on two connections: one for short requests, one for long ones.

Apache Kafka serves a connection's requests one after the other. A client that sends a change and, without waiting for the answer, another
of the same thing must not find the second one done first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class _Group:
    """Requests of one connection that follow each other and are all short or all long. `before` is done when those before them are, `done`
    when they are, too."""

    __slots__ = ("before", "done", "is_long", "left")

    def __init__(self, is_long: bool, before: asyncio.Future[None] | None) -> None:
        self.is_long = is_long
        self.before = before
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = 0


class ConnectionOrder:
    """A long request waits until the short ones of its connection that came before it are done, and the other way round. Nothing is kept of
    a connection without requests here."""

    def __init__(self) -> None:
        #: Connection -> its last requests.
        self._last: dict[Hashable, _Group] = {}

    @asynccontextmanager
    async def turn(self, connection: Hashable, is_long: bool, timeout_ms: int) -> AsyncIterator[int]:
        """Wait for earlier requests. Yields the time that is left of `timeout_ms`. Raises TimeoutError."""
        group = self._last.get(connection)
        if group is None or group.is_long != is_long:
            group = self._last[connection] = _Group(is_long, None if group is None else group.done)
        group.left += 1
        try:
            yield timeout_ms if group.before is None else await _left_of(timeout_ms, group.before)
        finally:
            group.left -= 1
            self._settle(connection, group)

    def _settle(self, connection: Hashable, group: _Group) -> None:
        """End a group without requests, behind the one before it."""
        if group.left or group.done.done():
            return
        if group.before is not None and not group.before.done():
            group.before.add_done_callback(lambda _: self._settle(connection, group))
            return
        group.done.set_result(None)
        if self._last.get(connection) is group:
            del self._last[connection]


async def _left_of(timeout_ms: int, before: asyncio.Future[None]) -> int:
    """Wait for `before`. Returns the time that is left. Raises TimeoutError."""
    now_s = asyncio.get_running_loop().time
    began_s = now_s()
    await asyncio.wait([before], timeout=timeout_ms / 1000)
    if not before.done():
        raise TimeoutError("earlier requests of the connection were not answered in time")
    return max(1, timeout_ms - int((now_s() - began_s) * 1000))
