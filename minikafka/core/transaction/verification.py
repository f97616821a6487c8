"""What a client's request promises about the partitions of its transaction (KIP-890; kafka.server.TransactionSupportedOperation)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from minikafka.core.transaction.state import PartitionKey

#: The version of transactions whose clients leave it to the leaders to add partitions.
IMPLICIT_VERSION = 2


class Support(Enum):
    """What the version of a client's request promises: the words of an old one, TRANSACTION_ABORTABLE, or implicit adding."""

    OLD = "old"
    ABORTABLE = "abortable"
    ADDS = "adds"

    @classmethod
    def of(cls, version: int, abortable_from: int) -> Support:
        """Of an API that knows TRANSACTION_ABORTABLE from one version on and implicit adding from the next."""
        return cls.OLD if version < abortable_from else cls.ABORTABLE if version == abortable_from else cls.ADDS


@dataclass(frozen=True, slots=True)
class Verification:
    """What the leader of partitions asks a transaction's coordinator before they take its first batch. `adds`: they are to be added;
    else they have to be the transaction's already."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[PartitionKey]
    adds: bool
