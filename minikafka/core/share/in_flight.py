"""The records of a share partition in flight, as runs: ranges of offsets with the same state."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter, itemgetter

from minikafka.core.share.state_batches import DeliveryState

#: The ticket of a run without a pending state change.
SETTLED = 0
#: The states of records that are not delivered again.
TERMINAL = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
_first = attrgetter("first")
_first_of, _last_of = itemgetter(0), itemgetter(1)


class Run:
    """Records from `first` to `last`, both included, with the same state. `ticket`: the write that will change the state to `target`; until
    it succeeds, `state` stays."""

    __slots__ = ("count", "deadline_ms", "first", "last", "member_id", "state", "target", "ticket")

    def __init__(self, first: int, last: int, state: DeliveryState, count: int, member_id: str = "", deadline_ms: int = 0) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.ticket = SETTLED
        self.target = state

    def __repr__(self) -> str:
        return f"{self.first}-{self.last} {self.state.name} {self.count} {self.member_id} {self.ticket}"

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether the run may be delivered."""
        return self.state is DeliveryState.AVAILABLE and not self.ticket

    @property
    def is_done(self) -> bool:
        """Whether the run will not be delivered again, whatever happens."""
        return self.state in TERMINAL and not self.ticket

    @property
    def is_gap(self) -> bool:
        """Whether the log had no records here when what follows was delivered."""
        return self.state is DeliveryState.ARCHIVED and not self.count

    @property
    def will_be_done(self) -> bool:
        """Whether the run will not be delivered again if the pending write succeeds."""
        return (self.target if self.ticket else self.state) in TERMINAL

    def become(self, state: DeliveryState) -> None:
        """Change the state; no member holds the run any more."""
        self.state = self.target = state
        self.member_id, self.deadline_ms, self.ticket = "", 0, SETTLED

    def is_like(self, other: Run) -> bool:
        """Whether both runs have the same state, so that they can be joined."""
        return (
            self.state is other.state
            and self.count == other.count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.ticket == other.ticket
            and self.target is other.target
        )

    def split(self, offset: int) -> Run:
        """Split the run before `offset`. This run keeps what is before it; the rest is returned."""
        rest = Run(offset, self.last, self.state, self.count, self.member_id, self.deadline_ms)
        rest.ticket, rest.target = self.ticket, self.target
        self.last = offset - 1
        return rest


class InFlight:
    """Runs without overlaps or gaps, in the order of offsets; and the batches of records that were first delivered together."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        #: (first, last) offsets, in order and without overlaps. The last batch may go on after the last run.
        self._batches: list[tuple[int, int]] = []

    def begin_batch(self, first: int, last: int) -> None:
        """These records are delivered for the first time, together. What is part of the last batch stays part of it."""
        if self._batches:
            first = max(first, self._batches[-1][1] + 1)
        if first <= last:
            self._batches.append((first, last))

    def batches(self, first: int, last: int) -> list[tuple[int, int]]:
        """(first, last) offsets of the batches that overlap a range."""
        begin = bisect_left(self._batches, first, key=_last_of)
        return self._batches[begin : bisect_right(self._batches, last, key=_first_of)]

    @property
    def last_of_batches(self) -> int:
        """The last offset of the last batch; -1 without batches."""
        return self._batches[-1][1] if self._batches else -1

    def append(self, run: Run) -> None:
        """Add a run at the end."""
        self.runs.append(run)

    def forget_batches(self, offset: int) -> None:
        """Forget the batches that end before an offset."""
        del self._batches[: bisect_left(self._batches, offset, key=_last_of)]

    def index_of(self, offset: int) -> int:
        """The index of the run that has an offset, or else of the first run after it."""
        place = bisect_right(self.runs, offset, key=_first) - 1
        return place if place >= 0 and self.runs[place].last >= offset else place + 1

    def between(self, first: int, last: int) -> Iterator[Run]:
        """The runs that overlap a range, without splitting them."""
        place = self.index_of(first)
        while place < len(self.runs) and self.runs[place].first <= last:
            yield self.runs[place]
            place += 1

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs that cover exactly a range; those at its ends are split."""
        place = self.index_of(first)
        found = []
        while place < len(self.runs) and self.runs[place].first <= last:
            run = self.runs[place]
            if run.first < first:
                self.runs.insert(place + 1, run.split(first))
            else:
                if run.last > last:
                    self.runs.insert(place + 1, run.split(last + 1))
                found.append(run)
            place += 1
        return found

    def drop_before(self, offset: int) -> None:
        """Drop everything before an offset."""
        self.forget_batches(offset)
        place = self.index_of(offset)
        del self.runs[:place]
        if self.runs and self.runs[0].first < offset:
            self.runs[0] = self.runs[0].split(offset)

    def merge(self) -> None:
        """Join neighbouring runs with the same state."""
        merged: list[Run] = []
        for run in self.runs:
            if merged and merged[-1].is_like(run):
                merged[-1].last = run.last
            else:
                merged.append(run)
        self.runs = merged
