"""What the leader of a partition does with a marker of a finished transaction (KIP-890)."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from minikafka.core.transaction.state import EPOCH_BUMP_VERSION_MIN
from minikafka.wire.errors import ApiError, ErrorCode


class MarkerStep(Enum):
    """The next step: write the marker, or wait until the one that was written before is replicated."""

    WRITE = "write"
    WAIT = "wait"


class SentMarker(Protocol):
    """A marker of a WriteTxnMarkers request."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int


class ProducerInLog(Protocol):
    """What a partition's log says of a producer. `txn_first_offset` is below 0 without an open transaction."""

    epoch: int
    coordinator_epoch: int
    txn_first_offset: int


def marker_step(marker: SentMarker, producer: ProducerInLog | None) -> MarkerStep:
    """`producer`: None if the log does not know the marker's producer. Raises ApiError if the marker must not be written."""
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        # A marker needs a producer id: the record format has no control batch without one.
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if marker.transaction_version < EPOCH_BUMP_VERSION_MIN or producer is None or producer.epoch != marker.producer_epoch:
        return MarkerStep.WRITE
    # The partition has already seen the epoch after the transaction's own, so the marker was written before. An open transaction is the
    # next one, and a repeated marker must not end it.
    if producer.txn_first_offset >= 0:
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    return MarkerStep.WAIT
