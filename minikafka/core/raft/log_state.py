"""The quorum's view of its log: offsets and epochs, never bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from operator import itemgetter

from minikafka.core.raft.types import InvariantViolated, OffsetAndEpoch

_epoch_of = itemgetter(0)


class Validity(Enum):
    """How a follower's position relates to the leader's log."""

    VALID = 0
    DIVERGING = 1
    SNAPSHOT = 2


class LogState:
    """`start_offset` <= `flushed_offset` <= `end_offset`; `epochs` are (epoch, first offset), both rising.

    `flushed_offset`: everything below it is on disk. `snapshots` holds the ids that exist, oldest first; the first of
    them covers everything before `start_offset`.
    """

    __slots__ = ("end_offset", "epochs", "flushed_offset", "snapshots", "start_offset")

    def __init__(
        self,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[OffsetAndEpoch] = (),
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = self.flushed_offset = end_offset
        self.epochs: list[tuple[int, int]] = list(epochs)
        self.snapshots: list[OffsetAndEpoch] = sorted(snapshots)

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot before an empty log; 0 if there is neither."""
        if self.epochs:
            return self.epochs[-1][0]
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    def appended(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """A batch was appended."""
        if base_offset != self.end_offset:
            raise InvariantViolated(f"batch at offset {base_offset} appended to a metadata log that ends at {self.end_offset}")
        if epoch < self.last_epoch:
            raise InvariantViolated(f"batch of epoch {epoch} appended after epoch {self.last_epoch}")
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, base_offset))
        self.end_offset = end_offset

    def truncate_to(self, offset: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        self.end_offset = min(self.end_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)

    def start_at_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """The log was replaced by a snapshot."""
        self.epochs = []
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.offset
        self.snapshots = [snapshot]

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def forget_before(self, start_offset: int) -> None:
        """Records below `start_offset`, which a snapshot covers, were deleted."""
        self.start_offset = max(self.start_offset, start_offset)
        self.snapshots = [entry for entry in self.snapshots if entry.offset >= start_offset]
        while len(self.epochs) > 1 and self.epochs[1][1] <= self.start_offset:
            del self.epochs[0]
        if self.epochs and self.epochs[0][1] < self.start_offset:
            self.epochs[0] = (self.epochs[0][0], self.start_offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """(end offset, epoch) of the largest epoch up to `epoch` (LeaderEpochFileCache.endOffsetFor and, where that
        is undefined, KafkaRaftLog's own answer: the end of the log)."""
        epochs = self.epochs
        if not epochs or epoch >= epochs[-1][0]:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        index = bisect_right(epochs, epoch, key=_epoch_of)
        if index == 0:
            # Of the epochs before the log start only that of the snapshot there is kept. A replica must not keep records of a later epoch
            # that this log does not have: truncated to the start alone, its log could end inside a batch of that epoch.
            first = self.snapshots[0] if self.snapshots else None
            if first is not None and 0 < first.offset == epochs[0][1] and first.epoch <= epoch:
                return first
            return OffsetAndEpoch(epochs[0][1], epoch)
        return OffsetAndEpoch(epochs[index][1], epochs[index - 1][0])

    def validate(self, offset: int, last_epoch: int) -> tuple[Validity, OffsetAndEpoch]:
        """Whether a replica whose log ends at `offset`, after a record of `last_epoch`, can fetch from there. DIVERGING comes with the
        end of the largest epoch that both logs can share, SNAPSHOT with the id of the snapshot to fetch.

        The rule is KafkaRaftLog.validateOffsetAndEpoch. An empty replica gets the latest snapshot even if the log still starts at 0,
        which is quicker (Kafka 4.3 does so)."""
        latest = self.latest_snapshot
        if latest is not None and latest.offset > 0:
            earliest = self.snapshots[0]
            if (
                offset == 0
                or offset < self.start_offset
                or (offset == self.start_offset and self.start_offset > 0 and last_epoch != self._epoch_at_start(earliest))
                or (self.start_offset > 0 and last_epoch < earliest.epoch)
            ):
                return Validity.SNAPSHOT, latest
        end = self.end_offset_for_epoch(last_epoch)
        if end.epoch != last_epoch or end.offset < offset:
            return Validity.DIVERGING, end
        return Validity.VALID, OffsetAndEpoch(offset, last_epoch)

    def _epoch_at_start(self, earliest: OffsetAndEpoch) -> int:
        return earliest.epoch

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Where to truncate when the leader says that its `diverging.epoch` ends at `diverging.offset`."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.end_offset)
        local = self.end_offset_for_epoch(diverging.epoch)
        if local.epoch == diverging.epoch:
            return min(local.offset, diverging.offset)
        return local.offset
