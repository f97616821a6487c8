"""Deadlines of a deterministic core: a heap with lazy deletion."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class TimerQueue(Generic[Key]):
    """Keyed one-shot deadlines, in milliseconds of the caller's clock.

    Scheduling a key again replaces its deadline. Keys that are due at the same millisecond come out in the order in
    which they were scheduled, so that a run depends on nothing but its inputs.
    """

    __slots__ = ("_deadlines", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        self._deadlines: dict[Key, tuple[int, int]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        return key in self._deadlines

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`; an earlier one is forgotten."""
        self._order += 1
        self._deadlines[key] = (deadline_ms, self._order)
        heapq.heappush(self._heap, (deadline_ms, self._order, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._deadlines):
            self._heap = [(due, order, name) for name, (due, order) in self._deadlines.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Forget the deadline of `key`; harmless when there is none."""
        self._deadlines.pop(key, None)

    def next_deadline(self) -> int | None:
        """The earliest deadline, or None when nothing is scheduled."""
        first = self.first()
        return None if first is None else first[1]

    def first(self) -> tuple[Key, int] | None:
        """The key that is due first, and when; None when nothing is scheduled."""
        heap = self._heap
        while heap:
            due, order, key = heap[0]
            if self._deadlines.get(key) == (due, order):
                return key, due
            heapq.heappop(heap)
        return None

    def expired(self, now_ms: int) -> Iterator[Key]:
        """Take out every key whose deadline is at or before `now_ms`, earliest first.

        The caller may schedule and cancel while iterating: a key cancelled meanwhile does not come out.
        """
        while (due := self.next_deadline()) is not None and due <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            del self._deadlines[key]
            yield key

    def clear(self) -> None:
        """Forget every deadline."""
        self._heap.clear()
        self._deadlines.clear()
