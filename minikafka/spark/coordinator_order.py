"""What a coordinator never writes after an earlier record of the same key, if no tombstone lies between: a cleaner that removes one of two
records keeps the later one, so neighbours in the log are those that the coordinator wrote."""

from __future__ import annotations

from minikafka.spark.claims import GROUPS, SHARE_GROUPS, TRANSACTIONS
from minikafka.spark.coordinator_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    SHARE_SNAPSHOT,
    SHARE_UPDATE,
    STATES,
    TransactionState,
    transaction_state,
)
from minikafka.spark.group_records import CLASSIC, EPOCHS, generation_of
from minikafka.spark.metadata_fields import Fields

#: From this epoch on a transactional id gets another producer id (TransactionMetadata.isProducerEpochExhausted), and what may stand in the
#: record after a write that timed out, of which the coordinator did not know that it was done.
LAST_EPOCH = (1 << 15) - 2
#: The states from which a coordinator goes on to a state (TransactionState.validPreviousStates), "prepare to fence" left out, which it
#: keeps to itself and reaches from Ongoing alone.
_AT_REST = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
BEFORE: dict[int, frozenset[int]] = {
    EMPTY: _AT_REST, ONGOING: _AT_REST | {ONGOING}, PREPARE_COMMIT: frozenset({ONGOING}), PREPARE_ABORT: _AT_REST | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}), COMPLETE_ABORT: frozenset({PREPARE_ABORT}), DEAD: _AT_REST,
}  # fmt: skip


class OrderError(Exception):
    """Two records of one key that no coordinator writes one after the other."""


def check_order(topic: str, key: bytes, before: bytes, after: bytes) -> None:
    """Check two records of one key. Raises OrderError, or FormatError if one of them cannot be read."""
    kind = int.from_bytes(key[:2], "big", signed=True)
    if topic == GROUPS:
        _check_groups(kind, before, after)
    elif topic == SHARE_GROUPS:
        _check_share_states(kind, before, after)
    elif (earlier := transaction_state(key, before)) is not None and (later := transaction_state(key, after)) is not None:
        _check_transactions(earlier, later)


def _check_groups(kind: int, before: bytes, after: bytes) -> None:
    if kind in EPOCHS or kind == CLASSIC:
        read = generation_of if kind == CLASSIC else _epoch
        earlier, later = read(before), read(after)
        if later < earlier:
            raise OrderError(f"the epoch falls from {earlier} to {later}")


def _epoch(value: bytes) -> int:
    return Fields(value, 2).integer(4)


def _check_share_states(kind: int, before: bytes, after: bytes) -> None:
    """The snapshot's epoch, which grows with each, and the state's epoch; of changes of one snapshot the leader's epoch, -1 for none. A
    state that is begun anew knows no leader, and a write that arrives late moves the start back."""
    epochs = [(fields.integer(4), fields.integer(4)) for fields in (Fields(before, 2), Fields(after, 2))]
    (snapshot, earlier), (next_snapshot, later) = epochs
    if kind == SHARE_SNAPSHOT and (next_snapshot <= snapshot or later < earlier):
        raise OrderError(f"the epochs of the snapshot and of the state go from {epochs[0]} to {epochs[1]}")
    if kind == SHARE_UPDATE and (next_snapshot < snapshot or (next_snapshot == snapshot and 0 <= later < earlier)):
        raise OrderError(f"the epochs of the snapshot and of the leader fall from {epochs[0]} to {epochs[1]}")


def _check_transactions(before: TransactionState, after: TransactionState) -> None:
    """A write that timed out may have been done, and what follows does not build on it: so an epoch may fall by one."""
    if before.producer_id != after.producer_id:
        if max(before.producer_epoch, after.producer_epoch + 1) < LAST_EPOCH:
            text = f"the producer id changes from {before.producer_id}, whose epoch is {before.producer_epoch}, to {after.producer_id}"
            raise OrderError(text)
    elif after.producer_epoch < before.producer_epoch - 1:
        raise OrderError(f"the epoch of producer {after.producer_id} falls from {before.producer_epoch} to {after.producer_epoch}")
    if not _may_follow(before.state, after.state):
        raise OrderError(f"the transaction goes from {STATES[before.state]} to {STATES[after.state]}")


def check_end(topic: str, key: bytes, before: bytes) -> None:
    """Check the last record of a key before a tombstone. Raises OrderError, or FormatError if it cannot be read.

    A transactional id is forgotten when nothing of it is open. A transaction may have begun by a write that timed out, of which the
    coordinator did not know."""
    if topic == TRANSACTIONS and (last := transaction_state(key, before)) is not None and not _may_follow(last.state, DEAD):
        raise OrderError(f"the transactional id is forgotten in state {STATES[last.state]}")


def _may_follow(before: int, after: int) -> bool:
    """Whether a coordinator goes from one state to another, or repeats a write, or went on from the state before one that it took for
    failed."""
    return before == after or any(before in BEFORE[after] or (one in BEFORE[before] and one in BEFORE[after]) for one in BEFORE)
