"""What the version of a client's request supports in transactions (KIP-890; kafka.server.TransactionSupportedOperation)."""

from __future__ import annotations

from enum import Enum

from minikafka.core.transaction.state import PartitionKey
from minikafka.late_dataclass import dataclass

#: The transaction version from which on leaders add partitions implicitly, instead of the clients.
IMPLICIT_VERSION = 2


class Support(Enum):
    """What the version of a request supports: the old error codes only, TRANSACTION_ABORTABLE, or also implicit adding of partitions."""

    OLD = "old"
    ABORTABLE = "abortable"
    ADDS = "adds"

    @classmethod
    def of(cls, version: int, abortable_from: int) -> Support:
        """The support of `version`, for an API that has TRANSACTION_ABORTABLE from `abortable_from` on and implicit adding from the next
        version on."""
        return cls.OLD if version < abortable_from else cls.ABORTABLE if version == abortable_from else cls.ADDS


@dataclass(frozen=True, slots=True)
class Verification:
    """A leader's question to the transaction coordinator before it accepts a transaction's first batch. `adds`: the coordinator adds the
    partitions; otherwise they must already belong to the transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[PartitionKey]
    adds: bool
