"""What a heartbeat of a consumer changes in its group.

Rules: GroupMetadataManager.consumerGroupHeartbeat of Apache Kafka 4.3. Everything here is a plan: records and an answer. The group changes
when the records are replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import (
    check_epoch,
    check_released,
    check_room,
    known_member,
    known_static_member,
    owned_partitions,
)
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import LEAVE_STATIC_EPOCH, Assignment, ConsumerMember, MemberState
from minikafka.core.group.consumer.reconciliation import Reconciliation
from minikafka.core.group.consumer.records import (
    Records,
    current_record,
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
from minikafka.core.group.consumer.targets import ASSIGNORS, next_targets, subscribed_ids, target_changes
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


@dataclass(slots=True)
class Plan:
    """What is to be written, and what follows when it is committed.

    `member_id`: whose session goes on. `unrevoked`: the member that has to give partitions up in time; `settled`: one that need not any
    more. `gone`: members that are no more. `is_refreshed`: the topics were looked at.
    """

    records: Records = field(default_factory=list)
    answer: ConsumerGroupHeartbeatResponse | None = None
    member_id: str | None = None
    unrevoked: ConsumerMember | None = None
    settled: str | None = None
    gone: tuple[str, ...] = ()
    to_resolve: frozenset[str] = frozenset()
    is_refreshed: bool = False


class HeartbeatPlanner:
    """Makes plans; holds nothing but what it is given."""

    def __init__(self, config: ConsumerGroupConfig, topics: Topics, hashes: TopicHashes) -> None:
        self._config = config
        self._topics = topics
        self._hashes = hashes

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client, intervals: GroupIntervals, rule: RefreshRule
    ) -> Plan:
        """A member joins or goes on. Raises ApiError."""
        check_room(group, request.member_id, self._config.size_max)
        plan = Plan(member_id=request.member_id)
        owned = owned_partitions(request)
        known = self._sender(group, request, owned, plan.records)
        updated = _updated(known, request, client)
        names_changed = updated.subscribed_topic_names != known.subscribed_topic_names
        if updated != known:
            plan.records.append(member_record(group.group_id, updated))
        regexes = plan_regexes(group, known, updated, rule)
        plan.records += regexes.records
        plan.to_resolve = regexes.to_resolve
        epoch = self._next_epoch(group, updated, plan, is_bumped=names_changed or regexes.change is RegexChange.CHANGED_AND_RESOLVED)
        target_epoch, target = self._next_target(group, updated, epoch, plan, intervals, rule.wall_ms)
        has_changed = names_changed or regexes.change is not RegexChange.NONE
        reconciled = self._reconcile(group, updated, target_epoch, target, owned, plan, has_changed)
        plan.answer = _answer(request, known, reconciled, intervals)
        return plan

    def _sender(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Assignment | None, records: Records
    ) -> ConsumerMember:
        """Who sends it, as the group knows it; one that it does not know when it joins."""
        member_id, instance_id, is_joining = request.member_id, request.instance_id, request.member_epoch == 0
        if instance_id is None:
            if is_joining:
                return group.members.get(member_id) or ConsumerMember(member_id)
            member = known_member(group, member_id)
        elif not is_joining:
            member = known_static_member(group, member_id, instance_id)
        else:
            left = group.static_member(instance_id)
            if left is None:
                return group.members.get(member_id) or ConsumerMember(member_id)
            if not left.is_classic:
                check_released(left, member_id, instance_id)
            member = replace(left, member_id=member_id, member_epoch=0, previous_member_epoch=0)
            records += member_tombstones(group.group_id, left.member_id)
            records += [
                member_record(group.group_id, member),
                target_record(group.group_id, member_id, group.targets.get(left.member_id, {})),
                current_record(group.group_id, member),
            ]
            return member
        check_epoch(member, request.member_epoch, owned)
        return member

    def _next_epoch(self, group: ConsumerGroup, updated: ConsumerMember, plan: Plan, *, is_bumped: bool) -> int:
        if not is_bumped and not group.is_refresh_due:
            return group.epoch
        plan.is_refreshed = True
        metadata_hash = self._hashes.of(group.topics_of(group.members_with(updated)))
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
        interval_ms = intervals.assignment_interval_ms
        is_early = interval_ms > 0 and group.assignment_wall_ms > 0 and wall_ms < group.assignment_wall_ms + interval_ms
        if group.assignment_epoch >= epoch or is_early:
            return group.assignment_epoch, group.target(updated)
        name = group.preferred_assignor(updated) or self._config.assignors[0]
        targets = next_targets(group, updated, ASSIGNORS.get(name, ASSIGNORS[self._config.assignors[0]]), self._topics)
        plan.records += target_changes(group, targets)
        plan.records.append(target_epoch_record(group.group_id, epoch, wall_ms))
        return epoch, targets[updated.member_id]

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target_epoch: int,
        target: Assignment,
        owned: Assignment | None,
        plan: Plan,
        has_subscription_changed: bool,
    ) -> ConsumerMember:
        if not has_subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        subscribed = subscribed_ids(group, member, self._topics)
        rule = Reconciliation(target_epoch, target, owned, subscribed, group.owners, has_subscription_changed)
        reconciled = rule.step(member)
        if reconciled != member:
            plan.records.append(current_record(group.group_id, reconciled))
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                plan.unrevoked = reconciled
            else:
                plan.settled = reconciled.member_id
        return reconciled

    # -- leaving -------------------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Plan:
        """A member leaves, for good or for a while. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if request.instance_id is None:
            member = known_member(group, request.member_id)
        else:
            member = known_static_member(group, request.member_id, request.instance_id)
        answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
            left = replace(member, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation={})
            return Plan([current_record(group.group_id, left)], answer)
        plan = self.fence(group, [member])
        plan.answer = answer
        return plan

    def fence(self, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> Plan:
        """Members are no more: what they had is free, and the group gets a new epoch."""
        gone = {member.member_id: member for member in members}
        left = [member for member_id, member in group.members.items() if member_id not in gone]
        plan = Plan(gone=tuple(gone))
        for member_id in gone:
            plan.records += member_tombstones(group.group_id, member_id)
        still = {member.subscribed_topic_regex for member in left}
        for regex in dict.fromkeys(member.subscribed_topic_regex for member in gone.values()):
            if regex and regex not in still:
                plan.records.append(regex_tombstone(group.group_id, regex))
        plan.records.append(epoch_record(group.group_id, group.epoch + 1, self._hashes.of(group.topics_of(left))))
        return plan


def _updated(known: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """The member with what the request says of it; what it leaves out stays."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return replace(
        known,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=known.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        server_assignor=known.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=known.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=known.subscribed_topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def _answer(
    request: ConsumerGroupHeartbeatRequest, known: ConsumerMember, member: ConsumerMember, intervals: GroupIntervals
) -> ConsumerGroupHeartbeatResponse:
    """The assignment is told to who joins, asks for all, or has another than before."""
    answer = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=member.member_epoch, heartbeat_interval_ms=intervals.heartbeat_interval_ms
    )
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    if request.member_epoch == 0 or is_full or member.assigned != known.assigned:
        answer.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                for topic_id in sorted(member.assigned)
            ]
        )
    return answer
