"""What had to be compared and what was: the account by which a partition may be called a MATCH.

A replica answers for the offsets between its log start and its claim: its own high watermark, or, for a replica that is in sync or an
eligible leader, the largest offset that any replica knows to be committed. What it holds there, and another replica answers for too,
is due. `due` is counted from the scans alone, before anything is compared; `compared` by the comparison, cell by cell. Only where both
are equal for every replica, and each holds everything between its bounds, was everything compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Held:
    """Batches, and the offsets that they span."""

    batches: int = 0
    offsets: int = 0

    def add(self, batches: int, offsets: int) -> None:
        """Count more."""
        self.batches += batches
        self.offsets += offsets


@dataclass(slots=True)
class Account:
    """Of one replica: what was due and what was compared; `bounds`: the offsets that it answers for; `alone`: what lies in there that no
    other replica answers for, `beside` what of it was found equal on one that does not; `first` and `end`: the offsets between which its
    batches there lie; below `cleaned_to` a cleaner may have removed some."""

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
        """Batches between these offsets are among those answered for."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.end = max(self.end, end)

    def stands_alone(self, batches: int, offsets: int) -> None:
        """What was due turned out to have no counterpart: every other replica ended before it."""
        self.due.add(-batches, -offsets)
        self.alone.add(batches, offsets)

    def shortfalls(self) -> Iterator[str]:
        """Why not everything was compared; nothing when it was."""
        if self.due != self.compared:
            text = f"of {self.due.batches} batches of broker {self.broker} in {self.bounds[0]}..{self.bounds[1]} "
            text += f"({self.due.offsets} offsets) {self.compared.batches} ({self.compared.offsets} offsets) were compared"
            yield text
        low, high = self.bounds
        if low >= high:
            return
        if self.cleaned_to > low:
            if self.cleaned_to < high and self.end < high:
                yield f"broker {self.broker} answers up to {high}, and it was looked at up to {max(self.end, low)} only"
            return
        held = self.due.offsets + self.alone.offsets
        if self.first < 0 or self.first > low or self.end < high:
            reaches = "nothing" if self.first < 0 else f"only {self.first}..{self.end}"
            yield f"broker {self.broker} answers for {low}..{high}, and {reaches} of it was looked at"
        elif held != self.end - self.first:
            yield f"the batches of broker {self.broker} between {self.first} and {self.end} span {held} of {self.end - self.first} offsets"

    def as_dict(self) -> dict[str, int]:
        """For the report."""
        return {
            "claim_from": self.bounds[0], "claim_to": self.bounds[1],
            "batches_due": self.due.batches, "batches_compared": self.compared.batches, "batches_alone": self.alone.batches,
            "offsets_due": self.due.offsets, "offsets_compared": self.compared.offsets,
        }  # fmt: skip
