"""A bound on the total memory of a broker's connections: one for clients (queued.max.request.bytes), one for other nodes."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Protocol

#: Default bound: one part in this many of the machine's memory, but at least BYTES_MIN, enough for a few of the largest requests.
SHARE_OF_MEMORY = 4
BYTES_MIN = 256 << 20
#: A connection of another node is read while it uses less than this, so that whoever forwards or sends very much stops neither replication
#: nor the quorum: their requests are smaller.
NODE_FREE_BYTES = 1 << 20


class Reader(Protocol):
    """A connection, as the budget sees it."""

    def memory_is_free(self) -> None:
        """Memory is available: continue reading."""

    def trim(self) -> None:
        """Free memory that is not needed at the moment."""


class MemoryBudget:
    """The memory of requests that are not yet answered and of responses that are not yet sent, over all connections.

    When the budget is spent, no connection is read until memory is freed, except for one that has received part of a request: it could not
    free its memory otherwise. So the bound is exceeded by one request at most, and by `free_bytes` a connection.
    """

    def __init__(self, bytes_max: int, free_bytes: int = 0) -> None:
        """`bytes_max`: -1 for the default, a share of the machine's memory. `free_bytes`: a connection that uses less is always read."""
        self.free_bytes = free_bytes
        self.bytes_max = bytes_max if bytes_max >= 0 else default_bytes()
        self.used = 0
        #: How often a connection had to stop reading.
        self.exhausted_total = 0
        #: Waiting connection -> whether it has received part of a request; longest waiting first.
        self.waiting: OrderedDict[Reader, bool] = OrderedDict()
        #: The one connection that may read although the budget is spent; and whether it has not yet received its request. No other one
        #: may before that request is answered: otherwise each would receive one in turn, however long the answers take.
        self.exempt: Reader | None = None
        self._is_exempt_reading = False
        #: Connections that `trim` may help, because their buffers are larger than the initial ones.
        self._trimmable: set[Reader] = set()

    @property
    def is_spent(self) -> bool:
        """Whether there is no memory left."""
        return self.used >= self.bytes_max

    def charge(self, amount: int) -> None:
        """Add to the bytes in use (or subtract, if negative)."""
        self.used += amount
        if amount < 0 and self.waiting and not self.is_spent:
            waiting, self.waiting = list(self.waiting), OrderedDict()
            for reader in waiting:
                reader.memory_is_free()

    def admits(self, reader: Reader, used: int = 0) -> bool:
        """Whether the connection may read. `used`: the bytes that it uses."""
        return self.used < self.bytes_max or used < self.free_bytes or (reader is self.exempt and self._is_exempt_reading)

    def note(self, reader: Reader, *, is_trimmable: bool) -> None:
        """Note whether the connection has memory that `trim` could free."""
        if is_trimmable:
            self._trimmable.add(reader)
        else:
            self._trimmable.discard(reader)

    def wait(self, reader: Reader, *, mid_request: bool) -> None:
        """Call `reader.memory_is_free` when there is memory. `mid_request`: it has received part of a request."""
        self.exhausted_total += 1
        self.waiting[reader] = mid_request
        for trimmable in list(self._trimmable):
            trimmable.trim()
        self._choose()

    def received(self, reader: Reader, *, is_answered: bool) -> None:
        """The connection has received a whole request. `is_answered`: none of its requests is served any more."""
        self.waiting.pop(reader, None)
        if reader is self.exempt:
            self._is_exempt_reading = False
            if is_answered:
                self.answered(reader)

    def answered(self, reader: Reader) -> None:
        """All requests of the connection are answered."""
        if reader is self.exempt and not self._is_exempt_reading:
            self.exempt = None
            self._choose()

    def done(self, reader: Reader) -> None:
        """The connection has closed."""
        self.waiting.pop(reader, None)
        if reader is self.exempt:
            self.exempt = None
            self._choose()

    def _choose(self) -> None:
        if self.exempt is None and self.is_spent:
            self.exempt = next((reader for reader, mid_request in self.waiting.items() if mid_request), None)
            if self.exempt is not None:
                self._is_exempt_reading = True
                del self.waiting[self.exempt]
                self.exempt.memory_is_free()


def default_bytes() -> int:
    """A quarter of the machine's memory, but at least BYTES_MIN."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // SHARE_OF_MEMORY, BYTES_MIN)
