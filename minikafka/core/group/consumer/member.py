"""A member of a consumer group (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

from minikafka.late_dataclass import dataclass
from minikafka.wire.records.group_records import ConsumerGroupMemberMetadataValue

#: Partitions by topic id.
Assignment = Mapping[bytes, frozenset[int]]
#: Partitions by topic id, each with the member epoch in which it was assigned (KIP-1251).
AssignmentEpochs = Mapping[bytes, Mapping[int, int]]

#: Member epochs of a heartbeat with which a member leaves, and with which a static member leaves temporarily.
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is in reconciling to its target. The values are those of its record."""

    STABLE = 0
    #: It has to revoke partitions before it can continue.
    UNREVOKED_PARTITIONS = 1
    #: It waits for partitions that other members still own.
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state with the number of a record."""
        return cls(value) if value in _STATES else cls.UNKNOWN


_STATES = frozenset(int(state) for state in MemberState)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member of a consumer group. Only replay changes it.

    `assigned`: partitions that the member may own. `pending_revocation`: partitions that it has to revoke first. It counts as the owner of
    both until it reports otherwise. `subscribed_topic_regex` is empty or None without a pattern. `rack_id`, `instance_id` and
    `server_assignor` are None if the member did not send them.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: AssignmentEpochs = field(default_factory=dict)
    pending_revocation: AssignmentEpochs = field(default_factory=dict)
    #: Set for a member of the classic protocol only.
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol."""
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has exactly its target of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch since which the member owns a partition; None if it does not."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
