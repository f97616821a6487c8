"""In-sync replicas: the committed set and the one proposed change that may be in flight (KIP-497, KIP-903)."""

from __future__ import annotations

from enum import Enum

from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change that AlterPartition asks for: the new set with its members' broker epochs (-1 unknown), fenced by both epochs."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    is_expansion: bool


class AlterOutcome(Enum):
    """What an answer to AlterPartition means for the proposal."""

    #: It belongs to a proposal that is no longer pending, or to another leadership.
    STALE = "stale"
    COMMITTED = "committed"
    #: Refused: drop the proposal.
    REVERT = "revert"
    #: The metadata will bring the decision. Until then the proposal may have been accepted.
    WAIT_FOR_METADATA = "wait"
    #: The outcome is unknown: ask again.
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

    Invariant: `maximal` holds every replica that the controller could elect at this moment. A proposed member counts for the high
    watermark before the change is committed; a member proposed for removal counts until it is.
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
        """Apply the controller's decision. Returns True if it is new. It arrives twice, as the answer to AlterPartition (`is_answer`) and,
        perhaps much later, with the metadata. A decision that arrived before must not drop a proposal that was made since, which may be
        committed at any moment.

        A smaller set counts only when the metadata bring it. With the metadata comes the min.insync.replicas by which the controller
        decided which of the removed members stay eligible to lead. With an older value this leader might commit without them (Kafka's
        leader does)."""
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
