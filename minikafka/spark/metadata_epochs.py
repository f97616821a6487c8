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

    def before(self, offset: int) -> int | None:
        """The epoch of the record before an offset; None where the log does not tell."""
        held = [(begin, epoch) for epoch, begin in self.begins.items() if begin < offset <= self.end]
        return max(held)[1] if held else self.snapshots.get(offset)
