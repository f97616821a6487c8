"""One bound on the memory that all connections of a broker's clients take together (queued.max.request.bytes)."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Protocol

#: Without a bound in the configuration: a share of the machine's memory, and not less than a few of the largest requests.
SHARE_OF_MEMORY = 4
BYTES_MIN = 256 << 20


class Reader(Protocol):
    """A connection that waits for memory."""

    def memory_is_free(self) -> None:
        """It may read on."""

    def trim(self) -> None:
        """Give memory back that is not needed just now."""


class MemoryBudget:
    """What is received and not yet answered, and answered and not yet sent, over all connections.

    Once it is spent nobody is read from until some of it is free, but for one connection in the midst of a request, which would never give
    its memory back otherwise; so the bound is exceeded by one request at most.
    """

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: -1 for the share of the machine's memory."""
        self.bytes_max = bytes_max if bytes_max >= 0 else default_bytes()
        self.used = 0
        #: How often reading has stopped because of it.
        self.exhausted_total = 0
        self._waiting: OrderedDict[Reader, bool] = OrderedDict()
        self._favoured: Reader | None = None
        #: Those that have memory which they may not need.
        self._roomy: set[Reader] = set()

    @property
    def is_spent(self) -> bool:
        """Whether there is no memory left."""
        return self.used >= self.bytes_max

    def charge(self, amount: int) -> None:
        """Bytes more (or, negative, less) are in use."""
        self.used += amount
        if amount < 0 and self._waiting and not self.is_spent:
            waiting, self._waiting = list(self._waiting), OrderedDict()
            for reader in waiting:
                reader.memory_is_free()

    def admits(self, reader: Reader) -> bool:
        """Whether it may read."""
        return not self.is_spent or reader is self._favoured

    def note(self, reader: Reader, *, is_roomy: bool) -> None:
        """Whether it has memory that it could give back between two requests."""
        if is_roomy:
            self._roomy.add(reader)
        else:
            self._roomy.discard(reader)

    def wait(self, reader: Reader, *, in_midst: bool) -> None:
        """Tell it when there is memory. `in_midst`: it has received a part of a request."""
        self.exhausted_total += 1
        self._waiting[reader] = in_midst
        for roomy in list(self._roomy):
            roomy.trim()
        self._choose()

    def done(self, reader: Reader) -> None:
        """It is between two requests, or gone."""
        self._waiting.pop(reader, None)
        if reader is self._favoured:
            self._favoured = None
            self._choose()

    def _choose(self) -> None:
        if self._favoured is None and self.is_spent:
            self._favoured = next((reader for reader, in_midst in self._waiting.items() if in_midst), None)
            if self._favoured is not None:
                del self._waiting[self._favoured]
                self._favoured.memory_is_free()


def default_bytes() -> int:
    """A quarter of the memory of the machine."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // SHARE_OF_MEMORY, BYTES_MIN)
