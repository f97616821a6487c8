"""In-sync replicas: the committed set, the one proposed change that may be in flight, and when to propose (KIP-497, KIP-903)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from minikafka.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What AlterPartition asks: the new set with the members' broker epochs (-1 unknown), fenced by both epochs."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    is_expansion: bool


class AlterOutcome(Enum):
    """What an answer to AlterPartition means for the proposal."""

    #: It is about a proposal that is not pending any more, or of another leadership.
    STALE = "stale"
    COMMITTED = "committed"
    #: Refused: it is as if it had not been made.
    REVERT = "revert"
    #: The metadata bring what has been decided; until then it may have been this.
    WAIT_FOR_METADATA = "wait"
    #: Nobody knows: ask again.
    RETRY = "retry"


_REVERT = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_GIVE_UP = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def outcome_of(error: ErrorCode) -> AlterOutcome:
    """Partition.handleAlterPartitionError of Apache Kafka."""
    if error in _REVERT:
        return AlterOutcome.REVERT
    if error in _GIVE_UP:
        return AlterOutcome.WAIT_FOR_METADATA
    return AlterOutcome.RETRY


class IsrState:
    """The committed in-sync set and, while AlterPartition is in flight, the proposed one.

    Invariant: `maximal` holds every replica that a leader elected at this moment could come from: a proposed member counts for the high
    watermark before it is committed, and a member proposed for removal until it is.
    """

    __slots__ = ("committed", "maximal", "partition_epoch", "pending")

    def __init__(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.committed = isr
        self.partition_epoch = partition_epoch
        self.pending: IsrProposal | None = None
        self.maximal: tuple[int, ...] = isr

    def propose(self, proposal: IsrProposal) -> None:
        """A change is in flight."""
        self.pending = proposal
        self.maximal = proposal.isr if proposal.is_expansion else self.committed

    def commit(self, isr: tuple[int, ...], partition_epoch: int, *, is_answer: bool = False) -> bool:
        """The controller's word: True unless it is no news. It comes twice, as an answer to AlterPartition (`is_answer`) and by metadata,
        perhaps much later: what is known already says nothing of a proposal that was made since and may be committed at any moment.

        A smaller set counts when the metadata bring it: with them comes the min.insync.replicas by which the controller decided who of
        those that left is eligible to lead. By an older one this leader might commit without them (Kafka's does)."""
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch == self.partition_epoch and self.pending is not None and not is_answer:
            return False
        if is_answer and self.pending is not None and not self.pending.is_expansion and partition_epoch > self.partition_epoch:
            return False
        self.committed = self.maximal = isr
        self.partition_epoch = partition_epoch
        self.pending = None
        return True

    def revert(self) -> None:
        """Forget the proposal."""
        self.pending = None
        self.maximal = self.committed
