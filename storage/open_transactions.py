"""The transactions of a log that are open, or completed but not stable yet. A begin, an end and a look at the oldest take the same time,
however many there are: recovery goes through this for every transaction of a log, and none becomes stable before its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from minikafka.late_dataclass import dataclass

#: Offsets of ended transactions that a heap keeps below one that is open, besides as many as there are open ones.
ENDED_MAX = 64


@dataclass(slots=True)
class CompletedTransaction:
    """A transaction that ends with the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class OpenTransactions:
    """Transactions by the offset of their first record. Heaps, from which those that ended are taken when they come to the top: a damaged
    log may begin transactions in any order."""

    __slots__ = ("_begun", "_completed", "_first", "_open", "unstable")

    def __init__(self) -> None:
        #: Producer ids of the open transactions by first offset.
        self._open: dict[int, int] = {}
        #: First offsets of the open and the completed transactions.
        self.unstable: set[int] = set()
        #: Heaps of first offsets: all that are in `_open`, and all in `unstable`, among others.
        self._begun: list[int] = []
        self._first: list[int] = []
        #: (offset of the marker, first offset) of completed transactions that are not stable, ascending.
        self._completed: deque[tuple[int, int]] = deque()

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note a transaction. Only a damaged log or snapshot has one that begins before another that is known."""
        self._open[first_offset] = producer_id
        self.unstable.add(first_offset)
        heappush(self._begun, first_offset)
        heappush(self._first, first_offset)
        if len(self._begun) > 2 * len(self._open) + ENDED_MAX:
            self._begun = sorted(self._open)
        if len(self._first) > 2 * len(self.unstable) + ENDED_MAX:
            self._first = sorted(self.unstable)

    def load(self, transactions: Iterable[tuple[int, int]], completed: Iterable[tuple[int, int]] = ()) -> None:
        """Note open transactions, (first offset, producer id) in any order, and those that `completed` gave."""
        self._open.update(transactions)
        self._completed.extend(completed)
        self.unstable.update(self._open, (first_offset for _, first_offset in self._completed))
        self._begun, self._first = sorted(self._open), sorted(self.unstable)

    def completed(self) -> tuple[tuple[int, int], ...]:
        """(offset of the marker, first offset) of the completed transactions that are not stable, ascending by the marker."""
        return tuple(self._completed)

    def complete(self, completed: CompletedTransaction) -> None:
        """End a transaction; it stays unstable until the high watermark passes its marker."""
        if self._open.pop(completed.first_offset, None) is not None:
            self._completed.append((completed.last_offset, completed.first_offset))

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """First offset of the oldest transaction that was open when `completed` ended, else the offset after its marker. Call it after
        `complete`, before other transactions that end later.

        A follower publishes all transactions of a fetch at once, so those that began after the marker must not count. Apache Kafka's
        follower counts them (ProducerStateManager.lastStableOffset), so a search in its index may stop too early.
        """
        oldest = self.first_open()
        return completed.last_offset + 1 if oldest is None or oldest > completed.last_offset else oldest

    def stabilize(self, high_watermark: int) -> bool:
        """Drop completed transactions whose marker is below the high watermark. True if there were any."""
        completed, has_any = self._completed, False
        while completed and completed[0][0] < high_watermark:
            _, first_offset = completed.popleft()
            self.unstable.discard(first_offset)
            has_any = True
        return has_any

    def first_open(self) -> int | None:
        """First offset of the oldest open transaction; None if there is none."""
        begun = self._begun
        while begun and begun[0] not in self._open:
            heappop(begun)
        return begun[0] if begun else None

    def first_unstable(self) -> int | None:
        """First offset of the oldest transaction that is open or not stable; None if there is none."""
        first = self._first
        while first and first[0] not in self.unstable:
            heappop(first)
        return first[0] if first else None

    def open(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of the open transactions, oldest first."""
        return [(self._open[first_offset], first_offset) for first_offset in sorted(self._open)]

    def clear(self) -> None:
        """Forget all."""
        self._open.clear()
        self.unstable.clear()
        self._completed.clear()
        self._begun, self._first = [], []
