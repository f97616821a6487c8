"""Bounds the memory of batches that were prepared and not yet appended: a batch of a hundred bytes may become one of a megabyte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: Bytes of the prepared batches of all requests. The request that began first goes on beyond it, so that one ends.
PREPARED_BYTES_MAX = 32 << 20


class PreparedMemory:
    """The prepared batches of all Produce requests.

    Invariants: one batch is prepared at a time; while the bound is exceeded, it is one of the oldest request.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = PREPARED_BYTES_MAX if bytes_max is None else bytes_max
        #: Request -> bytes of its prepared batches, the oldest request first.
        self._held: dict[object, int] = {}
        self._used = 0
        self._is_busy = False
        self._waiting: dict[object, asyncio.Future[None]] = {}

    def begin(self, request: object) -> None:
        """A request is going to prepare batches."""
        self._held[request] = 0

    @asynccontextmanager
    async def turn(self, request: object) -> AsyncIterator[None]:
        """Prepare a batch inside, when there is room for it."""
        while self._is_busy or not self._has_room(request):
            waiter = self._waiting[request] = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                del self._waiting[request]
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
            self._wake()

    def add(self, request: object, size: int) -> int:
        """The batch that was prepared has `size` bytes. Returns the bytes of all of the request."""
        held = self._held[request] = self._held[request] + size
        self._used += size
        return held

    def end(self, request: object) -> None:
        """The request's batches are appended, or given up."""
        self._used -= self._held.pop(request)
        self._wake()

    def _has_room(self, request: object) -> bool:
        return self._used < self._bytes_max or next(iter(self._held)) is request

    def _wake(self) -> None:
        """Let the first one go on that may."""
        if self._is_busy or not self._waiting:
            return
        oldest = next(iter(self._held))
        first = oldest if oldest in self._waiting else next(iter(self._waiting))
        if self._has_room(first) and not self._waiting[first].done():
            self._waiting[first].set_result(None)
