"""The state of one transactional id, and the transitions that it may make.

Rules: org.apache.kafka.coordinator.transaction.TransactionState and TransactionMetadata; KIP-98, KIP-360 (epoch bumps), KIP-588 (fencing),
KIP-890 (an epoch for each transaction).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 32767
#: From this transaction version on, every transaction has an epoch of its own (KIP-890).
EPOCH_BUMP_VERSION_MIN = 2

PartitionKey = tuple[str, int]


class TransactionState(Enum):
    """States with their number in the records of `__transaction_state` and their name in DescribeTransactions."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_over(self) -> bool:
        """Whether no transaction is open."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


STATES_BY_NUMBER = {state.number: state for state in TransactionState}
STATES_BY_LABEL = {state.label: state for state in TransactionState}

_OVER = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
#: Legal transitions: target -> states from which it may be entered. PREPARE_EPOCH_FENCE is never stored: fencing writes PrepareAbort with
#: a higher epoch.
PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _OVER,
    TransactionState.ONGOING: _OVER | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _OVER | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _OVER,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}


def is_exhausted(epoch: int) -> bool:
    """Whether no client may get a higher epoch of this producer id: the last epoch is reserved for fencing."""
    return epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id. Times are wall milliseconds; `start_ms` is -1 while no transaction has begun.

    `last_producer_epoch` is the client's epoch before its last bump, -1 if another client may have had it (not stored).
    `next_producer_id` replaces this id, whose epochs are used up, once all markers are written.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: frozenset[PartitionKey] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    client_version: int = 0

    @property
    def bumps_epoch(self) -> bool:
        """Whether the transaction is of version 2."""
        return self.client_version >= EPOCH_BUMP_VERSION_MIN

    # -- steps -----------------------------------------------------------------------------------------------------

    def with_next_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """InitProducerId: the next epoch, or the same epoch again for a repeated request. Raises PRODUCER_FENCED."""
        epoch, last = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last = self.producer_epoch, self.last_producer_epoch
            else:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        return self._empty(self.producer_id, epoch, last, timeout_ms, now_ms)

    def with_new_producer_id(self, producer_id: int, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """InitProducerId when the producer id's epochs are used up."""
        last = NO_PRODUCER_EPOCH if expected_epoch is None else expected_epoch
        return self._empty(producer_id, 0, last, timeout_ms, now_ms)

    def _empty(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            update_ms=now_ms,
        )

    def with_partitions(self, added: frozenset[PartitionKey], client_version: int, now_ms: int) -> Transaction:
        """AddPartitionsToTxn: the first partitions begin a transaction."""
        return replace(
            self,
            previous_producer_id=self.producer_id,
            state=TransactionState.ONGOING,
            partitions=self.partitions | added,
            start_ms=now_ms if self.state.is_over else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """EndTxn: the outcome is decided. With version 2 the markers and the next transaction have the next epoch."""
        bump = client_version >= EPOCH_BUMP_VERSION_MIN
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX) if bump else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bump else self.last_producer_epoch,
            start_ms=now_ms if self.state.is_over else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, *, client_version: int, now_ms: int) -> Transaction:
        """Abort an open transaction without its producer: for a new client with this transactional id, or because it timed out."""
        bump = client_version >= EPOCH_BUMP_VERSION_MIN
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=self.producer_epoch if bump else NO_PRODUCER_EPOCH,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        rotate = self.bumps_epoch and self.next_producer_id != NO_PRODUCER_ID
        commit = self.state is TransactionState.PREPARE_COMMIT
        return replace(
            self,
            previous_producer_id=self.producer_id,
            producer_id=self.next_producer_id if rotate else self.producer_id,
            producer_epoch=0 if rotate else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=now_ms,
        )
