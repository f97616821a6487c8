"""Java's priority queue, for choices of Kafka that depend on which of several equal items comes first."""

from __future__ import annotations

from typing import Generic, TypeVar

Item = TypeVar("Item")


class PriorityQueue(Generic[Item]):
    """A binary heap that orders equal keys like `java.util.PriorityQueue` (heapq does not). An item keeps the key that it was added
    with."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, Item]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, key: float, item: Item) -> None:
        """Add an item; it moves up past larger keys, but not past equal ones."""
        heap = self._heap
        heap.append((key, item))
        place = len(heap) - 1
        while place and key < heap[above := (place - 1) // 2][0]:
            heap[place], place = heap[above], above
        heap[place] = key, item

    def poll(self) -> Item:
        """Remove and return the item at the top; the last one replaces it and moves down past smaller keys. Raises IndexError if empty."""
        heap = self._heap
        entry = heap.pop()
        if not heap:
            return entry[1]
        top, place, count = heap[0], 0, len(heap)
        while (below := 2 * place + 1) < count:
            if below + 1 < count and heap[below][0] > heap[below + 1][0]:
                below += 1
            if entry[0] <= heap[below][0]:
                break
            heap[place], place = heap[below], below
        heap[place] = entry
        return top[1]
