"""Accounts for what had to be compared and what was compared. Only a complete account makes a partition a MATCH.

A replica answers for the offsets between its log start and its claim. The claim is its own high watermark or, for a replica that is in
sync or an eligible leader, the largest high watermark of any replica. Batches there are due if another replica answers for them too.
`due` is counted from the scans alone, before any comparison; `compared` by the comparison, cell by cell. Everything was compared only if
the two are equal for every replica, and each replica holds everything between its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from minikafka.counted import counted


@dataclass(slots=True)
class Held:
    """A number of batches, and the number of offsets that they span."""

    batches: int = 0
    offsets: int = 0

    def add(self, batches: int, offsets: int) -> None:
        """Add to both counts."""
        self.batches += batches
        self.offsets += offsets


@dataclass(slots=True)
class Account:
    """One replica's account: what was `due` and what was `compared`.

    `bounds`: the offsets [low, high) that it answers for. `alone`: batches in the bounds that no other replica answers for; `beside`: those
    of them that equal another replica's batches anyway. `first` and `end` (exclusive): the offsets that its batches in the bounds span, -1
    none. Below `cleaned_to` a cleaner may have removed batches."""

    broker: str
    bounds: tuple[int, int]
    cleaned_to: int = 0
    due: Held = field(default_factory=Held)
    compared: Held = field(default_factory=Held)
    alone: Held = field(default_factory=Held)
    beside: Held = field(default_factory=Held)
    first: int = -1
    end: int = -1

    def extend(self, first: int, end: int) -> None:
        """Extend the span by batches in [first, end)."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.end = max(self.end, end)

    def stands_alone(self, batches: int, offsets: int) -> None:
        """Move batches from `due` to `alone`, because every other replica ended before them."""
        self.due.add(-batches, -offsets)
        self.alone.add(batches, offsets)

    def shortfalls(self) -> Iterator[str]:
        """Reasons why not everything was compared; none if everything was."""
        if self.due != self.compared:
            due = f"{counted(self.due.batches, 'batch', 'batches')} ({counted(self.due.offsets, 'offset')})"
            compared = f"{self.compared.batches:,} ({counted(self.compared.offsets, 'offset')})"
            yield f"compared {compared} of {due} of broker {self.broker} in {self.bounds[0]}..{self.bounds[1]}"
        low, high = self.bounds
        if low >= high:
            return
        if self.cleaned_to > low:
            if self.cleaned_to < high and self.end < high:
                yield f"broker {self.broker} answers up to {high}, but it was read only up to {max(self.end, low)}"
            return
        held = self.due.offsets + self.alone.offsets
        if self.first < 0 or self.first > low or self.end < high:
            reaches = "nothing" if self.first < 0 else f"only {self.first}..{self.end}"
            yield f"broker {self.broker} answers for {low}..{high}, but {reaches} of it was read"
        elif held != self.end - self.first:
            offsets = counted(self.end - self.first, "offset")
            yield f"the batches of broker {self.broker} between {self.first} and {self.end} span {held} of {offsets}"

    def as_dict(self) -> dict[str, int]:
        """The account as plain values, for the report."""
        return {
            "claim_from": self.bounds[0], "claim_to": self.bounds[1],
            "batches_due": self.due.batches, "batches_compared": self.compared.batches, "batches_alone": self.alone.batches,
            "offsets_due": self.due.offsets, "offsets_compared": self.compared.offsets,
        }  # fmt: skip
