"""The consumer groups of one partition of `__consumer_offsets` (KIP-848).

Requests and deadlines become plans, plans become records, and records change the groups when they are committed. One plan of a group is
under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.core.coordinator.shard import Append, append_error
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import check_heartbeat
from minikafka.core.group.consumer.describe import described_group
from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.core.group.consumer.heartbeat import HeartbeatPlanner, Plan
from minikafka.core.group.consumer.member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberState
from minikafka.core.group.consumer.records import Records, group_tombstones
from minikafka.core.group.consumer.regexes import RefreshRule, plan_resolution
from minikafka.core.group.consumer.replay import replay_record
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.consumer.turns import Refusal, Turns
from minikafka.core.group.effects import Effects, Reply
from minikafka.core.timers import TimerQueue
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_LEAVING = frozenset({LEAVE_EPOCH, LEAVE_STATIC_EPOCH})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the groups see of the broker.

    `intervals(group id)`; `wall_ms(now_ms)`; `new_member_id()`; `make_room(group id)`: records that end an empty group of another type,
    raises GROUP_ID_NOT_FOUND when there is one that is not empty.
    """

    config: ConsumerGroupConfig
    topics: Topics
    intervals: Callable[[str], GroupIntervals]
    wall_ms: Callable[[int], int]
    new_member_id: Callable[[], str]
    make_room: Callable[[str], Records]


class ConsumerGroups:
    """Groups by id. `effects()` gives the effects that are to be filled now."""

    def __init__(self, surroundings: Surroundings, effects: Callable[[], Effects]) -> None:
        self._around = surroundings
        self._effects = effects
        self._hashes = TopicHashes(surroundings.topics)
        self._planner = HeartbeatPlanner(surroundings.config, surroundings.topics, self._hashes)
        self._turns = Turns()
        self._resolving: set[str] = set()
        self._topics_version = surroundings.topics.version
        #: By group and member: when a session ends; when partitions have to be given up.
        self.timers: TimerQueue[tuple[str, str, str]] = TimerQueue()
        self._unrevoked_epochs: dict[tuple[str, str], int] = {}
        self.groups: dict[str, ConsumerGroup] = {}

    # -- the log ---------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> bool:
        """Apply a committed record; False when it is not one of consumer groups."""
        return replay_record(self.groups, key, value)

    def loaded(self, now_ms: int) -> None:
        """Everybody gets a fresh session."""
        for group in self.groups.values():
            for member in group.members.values():
                self._touch(group.group_id, member.member_id, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._expect_revocation(group.group_id, member.member_id, member.member_epoch, member.rebalance_timeout_ms, now_ms)

    def shutdown(self) -> None:
        """Whoever waits is told NOT_COORDINATOR."""
        self._turns.shutdown(0)
        self.timers.clear()

    # -- requests --------------------------------------------------------------------------------------------------------

    def heartbeat(self, reply: Reply, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int) -> None:
        """ConsumerGroupHeartbeat: answered through the effects, when what it changes is committed."""
        try:
            check_heartbeat(request, client.version, self._around.config.assignors)
        except ApiError as error:
            self._answer(reply, error_answer(error))
            return
        self._touch_known(request, now_ms)

        def refuse(code: ErrorCode, at_ms: int) -> None:
            self._answer(reply, ConsumerGroupHeartbeatResponse(error_code=code))

        def work(at_ms: int) -> bool:
            try:
                plan = self._plan(request, client, at_ms)
            except ApiError as error:
                self._answer(reply, error_answer(error))
                return False
            return self._carry_out(request.group_id, plan, reply, at_ms)

        self._turns.run(request.group_id, work, refuse, now_ms)

    def _touch_known(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> None:
        """A member that waits for its turn is alive, if it is one."""
        group = self.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is not None and request.member_epoch == member.member_epoch and request.member_epoch not in _LEAVING:
            self._touch(request.group_id, request.member_id, now_ms)

    def _plan(self, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int) -> Plan:
        group = self.groups.get(request.group_id)
        if request.member_epoch in _LEAVING:
            if group is None:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
            return self._planner.leave(group, request)
        records: Records = []
        if group is None:
            if request.member_epoch != 0:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
            records = self._around.make_room(request.group_id)
            group = ConsumerGroup(request.group_id)
        if not request.member_id:
            request.member_id = self._around.new_member_id()
        rule = RefreshRule(
            self._topics_version,
            self._around.config.regex_refresh_interval_ms,
            group.group_id in self._resolving,
            self._around.wall_ms(now_ms),
        )
        plan = self._planner.heartbeat(group, request, client, self._around.intervals(group.group_id), rule)
        plan.records[:0] = records
        if plan.is_refreshed:
            # Topics that change from now on are looked at again.
            group.is_refresh_due = False
        return plan

    def is_busy(self, group_id: str) -> bool:
        """Whether a change of the group is under way."""
        return self._turns.is_busy(group_id)

    def end(self, group_id: str, ended: Refusal, now_ms: int) -> None:
        """End a group that has no members: `ended(NONE, now)` when it is committed, or else why not."""

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None or group.members:
                ended(ErrorCode.NONE if group is None else ErrorCode.INCONSISTENT_GROUP_PROTOCOL, at_ms)
                return False

            def done(error: ErrorCode, done_ms: int) -> None:
                if error is ErrorCode.REQUEST_TIMED_OUT:
                    self._turns.stalled(group_id, done_ms)
                ended(append_error(error), done_ms)

            def settled(is_written: bool, done_ms: int) -> None:
                self._turns.settled(group_id, done_ms)

            self._effects().appends.append(Append(group_tombstones(group), done, None, settled))
            return True

        self._turns.run(group_id, work, ended, now_ms)

    def describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """ConsumerGroupDescribe of one group. Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return described_group(group, self._around.config.assignors[0], self._around.topics)

    # -- plans -----------------------------------------------------------------------------------------------------------

    def _answer(self, reply: Reply, answer: ConsumerGroupHeartbeatResponse) -> None:
        self._effects().answers.append((reply, answer))

    def _carry_out(self, group_id: str, plan: Plan, reply: Reply | None, now_ms: int) -> bool:
        """Whether there is something to write, so that the group is busy."""
        if not plan.records:
            self._follow_up(group_id, plan, reply, now_ms)
            if reply is not None and plan.answer is not None:
                self._answer(reply, plan.answer)
            return False

        def settled(is_written: bool, at_ms: int) -> None:
            if is_written:
                self._follow_up(group_id, plan, reply, at_ms)
            elif plan.is_refreshed and group_id in self.groups:
                self.groups[group_id].is_refresh_due = True
            self._turns.settled(group_id, at_ms)

        def done(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._turns.stalled(group_id, at_ms)
            if reply is not None and plan.answer is not None:
                failed = ConsumerGroupHeartbeatResponse(error_code=append_error(error))
                self._answer(reply, plan.answer if error is ErrorCode.NONE else failed)

        self._effects().appends.append(Append(plan.records, done, None, settled))
        return True

    def _follow_up(self, group_id: str, plan: Plan, reply: Reply | None, now_ms: int) -> None:
        """The plan is committed."""
        group = self.groups.get(group_id)
        if group is None:
            return
        for member_id in plan.gone:
            self.timers.cancel(("session", group_id, member_id))
            self._settle(group_id, member_id)
        if plan.settled is not None:
            self._settle(group_id, plan.settled)
        if plan.unrevoked is not None:
            member = plan.unrevoked
            self._expect_revocation(group_id, member.member_id, member.member_epoch, member.rebalance_timeout_ms, now_ms)
        if plan.member_id is not None:
            self._touch(group_id, plan.member_id, now_ms)
        if plan.to_resolve and group_id not in self._resolving:
            self._resolving.add(group_id)
            self._effects().resolutions.append((reply, group_id, plan.to_resolve))

    # -- time ------------------------------------------------------------------------------------------------------------

    def _touch(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self._around.intervals(group_id).session_timeout_ms
        self.timers.schedule(("session", group_id, member_id), now_ms + timeout_ms)

    def _expect_revocation(self, group_id: str, member_id: str, epoch: int, timeout_ms: int, now_ms: int) -> None:
        self._unrevoked_epochs[group_id, member_id] = epoch
        self.timers.schedule(("rebalance", group_id, member_id), now_ms + timeout_ms)

    def _settle(self, group_id: str, member_id: str) -> None:
        self._unrevoked_epochs.pop((group_id, member_id), None)
        self.timers.cancel(("rebalance", group_id, member_id))

    def on_deadline(self, now_ms: int) -> None:
        """Members whose time is over are fenced."""
        for kind, group_id, member_id in self.timers.expired(now_ms):
            epoch = self._unrevoked_epochs.pop((group_id, member_id), None) if kind == "rebalance" else None
            if kind == "session" or epoch is not None:
                self._fence(group_id, member_id, epoch, now_ms)

    def _fence(self, group_id: str, member_id: str, epoch: int | None, now_ms: int) -> None:
        """`epoch`: only while the member is in it; None: unless it has been heard of since."""

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None:
                return False
            is_spared = ("session", group_id, member_id) in self.timers if epoch is None else member.member_epoch != epoch
            return False if is_spared else self._carry_out(group_id, self._planner.fence(group, [member]), None, at_ms)

        self._turns.run(group_id, work, None, now_ms)

    # -- topics ----------------------------------------------------------------------------------------------------------

    def topics_changed(self, names: Iterable[str], *, has_new: bool) -> None:
        """Topics were made, changed or deleted: groups that subscribe to them look at them with the next heartbeat."""
        changed = frozenset(names)
        self._hashes.forget(changed)
        if has_new:
            self._topics_version = self._around.topics.version
        for group in self.groups.values():
            if not group.subscribed_topics().isdisjoint(changed):
                group.is_refresh_due = True

    def resolved(self, group_id: str, found: Mapping[str, ResolvedRegex] | None, now_ms: int) -> None:
        """The patterns of a group are resolved; None: that went wrong, and the next heartbeat asks again."""
        self._resolving.discard(group_id)
        if found is None:
            return

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None:
                return False
            return self._carry_out(group_id, Plan(plan_resolution(group, found, self._hashes)), None, at_ms)

        self._turns.run(group_id, work, None, now_ms)


def error_answer(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat's answer that says no more than what is wrong."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
