"""The streams groups of one partition of `__consumer_offsets` (KIP-1071).

Requests and deadlines become plans, plans become records, and records change the groups when they are committed. Each group has at most one
plan in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from minikafka.core.coordinator.shard import Append, append_error
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.assignment import Assignments
from minikafka.core.group.consumer.records import Records
from minikafka.core.group.consumer.sessions import Sessions
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.consumer.turns import Refusal, Turns
from minikafka.core.group.effects import Creation, Effects, Reply
from minikafka.core.group.streams.checks import check_heartbeat
from minikafka.core.group.streams.describe import described_group
from minikafka.core.group.streams.group import StreamsGroup
from minikafka.core.group.streams.heartbeat import HeartbeatPlanner, Moment, Prepared
from minikafka.core.group.streams.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberState, StreamsMember
from minikafka.core.group.streams.plans import Plan, without
from minikafka.core.group.streams.records import description_record, group_tombstones, replay_record
from minikafka.core.group.streams.settings import StreamsSettings
from minikafka.core.group.streams.targets import StreamsTargets, assignor_name
from minikafka.core.timers import TimerQueue
from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeResponse
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

_LEAVING = frozenset({LEAVE_EPOCH, LEAVE_STATIC_EPOCH})
Done = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class StreamsSurroundings:
    """The groups' interface to the broker.

    `wall_ms(now_ms)` returns the wall time. `make_room(group_id)` returns records that end an empty classic group, and raises
    GROUP_ID_NOT_FOUND for any other group. `is_other(group_id)`: whether a group of another type has the id.
    """

    settings: StreamsSettings
    topics: Topics
    wall_ms: Callable[[int], int]
    make_room: Callable[[str], Records]
    is_other: Callable[[str], bool]


class StreamsGroups:
    """Streams groups by id. `effects()` returns the effects object to fill now."""

    def __init__(self, surroundings: StreamsSurroundings, effects: Callable[[], Effects]) -> None:
        self._around = surroundings
        self._effects = effects
        self._hashes = TopicHashes(surroundings.topics)
        self._planner = HeartbeatPlanner(surroundings.settings, surroundings.topics, self._hashes)
        self.turns = Turns()
        #: Group id -> who waits for the answer to the heartbeat whose topology is configured in steps.
        self._under_preparation: dict[str, Reply] = {}
        self.groups: dict[str, StreamsGroup] = {}
        self.sessions = Sessions()
        #: Groups whose first assignment waits for more members.
        self.delays: TimerQueue[str] = TimerQueue()
        self._assignments = Assignments(self.groups, self.turns, StreamsTargets(surroundings.settings), effects)

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> bool:
        """Apply a committed record. Returns False if it does not belong to a streams group."""
        return replay_record(self.groups, key, value)

    def loaded(self, now_ms: int) -> None:
        """Start a fresh session for every member."""
        for group in self.groups.values():
            for member in group.members.values():
                self._touch(group.group_id, member.member_id, now_ms)
                if member.state is MemberState.UNREVOKED_TASKS:
                    self._expect_revocation(group.group_id, member, now_ms)

    def shutdown(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR."""
        self.turns.shutdown(0)
        for reply in self._under_preparation.values():
            self._answer(reply, StreamsGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self._under_preparation.clear()
        self.sessions.clear()
        self.delays.clear()

    # -- requests ------------------------------------------------------------------------------------------------------

    def heartbeat(self, reply: Reply, request: StreamsGroupHeartbeatRequest, client: Client, now_ms: int) -> None:
        """StreamsGroupHeartbeat: answered through the effects, when its changes are committed."""
        try:
            check_heartbeat(request)
        except ApiError as error:
            self._answer(reply, _failed(error))
            return
        group = self.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is not None and member.member_epoch == request.member_epoch and request.member_epoch not in _LEAVING:
            # A member whose heartbeat waits for its turn is alive.
            self._touch(request.group_id, request.member_id, now_ms)

        def answered(at_ms: int, prepared: Prepared | None) -> bool:
            try:
                plan = self._plan(request, client, at_ms, prepared)
            except ApiError as error:
                self._answer(reply, _failed(error))
                return False
            return self._carry_out(request.group_id, plan, reply, at_ms)

        def work(at_ms: int) -> bool:
            steps = self._preparing(request)
            if steps is None:
                return answered(at_ms, None)
            self._under_preparation[request.group_id] = reply
            self._effects().work.append(self._prepare(request.group_id, steps, answered, at_ms))
            return True

        def refuse(code: ErrorCode, at_ms: int) -> None:
            self._answer(reply, StreamsGroupHeartbeatResponse(error_code=code))

        self.turns.run(request.group_id, work, refuse, now_ms)

    def _preparing(self, request: StreamsGroupHeartbeatRequest) -> Steps[Prepared] | None:
        group_id = request.group_id
        group = self.groups.get(group_id)
        if request.member_epoch in _LEAVING or (group is None and request.member_epoch != JOIN_EPOCH):
            return None
        return self._planner.preparing(group or StreamsGroup(group_id), request)

    def _prepare(
        self, group_id: str, steps: Steps[Prepared], answered: Callable[[int, Prepared | None], bool], now_ms: int
    ) -> Iterator[None]:
        """Configure a topology in the group's turn, and answer the heartbeat that is about it."""
        prepared = yield from steps
        del self._under_preparation[group_id]
        if not answered(now_ms, prepared):
            self.turns.settled(group_id, now_ms)

    def _plan(self, request: StreamsGroupHeartbeatRequest, client: Client, now_ms: int, prepared: Prepared | None) -> Plan:
        group_id = request.group_id
        group, is_leaving = self.groups.get(group_id), request.member_epoch in _LEAVING
        records: Records = []
        is_existing = group is not None
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                raise self._not_found(group_id, "Group" if is_leaving else "Streams group")
            records, group = self._around.make_room(group_id), StreamsGroup(group_id)
        if is_leaving:
            return self._planner.leave(group, request)
        moment = Moment(
            self._around.settings.intervals(group_id), self._around.wall_ms(now_ms), group_id in self.delays, is_existing, prepared
        )
        plan = self._planner.heartbeat(group, request, client, moment)
        plan.records[:0] = records
        if plan.is_refreshed:
            # Topics that change from now on need another refresh.
            group.is_refresh_due = False
        return plan

    def _not_found(self, group_id: str, word: str) -> ApiError:
        is_other = self._around.is_other(group_id)
        message = f"Group {group_id} is not a streams group." if is_other else f"{word} {group_id} not found."
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def is_busy(self, group_id: str) -> bool:
        """Whether a change of the group is in progress."""
        return self.turns.is_busy(group_id)

    def describe(self, group_id: str) -> StreamsGroupDescribeResponse.DescribedGroup:
        """StreamsGroupDescribe of one group. Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise self._not_found(group_id, "Group")
        settings = self._around.settings
        return described_group(group, assignor_name(settings.intervals(group_id), settings))

    def when_ended(self, group_id: str, ended: Refusal, now_ms: int) -> None:
        """End an empty group because a classic member wants to join. `ended(error, now_ms)` is called with NONE when the group is gone,
        with INCONSISTENT_GROUP_PROTOCOL if it has members, or with the error of the append."""

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None or group.members:
                ended(ErrorCode.NONE if group is None else ErrorCode.INCONSISTENT_GROUP_PROTOCOL, at_ms)
                return False
            self._append(group_id, group_tombstones(group), ended)
            return True

        self.turns.run(group_id, work, ended, now_ms)

    def set_description_epochs(self, group_id: str, stored: int, failed: int, done: Done, now_ms: int) -> None:
        """Record the epoch of the topology whose description is stored, and of the one that could not be stored; -1 means none. `done` is
        called when this is committed, or with GROUP_ID_NOT_FOUND if the group is gone."""

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None:
                done(ErrorCode.GROUP_ID_NOT_FOUND)
                return False
            self._append(group_id, [description_record(group, stored, failed)], lambda code, done_ms: done(code))
            return True

        self.turns.run(group_id, work, lambda code, at_ms: done(code), now_ms)

    def _append(self, group_id: str, records: Records, done: Refusal) -> None:
        """Write records in the group's turn."""

        def stored(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.turns.stalled(group_id, at_ms)
            done(append_error(error), at_ms)

        self._effects().appends.append(Append(records, stored, None, lambda is_written, at_ms: self.turns.settled(group_id, at_ms)))

    # -- plans ---------------------------------------------------------------------------------------------------------

    def _answer(self, reply: Reply | None, answer: StreamsGroupHeartbeatResponse | None) -> None:
        if reply is not None and answer is not None:
            self._effects().answers.append((reply, answer))

    def _carry_out(
        self, group_id: str, plan: Plan, reply: Reply | None, now_ms: int, on_refused: Callable[[int], None] | None = None
    ) -> bool:
        """Carry out a plan in the group's turn. Returns whether there are records to write, which keep the group busy. Calls
        `on_refused(now_ms)` if they cannot be written."""
        if plan.delay_ms is not None and group_id not in self.delays:
            self.delays.schedule(group_id, now_ms + plan.delay_ms)
        if not plan.records:
            self._follow_up(group_id, plan, now_ms)
            self._answer_with_creations(plan, reply)
            return False

        def settled(is_written: bool, at_ms: int) -> None:
            if is_written:
                self._follow_up(group_id, plan, at_ms)
            elif plan.is_refreshed and group_id in self.groups:
                self.groups[group_id].is_refresh_due = True
            if not is_written and on_refused is not None:
                on_refused(at_ms)
            self.turns.settled(group_id, at_ms)

        def done(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.turns.stalled(group_id, at_ms)
            if error is ErrorCode.NONE:
                self._answer_with_creations(plan, reply)
            else:
                self._answer(reply, StreamsGroupHeartbeatResponse(error_code=append_error(error)))

        self._effects().appends.append(Append(plan.records, done, None, settled))
        return True

    def _answer_with_creations(self, plan: Plan, reply: Reply | None) -> None:
        if reply is not None and plan.answer is not None and plan.missing_topics:
            self._effects().creations.append(Creation(reply, plan.answer, plan.missing_topics))
        self._answer(reply, plan.answer)

    def _follow_up(self, group_id: str, plan: Plan, now_ms: int) -> None:
        """The plan is committed."""
        if plan.gone is not None:
            self.sessions.forget(group_id, plan.gone)
        group = self.groups.get(group_id)
        if group is None:
            return
        if plan.settled is not None:
            self.sessions.settle(group_id, plan.settled)
        if plan.unrevoked is not None:
            self._expect_revocation(group_id, plan.unrevoked, now_ms)
        if plan.member_id is not None and plan.member_id in group.members:
            self._touch(group_id, plan.member_id, now_ms)
            if plan.offsets is not None:
                group.reported_offsets[plan.member_id] = plan.offsets
        if plan.is_assignment_due:
            self._assignments.start_if_due(group_id, now_ms, self._around.wall_ms(now_ms))

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When to call `on_deadline`."""
        deadlines = (self.sessions.timers.next_deadline(), self.delays.next_deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _touch(self, group_id: str, member_id: str, now_ms: int) -> None:
        self.sessions.touch(group_id, member_id, now_ms + self._around.settings.intervals(group_id).session_timeout_ms)

    def _expect_revocation(self, group_id: str, member: StreamsMember, now_ms: int) -> None:
        self.sessions.expect_revocation(group_id, member.member_id, member.member_epoch, now_ms + member.rebalance_timeout_ms)

    def on_deadline(self, now_ms: int) -> None:
        """Fence members whose deadline has passed, and assign in groups whose initial delay has ended."""
        for key in self.sessions.expired(now_ms):
            self._fence(key, now_ms)
        for group_id in self.delays.expired(now_ms):
            self._assign_delayed(group_id, now_ms)

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
            again = partial(self.sessions.try_again, key, epoch)
            return self._carry_out(group_id, without(group, member), None, at_ms, again)

        self.turns.run(group_id, work, None, now_ms)

    def _assign_delayed(self, group_id: str, now_ms: int) -> None:
        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None:
                return False
            settings = self._around.settings
            plan = self._planner.delayed_assignment(group, settings.intervals(group_id), self._around.wall_ms(at_ms))
            return self._carry_out(group_id, plan, None, at_ms)

        self.turns.run(group_id, work, None, now_ms)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics were created, changed or deleted: groups whose topology has them refresh with the next heartbeat."""
        changed = frozenset(names)
        self._hashes.forget(changed)
        for group in self.groups.values():
            if group.topology is not None and not group.topology.required_topics().isdisjoint(changed):
                group.is_refresh_due = True


def _failed(error: ApiError) -> StreamsGroupHeartbeatResponse:
    """A heartbeat's answer with an error. As in Apache Kafka, UNKNOWN_SERVER_ERROR has no message."""
    message = None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.detail
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=message)
