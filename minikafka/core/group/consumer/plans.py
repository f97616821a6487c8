"""What a change of a consumer group writes, and what follows when it is committed.

Rules: GroupMetadataManager of Apache Kafka 4.3. Everything here is a plan: records and an answer. The group changes when the records are
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

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
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


def refused_heartbeat(error: ErrorCode) -> Response:
    """The answer when the records of a heartbeat could not be written."""
    return ConsumerGroupHeartbeatResponse(error_code=append_error(error))


@dataclass(slots=True)
class Plan:
    """What is to be written, and what follows when it is committed.

    `refused(error)`: the answer when it cannot be written. `member_id`: whose session goes on; `sync_timeout_ms`: it has joined by
    JoinGroup, and SyncGroup follows. `unrevoked`: the member that has to give partitions up in time; `settled`: one that need not any
    more. `gone`: members that are no more. `is_refreshed`: the topics were looked at. `is_assignment_due`: targets are computed in steps.
    `upgraded`: the classic group that ends with it; `downgraded`: the classic group that begins.
    """

    records: Records = field(default_factory=list)
    answer: Response | None = None
    refused: Callable[[ErrorCode], Response] = refused_heartbeat
    member_id: str | None = None
    sync_timeout_ms: int | None = None
    unrevoked: ConsumerMember | None = None
    settled: str | None = None
    gone: tuple[str, ...] = ()
    to_resolve: frozenset[str] = frozenset()
    is_refreshed: bool = False
    is_assignment_due: bool = False
    upgraded: ClassicGroup | None = None
    downgraded: ClassicGroup | None = None
    is_rebalanced: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """What a member's request says, as the group sees it: who it was, who it is, what it owns (None: it does not say).

    `bumps`: changes of its pattern that begin a new epoch at once."""

    before: ConsumerMember
    updated: ConsumerMember
    owned: Assignment | None
    bumps: frozenset[RegexChange]


class GroupPlanner:
    """Makes plans; holds nothing but what it is given."""

    def __init__(self, config: ConsumerGroupConfig, topics: Topics, hashes: TopicHashes) -> None:
        self.config = config
        self.topics = topics
        self.hashes = hashes

    @property
    def policy(self) -> MigrationPolicy:
        """Which way groups may change between the protocols."""
        return self.config.migration

    def subscribe(self, group: ConsumerGroup, step: Step, plan: Plan, rule: RefreshRule) -> tuple[int, bool]:
        """Write what the member says of itself. Its group's epoch after that, and whether its subscription has changed."""
        before, updated = step.before, step.updated
        names_changed = updated.subscribed_topic_names != before.subscribed_topic_names
        if updated != before:
            plan.records.append(member_record(group.group_id, updated))
        regexes = plan_regexes(group, before, updated, rule)
        plan.records += regexes.records
        plan.to_resolve = regexes.to_resolve
        epoch = self._next_epoch(group, updated, plan, is_bumped=names_changed or regexes.change in step.bumps)
        return epoch, names_changed or regexes.change is not RegexChange.NONE

    def take_step(self, group: ConsumerGroup, step: Step, plan: Plan, intervals: GroupIntervals, rule: RefreshRule) -> ConsumerMember:
        """A member goes on: what it subscribes to, the epoch and the targets that follow, and what it may have by now."""
        epoch, has_changed = self.subscribe(group, step, plan, rule)
        target_epoch, target = self._next_target(group, step.updated, epoch, plan, intervals, rule.wall_ms)
        return self.reconcile(group, step, target_epoch, target, plan, has_subscription_changed=has_changed)

    def replace_static(self, group: ConsumerGroup, left: ConsumerMember, member_id: str, records: Records) -> ConsumerMember:
        """A member takes the place of who had its instance id."""
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
        """The member, as far on its way to its target as it may be by now. Raises FENCED_MEMBER_EPOCH."""
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
        """Members are no more: what they had is free, and the group gets a new epoch; or it is classic again, when nobody else speaks the
        consumer protocol. Raises GROUP_ID_NOT_FOUND."""
        gone = {member.member_id: member for member in members}
        if may_downgrade(group, gone, self.policy):
            return self.downgrade(group, gone, None, wall_ms)
        return self.without(group, gone.values())

    def without(self, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> Plan:
        """Members are no more, and the group is what it was."""
        gone = {member.member_id: member for member in members}
        left = [member for member_id, member in group.members.items() if member_id not in gone]
        plan = Plan(gone=tuple(gone))
        for member_id in gone:
            plan.records += member_tombstones(group.group_id, member_id)
        still = {member.subscribed_topic_regex for member in left}
        for regex in dict.fromkeys(member.subscribed_topic_regex for member in gone.values()):
            if regex and regex not in still:
                plan.records.append(regex_tombstone(group.group_id, regex))
        plan.records.append(epoch_record(group.group_id, epoch_after_leaving(group.epoch), self.hashes.of(group.topics_of(left))))
        return plan

    def downgrade(self, group: ConsumerGroup, gone: Collection[str], joining: ConsumerMember | None, wall_ms: int) -> Plan:
        """The group is classic again. Raises GROUP_ID_NOT_FOUND."""
        classic = downgraded_group(group, gone, joining, self.topics, wall_ms)
        return Plan(downgrade_records(group, classic, joining), gone=tuple(group.members), downgraded=classic)
