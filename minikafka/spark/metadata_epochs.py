"""The leader epochs of one copy of the metadata log: where two copies have a record of the same epoch, all before it is the same (Raft)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class EpochHistory:
    """`begins`: {epoch: offset of its first record}. `end`: the log's end, -1 without records. `snapshots`: {end
    offset: epoch of the record before it}."""

    begins: dict[int, int] = field(default_factory=dict)
    end: int = -1
    snapshots: dict[int, int] = field(default_factory=dict)

    def note(self, epoch: int, offset: int, end: int) -> None:
        """The log has a record of this epoch at the offset, and ends at `end` or further."""
        self.begins.setdefault(epoch, offset)
        self.end = max(self.end, end)

    def shared_with(self, other: EpochHistory) -> int:
        """How far both hold the same records; -1 if nothing tells."""
        own, theirs = self._spans(), other._spans()
        both = [(own[epoch], theirs[epoch]) for epoch in own.keys() & theirs.keys()]
        found = [min(one[1], two[1]) for one, two in both if max(one[0], two[0]) < min(one[1], two[1])]
        for one, two in ((self, other), (other, self)):
            found += [end for end, epoch in one.snapshots.items() if two.before(end) == epoch]
        return max(found, default=-1)

    def _spans(self) -> dict[int, tuple[int, int]]:
        """{epoch: (the offset of its first record, the end of its last one)}."""
        ordered = sorted((begin, epoch) for epoch, begin in self.begins.items() if begin < self.end)
        ends = [*(begin for begin, _ in ordered[1:]), self.end][: len(ordered)]
        return {epoch: (begin, end) for (begin, epoch), end in zip(ordered, ends, strict=True)}

    def before(self, offset: int) -> int | None:
        """The epoch of the record before an offset; None where the log does not tell."""
        held = [(begin, epoch) for epoch, begin in self.begins.items() if begin < offset <= self.end]
        return max(held)[1] if held else self.snapshots.get(offset)
