"""Copies of a log's producer state in memory, from which a truncation goes on: without them it reads the whole active segment again.

A copy is bytes, so that nothing that happens to the state later reaches it, and it costs little memory: some 150 bytes for each producer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from struct import Struct
from typing import Protocol

#: A copy is made when so many batches were appended since the last one; each 8 KiB of records count as one more.
COPY_BATCHES = 2048
COPY_BATCH_SHIFT = 13
#: Producers, and transactions that are not stable, of one copy. A state that is larger is not copied.
COPIED_MAX = 1000
#: Copies of one log, and producers in all of them. Four copies of the largest state would take as much memory as the state.
COPIES_MAX = 16
COPIED_TOGETHER_MAX = 2 * COPIED_MAX

#: A producer: id, epoch, last timestamp, coordinator epoch, first offset of its transaction, then for each kept batch its last sequence,
#: last offset, offset delta and timestamp.
CopiedProducer = tuple[int, ...]
_FIELDS, _BATCH_FIELDS, _BATCHES_MAX = 5, 4, 5
_BY_BATCHES = [Struct(">Bqhqiq" + "iqiq" * batches) for batches in range(_BATCHES_MAX + 1)]


class Copyable(Protocol):
    """A producer's state."""

    def copied(self) -> CopiedProducer: ...


class ProducerCopy:
    """The state of the log below `end_offset`."""

    __slots__ = ("_data", "completed", "end_offset", "size")

    def __init__(self, end_offset: int, producers: Collection[Copyable], completed: tuple[tuple[int, int], ...]) -> None:
        """`completed`: (offset of the marker, first offset) of the transactions that ended but are not stable, ascending."""
        self.end_offset = end_offset
        self.completed = completed
        self._data = b"".join([_pack(producer.copied()) for producer in producers])
        #: Producers and transactions.
        self.size = len(producers) + len(completed)

    def producers(self) -> Iterator[CopiedProducer]:
        """The producers, in the order in which they were passed."""
        data, position = self._data, 0
        while position < len(data):
            entry = _BY_BATCHES[data[position]]
            yield entry.unpack_from(data, position)[1:]
            position += entry.size


class ProducerCopies:
    """The copies of one log, ascending by their offsets. The further a copy is from the end, the further it is from the next: going on
    from the copy below a cut takes no more than what is cut off, or than COPY_BATCHES."""

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        self._copies: list[ProducerCopy] = []

    @property
    def newest(self) -> ProducerCopy | None:
        """The copy with the highest offset; None if there is none."""
        return self._copies[-1] if self._copies else None

    @property
    def offsets(self) -> list[int]:
        """The end offsets of all copies."""
        return [copy.end_offset for copy in self._copies]

    def before(self, offset: int) -> int | None:
        """The end offset of the newest copy up to `offset`; None if there is none."""
        return max((copy.end_offset for copy in self._copies if copy.end_offset <= offset), default=None)

    def add(self, end_offset: int, producers: Collection[Copyable], completed: tuple[tuple[int, int], ...]) -> None:
        """Add a copy of the state of the log below `end_offset`, unless it is too large or there is one."""
        is_there = bool(self._copies) and self._copies[-1].end_offset >= end_offset
        if not is_there and len(producers) + len(completed) <= COPIED_MAX:
            self._copies.append(ProducerCopy(end_offset, producers, completed))
            self._thin_out()

    def keep_between(self, log_start_offset: int, log_end_offset: int) -> None:
        """Drop the copies that do not belong to (log start, log end]: those above tell of batches that are gone."""
        self._copies = [copy for copy in self._copies if log_start_offset < copy.end_offset <= log_end_offset]

    def fork(self) -> ProducerCopies:
        """The same copies, to which others may be added."""
        fork = ProducerCopies()
        fork._copies = self._copies[:]
        return fork

    def clear(self) -> None:
        """Drop all copies."""
        self._copies.clear()

    def _thin_out(self) -> None:
        copies = self._copies
        while len(copies) > COPIES_MAX or sum(copy.size for copy in copies) > COPIED_TOGETHER_MAX:
            del copies[self._least_needed()]

    def _least_needed(self) -> int:
        """The oldest copy without which its neighbours are no further apart than they are from the end; else the oldest."""
        offsets = self.offsets
        for index in range(1, len(offsets) - 1):
            if offsets[index + 1] - offsets[index - 1] <= offsets[-1] - offsets[index + 1]:
                return index
        return 0


def _pack(producer: CopiedProducer) -> bytes:
    batches = (len(producer) - _FIELDS) // _BATCH_FIELDS
    return _BY_BATCHES[batches].pack(batches, *producer)
