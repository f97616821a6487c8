"""Members of the classic protocol in a consumer group: the effect of JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Rules: GroupMetadataManager.classicGroup*ToConsumerGroup of Apache Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace

from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import check_room, existing_member
from minikafka.core.group.consumer.embedded import assignment_bytes, by_topic_id, subscription_of
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import ConsumerMember, MemberState
from minikafka.core.group.consumer.migration import PROTOCOL_TYPE, ClassicMetadata, classic_metadata, may_downgrade_replacing
from minikafka.core.group.consumer.plans import GroupPlanner, Plan, Step
from minikafka.core.group.consumer.regexes import RefreshRule, RegexChange
from minikafka.core.group.consumer.settings import GroupIntervals
from minikafka.core.group.consumer.topics import Topics
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.messages.heartbeat import HeartbeatRequest
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from minikafka.wire.records.client_records import ConsumerProtocolSubscription

#: From this version on, a JoinGroup without a member id is answered with one first (KIP-394).
MEMBER_ID_VERSION = 4
_BUMPS = frozenset({RegexChange.CHANGED, RegexChange.CHANGED_AND_RESOLVED})


class ClassicPlanner:
    """Makes plans for classic requests."""

    def __init__(self, planner: GroupPlanner) -> None:
        self._planner = planner

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: Client,
        new_member_id: str,
        intervals: GroupIntervals,
        rule: RefreshRule,
    ) -> Plan:
        """A classic member joins or rejoins. `new_member_id`: for a member without an id. Raises ApiError."""
        if self._planner.policy.is_disabled:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or new_member_id
        check_room(group, member_id, request.group_instance_id, self._planner.config.size_max)
        _check_protocols(group, request)
        if not request.member_id and request.group_instance_id is None and client.version >= MEMBER_ID_VERSION:
            return Plan(answer=_member_id_required(member_id, client))
        plan = Plan(member_id=member_id, sync_timeout_ms=_rebalance_timeout_ms(request))
        existing = group.static_member(request.group_instance_id)
        before = self._sender(group, request, existing, member_id, plan)
        subscription = _subscription(request)
        owned = by_topic_id(subscription.owned_partitions, self._planner.topics)
        step = Step(before, _updated(before, request, subscription, client), owned, _BUMPS)
        if existing is not None and may_downgrade_replacing(group, existing, self._planner.policy):
            member = self._downgrade(group, step, plan, rule)
        else:
            member = self._planner.take_step(group, step, plan, intervals, rule)
        plan.answer = JoinGroupResponse(
            generation_id=member.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            leader="",
            member_id=member_id,
            members=[],
        )
        return plan

    def _sender(
        self, group: ConsumerGroup, request: JoinGroupRequest, existing: ConsumerMember | None, member_id: str, plan: Plan
    ) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is not None and request.member_id:
            return validated_member(group, member_id, instance_id, f"Instance id {instance_id} is unknown.")
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        return self._planner.replace_static(group, existing, member_id, plan.records)

    def _downgrade(self, group: ConsumerGroup, step: Step, plan: Plan, rule: RefreshRule) -> ConsumerMember:
        """A classic member replaces the last consumer protocol member. It gets that member's assignment unless it is out of date."""
        epoch, has_changed = self._planner.subscribe(group, step, plan, rule)
        member, is_rebalanced = step.updated, group.assignment_epoch < epoch
        if not is_rebalanced:
            target = group.target(member)
            member = self._planner.reconcile(group, step, group.assignment_epoch, target, plan, has_subscription_changed=has_changed)
        ending = self._planner.downgrade(group, (), member, rule.wall_ms)
        plan.records += ending.records
        plan.gone, plan.downgraded, plan.is_rebalanced = ending.gone, ending.downgraded, is_rebalanced
        return member

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, version: int, wall_ms: int) -> Plan:
        """Members of any protocol leave. The answer has an error for each that was not a member."""
        single = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        gone: dict[str, ConsumerMember] = {}
        results = []
        for identity in single if version < 3 else request.members:
            code = ErrorCode.NONE
            try:
                member = _leaver(group, identity)
                gone[member.member_id] = member
            except ApiError as error:
                code = error.code
            results.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        plan = self._planner.fence(group, gone.values(), wall_ms) if gone else Plan()
        plan.answer = LeaveGroupResponse(error_code=results[0].error_code) if version < 3 else LeaveGroupResponse(members=results)
        return plan


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """Raises INCONSISTENT_GROUP_PROTOCOL unless every classic member supports one of the protocols."""
    names = {protocol.name for protocol in request.protocols} if request.protocol_type == PROTOCOL_TYPE else set()
    for member in group.members.values():
        if member.classic is not None:
            names &= {protocol.name for protocol in member.classic.supported_protocols}
    if not names:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription in the member's preferred protocol. Raises INCONSISTENT_GROUP_PROTOCOL if it cannot be parsed."""
    try:
        return subscription_of(bytes(request.protocols[0].metadata))
    except WireError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None


def _updated(
    before: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, client: Client
) -> ConsumerMember:
    protocols = [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
    return replace(
        before,
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=client.client_id,
        client_host=client.host,
        classic=classic_metadata(request.session_timeout_ms, protocols),
    )


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _member_id_required(member_id: str, client: Client) -> JoinGroupResponse:
    name = None if client.version >= 7 else ""
    return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=name)


def validated_member(group: ConsumerGroup, member_id: str, instance_id: str | None, unknown: str) -> ConsumerMember:
    """The member with these ids. Raises UNKNOWN_MEMBER_ID, with the message `unknown` for an instance id, or FENCED_INSTANCE_ID."""
    if instance_id is None:
        return existing_member(group, member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, unknown)
    if member.member_id != member_id:
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    return member


def _leaver(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    """The member to remove. An administrator names the instance id alone. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    instance_id = identity.group_instance_id
    if instance_id is not None and not identity.member_id:
        member = group.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member
    return validated_member(group, identity.member_id, instance_id, f"Instance id {instance_id} is unknown.")


# -- requests without records --------------------------------------------------------------------------------------------------


def classic_sender(group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> tuple[ConsumerMember, ClassicMetadata]:
    """The sender of a request. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    member = validated_member(group, request.member_id, request.group_instance_id, "")
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    if member.member_epoch != request.generation_id:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def synced(member: ConsumerMember, classic: ClassicMetadata, request: SyncGroupRequest, topics: Topics) -> SyncGroupResponse:
    """The answer with the partitions that a member may read now. Raises INCONSISTENT_GROUP_PROTOCOL."""
    protocol = classic.supported_protocols[0]
    is_other_type = request.protocol_type is not None and request.protocol_type != PROTOCOL_TYPE
    if is_other_type or (request.protocol_name is not None and request.protocol_name != protocol.name):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        assignment = assignment_bytes(bytes(protocol.metadata), member.assigned, topics)
    except WireError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    return SyncGroupResponse(protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment)


def must_join_before_sync(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a newer assignment. A member that has to revoke partitions first need not rejoin: it gets what it keeps."""
    return group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS


def must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a heartbeat makes the member rejoin: there is a newer assignment, it has partitions to revoke, or partitions that it waits
    for are free."""
    if member.member_epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    target = group.targets.get(member.member_id, {})
    return any(
        partition not in member.assigned.get(topic_id, {}) and partition in group.owners.get(topic_id, {})
        for topic_id, partitions in target.items()
        for partition in partitions
    )
