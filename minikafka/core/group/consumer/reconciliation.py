"""How a member gets from its current assignment to its target: it revokes first, and takes only partitions without an owner.

Rules: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minikafka.core.group.consumer.member import Assignment, AssignmentEpochs, ConsumerMember, MemberState
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode

_UNKNOWN_STATE = "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The input to a member's next step.

    `owned`: the partitions that the member reports to own; None if it does not say. `subscribed`: ids of the existing topics that it
    subscribes to. `owners`: topic id -> partition -> owner, of the whole group.
    """

    target_epoch: int
    target: Assignment
    owned: Assignment | None
    subscribed: frozenset[bytes]
    owners: Mapping[bytes, Mapping[int, str]]
    has_subscription_changed: bool = False

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after this step; the same object if nothing changes. Raises FENCED_MEMBER_EPOCH."""
        if member.state is MemberState.STABLE and member.member_epoch == self.target_epoch:
            return self._without_unsubscribed(member) if self.has_subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS and self._still_owns(member.pending_revocation):
            return self._without_unsubscribed(member) if self.has_subscription_changed else member
        if member.state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
            return self._next(member, self.target_epoch)
        return self._next(member, member.member_epoch)

    def _still_owns(self, pending: AssignmentEpochs) -> bool:
        if self.owned is None:
            return True
        return any(not partitions.isdisjoint(pending.get(topic_id, {})) for topic_id, partitions in self.owned.items())

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke topics that the member has just unsubscribed from at once, whatever its target is."""
        gone = [topic_id for topic_id in member.assigned if topic_id not in self.subscribed]
        if not gone:
            return member
        assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in self.subscribed}
        pending = {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
        for topic_id in gone:
            pending.setdefault(topic_id, {}).update(member.assigned[topic_id])
        if not self._still_owns(pending):
            return replace(member, previous_member_epoch=member.member_epoch, assigned=assigned)
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=assigned,
            pending_revocation=pending,
        )

    def _next(self, member: ConsumerMember, member_epoch: int) -> ConsumerMember:
        kept: dict[bytes, dict[int, int]] = {}
        pending: dict[bytes, dict[int, int]] = {}
        for topic_id, epochs in member.assigned.items():
            target = self._target(topic_id)
            for partition, epoch in epochs.items():
                (kept if partition in target else pending).setdefault(topic_id, {})[partition] = epoch
        if pending and self._still_owns(pending):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                member_epoch=member_epoch,
                previous_member_epoch=member.member_epoch,
                assigned=kept,
                pending_revocation=pending,
            )
        is_waiting = self._take(member, kept)
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
            member_epoch=self.target_epoch,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation={},
        )

    def _target(self, topic_id: bytes) -> frozenset[int]:
        return self.target.get(topic_id, frozenset()) if topic_id in self.subscribed else frozenset()

    def _take(self, member: ConsumerMember, kept: dict[bytes, dict[int, int]]) -> bool:
        """Add the partitions of the target that are free or the member's own to `kept`. Returns whether some are not."""
        is_waiting = False
        for topic_id in self.target:
            owners, revoked = self.owners.get(topic_id, {}), member.pending_revocation.get(topic_id, {})
            for partition in sorted(self._target(topic_id)):
                if partition in kept.get(topic_id, ()):
                    continue
                if partition in owners and partition not in revoked:
                    is_waiting = True
                else:
                    kept.setdefault(topic_id, {})[partition] = self.target_epoch
        return is_waiting
