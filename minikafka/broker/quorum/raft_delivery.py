"""Delivers the committed metadata log to listeners, in order, for a bounded time in a turn of the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from minikafka.broker.quorum.raft_log import MetadataLog
from minikafka.core.raft.events import LeaderChanged
from minikafka.core.raft.log_state import LogState
from minikafka.core.raft.types import NO_NODE
from minikafka.net.turn_share import TurnShares
from minikafka.steps import Steps, paced
from minikafka.storage.errors import CorruptFile, ResourceShortage, StorageError
from minikafka.wire.batch import RecordBatch
from minikafka.wire.records.frame import decode_metadata_record

logger = logging.getLogger("minikafka.raft")
T = TypeVar("T")
#: After a shortage of descriptors or memory, the next attempt comes after so long.
SHORTAGE_RETRY_S = 0.1
#: Bytes of log passed to a listener before the event loop gets its next turn.
DELIVERY_BYTES = 1 << 18
#: Records decoded, or passed to a listener, in one step, at some microseconds each.
STEP_RECORDS = 256


class SnapshotId(NamedTuple):
    """The position of a snapshot; `end_offset` is exclusive."""

    end_offset: int
    epoch: int


class RaftListener(Protocol):
    """Called on the event loop, in log order. An exception in a listener ends the node."""

    def on_part(self, records: list[tuple[int, Any]]) -> Steps[None] | None:
        """The next records of a large batch, whose last ones come with `on_commit`. Until then they must have no effect. Returns the steps
        that are left of it, which are taken before the next call."""

    def on_commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> Steps[None] | None:
        """One committed batch of metadata records: [(offset, decoded record message)]; of a large one, the rest behind the parts. Control
        batches are left out. Returns steps as `on_part`."""

    def on_snapshot(self, snapshot_id: SnapshotId, records: Iterable[Any]) -> Steps[None] | None:
        """Exactly these records are the state up to `snapshot_id.end_offset` (exclusive). Forget everything before."""

    def on_high_watermark(self, offset: int) -> None:
        """Everything committed before `offset` has been delivered."""

    def on_leader_change(self, leader_id: int | None, epoch: int, is_self: bool) -> None:
        """If `is_self`, this is called only after everything before this leader's epoch has been delivered through `on_commit`
        (the LeaderChange record is committed): the state is complete, and `append` may be called."""


class Piece(NamedTuple):
    """A batch to deliver; `records` is None for a control batch."""

    base_offset: int
    next_offset: int
    epoch: int
    records: list[tuple[int, Any]] | None


class Subscription:
    __slots__ = ("leader", "listener", "next_offset")

    def __init__(self, listener: RaftListener) -> None:
        self.listener = listener
        self.next_offset = -1
        self.leader: LeaderChanged | None = None


class Delivery:
    """Brings every listener up to the high watermark given to `advance`. `on_progress` is called after each round, `on_failure` if the disk
    failed or a listener raised; then delivery stops."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shares: TurnShares,
        log: MetadataLog,
        on_progress: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.subscriptions: list[Subscription] = []
        self._loop = loop
        self._shares = shares
        self._log = log
        #: The round that has been begun, if it takes several turns of the loop.
        self._round: Steps[None] | None = None
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._high_watermark = 0
        self._scheduled: asyncio.Handle | None = None
        self._is_running = False
        self._is_stopped = False
        #: Whether reading met a shortage of descriptors or memory in this round.
        self._is_short = False
        #: What the last read in this round returned, for the next listener: ((from, to), pieces).
        self._read: tuple[tuple[int, int], list[Piece]] | None = None

    @property
    def offset(self) -> int:
        """Everything committed before this offset has been delivered to all listeners."""
        return min((entry.next_offset for entry in self.subscriptions), default=self._high_watermark)

    @property
    def is_caught_up(self) -> bool:
        return self.offset >= self._high_watermark

    def add(self, listener: RaftListener) -> Subscription:
        entry = Subscription(listener)
        self.subscriptions.append(entry)
        return entry

    def bring_up(self, entries: list[Subscription], state: LogState) -> Steps[None]:
        """Give listeners the newest snapshot; the log follows later. Raises StorageError if the snapshot is needed and invalid."""
        snapshot = state.latest_snapshot
        for entry in entries:
            entry.next_offset = state.start_offset
        if snapshot is None or snapshot.offset == 0:
            return
        try:
            content = yield from self._log.reading_snapshot(snapshot)
        except CorruptFile as error:
            if state.start_offset > 0:
                raise StorageError(f"snapshot {snapshot} is not valid: {error}", path=self._log.directory) from error
            return
        for entry in entries:
            entry.next_offset = -1
        yield from self._give(entries, SnapshotId(snapshot.offset, snapshot.epoch), content.records)

    async def in_turns(self, steps: Steps[T]) -> T:
        """Take steps, for a bounded time in a turn of the loop."""
        return await self._shares.take(steps)

    def install(self, snapshot_id: SnapshotId, records: list[Any]) -> Steps[None]:
        """Deliver a snapshot that came from the leader."""
        self._round = None
        return self._give(self.subscriptions, snapshot_id, records)

    @staticmethod
    def _give(entries: list[Subscription], snapshot_id: SnapshotId, records: list[Any]) -> Steps[None]:
        for entry in entries:
            if entry.next_offset < snapshot_id.end_offset:
                steps = entry.listener.on_snapshot(snapshot_id, records)
                if steps is not None:
                    yield from steps
                entry.next_offset = snapshot_id.end_offset

    def leader_changed(self, change: LeaderChanged) -> None:
        for entry in self.subscriptions:
            entry.leader = change
        self.soon()

    def advance(self, high_watermark: int) -> None:
        self._high_watermark = max(self._high_watermark, high_watermark)
        self.soon()

    def soon(self) -> None:
        if self._scheduled is None and not self._is_running and not self._is_stopped:
            self._scheduled = self._loop.call_soon(self.deliver)

    def stop(self) -> None:
        self._is_stopped = True
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def deliver(self) -> None:
        """Run one round, or go on with it."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        if self._is_running or self._is_stopped:
            return
        if self._round is None:
            self._round, self._is_short, self._read = self._deliver_all(), False, None
        current, is_over = self._round, self._shares.begin()
        self._is_running = True
        try:
            for _ in current:
                if is_over():
                    self._scheduled = self._loop.call_soon(self.deliver)
                    return
        except Exception as error:
            # A state that lacks a committed batch stays wrong, so the node ends; its next process replays the log.
            self._is_stopped = True
            self._on_failure(error)
            return
        finally:
            self._is_running = False
        self._round = self._read = None
        self._on_progress()
        if any(entry.next_offset < self._high_watermark or self._is_leader_due(entry) for entry in self.subscriptions):
            if self._is_short:
                self._scheduled = self._loop.call_later(SHORTAGE_RETRY_S, self.deliver)
            else:
                self.soon()

    def _deliver_all(self) -> Steps[None]:
        for entry in list(self.subscriptions):
            yield from self._deliver_to(entry)

    @staticmethod
    def _is_leader_due(entry: Subscription) -> bool:
        change = entry.leader
        return change is not None and (not change.is_self or entry.next_offset > change.epoch_start)

    def _deliver_to(self, entry: Subscription) -> Steps[None]:
        high_watermark, listener, before = self._high_watermark, entry.listener, entry.next_offset
        if entry.leader is not None and not entry.leader.is_self:
            self._tell_leader(entry)
        if before < high_watermark:
            try:
                pieces = yield from self._pieces(before, high_watermark)
            except ResourceShortage as error:
                # Nothing was read; `deliver` runs again later.
                logger.warning("committed metadata will be delivered later: %s", error)
                self._is_short = True
                return
            for piece in pieces:
                if piece.records is not None:
                    begin = 0
                    while len(piece.records) - begin > STEP_RECORDS:
                        yield from listener.on_part(piece.records[begin : begin + STEP_RECORDS]) or ()
                        begin += STEP_RECORDS
                        yield
                    yield from listener.on_commit(piece.base_offset, piece.epoch, piece.records[begin:]) or ()
                # Advance only now: a listener that failed on a batch must never get the next one.
                entry.next_offset = piece.next_offset
                yield
            if entry.next_offset > before:
                listener.on_high_watermark(entry.next_offset)
        if entry.next_offset >= high_watermark and self._is_leader_due(entry):
            self._tell_leader(entry)

    def _pieces(self, start: int, end: int) -> Steps[list[Piece]]:
        if self._read is None or self._read[0] != (start, end):
            pieces = list[Piece]()
            for _, is_step in paced(_decoding(self._log.batches(start, end, DELIVERY_BYTES), pieces), STEP_RECORDS):
                if is_step:
                    yield
            self._read = (start, end), pieces
        return self._read[1]

    @staticmethod
    def _tell_leader(entry: Subscription) -> None:
        change, entry.leader = entry.leader, None
        if change is not None:
            leader_id = None if change.leader_id == NO_NODE else change.leader_id
            entry.listener.on_leader_change(leader_id, change.epoch, change.is_self)


def _decoding(batches: Iterable[RecordBatch], pieces: list[Piece]) -> Iterator[None]:
    """Decode batches into `pieces`. An item for each record, and for each batch: most of a log may be batches of one record."""
    for batch in batches:
        records: list[tuple[int, Any]] | None = None if batch.is_control else []
        pieces.append(Piece(batch.base_offset, batch.next_offset, batch.partition_leader_epoch, records))
        yield
        if records is not None:
            for record in batch.records():
                records.append((record.offset, decode_metadata_record(record.value or b"")))
                yield
