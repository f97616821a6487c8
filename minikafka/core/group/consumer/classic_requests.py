"""Requests of classic members whose group is a consumer group, or was one when the request arrived."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.core.coordinator.shard import append_error
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.classic_members import (
    ClassicPlanner,
    classic_sender,
    must_join,
    must_join_before_sync,
    synced,
)
from minikafka.core.group.consumer.coordinator import ConsumerGroups
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.plans import Plan
from minikafka.core.group.effects import Reply
from minikafka.core.group.errors import check_member
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: From this version on, a SyncGroup names the protocol (KIP-559).
PROTOCOL_VERSION = 5


class ClassicRequests:
    """JoinGroup and LeaveGroup change the group, so they wait for their turn. SyncGroup and Heartbeat use the committed state.

    A group may change its protocol while a request waits. If the group is then classic, the request is passed on to it."""

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers
        self._around = consumers.around
        self._planner = ClassicPlanner(consumers.planner)

    def concerns(self, group_id: str) -> bool:
        """Whether the group is a consumer group, or is changing to or from one."""
        return group_id in self._consumers.groups or self._consumers.is_busy(group_id)

    def join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """JoinGroup: answered through the effects. A classic group replaces an empty consumer group."""

        def refused(code: ErrorCode) -> Response:
            return JoinGroupResponse(error_code=code, protocol_name=None if client.version >= 7 else "", member_id="")

        def ended(code: ErrorCode, at_ms: int) -> None:
            if code is ErrorCode.NONE:
                self._around.classics.join(reply, request, client, at_ms)
            else:
                self._consumers.answer(reply, refused(code))

        def work(at_ms: int) -> bool:
            group = self._consumers.groups.get(request.group_id)
            if group is None:
                self._around.classics.join(reply, request, client, at_ms)
                return False
            if not group.members:
                self._consumers.end_empty(group, ended)
                return True

            def make(group: ConsumerGroup) -> Plan:
                intervals, rule = self._around.intervals(request.group_id), self._consumers.refresh_rule(group, at_ms)
                plan = self._planner.join(group, request, client, self._around.new_member_id(), intervals, rule)
                if plan.is_refreshed:
                    group.is_refresh_due = False
                return plan

            return self._carry_out(group, make, reply, refused, at_ms)

        self._consumers.turns.run(request.group_id, work, lambda code, at_ms: self._consumers.answer(reply, refused(code)), now_ms)

    def leave(self, reply: Reply, request: LeaveGroupRequest, version: int, now_ms: int) -> None:
        """LeaveGroup: answered through the effects."""

        def refused(code: ErrorCode) -> Response:
            return LeaveGroupResponse(error_code=code)

        def work(at_ms: int) -> bool:
            group = self._consumers.groups.get(request.group_id)
            if group is None:
                self._around.classics.answer_leave(reply, request, version, at_ms)
                return False
            wall_ms = self._around.wall_ms(at_ms)
            return self._carry_out(group, lambda group: self._planner.leave(group, request, version, wall_ms), reply, refused, at_ms)

        self._consumers.turns.run(request.group_id, work, lambda code, at_ms: self._consumers.answer(reply, refused(code)), now_ms)

    def _carry_out(
        self,
        group: ConsumerGroup,
        make: Callable[[ConsumerGroup], Plan],
        reply: Reply,
        refused: Callable[[ErrorCode], Response],
        now_ms: int,
    ) -> bool:
        try:
            plan = make(group)
        except ApiError as error:
            self._consumers.answer(reply, refused(error.code))
            return False
        plan.refused = lambda error: refused(append_error(error))
        return self._consumers.carry_out(group.group_id, plan, reply, now_ms)

    def sync(self, request: SyncGroupRequest, client: Client, now_ms: int) -> SyncGroupResponse:
        """SyncGroup: answered with the partitions that the member may read now."""
        group = self._consumers.groups.get(request.group_id)
        try:
            if client.version >= PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group is None:
                raise self._error_while_upgrading(request)
            member, classic = classic_sender(group, request)
            answer = synced(member, classic, request, self._around.topics)
            if must_join_before_sync(group, member):
                self._expect_join(group, member.member_id, member.rebalance_timeout_ms, now_ms)
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
            self._consumers.sessions.synced(group.group_id, member.member_id)
            self._consumers.touch(group.group_id, member, now_ms)
            return answer
        except ApiError as error:
            return SyncGroupResponse(error_code=error.code)

    def _error_while_upgrading(self, request: SyncGroupRequest | HeartbeatRequest) -> ApiError:
        """The error while a classic group becomes a consumer group: its members join again. A client that is not a member must not
        learn it: it would go on reading what others have been given."""
        classic = self._around.classics.groups.get(request.group_id)
        if classic is None:
            return ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        try:
            check_member(classic, request.member_id, request.group_instance_id)
        except ApiError as error:
            return error
        is_current = request.generation_id == classic.generation_id
        return ApiError(ErrorCode.REBALANCE_IN_PROGRESS if is_current else ErrorCode.ILLEGAL_GENERATION)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Heartbeat: the member is alive. The answer says whether it has to rejoin."""
        group = self._consumers.groups.get(request.group_id)
        try:
            if group is None:
                raise self._error_while_upgrading(request)
            member, _ = classic_sender(group, request)
            self._consumers.touch(group.group_id, member, now_ms)
            # There may be no members of the consumer protocol left whose heartbeats would start an assignment.
            self._consumers.assign_if_due(group.group_id, now_ms)
            if must_join(group, member):
                self._expect_join(group, member.member_id, member.rebalance_timeout_ms, now_ms)
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
            return HeartbeatResponse()
        except ApiError as error:
            return HeartbeatResponse(error_code=error.code)

    def _expect_join(self, group: ConsumerGroup, member_id: str, timeout_ms: int, now_ms: int) -> None:
        self._consumers.sessions.expect_join(group.group_id, member_id, now_ms + timeout_ms)
