"""A consumer group: members, epochs, targets and owners of partitions. Only replay changes it.

Rules: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minikafka.core.group.consumer.member import Assignment, AssignmentEpochs, ConsumerMember, MemberState
from minikafka.late_dataclass import dataclass
from minikafka.wire.records.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched at a version of the metadata, and the wall time at which it was resolved."""

    topics: frozenset[str]
    version: int
    wall_ms: int


class ConsumerGroup:
    """Invariants: `owners` has exactly the partitions that members own or still have to revoke. `static_members` (instance id -> member id)
    has every static member."""

    __slots__ = (
        "_subscribed", "assignment_epoch", "assignment_wall_ms", "epoch", "group_id", "has_partition_metadata", "is_refresh_due",
        "members", "metadata_hash", "owners", "regexes", "static_members", "targets",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assignment_wall_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        #: topic id -> partition -> the member that owns it.
        self.owners: dict[bytes, dict[int, str]] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        #: Whether the log has a partition metadata record, which brokers before 4.1 wrote.
        self.has_partition_metadata = False
        #: Whether topics may have changed since the last refresh.
        self.is_refresh_due = True
        self._subscribed: frozenset[str] | None = None

    # -- queries --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The name of the group's state, as in DescribeGroups."""
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        is_stable = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return STABLE if is_stable else RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with an instance id, or None."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target(self, member: ConsumerMember) -> Assignment:
        """A member's target. A static member that rejoins has the target of its earlier member id."""
        static = self.static_member(member.instance_id)
        return self.targets.get(member.member_id if static is None else static.member_id, {})

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that at least one member subscribes to, by name or by a resolved pattern."""
        if self._subscribed is None:
            self._subscribed = self.topics_of(list(self.members.values()))
        return self._subscribed

    def topics_of(self, members: list[ConsumerMember], regexes: Mapping[str, ResolvedRegex] | None = None) -> frozenset[str]:
        """Topics that these members subscribe to by name or by pattern. Patterns are looked up in `regexes`, or in the group's own."""
        topics: set[str] = set()
        for names in dict.fromkeys(member.subscribed_topic_names for member in members):
            topics |= names
        resolved = self.regexes if regexes is None else regexes
        for regex in dict.fromkeys(member.subscribed_topic_regex for member in members):
            if regex and regex in resolved:
                topics |= resolved[regex].topics
        return frozenset(topics)

    def members_with(self, updated: ConsumerMember) -> list[ConsumerMember]:
        """The members with `updated` added or replaced. It also replaces an earlier member with its instance id."""
        replaced = self.static_member(updated.instance_id)
        gone = {updated.member_id} if replaced is None else {updated.member_id, replaced.member_id}
        return [*(member for member_id, member in self.members.items() if member_id not in gone), updated]

    def resolved(self, regex: str | None) -> frozenset[str]:
        """The topics that a pattern matches; empty while it is not resolved."""
        found = self.regexes.get(regex) if regex else None
        return frozenset() if found is None else found.topics

    def subscribed_regexes(self) -> dict[str, int]:
        """Patterns, each with the number of members that subscribe to it."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            if member.subscribed_topic_regex:
                counts[member.subscribed_topic_regex] = counts.get(member.subscribed_topic_regex, 0) + 1
        return counts

    def preferred_assignor(self, updated: ConsumerMember | None = None) -> str | None:
        """The assignor that most members ask for; None if no member asks for one. `updated` replaces the member with its id."""
        counts: dict[str, int] = {}
        members = self.members if updated is None else {**self.members, updated.member_id: updated}
        for member in members.values():
            if member.server_assignor is not None:
                counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
        return max(counts, key=lambda name: counts[name], default=None)

    # -- replay --------------------------------------------------------------------------------------------------------

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics of a pattern; None if it has no subscribers any more."""
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._subscribed = None

    def set_metadata(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        """Set a member's metadata; None removes the member."""
        before = self.members.get(member_id)
        if value is None:
            if before is not None:
                self._remove(before)
            return
        member = replace(
            before or ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
        self._put(member)

    def set_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        """Set a member's current assignment; None if it has none because it is about to be removed."""
        before = self.members.get(member_id)
        if value is None:
            if before is not None:
                self._put(replace(before, member_epoch=-1, previous_member_epoch=-1, assigned={}, pending_revocation={}))
            return
        member = replace(
            before or ConsumerMember(member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            pending_revocation=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
        self._put(member)

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
            if before.instance_id != member.instance_id:
                self._forget_instance(before)
        self.members[member.member_id] = member
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._subscribed = None

    def _remove(self, member: ConsumerMember) -> None:
        self._release(member)
        del self.members[member.member_id]
        self._forget_instance(member)
        self._subscribed = None

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)


def _epochs(topics: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int) -> AssignmentEpochs:
    """Assigned partitions with their epochs. Brokers before 4.3 wrote no epochs; then the member's epoch is used."""
    found: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found
