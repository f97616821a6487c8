"""Deadlines of a deterministic core: heaps with lazy deletion."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
#: Deadlines that one call handles: the sessions of thousands may end at the same time, and each may take a millisecond.
EXPIRED_AT_ONCE = 16


class TimerQueue(Generic[Key]):
    """Keyed one-shot deadlines, in milliseconds of the caller's clock.

    Scheduling a key again replaces its deadline. Keys that are due at the same millisecond come out in the order in which they were
    scheduled, so that a run depends only on its inputs. Postponing a deadline leaves the heap as it is: the key's entry moves when it
    comes to the top.
    """

    __slots__ = ("_deadlines", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        #: Key -> its deadline, its order, and the order of its entry in the heap, which is due no later.
        self._deadlines: dict[Key, tuple[int, int, int]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        return key in self._deadlines

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, replacing the previous one."""
        order = self._order = self._order + 1
        before = self._deadlines.get(key)
        if before is not None and before[0] <= deadline_ms:
            self._deadlines[key] = (deadline_ms, order, before[2])
            return
        self._deadlines[key] = (deadline_ms, order, order)
        heapq.heappush(self._heap, (deadline_ms, order, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._deadlines):
            self._heap = [(due, order, name) for name, (due, order, _) in self._deadlines.items()]
            self._deadlines = {name: (due, order, order) for due, order, name in self._heap}
            heapq.heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Drop the deadline of `key`. Does nothing if there is none."""
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
            if self._confirm(key, order):
                return key, due
            heapq.heappop(heap)
        return None

    def _confirm(self, key: Key, order: int) -> bool:
        """Returns whether an entry at the top of the heap, or taken from it, has its key's deadline. Puts a new entry onto the heap if
        the deadline was postponed."""
        entry = self._deadlines.get(key)
        if entry is None or entry[2] != order:
            return False
        if entry[1] == order:
            return True
        due_ms, order, _ = entry
        self._deadlines[key] = (due_ms, order, order)
        heapq.heappush(self._heap, (due_ms, order, key))
        return False

    def expired(self, now_ms: int, most: int = EXPIRED_AT_ONCE) -> Generator[Key, None, None]:
        """Take out keys whose deadline is at or before `now_ms`, earliest first, and `most` at most: `next_deadline` tells of the others,
        and of those that were not asked for when the generator is closed.

        The caller may schedule and cancel while iterating. A key that is cancelled meanwhile does not come out. A key that is scheduled
        meanwhile comes out of a later call, even if it is due already, so every call ends, whatever deadlines peers ask for.
        """
        due: deque[tuple[int, int, Key]] = deque()
        while self._heap and self._heap[0][0] <= now_ms and len(due) < most:
            entry = heapq.heappop(self._heap)
            if self._confirm(entry[2], entry[1]):
                due.append(entry)
        try:
            while due:
                _, order, key = due.popleft()
                if self._confirm(key, order):
                    del self._deadlines[key]
                    yield key
        finally:
            for entry in due:
                heapq.heappush(self._heap, entry)

    def clear(self) -> None:
        """Forget every deadline."""
        self._heap.clear()
        self._deadlines.clear()


class DeadlineQueue(Generic[Key]):
    """Deadlines of very many keys that are usually postponed; a bounded number is examined at a time.

    The heap has each key with the earliest deadline that was noted since the key was last taken. The caller that takes a key checks whether
    it is really due, and otherwise notes it again. So postponing a deadline costs nothing, however often it happens.
    """

    __slots__ = ("_deadlines", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        self._deadlines: dict[Key, int] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def note(self, key: Key, deadline_ms: int) -> None:
        """Have `key` examined at `deadline_ms` at the latest."""
        noted = self._deadlines.get(key)
        if noted is not None and noted <= deadline_ms:
            return
        self._order += 1
        self._deadlines[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._order, key))

    def next_deadline(self) -> int | None:
        """No key is due before this time; None if there are no keys."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int, most: int) -> list[Key]:
        """Take out keys whose deadline is at or before `now_ms`, earliest first. At most `most` entries are examined."""
        taken: list[Key] = []
        heap = self._heap
        while most > 0 and heap and heap[0][0] <= now_ms:
            most -= 1
            deadline_ms, _, key = heapq.heappop(heap)
            if self._deadlines.get(key) == deadline_ms:
                del self._deadlines[key]
                taken.append(key)
        return taken
