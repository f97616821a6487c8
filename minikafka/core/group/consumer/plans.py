"""Plans: the records of a change of a consumer group, and what follows when they are committed.

Rules: GroupMetadataManager of Apache Kafka 4.3. A plan only holds records and an answer. The group changes when the records are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field, replace

from minikafka.core.coordinator.shard import append_error
from minikafka.core.group.classic import ClassicGroup
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import Assignment, ConsumerMember, MemberState
from minikafka.core.group.consumer.migration import downgrade_records, downgraded_group, may_downgrade
from minikafka.core.group.consumer.policy import MigrationPolicy
from minikafka.core.group.consumer.reconciliation import Reconciliation
from minikafka.core.group.consumer.records import (
    Records,
    current_record,
    epoch_after_leaving,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from minikafka.core.group.consumer.regexes import RefreshRule, RegexChange, plan_regexes
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.core.group.consumer.targets import assignor_of, is_early, is_large, next_targets, subscribed_ids, target_changes
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


def refused_heartbeat(error: ErrorCode) -> Response:
    """The answer to a heartbeat whose records could not be written."""
    return ConsumerGroupHeartbeatResponse(error_code=append_error(error))


@dataclass(slots=True)
class Plan:
    """The records to write, and what follows when they are committed.

    `refused(error)`: the answer if they cannot be written. `member_id`: the member whose session is extended. `sync_timeout_ms`: set if the
    member has joined by JoinGroup and SyncGroup follows. `unrevoked`: the member that has to revoke partitions in time. `settled`: the id
    of a member that no longer has to. `gone`: ids of removed members. `is_refreshed`: the topics were refreshed. `is_assignment_due`:
    targets have to be computed in steps. `upgraded`: the classic group that ends with this plan. `downgraded`: the one that begins.
    """

    records: Records = field(default_factory=list)
    answer: Response | None = None
    refused: Callable[[ErrorCode], Response] = refused_heartbeat
    member_id: str | None = None
    sync_timeout_ms: int | None = None
    unrevoked: ConsumerMember | None = None
    settled: str | None = None
    gone: tuple[str, ...] = ()
    to_resolve: tuple[str, ...] = ()
    is_refreshed: bool = False
    is_assignment_due: bool = False
    upgraded: ClassicGroup | None = None
    downgraded: ClassicGroup | None = None
    is_rebalanced: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """A member's request: the member before and after it, and the partitions that it reports to own (None if it does not say).

    `bumps`: changes of its pattern that begin a new epoch at once. `is_other_assignor`: the group has another assignor after it, which
    begins a new epoch, too."""

    before: ConsumerMember
    updated: ConsumerMember
    owned: Assignment | None
    bumps: frozenset[RegexChange]
    is_other_assignor: bool = False


class GroupPlanner:
    """Makes plans. It has no state of its own."""

    def __init__(self, config: ConsumerGroupConfig, topics: Topics, hashes: TopicHashes) -> None:
        self.config = config
        self.topics = topics
        self.hashes = hashes

    @property
    def policy(self) -> MigrationPolicy:
        """In which directions groups may change between the protocols."""
        return self.config.migration

    def subscribe(self, group: ConsumerGroup, step: Step, plan: Plan, rule: RefreshRule) -> tuple[int, bool]:
        """Record the member's metadata. Returns the group's epoch after that, and whether the member's subscription has changed."""
        before, updated = step.before, step.updated
        names_changed = updated.subscribed_topic_names != before.subscribed_topic_names
        if updated != before:
            plan.records.append(member_record(group.group_id, updated))
        regexes = plan_regexes(group, before, updated, rule)
        plan.records += regexes.records
        plan.to_resolve = regexes.to_resolve
        is_bumped = names_changed or regexes.change in step.bumps or step.is_other_assignor
        epoch = self._next_epoch(group, updated, plan, is_bumped=is_bumped)
        return epoch, names_changed or regexes.change is not RegexChange.NONE

    def take_step(self, group: ConsumerGroup, step: Step, plan: Plan, intervals: GroupIntervals, rule: RefreshRule) -> ConsumerMember:
        """Process a member's request: its subscription, the resulting epoch and targets, and its reconciliation."""
        epoch, has_changed = self.subscribe(group, step, plan, rule)
        target_epoch, target = self._next_target(group, step.updated, epoch, plan, intervals, rule.wall_ms)
        return self.reconcile(group, step, target_epoch, target, plan, has_subscription_changed=has_changed)

    def replace_static(self, group: ConsumerGroup, left: ConsumerMember, member_id: str, records: Records) -> ConsumerMember:
        """A member replaces the member `left`, which had its instance id."""
        member = replace(left, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        records += member_tombstones(group.group_id, left.member_id)
        records += [
            member_record(group.group_id, member),
            target_record(group.group_id, member_id, group.targets.get(left.member_id, {})),
            current_record(group.group_id, member),
        ]
        return member

    def _next_epoch(self, group: ConsumerGroup, updated: ConsumerMember, plan: Plan, *, is_bumped: bool) -> int:
        if not is_bumped and not group.is_refresh_due:
            return group.epoch
        plan.is_refreshed = True
        metadata_hash = self.hashes.of(group.topics_of(group.members_with(updated)))
        epoch = group.epoch
        if is_bumped or metadata_hash != group.metadata_hash:
            epoch += 1
            plan.records.append(epoch_record(group.group_id, epoch, metadata_hash))
        if group.has_partition_metadata:
            plan.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def _next_target(
        self, group: ConsumerGroup, updated: ConsumerMember, epoch: int, plan: Plan, intervals: GroupIntervals, wall_ms: int
    ) -> tuple[int, Assignment]:
        if group.assignment_epoch >= epoch or is_early(group, intervals, wall_ms):
            return group.assignment_epoch, group.target(updated)
        if is_large(group, updated, self.topics):
            plan.is_assignment_due = True
            return group.assignment_epoch, group.target(updated)
        targets = next_targets(group, updated, assignor_of(group, updated, self.config.assignors), self.topics)
        plan.records += target_changes(group, targets)
        plan.records.append(target_epoch_record(group.group_id, epoch, wall_ms))
        return epoch, targets[updated.member_id]

    def reconcile(
        self, group: ConsumerGroup, step: Step, target_epoch: int, target: Assignment, plan: Plan, *, has_subscription_changed: bool
    ) -> ConsumerMember:
        """The member after reconciling to its target as far as possible now. Raises FENCED_MEMBER_EPOCH."""
        member = step.updated
        if not has_subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        subscribed = subscribed_ids(group, member, self.topics)
        rule = Reconciliation(target_epoch, target, step.owned, subscribed, group.owners, has_subscription_changed)
        reconciled = rule.step(member)
        if reconciled != member:
            plan.records.append(current_record(group.group_id, reconciled))
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS and not reconciled.is_classic:
                plan.unrevoked = reconciled
            else:
                plan.settled = reconciled.member_id
        return reconciled

    # -- leaving -------------------------------------------------------------------------------------------------------

    def fence(self, group: ConsumerGroup, members: Iterable[ConsumerMember], wall_ms: int) -> Plan:
        """Remove members and free their partitions. The group gets a new epoch, or becomes classic if no other member uses the consumer
        protocol. Raises GROUP_ID_NOT_FOUND."""
        gone = {member.member_id: member for member in members}
        if may_downgrade(group, gone, self.policy):
            return self.downgrade(group, gone, None, wall_ms)
        return self.without(group, gone.values())

    def without(self, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> Plan:
        """Remove members and free their partitions. The group keeps its protocol."""
        gone = {member.member_id: member for member in members}
        left = [member for member_id, member in group.members.items() if member_id not in gone]
        plan = Plan(gone=tuple(gone))
        for member_id in gone:
            plan.records += member_tombstones(group.group_id, member_id)
        still = {member.subscribed_topic_regex for member in left}
        for regex in dict.fromkeys(member.subscribed_topic_regex for member in gone.values()):
            if regex and regex not in still:
                plan.records.append(regex_tombstone(group.group_id, regex))
        epoch = epoch_after_leaving(group.epoch)
        plan.records.append(epoch_record(group.group_id, epoch, self.hashes.of(group.topics_of(left))))
        if not left:
            # The next member to join need not wait for the interval between assignments.
            plan.records.append(target_epoch_record(group.group_id, epoch, 0))
        return plan

    def downgrade(self, group: ConsumerGroup, gone: Collection[str], joining: ConsumerMember | None, wall_ms: int) -> Plan:
        """Convert the group to a classic one. Raises GROUP_ID_NOT_FOUND."""
        classic = downgraded_group(group, gone, joining, self.topics, wall_ms)
        return Plan(downgrade_records(group, classic, joining), gone=tuple(group.members), downgraded=classic)
