"""Java's priority queue, where Kafka's choices depend on which of several least items it hands out."""

from __future__ import annotations

from typing import Generic, TypeVar

Item = TypeVar("Item")


class PriorityQueue(Generic[Item]):
    """A binary heap that keeps equal keys where `java.util.PriorityQueue` keeps them (heapq does not). A key is that of when it was
    added."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, Item]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, key: float, item: Item) -> None:
        """Goes up past larger keys, not past equal ones."""
        heap = self._heap
        heap.append((key, item))
        place = len(heap) - 1
        while place and key < heap[above := (place - 1) // 2][0]:
            heap[place], place = heap[above], above
        heap[place] = key, item

    def poll(self) -> Item:
        """The item at the top; the last one takes its place and goes down past smaller keys. Raises IndexError when empty."""
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
