"""The changes that a consumer's heartbeat makes to its group.

Rules: GroupMetadataManager.consumerGroupHeartbeat of Apache Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace

from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import (
    check_epoch,
    check_released,
    check_room,
    existing_member,
    existing_static_member,
    owned_partitions,
)
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import LEAVE_STATIC_EPOCH, Assignment, ConsumerMember, MemberState
from minikafka.core.group.consumer.plans import GroupPlanner, Plan, Step
from minikafka.core.group.consumer.records import Records, current_record
from minikafka.core.group.consumer.regexes import RefreshRule, RegexChange
from minikafka.core.group.consumer.settings import GroupIntervals
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_BUMPS = frozenset({RegexChange.CHANGED_AND_RESOLVED})


class HeartbeatPlanner:
    """Makes plans for heartbeats."""

    def __init__(self, planner: GroupPlanner) -> None:
        self._planner = planner

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client, intervals: GroupIntervals, rule: RefreshRule
    ) -> Plan:
        """A member joins or continues. Raises ApiError."""
        check_room(group, request.member_id, request.instance_id, self._planner.config.size_max)
        plan = Plan(member_id=request.member_id)
        owned = owned_partitions(request)
        before = self._sender(group, request, owned, plan.records)
        updated = _updated(before, request, client)
        step = Step(before, updated, owned, _BUMPS, self._is_other_assignor(group, before, updated))
        reconciled = self._planner.take_step(group, step, plan, intervals, rule)
        plan.answer = _answer(request, before, reconciled, intervals)
        return plan

    def _is_other_assignor(self, group: ConsumerGroup, before: ConsumerMember, updated: ConsumerMember) -> bool:
        if before.server_assignor == updated.server_assignor:
            return False
        default = self._planner.config.assignors[0]
        return (group.preferred_assignor() or default) != (group.preferred_assignor(updated) or default)

    def _sender(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Assignment | None, records: Records
    ) -> ConsumerMember:
        """The sender as the group has it, or a new member if it joins."""
        member_id, instance_id, is_joining = request.member_id, request.instance_id, request.member_epoch == 0
        if instance_id is None:
            if is_joining:
                return group.members.get(member_id) or ConsumerMember(member_id)
            member = existing_member(group, member_id)
        elif not is_joining:
            member = existing_static_member(group, member_id, instance_id)
        else:
            left = group.static_member(instance_id)
            if left is None:
                return group.members.get(member_id) or ConsumerMember(member_id)
            if not left.is_classic:
                check_released(left, member_id, instance_id)
            return self._planner.replace_static(group, left, member_id, records)
        check_epoch(member, request.member_epoch, owned)
        return member

    def leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, wall_ms: int) -> Plan:
        """A member leaves, permanently (epoch -1) or temporarily (epoch -2). Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if request.instance_id is None:
            member = existing_member(group, request.member_id)
        else:
            member = existing_static_member(group, request.member_id, request.instance_id)
        answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
            left = replace(member, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation={})
            return Plan([current_record(group.group_id, left)], answer)
        plan = self._planner.fence(group, [member], wall_ms)
        plan.answer = answer
        return plan


def _updated(before: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """The member with the fields that the request sets; the others stay."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=before.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def has_nothing_to_change(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client) -> bool:
    """Whether the heartbeat of a member does no more than to extend its session: it tells nothing new, the member has all of its target,
    and the group waits for nothing. Nearly every heartbeat is such a one, and a plan for it has no records."""
    member = group.members.get(request.member_id)
    return (
        member is not None
        and request.member_epoch == member.member_epoch == group.assignment_epoch == group.epoch > 0
        and member.state is MemberState.STABLE
        and member.classic is None
        and (request.instance_id is None or group.static_members.get(request.instance_id) == request.member_id)
        and request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rack_id is None
        and request.server_assignor is None
        and client.client_id == member.client_id
        and client.host == member.client_host
        and not group.is_refresh_due
        and not group.regexes
        and not member.subscribed_topic_regex
    )


def _answer(
    request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, member: ConsumerMember, intervals: GroupIntervals
) -> ConsumerGroupHeartbeatResponse:
    """The answer. It has the assignment if the member joins, sends a full request, or has another assignment than before."""
    answer = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=member.member_epoch, heartbeat_interval_ms=intervals.heartbeat_interval_ms
    )
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    if request.member_epoch == 0 or is_full or member.assigned != before.assigned:
        answer.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                for topic_id in sorted(member.assigned)
            ]
        )
    return answer
