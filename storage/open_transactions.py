"""Transactions of one log that readers of what is committed cannot get beyond: those that are open, and those whose marker is not
replicated yet. What is asked on every append costs the same however many there are, and so does a whole recovery, for each batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator


class OpenTransactions:
    """Transactions by their first offsets.

    Invariants: `_open` is in the order of first offsets; `_ended` is in the order of markers, and `_least` holds those of it that have
    no later one with a smaller first offset: its first is the smallest of all.
    """

    __slots__ = ("_ended", "_least", "_open")

    def __init__(self) -> None:
        #: First offset -> producer id.
        self._open: dict[int, int] = {}
        #: (offset of the marker, first offset).
        self._ended: deque[tuple[int, int]] = deque()
        self._least: deque[int] = deque()

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction begins behind all others."""
        self._open[first_offset] = producer_id

    def restore(self, found: dict[int, int]) -> None:
        """Those that a snapshot holds as open: first offset -> producer id, in any order."""
        self.clear()
        self._open = dict(sorted(found.items()))

    def end(self, first_offset: int, marker_offset: int) -> None:
        """Its marker is in the log, behind all others."""
        if self._open.pop(first_offset, None) is None:
            return
        self._ended.append((marker_offset, first_offset))
        least = self._least
        while least and least[-1] > first_offset:
            least.pop()
        least.append(first_offset)

    def replicated(self, high_watermark: int) -> bool:
        """Forget those whose marker is replicated; whether there were any."""
        ended, least, before = self._ended, self._least, len(self._ended)
        while ended and ended[0][0] < high_watermark:
            _, first_offset = ended.popleft()
            if least[0] == first_offset:
                least.popleft()
        return len(ended) < before

    def clear(self) -> None:
        """As if nothing had been read yet."""
        self._open.clear()
        self._ended.clear()
        self._least.clear()

    @property
    def first_open(self) -> int | None:
        """Where the first of those begins that are open."""
        return next(iter(self._open), None)

    @property
    def first_offset(self) -> int | None:
        """Where the first of all begins."""
        first = self.first_open
        if self._least and (first is None or self._least[0] < first):
            return self._least[0]
        return first

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(first offset, producer id) of those that are open, in order."""
        return iter(self._open.items())
