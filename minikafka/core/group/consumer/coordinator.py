"""The consumer groups of one partition of `__consumer_offsets` (KIP-848).

Requests and deadlines become plans, plans become records, and records change the groups when they are committed. Each group has at most one
plan in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from minikafka.core.coordinator.shard import Append, append_error
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.assignment import Assignments
from minikafka.core.group.consumer.checks import check_heartbeat
from minikafka.core.group.consumer.describe import described_group
from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.core.group.consumer.heartbeat import HeartbeatPlanner, has_nothing_to_change
from minikafka.core.group.consumer.member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, MemberState
from minikafka.core.group.consumer.migration import ClassicGroups, upgrade_records
from minikafka.core.group.consumer.plans import GroupPlanner, Plan
from minikafka.core.group.consumer.records import Records, group_tombstones
from minikafka.core.group.consumer.regexes import RefreshRule, plan_resolution
from minikafka.core.group.consumer.replay import replay_record
from minikafka.core.group.consumer.sessions import Sessions
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.core.group.consumer.targets import ConsumerTargets
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.consumer.turns import Refusal, Turns
from minikafka.core.group.effects import Effects, Reply
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_LEAVING = frozenset({LEAVE_EPOCH, LEAVE_STATIC_EPOCH})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The groups' interface to the broker.

    `intervals(group_id)`, `wall_ms(now_ms)` and `new_member_id()` return these values. `make_room(group_id)` returns records that end an
    empty group of another type, and raises GROUP_ID_NOT_FOUND if that group is not empty. `classics`: the shard's classic groups.
    """

    config: ConsumerGroupConfig
    topics: Topics
    intervals: Callable[[str], GroupIntervals]
    wall_ms: Callable[[int], int]
    new_member_id: Callable[[], str]
    make_room: Callable[[str], Records]
    classics: ClassicGroups


class ConsumerGroups:
    """Consumer groups by id. `effects()` returns the effects object to fill now."""

    def __init__(self, surroundings: Surroundings, effects: Callable[[], Effects]) -> None:
        self.around = around = surroundings
        self._effects = effects
        self._hashes = TopicHashes(around.topics)
        self.planner = GroupPlanner(around.config, around.topics, self._hashes)
        self._heartbeats = HeartbeatPlanner(self.planner)
        self._resolving: set[str] = set()
        self._topics_version = around.topics.version
        self.sessions = Sessions()
        self.turns = Turns()
        self.groups: dict[str, ConsumerGroup] = {}
        rule = ConsumerTargets(around.config.assignors, around.topics, around.intervals)
        self._assignments = Assignments(self.groups, self.turns, rule, effects)

    # -- the log ---------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> bool:
        """Apply a committed record. Returns False if it does not belong to a consumer group."""
        return replay_record(self.groups, key, value)

    def loaded(self, now_ms: int) -> None:
        """Start a fresh session for every member."""
        for group in self.groups.values():
            for member in group.members.values():
                timeout_ms = self.around.intervals(group.group_id).session_timeout_ms
                self.sessions.touch(group.group_id, member.member_id, now_ms + timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._expect_revocation(group.group_id, member, now_ms)

    def shutdown(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR."""
        self.turns.shutdown(0)
        self.sessions.clear()

    # -- requests --------------------------------------------------------------------------------------------------------

    def heartbeat(self, reply: Reply, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int) -> None:
        """ConsumerGroupHeartbeat: answered through the effects, when its changes are committed."""
        try:
            check_heartbeat(request, client.version, self.around.config.assignors)
        except ApiError as error:
            self.answer(reply, error_answer(error))
            return
        group = self.groups.get(request.group_id)
        if group is not None and not self.turns.is_busy(request.group_id) and has_nothing_to_change(group, request, client):
            self._keep_alive(reply, request, now_ms)
            return
        self._touch_existing(request, now_ms)

        def refuse(code: ErrorCode, at_ms: int) -> None:
            self.answer(reply, ConsumerGroupHeartbeatResponse(error_code=code))

        def work(at_ms: int) -> bool:
            try:
                plan = self._plan(request, client, at_ms)
            except ApiError as error:
                self.answer(reply, error_answer(error))
                return False
            return self.carry_out(request.group_id, plan, reply, at_ms)

        self.turns.run(request.group_id, work, refuse, now_ms)

    def _keep_alive(self, reply: Reply, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> None:
        group_id, member_id = request.group_id, request.member_id
        intervals = self.around.intervals(group_id)
        self.sessions.touch(group_id, member_id, now_ms + intervals.session_timeout_ms)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=intervals.heartbeat_interval_ms
        )
        self.answer(reply, answer)

    def _touch_existing(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> None:
        """Extend the session of a member whose heartbeat waits for its turn. Does nothing if the sender is not a member."""
        group = self.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is not None and request.member_epoch == member.member_epoch and request.member_epoch not in _LEAVING:
            self.touch(request.group_id, member, now_ms)

    def _plan(self, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int) -> Plan:
        group_id = request.group_id
        group, is_classic = self.groups.get(group_id), group_id in self.around.classics.groups
        wall_ms = self.around.wall_ms(now_ms)
        if request.member_epoch in _LEAVING:
            if group is None:
                what = "is not a consumer group" if is_classic else "not found"
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
            return self._heartbeats.leave(group, request, wall_ms)
        records: Records = []
        upgraded = None
        if group is None:
            if request.member_epoch != 0:
                message = f"Group {group_id} is not a consumer group." if is_classic else f"Consumer group {group_id} not found."
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
            group = ConsumerGroup(group_id)
            upgraded = self.around.classics.groups.get(group_id)
            if upgraded is None or not upgraded.members:
                records, upgraded = self.around.make_room(group_id), None
            else:
                config = self.around.config
                records = upgrade_records(upgraded, config.migration, config.size_max, self.around.topics, self._hashes)
                for record in records:
                    replay_record({group_id: group}, record.key, record.value)
        if not request.member_id:
            request.member_id = self.around.new_member_id()
        plan = self._heartbeats.heartbeat(group, request, client, self.around.intervals(group_id), self.refresh_rule(group, now_ms))
        plan.records[:0] = records
        plan.upgraded = upgraded
        if plan.is_refreshed:
            # Topics that change from now on need another refresh.
            group.is_refresh_due = False
        return plan

    def refresh_rule(self, group: ConsumerGroup, now_ms: int) -> RefreshRule:
        """When to resolve the group's patterns again."""
        return RefreshRule(
            self._topics_version,
            self.around.config.regex_refresh_interval_ms,
            group.group_id in self._resolving,
            self.around.wall_ms(now_ms),
        )

    def is_busy(self, group_id: str) -> bool:
        """Whether a change of the group is in progress."""
        return self.turns.is_busy(group_id)

    def end_empty(self, group: ConsumerGroup, ended: Refusal) -> None:
        """End a group without members, in its turn. `ended(error, now_ms)` is called when that is committed, or with the error."""
        group_id = group.group_id

        def done(error: ErrorCode, done_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.turns.stalled(group_id, done_ms)
            ended(append_error(error), done_ms)

        def settled(is_written: bool, done_ms: int) -> None:
            self.turns.settled(group_id, done_ms)

        self._effects().appends.append(Append(group_tombstones(group), done, None, settled))

    def describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """ConsumerGroupDescribe of one group. Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return described_group(group, self.around.config.assignors[0], self.around.topics)

    # -- plans -----------------------------------------------------------------------------------------------------------

    def answer(self, reply: Reply, answer: Response) -> None:
        """Answer a request."""
        self._effects().answers.append((reply, answer))

    def carry_out(
        self, group_id: str, plan: Plan, reply: Reply | None, now_ms: int, on_refused: Callable[[int], None] | None = None
    ) -> bool:
        """Carry out a plan in the group's turn. Returns whether there are records to write, which keep the group busy. Calls
        `on_refused(now_ms)` if they cannot be written."""
        if not plan.records:
            self._follow_up(group_id, plan, reply, now_ms)
            if reply is not None and plan.answer is not None:
                self.answer(reply, plan.answer)
            return False
        if plan.upgraded is not None:
            self.around.classics.freeze(plan.upgraded)

        def settled(is_written: bool, at_ms: int) -> None:
            if is_written:
                self._follow_up(group_id, plan, reply, at_ms)
            elif plan.is_refreshed and group_id in self.groups:
                self.groups[group_id].is_refresh_due = True
            if not is_written and plan.upgraded is not None:
                self.around.classics.thaw(plan.upgraded, at_ms)
            if not is_written and on_refused is not None:
                on_refused(at_ms)
            self.turns.settled(group_id, at_ms)

        def done(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.turns.stalled(group_id, at_ms)
            if reply is not None and plan.answer is not None:
                self.answer(reply, plan.answer if error is ErrorCode.NONE else plan.refused(error))

        self._effects().appends.append(Append(plan.records, done, None, settled))
        return True

    def _follow_up(self, group_id: str, plan: Plan, reply: Reply | None, now_ms: int) -> None:
        """The plan is committed."""
        for member_id in plan.gone:
            self.sessions.forget(group_id, member_id)
        if plan.downgraded is not None:
            self.around.classics.adopt(plan.downgraded, now_ms, is_rebalanced=plan.is_rebalanced)
        group = self.groups.get(group_id)
        if group is None:
            return
        if plan.settled is not None:
            self.sessions.settle(group_id, plan.settled)
        if plan.unrevoked is not None:
            self._expect_revocation(group_id, plan.unrevoked, now_ms)
        touched = list(group.members) if plan.upgraded is not None else [plan.member_id]
        for member in (group.members.get(member_id or "") for member_id in touched):
            if member is not None:
                self.touch(group_id, member, now_ms)
        if plan.sync_timeout_ms is not None and plan.member_id in group.members:
            self.sessions.joined(group_id, plan.member_id, now_ms + plan.sync_timeout_ms)
        if plan.to_resolve and group_id not in self._resolving:
            self._resolving.add(group_id)
            self._effects().resolutions.append((reply, group_id, plan.to_resolve))
        if plan.is_assignment_due:
            self.assign_if_due(group_id, now_ms)

    def assign_if_due(self, group_id: str, now_ms: int) -> None:
        """Begin an assignment in steps if the group waits for one."""
        self._assignments.start_if_due(group_id, now_ms, self.around.wall_ms(now_ms))

    # -- time ------------------------------------------------------------------------------------------------------------

    def touch(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Extend a member's session. A member of the classic protocol has chosen its own session timeout."""
        classic = member.classic
        timeout_ms = self.around.intervals(group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        self.sessions.touch(group_id, member.member_id, now_ms + timeout_ms)

    def _expect_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        self.sessions.expect_revocation(group_id, member.member_id, member.member_epoch, now_ms + member.rebalance_timeout_ms)

    def on_deadline(self, now_ms: int) -> None:
        """Fence members whose deadline has passed."""
        for key in self.sessions.expired(now_ms):
            self._fence(key, now_ms)

    def _fence(self, key: tuple[str, str, str], now_ms: int) -> None:
        _, group_id, member_id = key

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None:
                self.sessions.forget(group_id, member_id)
                return False
            epoch = member.member_epoch
            if not self.sessions.take_overdue(key, epoch):
                return False
            try:
                plan = self.planner.fence(group, [member], self.around.wall_ms(at_ms))
            except ApiError:
                # The group cannot become classic, but the member's partitions must be freed all the same.
                plan = self.planner.without(group, [member])
            return self.carry_out(group_id, plan, None, at_ms, partial(self.sessions.try_again, key, epoch))

        self.turns.run(group_id, work, None, now_ms)

    # -- topics ----------------------------------------------------------------------------------------------------------

    def topics_changed(self, names: Iterable[str], *, has_new: bool) -> None:
        """Topics were created, changed or deleted: groups that subscribe to them refresh with the next heartbeat."""
        changed = frozenset(names)
        self._hashes.forget(changed)
        if has_new:
            self._topics_version = self.around.topics.version
        for group in self.groups.values():
            if not group.subscribed_topics().isdisjoint(changed):
                group.is_refresh_due = True

    def resolved(self, group_id: str, found: Mapping[str, ResolvedRegex] | None, now_ms: int) -> None:
        """The patterns of a group are resolved. `found` is None if that failed; the next heartbeat then asks again."""
        self._resolving.discard(group_id)
        if found is None:
            return

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None:
                return False
            return self.carry_out(group_id, Plan(plan_resolution(group, found, self._hashes)), None, at_ms)

        self.turns.run(group_id, work, None, now_ms)


def error_answer(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat's answer with nothing but an error."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.detail)
