"""The transactions of a log that are open, or completed but not stable yet. A begin, an end and a look at the oldest take the same time,
however many there are: recovery goes through this for every transaction of a log, and none becomes stable before its end."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class CompletedTransaction:
    """A transaction that ends with the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class OpenTransactions:
    """Transactions by the offset of their first record. They begin, and end, in the order of their offsets."""

    __slots__ = ("_completed", "_open", "unstable")

    def __init__(self) -> None:
        # A plain dict would pass all that was removed before it finds its first key.
        #: Producer ids of the open transactions by first offset, ascending.
        self._open: OrderedDict[int, int] = OrderedDict()
        #: First offsets of the open and the completed transactions, ascending.
        self.unstable: OrderedDict[int, None] = OrderedDict()
        #: (offset of the marker, first offset) of completed transactions that are not stable, ascending.
        self._completed: deque[tuple[int, int]] = deque()

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note a transaction. Only a damaged log or snapshot has one that begins before another that is known."""
        is_behind = bool(self.unstable) and next(reversed(self.unstable)) > first_offset
        self._open[first_offset] = producer_id
        self.unstable[first_offset] = None
        if is_behind:
            self._sort()

    def load(self, transactions: Iterable[tuple[int, int]], completed: Iterable[tuple[int, int]] = ()) -> None:
        """Note open transactions, (first offset, producer id) in any order, and those that `completed` gave."""
        self._open.update(transactions)
        self._completed.extend(completed)
        self.unstable.update((first_offset, None) for first_offset in self._open)
        self.unstable.update((first_offset, None) for _, first_offset in self._completed)
        self._sort()

    def completed(self) -> tuple[tuple[int, int], ...]:
        """(offset of the marker, first offset) of the completed transactions that are not stable, ascending by the marker."""
        return tuple(self._completed)

    def complete(self, completed: CompletedTransaction) -> None:
        """End a transaction; it stays unstable until the high watermark passes its marker."""
        if self._open.pop(completed.first_offset, None) is not None:
            self._completed.append((completed.last_offset, completed.first_offset))

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """First offset of the oldest transaction that was open when `completed` ended, else the offset after its marker.

        A follower publishes all transactions of a fetch at once, so those that began after the marker must not count. Apache Kafka's
        follower counts them (ProducerStateManager.lastStableOffset), so a search in its index may stop too early.
        """
        for first_offset, producer_id in self._open.items():
            if first_offset > completed.last_offset:
                break
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def stabilize(self, high_watermark: int) -> bool:
        """Drop completed transactions whose marker is below the high watermark. True if there were any."""
        completed, has_any = self._completed, False
        while completed and completed[0][0] < high_watermark:
            _, first_offset = completed.popleft()
            self.unstable.pop(first_offset, None)
            has_any = True
        return has_any

    def first_open(self) -> int | None:
        """First offset of the oldest open transaction; None if there is none."""
        return next(iter(self._open), None)

    def first_unstable(self) -> int | None:
        """First offset of the oldest transaction that is open or not stable; None if there is none."""
        return next(iter(self.unstable), None)

    def open(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of the open transactions, oldest first."""
        return [(producer_id, first_offset) for first_offset, producer_id in self._open.items()]

    def clear(self) -> None:
        """Forget all."""
        self._open.clear()
        self.unstable.clear()
        self._completed.clear()

    def _sort(self) -> None:
        for first_offset in sorted(self.unstable):
            self.unstable.move_to_end(first_offset)
        for first_offset in sorted(self._open):
            self._open.move_to_end(first_offset)
