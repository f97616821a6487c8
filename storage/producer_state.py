"""The state of a log's producers, for idempotence and transactions (ProducerStateManager, ProducerAppendInfo).

The order is compute, write, publish: `prepare_*` checks a batch against copies and raises without changing anything (KAFKA-6683), the
log writes the batch, and `publish` makes the copies current. Replicated batches are never refused by sequence.
"""

from __future__ import annotations

from itertools import chain

from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import FileSystem
from minikafka.storage.open_transactions import CompletedTransaction, OpenTransactions
from minikafka.storage.producer_copies import COPY_BATCH_SHIFT, COPY_BATCHES, CopiedProducer, ProducerCopies, ProducerCopy
from minikafka.storage.producer_snapshot import ProducerSnapshotEntry
from minikafka.storage.producer_snapshot_files import SnapshotFiles, SnapshotWrite
from minikafka.storage.types import AbortedTransaction
from minikafka.wire.errors import ApiError, ErrorCode

BATCHES_KEPT = 5
#: Producers that one partition remembers. Kafka has no limit except that they expire.
PRODUCERS_MAX = 20_000
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
#: The kept fields of a batch (Kafka's BatchMetadata): last sequence, last offset, offset delta, timestamp.
KeptBatch = tuple[int, int, int, int]
LAST_SEQUENCE = 0
LAST_OFFSET = 1


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers wrap from 2^31-1 to 0."""
    return (sequence + increment) & INT32_MAX


class ProducerEntry:
    """State of one producer id: its last batches (KeptBatch), oldest first, and its open transaction.

    `seen_ms`: when a look at all producers first found it as it is, with `seen_offset` and `seen_timestamp`; -1 until then.
    """

    __slots__ = (
        "batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "seen_ms", "seen_offset", "seen_timestamp",
        "txn_first_offset",
    )  # fmt: skip

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.batches: list[KeptBatch] = []
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.txn_first_offset = -1
        self.seen_ms = self.seen_offset = self.seen_timestamp = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][LAST_SEQUENCE] if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1][LAST_OFFSET] if self.batches else -1

    def is_next(self, epoch: int, sequence: int) -> bool:
        """Whether a batch that is not transactional follows the last one directly, with no transaction open: such a batch is neither
        refused nor a duplicate."""
        batches = self.batches
        return epoch == self.epoch and self.txn_first_offset < 0 and len(batches) > 0 and sequence == batches[-1][LAST_SEQUENCE] + 1

    def copy(self) -> ProducerEntry:
        other = ProducerEntry(self.producer_id)
        other.epoch = self.epoch
        other.batches = self.batches.copy()
        other.last_timestamp = self.last_timestamp
        other.coordinator_epoch = self.coordinator_epoch
        other.txn_first_offset = self.txn_first_offset
        other.seen_ms, other.seen_offset, other.seen_timestamp = self.seen_ms, self.seen_offset, self.seen_timestamp
        return other

    def copied(self) -> CopiedProducer:
        """The state as a copy in memory keeps it."""
        fields = self.producer_id, self.epoch, self.last_timestamp, self.coordinator_epoch, self.txn_first_offset
        return *fields, *chain.from_iterable(self.batches)

    @classmethod
    def from_copy(cls, copied: CopiedProducer) -> ProducerEntry:
        """The entry that `copied` was called of."""
        entry = cls(copied[0])
        _, entry.epoch, entry.last_timestamp, entry.coordinator_epoch, entry.txn_first_offset, *batches = copied
        fields = iter(batches)
        entry.batches = list(zip(fields, fields, fields, fields, strict=True))
        return entry

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def add_batch(self, epoch: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        self.set_epoch(epoch)
        if len(self.batches) == BATCHES_KEPT:
            del self.batches[0]
        self.batches.append((last_sequence, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> tuple[int, int, int] | None:
        """(first offset, last offset, timestamp) of a kept batch with the same epoch and sequences."""
        if epoch == self.epoch:
            for last, last_offset, delta, timestamp in self.batches:
                if last == last_sequence and add_to_sequence(last, -delta) == first_sequence:
                    return last_offset - delta, last_offset, timestamp
        return None

    def snapshot(self) -> ProducerSnapshotEntry:
        last_sequence, last_offset, delta, _ = self.batches[-1] if self.batches else (NO_SEQUENCE, -1, 0, 0)
        return ProducerSnapshotEntry(
            self.producer_id,
            self.epoch,
            last_sequence,
            last_offset,
            delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class Verification:
    """A leader's question to the coordinator whether a producer may begin a transaction here (KIP-890), pending or answered.

    Kept in memory only. It ends with the transaction's first batch or with its marker, so that a late batch cannot begin a transaction.
    `lowest_sequence` is the lowest first sequence of the batches that wait.
    """

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "must_begin_at_zero")

    def __init__(self, epoch: int, sequence: int, created_ms: int, *, must_begin_at_zero: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.created_ms = created_ms
        self.must_begin_at_zero = must_begin_at_zero


#: For appends that are not verified.
UNCHECKED = Verification(NO_EPOCH, NO_SEQUENCE, -1, must_begin_at_zero=False)


class ProducerUpdate:
    """Changes that one append makes, not yet published."""

    __slots__ = ("completed", "entries", "started")

    def __init__(self) -> None:
        #: Changed copies of entries, by producer id.
        self.entries: dict[int, ProducerEntry] = {}
        #: (producer id, first offset) of transactions that begin.
        self.started: list[tuple[int, int]] = []
        self.completed: list[CompletedTransaction] = []


class ProducerStateManager:
    """Producers of one log, its open transactions and its `.snapshot` files."""

    def __init__(self, filesystem: FileSystem, directory: str, name: str, expiration_ms: int) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._name = name
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        #: The state covers the log below this offset.
        self.end_offset = 0
        #: First offset of the oldest transaction that is open or whose marker is not replicated; None if there is none.
        self.first_unstable_offset: int | None = None
        self.transactions = OpenTransactions()
        self.copies = ProducerCopies()
        #: What replaying the batches since the last copy would take; see COPY_BATCHES.
        self._uncopied = 0
        self._last_snapshot_offset = 0
        self.snapshots = SnapshotFiles(filesystem, directory)
        self._verifications: dict[int, Verification] = {}

    # -- verification

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, wall_ms: int, *, must_begin_at_zero: bool
    ) -> Verification | None:
        """The verification that an append which may begin a transaction must pass; None if one is already open in this epoch. Raises
        ApiError (INVALID_PRODUCER_EPOCH) if the log knows a newer epoch: then the coordinator need not be asked."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, self._stale_epoch(entry, epoch, self.end_offset))
            if entry.txn_first_offset >= 0 and entry.epoch == epoch:
                return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, wall_ms, must_begin_at_zero=must_begin_at_zero)
            self._verifications[producer_id] = verification
        elif verification.epoch < epoch:
            # Not another one: a newer epoch that nobody has confirmed must not refuse the producer that the coordinator knows.
            verification.epoch, verification.lowest_sequence = epoch, sequence
        elif verification.epoch == epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, sequence)
        return verification

    def check_verified(self, producer_id: int, epoch: int, verification: Verification | None) -> None:
        """Check that a transactional batch may be appended. Raises ApiError (INVALID_TXN_STATE)."""
        entry = self.entries.get(producer_id)
        if entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch:
            return
        if verification is None or self._verifications.get(producer_id) is not verification:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Record was not part of an ongoing transaction of producer {producer_id} with epoch {epoch} in {self._name}",
            )

    def _end_verification(self, producer_id: int, marker_epoch: int) -> None:
        """Handle a marker. With transaction version 2 it carries the epoch of the next transaction, whose first batch may already wait."""
        verification = self._verifications.get(producer_id)
        if verification is not None and (verification.epoch < marker_epoch or not verification.must_begin_at_zero):
            del self._verifications[producer_id]

    # -- checking and publishing batches

    def prepare_batch(
        self,
        update: ProducerUpdate,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
        *,
        check_epoch: bool,
        check_sequence: bool,
    ) -> None:
        """Check a data batch and add it to `update`. Raises ApiError (INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE)."""
        entry = self._updated(update, producer_id)
        if check_epoch and epoch < entry.epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, self._stale_epoch(entry, epoch, first_offset))
        if check_sequence:
            self._check_sequence(entry, epoch, first_sequence, first_offset)
        delta = last_offset - first_offset
        last_sequence = NO_SEQUENCE if first_sequence < 0 else add_to_sequence(first_sequence, delta)
        entry.add_batch(epoch, last_sequence, last_offset, delta, timestamp)
        if entry.txn_first_offset >= 0:
            if not is_transactional and check_epoch:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Expected transactional write from producer {producer_id} at offset {first_offset} in {self._name}",
                )
        elif is_transactional:
            entry.txn_first_offset = first_offset
            update.started.append((producer_id, first_offset))

    def prepare_marker(
        self,
        update: ProducerUpdate,
        producer_id: int,
        epoch: int,
        is_abort: bool,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        *,
        check_epoch: bool,
    ) -> None:
        """Check an end-of-transaction marker and add it to `update`. Raises ApiError (INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED)."""
        entry = self._updated(update, producer_id)
        if check_epoch:
            if epoch < entry.epoch:
                raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, self._stale_epoch(entry, epoch, offset))
            if coordinator_epoch < entry.coordinator_epoch:
                raise ApiError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"Invalid coordinator epoch for producer {producer_id} at offset {offset} in {self._name}: "
                    f"{coordinator_epoch}, {entry.coordinator_epoch} (current)",
                )
        if entry.txn_first_offset >= 0:
            update.completed.append(CompletedTransaction(producer_id, entry.txn_first_offset, offset, is_abort))
        self._end_verification(producer_id, epoch)
        entry.set_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = -1

    def publish(self, update: ProducerUpdate) -> None:
        """Make the entries of an append without markers current, and open its transactions."""
        self.entries.update(update.entries)
        for producer_id, first_offset in update.started:
            self.transactions.begin(producer_id, first_offset)
            self._verifications.pop(producer_id, None)
        if len(self.entries) > PRODUCERS_MAX:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Above PRODUCERS_MAX: forget the producers without an open transaction that have been idle longest, as if they had expired."""
        idle = [entry for entry in self.entries.values() if entry.txn_first_offset < 0]
        idle.sort(key=lambda entry: (entry.last_timestamp, entry.producer_id))
        for entry in idle[: len(self.entries) - PRODUCERS_MAX + PRODUCERS_MAX // 16]:
            del self.entries[entry.producer_id]

    def complete(self, update: ProducerUpdate) -> list[AbortedTransaction]:
        """Publish an update and close the transactions that end in it; they stay unstable until the high watermark passes their markers.
        Returns those that were aborted, in the order of their markers, for the transaction index."""
        self.publish(update)
        transactions, aborted = self.transactions, []
        for ended in update.completed:
            transactions.complete(ended)
            if ended.is_aborted:
                stable = transactions.last_stable_offset_after(ended)
                aborted.append(AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable))
        return aborted

    def advance(self, end_offset: int, batches: int = 0, size: int = 0) -> None:
        """Note that the state covers the log below `end_offset`, `batches` of `size` bytes more than before. Call it after publish or
        complete, when exactly these batches are in the state."""
        self.end_offset = end_offset
        if self.transactions.unstable or self.first_unstable_offset is not None:
            self.first_unstable_offset = self.transactions.first_unstable()
        self._uncopied += batches + (size >> COPY_BATCH_SHIFT)
        if self._uncopied >= COPY_BATCHES:
            self._uncopied = 0
            self.copies.add(end_offset, self.entries.values(), self.transactions.completed())

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop completed transactions whose marker is below the high watermark: they are stable."""
        if self.transactions.stabilize(high_watermark):
            self.first_unstable_offset = self.transactions.first_unstable()

    def on_log_start_offset(self, offset: int) -> None:
        """Forget transactions that ended below the new log start (KAFKA-9105)."""
        self.on_high_watermark(offset)
        self.copies.keep_between(offset, INT64_MAX)
        self.end_offset = max(self.end_offset, offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = offset if latest is None else latest

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of the open transactions, oldest first."""
        return self.transactions.open()

    def expire(self, wall_ms: int, now_ms: int) -> None:
        """Forget producers without an open transaction that were idle for producer.id.expiration.ms.

        They must have been idle by the monotonic clock, too. Their records' times may be old, and the wall clock may have been set forward;
        Apache Kafka then forgets producers that are at work, and what they send again is stored twice.
        """
        expired = []
        for producer_id, entry in self.entries.items():
            offset, timestamp = entry.last_offset, entry.last_timestamp
            if entry.seen_ms < 0 or entry.seen_offset != offset or entry.seen_timestamp != timestamp:
                entry.seen_ms, entry.seen_offset, entry.seen_timestamp = now_ms, offset, timestamp
            if now_ms - entry.seen_ms >= self.expiration_ms and self._is_expired(entry, wall_ms):
                expired.append(producer_id)
        for producer_id in expired:
            del self.entries[producer_id]
        for producer_id in [n for n, v in self._verifications.items() if wall_ms - v.created_ms >= self.expiration_ms]:
            del self._verifications[producer_id]

    # -- snapshots

    def take_snapshot(self) -> None:
        """Write and sync a snapshot at `end_offset`, unless there is one already."""
        if self.end_offset <= self._last_snapshot_offset:
            return
        self._last_snapshot_offset = self.end_offset
        file = self.snapshots.write(self.end_offset, self.entries.values())
        try:
            file.fsync()
        finally:
            file.close()

    def begin_snapshot(self) -> SnapshotWrite | None:
        """The task that writes a snapshot at `end_offset` beside the loop; None if there is one already."""
        if self.end_offset <= self._last_snapshot_offset:
            return None
        self._last_snapshot_offset = self.end_offset
        return self.snapshots.begin(self.end_offset, self.entries.values())

    def save_snapshot(self) -> None:
        """Write a snapshot at `end_offset`, unless there is one already, without waiting for the disk: one torn by a power cut fails its
        checksum and is rebuilt."""
        if self.end_offset > self._last_snapshot_offset:
            self._last_snapshot_offset = self.end_offset
            self.snapshots.write(self.end_offset, self.entries.values()).close()

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self.snapshots.relocate(directory)

    def continued(self, entry: ProducerEntry) -> ProducerEntry:
        """The entry of a producer that may be changed: a copy, already one of `entries`, while a snapshot of the old one is written."""
        if not self.snapshots.pending:
            return entry
        entry = self.entries[entry.producer_id] = entry.copy()
        return entry

    # -- truncation

    def fork(self) -> ProducerStateManager:
        """A state of the same log, from which `truncate_and_reload` and a replay make that of an earlier end. It only reads files, so this
        may happen on another thread."""
        fork = ProducerStateManager(self._filesystem, self._directory, self._name, self.expiration_ms)
        fork.snapshots = self.snapshots.for_reading()
        fork.copies = self.copies.fork()
        fork.end_offset = INT64_MAX
        return fork

    def adopt(self, fork: ProducerStateManager, log_start_offset: int) -> None:
        """Take the state of a fork, which is of an earlier end of the log."""
        self.snapshots.keep_between(log_start_offset, fork.end_offset)
        self.entries, self.transactions, self.copies, self.end_offset = fork.entries, fork.transactions, fork.copies, fork.end_offset
        self._uncopied = fork._uncopied
        self.on_log_start_offset(log_start_offset)
        self.first_unstable_offset = self.transactions.first_unstable()

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, wall_ms: int) -> bool:
        """Go back to the newest copy or valid snapshot in (log start, log end]. The caller must replay the batches after it. True if it was
        a snapshot, which holds only the last batch of each producer."""
        self.snapshots.keep_between(log_start_offset, log_end_offset)
        self.copies.keep_between(log_start_offset, log_end_offset)
        if log_end_offset == self.end_offset:
            self.on_log_start_offset(log_start_offset)
            return False
        self._forget()
        copy = self.copies.newest
        self.end_offset = self._last_snapshot_offset = log_start_offset
        is_loaded = self._load_snapshot(wall_ms, log_start_offset if copy is None else copy.end_offset)
        if not is_loaded and copy is not None:
            self._load_copy(copy)
        self.first_unstable_offset = self.transactions.first_unstable()
        return is_loaded

    def _load_snapshot(self, wall_ms: int, least: int) -> bool:
        """Load the newest valid snapshot, removing others, unless it is below `least`. True if one was loaded."""
        while (offset := self.snapshots.latest) is not None and offset >= least:
            try:
                loaded = self.snapshots.read(offset)
            except (CorruptFile, FileNotFoundError):
                self.snapshots.remove(offset)
                continue
            for fields in loaded:
                self._load_entry(fields, wall_ms)
            self.transactions.load(self._begun())
            self.end_offset = self._last_snapshot_offset = offset
            return True
        return False

    def _load_copy(self, copy: ProducerCopy) -> None:
        for fields in copy.producers():
            self.entries[fields[0]] = ProducerEntry.from_copy(fields)
        self.transactions.load(self._begun(), copy.completed)
        self.end_offset = copy.end_offset
        if self.snapshots.latest is not None:
            self._last_snapshot_offset = self.snapshots.latest

    def _begun(self) -> list[tuple[int, int]]:
        """(first offset, producer id) of the entries' open transactions."""
        return [(entry.txn_first_offset, entry.producer_id) for entry in self.entries.values() if entry.txn_first_offset >= 0]

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.snapshots.clear()
        self.copies.clear()
        self._forget()
        self._last_snapshot_offset = 0
        self.end_offset = offset

    def reset(self) -> None:
        """Forget everything but snapshots and copies, as before any batch was read."""
        self._forget()
        self.end_offset = self._last_snapshot_offset = 0

    # -- inside

    def _updated(self, update: ProducerUpdate, producer_id: int) -> ProducerEntry:
        entry = update.entries.get(producer_id)
        if entry is None:
            current = self.entries.get(producer_id)
            entry = update.entries[producer_id] = ProducerEntry(producer_id) if current is None else current.copy()
        return entry

    def _check_sequence(self, entry: ProducerEntry, epoch: int, sequence: int, offset: int) -> None:
        if epoch != entry.epoch:
            verification = self._verifications.get(entry.producer_id)
            if verification is not None and sequence > (0 if verification.must_begin_at_zero else verification.lowest_sequence):
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {entry.producer_id} at offset {offset} in partition "
                    f"{self._name}: {sequence} is not the first of its batches",
                )
            if sequence != 0 and entry.epoch != NO_EPOCH:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {entry.producer_id} at offset {offset} in "
                    f"partition {self._name}: {epoch} (request epoch), {sequence} (seq. number), "
                    f"{entry.epoch} (current producer epoch)",
                )
            return
        last = entry.last_sequence
        if entry.epoch == NO_EPOCH:
            return
        if sequence != last + 1 and not (sequence == 0 and last == INT32_MAX):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id} at offset {offset} in partition "
                f"{self._name}: {sequence} (incoming seq. number), {last} (current end sequence number)",
            )

    def _stale_epoch(self, entry: ProducerEntry, epoch: int, offset: int) -> str:
        return (
            f"Epoch of producer {entry.producer_id} at offset {offset} in {self._name} is {epoch}, "
            f"which is smaller than the last seen epoch {entry.epoch}"
        )

    def _is_expired(self, entry: ProducerEntry, wall_ms: int) -> bool:
        return entry.txn_first_offset < 0 and wall_ms - entry.last_timestamp >= self.expiration_ms

    def _load_entry(self, fields: ProducerSnapshotEntry, wall_ms: int) -> None:
        entry = ProducerEntry(fields.producer_id)
        entry.epoch = fields.epoch
        entry.last_timestamp = fields.timestamp
        entry.coordinator_epoch = fields.coordinator_epoch
        entry.txn_first_offset = fields.txn_first_offset
        if fields.last_offset >= 0:
            entry.batches = [(fields.last_sequence, fields.last_offset, fields.offset_delta, fields.timestamp)]
        if self._is_expired(entry, wall_ms):
            return
        self.entries[entry.producer_id] = entry

    def _forget(self) -> None:
        self.entries.clear()
        self.transactions.clear()
        self.first_unstable_offset = None
        self._uncopied = 0
