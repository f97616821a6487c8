"""A member of a consumer group (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from minikafka.wire.records.group_records import ConsumerGroupMemberMetadataValue

#: Partitions by topic id.
Assignment = Mapping[bytes, frozenset[int]]
#: Partitions by topic id, each with the member epoch in which it was assigned (KIP-1251).
AssignmentEpochs = Mapping[bytes, Mapping[int, int]]

#: Member epochs of a heartbeat that say "I leave", and "I leave, and my instance id comes back".
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is on its way to what it is to have; the values are those of its record."""

    STABLE = 0
    #: It has to give partitions up before it gets on.
    UNREVOKED_PARTITIONS = 1
    #: It waits for partitions that others still hold.
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state of a record."""
        return cls(value) if value in _STATES else cls.UNKNOWN


_STATES = frozenset(int(state) for state in MemberState)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """What the coordinator knows of one member; changed by replay alone.

    `assigned` is what the member may own, `pending_revocation` what it has to give up first: it owns both until it says otherwise.
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
    #: Of a member of the classic protocol.
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that it is to have in an epoch, and nothing else."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Since which epoch it owns a partition; None when it does not."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
