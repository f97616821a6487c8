"""The records of a share partition that are on their way: stretches of offsets of one fate each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from minikafka.core.share.state_batches import DeliveryState

#: No state change is under way.
SETTLED = 0
_TERMINAL = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
_first = attrgetter("first")


class Run:
    """Records from `first` to `last`. `ticket`: the write that will make it `target`; until then it is what it was."""

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
        """Whether it may be delivered."""
        return self.state is DeliveryState.AVAILABLE and not self.ticket

    @property
    def is_done(self) -> bool:
        """Whether it will not be delivered any more, whatever happens."""
        return self.state in _TERMINAL and not self.ticket

    @property
    def will_be_done(self) -> bool:
        """Whether it will not be delivered any more if what is under way succeeds."""
        return (self.target if self.ticket else self.state) in _TERMINAL

    def become(self, state: DeliveryState) -> None:
        """Nobody holds it any more."""
        self.state = self.target = state
        self.member_id, self.deadline_ms, self.ticket = "", 0, SETTLED

    def is_like(self, other: Run) -> bool:
        """Whether both are of one fate."""
        return (
            self.state is other.state
            and self.count == other.count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.ticket == other.ticket
            and self.target is other.target
        )

    def split(self, offset: int) -> Run:
        """Cut before `offset`: this is what is before it, and the rest comes back."""
        rest = Run(offset, self.last, self.state, self.count, self.member_id, self.deadline_ms)
        rest.ticket, rest.target = self.ticket, self.target
        self.last = offset - 1
        return rest


class InFlight:
    """Runs without overlaps or gaps, in the order of offsets."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def append(self, run: Run) -> None:
        """One more at the end."""
        self.runs.append(run)

    def index_of(self, offset: int) -> int:
        """The place of the run that holds an offset, or else of the first one after it."""
        place = bisect_right(self.runs, offset, key=_first) - 1
        return place if place >= 0 and self.runs[place].last >= offset else place + 1

    def between(self, first: int, last: int) -> Iterator[Run]:
        """Runs that have something of a stretch, uncut."""
        place = self.index_of(first)
        while place < len(self.runs) and self.runs[place].first <= last:
            yield self.runs[place]
            place += 1

    def cut(self, first: int, last: int) -> list[Run]:
        """Runs that are exactly the stretch: those at its ends are split."""
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
        """Forget everything before an offset."""
        place = self.index_of(offset)
        del self.runs[:place]
        if self.runs and self.runs[0].first < offset:
            self.runs[0] = self.runs[0].split(offset)

    def merge(self) -> None:
        """Put neighbours of one fate together."""
        merged: list[Run] = []
        for run in self.runs:
            if merged and merged[-1].is_like(run):
                merged[-1].last = run.last
            else:
                merged.append(run)
        self.runs = merged
