"""The share groups of one partition of `__consumer_offsets` (KIP-932).

Requests and deadlines become plans, plans become records, and records change the groups when they are committed. Each group has at most one
plan in progress. Share coordinators initialize and delete the states of share partitions; the host asks them to (`StateQuestion`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from minikafka.core.coordinator.shard import Append, append_error
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.sessions import RETRY_MS
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.consumer.turns import Turns
from minikafka.core.group.effects import Effects, Reply, StateAnswers, StateQuestion
from minikafka.core.group.share.describe import described_group
from minikafka.core.group.share.group import ShareGroup, TopicStates, replay_record
from minikafka.core.group.share.heartbeat import LEAVE_EPOCH, SharePlan, SharePlanner, check_heartbeat, together, without
from minikafka.core.group.share.offsets import (
    OffsetsPlan,
    add_alteration_results,
    add_deletion_results,
    plan_alteration,
    plan_deletion,
    plan_group_deletion,
)
from minikafka.core.group.share.records import Records, group_tombstones, states_record
from minikafka.core.group.share.settings import ShareSettings
from minikafka.core.timers import TimerQueue
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeResponse
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

Refuse = Callable[[ErrorCode], None]
Done = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class ShareSurroundings:
    """The groups' interface to the broker. `check_free(group_id)` raises if a group of another type has the id, or there are too many."""

    settings: ShareSettings
    topics: Topics
    wall_ms: Callable[[int], int]
    check_free: Callable[[str], None]


class ShareGroups:
    """Share groups by id. `effects()` returns the effects object to fill now."""

    def __init__(self, surroundings: ShareSurroundings, effects: Callable[[], Effects]) -> None:
        self._around = surroundings
        self._effects = effects
        self._hashes = TopicHashes(surroundings.topics)
        self._planner = SharePlanner(surroundings.settings, surroundings.topics, self._hashes)
        self._turns = Turns()
        #: Group id -> topic id -> when share coordinators were last asked to initialize states of the topic, and of which partitions.
        self._asked: dict[str, dict[bytes, tuple[int, frozenset[int]]]] = {}
        #: How to refuse the requests that wait for share coordinators, by ticket.
        self._waiting: dict[int, Refuse] = {}
        self._tickets = 0
        #: Sessions, by group and member.
        self.timers: TimerQueue[tuple[str, str]] = TimerQueue()
        self.groups: dict[str, ShareGroup] = {}

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> bool:
        """Apply a committed record. Returns False if it does not belong to a share group."""
        return replay_record(self.groups, key, value)

    def loaded(self, now_ms: int) -> None:
        """Start a fresh session for every member."""
        for group in self.groups.values():
            for member_id in group.members:
                self._touch(group.group_id, member_id, now_ms)

    def shutdown(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR."""
        self._turns.shutdown(0)
        self.timers.clear()
        waiting, self._waiting = self._waiting, {}
        for refuse in waiting.values():
            refuse(ErrorCode.NOT_COORDINATOR)

    # -- members -------------------------------------------------------------------------------------------------------

    def heartbeat(self, reply: Reply, request: ShareGroupHeartbeatRequest, client: Client, now_ms: int) -> None:
        """ShareGroupHeartbeat: answered through the effects, when its changes are committed."""
        try:
            check_heartbeat(request)
        except ApiError as error:
            self._answer(reply, _failed(error))
            return
        group = self.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is not None and member.member_epoch == request.member_epoch != LEAVE_EPOCH:
            # A member whose heartbeat waits for its turn is alive.
            self._touch(request.group_id, request.member_id, now_ms)

        def work(at_ms: int) -> bool:
            try:
                plan = self._plan(request, client, at_ms)
            except ApiError as error:
                self._answer(reply, _failed(error))
                return False
            return self._carry_out(request.group_id, plan, reply, at_ms)

        def refuse(code: ErrorCode, at_ms: int) -> None:
            self._answer(reply, ShareGroupHeartbeatResponse(error_code=code))

        self._turns.run(request.group_id, work, refuse, now_ms)

    def _plan(self, request: ShareGroupHeartbeatRequest, client: Client, now_ms: int) -> SharePlan:
        group_id = request.group_id
        group = self.groups.get(group_id)
        if group is None:
            self._around.check_free(group_id)
            if request.member_epoch != 0:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            group = ShareGroup(group_id)
        if request.member_epoch == LEAVE_EPOCH:
            return self._planner.leave(group, request.member_id)
        plan = self._planner.heartbeat(group, request, client, self._around.wall_ms(now_ms), self._asked_recently(group_id, now_ms))
        if plan.is_refreshed:
            # Topics that change from now on need another refresh.
            group.is_refresh_due = False
        return plan

    def _asked_recently(self, group_id: str, now_ms: int) -> dict[bytes, frozenset[int]]:
        asked, retry_ms = self._asked.get(group_id, {}), self._around.settings.initialize_retry_ms
        for topic_id in [topic_id for topic_id, (at_ms, _) in asked.items() if now_ms - at_ms >= retry_ms]:
            del asked[topic_id]
        return {topic_id: partitions for topic_id, (_, partitions) in asked.items()}

    def _may_ask_again(self, group_id: str, gone: Mapping[bytes, Collection[int]]) -> None:
        """Partitions have no state, so a heartbeat may ask for them at once."""
        asked = self._asked.get(group_id, {})
        for topic_id in [topic_id for topic_id in asked if topic_id in gone]:
            at_ms, partitions = asked[topic_id]
            asked[topic_id] = (at_ms, partitions - frozenset(gone[topic_id]))

    def _answer(self, reply: Reply | None, answer: Any) -> None:
        if reply is not None and answer is not None:
            self._effects().answers.append((reply, answer))

    def _carry_out(
        self, group_id: str, plan: SharePlan, reply: Reply | None, now_ms: int, on_refused: Callable[[int], None] | None = None
    ) -> bool:
        """Carry out a plan in the group's turn. Returns whether there are records to write, which keep the group busy. Calls
        `on_refused(now_ms)` if they cannot be written."""
        if not plan.records:
            self._follow_up(group_id, plan, now_ms)
            self._answer(reply, plan.answer)
            return False

        def settled(is_written: bool, at_ms: int) -> None:
            if is_written:
                self._follow_up(group_id, plan, at_ms)
            elif plan.is_refreshed and group_id in self.groups:
                self.groups[group_id].is_refresh_due = True
            if not is_written and on_refused is not None:
                on_refused(at_ms)
            self._turns.settled(group_id, at_ms)

        def done(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._turns.stalled(group_id, at_ms)
            failed = ShareGroupHeartbeatResponse(error_code=append_error(error))
            self._answer(reply, plan.answer if error is ErrorCode.NONE else failed)

        self._effects().appends.append(Append(plan.records, done, None, settled))
        return True

    def _follow_up(self, group_id: str, plan: SharePlan, now_ms: int) -> None:
        """The plan is committed."""
        group = self.groups.get(group_id)
        if plan.gone is not None:
            self.timers.cancel((group_id, plan.gone))
        if group is None:
            self._asked.pop(group_id, None)
            return
        if plan.is_refreshed:
            group.is_refresh_due = False
        if plan.member_id is not None:
            self._touch(group_id, plan.member_id, now_ms)
        if plan.initialize:
            asked = self._asked.setdefault(group_id, {})
            for topic_id, wanted in plan.initialize.items():
                before = asked[topic_id][1] if topic_id in asked else frozenset[int]()
                asked[topic_id] = (now_ms, before | {partition for partition, _ in wanted})
            states = StateQuestion(group_id, plan.initialize, plan.state_epoch, lambda *answered: self._initialized(group_id, *answered))
            self._ask(states)

    def _touch(self, group_id: str, member_id: str, now_ms: int) -> None:
        self.timers.schedule((group_id, member_id), now_ms + self._around.settings.intervals(group_id).session_timeout_ms)

    def on_deadline(self, now_ms: int) -> None:
        """Remove members whose session has ended."""
        for key in self.timers.expired(now_ms):
            self._fence(key, now_ms)

    def _fence(self, key: tuple[str, str], now_ms: int) -> None:
        group_id, member_id = key

        def again(at_ms: int) -> None:
            if key not in self.timers:
                self.timers.schedule(key, at_ms + RETRY_MS)

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None or member_id not in group.members or key in self.timers:
                return False
            plan = self._planner.leave(group, member_id)
            plan.answer = None
            return self._carry_out(group_id, plan, None, at_ms, again)

        self._turns.run(group_id, work, None, now_ms)

    def is_busy(self, group_id: str) -> bool:
        """Whether a change of the group is in progress."""
        return self._turns.is_busy(group_id)

    def describe(self, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
        """ShareGroupDescribe of one group. Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return described_group(group, self._around.topics)

    # -- states --------------------------------------------------------------------------------------------------------

    def _ask(self, question: StateQuestion) -> None:
        if question.topics:
            self._effects().questions.append(question)

    def _initialized(self, group_id: str, answers: StateAnswers, now_ms: int) -> None:
        """Share coordinators have answered: partitions with a state may be assigned; the others are requested again later."""
        made: dict[bytes, set[int]] = {}
        failed: dict[bytes, set[int]] = {}
        for (topic_id, partition), (code, _) in answers.items():
            (made if code is ErrorCode.NONE else failed).setdefault(topic_id, set()).add(partition)
        self._may_ask_again(group_id, failed)
        self._change(group_id, lambda group: _begun(group, made, failed), lambda code: None, now_ms)

    def _change(self, group_id: str, records: Callable[[ShareGroup], Records], done: Done, now_ms: int) -> None:
        """Write the records that `records(group)` returns in the group's turn, then call `done(error)` when they are committed. `records`
        raises ApiError for an impossible change."""

        def work(at_ms: int) -> bool:
            group = self.groups.get(group_id)
            if group is None:
                done(ErrorCode.GROUP_ID_NOT_FOUND)
                return False
            try:
                found = records(group)
            except ApiError as error:
                done(error.code)
                return False
            if not found:
                done(ErrorCode.NONE)
                return False
            self._effects().appends.append(self._append_of(group_id, found, done))
            return True

        self._turns.run(group_id, work, lambda code, at_ms: done(code), now_ms)

    def _append_of(self, group_id: str, records: Records, done: Done) -> Append:
        def stored(error: ErrorCode, at_ms: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._turns.stalled(group_id, at_ms)
            done(append_error(error))

        return Append(records, stored, None, lambda is_written, at_ms: self._turns.settled(group_id, at_ms))

    def _wait(self, refuse: Refuse) -> int:
        self._tickets += 1
        self._waiting[self._tickets] = refuse
        return self._tickets

    # -- offsets -------------------------------------------------------------------------------------------------------

    def alter_offsets(self, reply: Reply, request: AlterShareGroupOffsetsRequest, now_ms: int) -> None:
        """AlterShareGroupOffsets of a group without members. A group that does not exist is created."""
        group_id = request.group_id

        def fail(code: ErrorCode) -> None:
            self._answer(reply, AlterShareGroupOffsetsResponse(error_code=code, error_message=code.text))

        def work(at_ms: int) -> bool:
            try:
                group = self.groups.get(group_id)
                if group is None:
                    self._around.check_free(group_id)
                    group = ShareGroup(group_id)
                if group.members:
                    raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            except ApiError as error:
                fail(error.code)
                return False
            plan, response = plan_alteration(group, request, self._around.topics)
            if not plan.records:
                self._answer(reply, response)
                return False

            def written(code: ErrorCode) -> None:
                if code is not ErrorCode.NONE:
                    fail(code)
                elif not plan.topics:
                    self._answer(reply, response)
                else:
                    self._alter_states(reply, group_id, plan, response, fail)

            self._effects().appends.append(self._append_of(group_id, plan.records, written))
            return True

        self._turns.run(group_id, work, lambda code, at_ms: fail(code), now_ms)

    def _alter_states(
        self, reply: Reply, group_id: str, plan: OffsetsPlan, response: AlterShareGroupOffsetsResponse, fail: Refuse
    ) -> None:
        """Ask share coordinators for the new states. States that are to lose their offset are deleted first, because an initialization
        without an offset resets none (core/share/coordinator.py)."""
        ticket = self._wait(fail)

        def answered(answers: StateAnswers, at_ms: int) -> None:
            self._initialized(group_id, answers, at_ms)
            if self._waiting.pop(ticket, None) is not None:
                add_alteration_results(response, answers)
                self._answer(reply, response)

        def deleted(answers: StateAnswers, at_ms: int) -> None:
            def forgotten(code: ErrorCode) -> None:
                add_alteration_results(response, answers)
                left = plan.without({key for key, (error, _) in answers.items() if error is not ErrorCode.NONE})
                if code is not ErrorCode.NONE:
                    refuse = self._waiting.pop(ticket, None)
                    if refuse is not None:
                        refuse(code)
                elif not left:
                    answered({}, at_ms)
                else:
                    self._ask(StateQuestion(group_id, left, plan.epoch, answered))

            self._deleted(group_id, answers, (), forgotten, at_ms)

        reset = plan.without_offset()
        question = StateQuestion(group_id, reset, None, deleted) if reset else StateQuestion(group_id, plan.topics, plan.epoch, answered)
        self._ask(question)

    def delete_offsets(self, reply: Reply, request: DeleteShareGroupOffsetsRequest, now_ms: int) -> None:
        """DeleteShareGroupOffsets of a group without members; it deletes whole topics."""
        group_id = request.group_id
        planned: list[tuple[OffsetsPlan, DeleteShareGroupOffsetsResponse]] = []

        def fail(code: ErrorCode) -> None:
            message = f"Group {group_id} not found." if code is ErrorCode.GROUP_ID_NOT_FOUND else code.text
            self._answer(reply, DeleteShareGroupOffsetsResponse(error_code=code, error_message=message))

        def records(group: ShareGroup) -> Records:
            if group.members:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            planned.append(plan_deletion(group, request, self._around.topics))
            return planned[0][0].records

        def written(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                fail(code)
                return
            plan, response = planned[0]
            if not plan.topics:
                self._answer(reply, response)
                return
            ticket = self._wait(fail)

            def answered(answers: StateAnswers, at_ms: int) -> None:
                names = {topic_id: topic.name for topic_id in plan.topics if (topic := self._around.topics.by_id(topic_id)) is not None}
                gone = add_deletion_results(response, answers, names)

                def forgotten(code: ErrorCode) -> None:
                    if self._waiting.pop(ticket, None) is not None:
                        self._answer(reply, response)

                self._deleted(group_id, answers, gone, forgotten, at_ms)

            self._ask(StateQuestion(group_id, plan.topics, None, answered))

        self._change(group_id, records, written, now_ms)

    def delete_group(self, group_id: str, done: Done, now_ms: int) -> None:
        """DeleteGroups: delete the group's states first, then the group."""
        planned: list[OffsetsPlan] = []

        def records(group: ShareGroup) -> Records:
            if group.members:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            planned.append(plan_group_deletion(group, self._around.topics))
            return planned[0].records

        def end(group: ShareGroup) -> Records:
            if group.members:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            self._asked.pop(group_id, None)
            return group_tombstones(group)

        def written(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                done(code)
                return
            if not planned[0].topics:
                self._change(group_id, end, done, now_ms)
                return
            ticket = self._wait(done)

            def answered(answers: StateAnswers, at_ms: int) -> None:
                if self._waiting.pop(ticket, None) is None:
                    return
                failed = next((code for code, _ in answers.values() if code is not ErrorCode.NONE), None)

                def forgotten(code: ErrorCode) -> None:
                    if failed is not None or code is not ErrorCode.NONE:
                        done(code if failed is None else failed)
                    else:
                        self._change(group_id, end, done, at_ms)

                self._deleted(group_id, answers, (), forgotten, at_ms)

            self._ask(StateQuestion(group_id, planned[0].topics, None, answered))

        self._change(group_id, records, written, now_ms)

    def _deleted(self, group_id: str, answers: StateAnswers, gone: Iterable[bytes], done: Done, now_ms: int) -> None:
        """Share coordinators have deleted states. A member that has joined meanwhile may have asked for them before they were deleted."""
        lost: dict[bytes, set[int]] = {}
        for topic_id, partition in answers:
            lost.setdefault(topic_id, set()).add(partition)
        self._may_ask_again(group_id, lost)
        self._change(group_id, lambda group: _without_states(group, gone, lost), done, now_ms)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics were created, changed or deleted: groups that subscribe to them refresh with the next heartbeat."""
        changed = frozenset(names)
        self._hashes.forget(changed)
        for group in self.groups.values():
            if not group.subscribed_topics().isdisjoint(changed):
                group.is_refresh_due = True

    def topics_deleted(self, topic_ids: Iterable[bytes], now_ms: int) -> None:
        """Topics were deleted from the cluster: the groups forget their states, as share coordinators do themselves."""
        gone = frozenset(topic_ids)
        for group_id, group in list(self.groups.items()):
            if not gone.isdisjoint([*group.initializing, *group.initialized, *group.deleting]):
                self._change(group_id, lambda initialized: _forgotten(initialized, gone), lambda code: None, now_ms)


def _forgotten(group: ShareGroup, gone: frozenset[bytes]) -> Records:
    kept = [
        {topic_id: found for topic_id, found in topics.items() if topic_id not in gone}
        for topics in (group.initializing, group.initialized, group.deleting)
    ]
    return [states_record(group.group_id, *kept)]  # type: ignore[arg-type]


def _begun(group: ShareGroup, made: Mapping[bytes, Collection[int]], failed: Mapping[bytes, Collection[int]]) -> Records:
    """Records for partitions that got a state, or failed to. What had one before an alteration failed has it still."""
    done = {}
    for topic_id, partitions in made.items():
        states = group.initializing.get(topic_id) or group.initialized.get(topic_id)
        if states is not None:
            done[topic_id] = TopicStates(states.name, frozenset(partitions))
    had = {topic_id: states.partitions & frozenset(failed.get(topic_id, ())) for topic_id, states in group.initialized.items()}
    initializing, initialized = without(without(group.initializing, made), had), together(group.initialized, done)
    if (initializing, initialized) == (group.initializing, group.initialized):
        return []
    return [states_record(group.group_id, initializing, initialized, group.deleting)]


def _without_states(group: ShareGroup, gone: Iterable[bytes], lost: Mapping[bytes, Collection[int]]) -> Records:
    """Records for topics whose states have been deleted. `lost`: partitions that may have no state any more."""
    deleting = {topic_id: name for topic_id, name in group.deleting.items() if topic_id not in set(gone)}
    again = {
        topic_id: TopicStates(states.name, states.partitions & frozenset(lost[topic_id]))
        for topic_id, states in group.initialized.items()
        if topic_id in lost
    }
    if not again and deleting == group.deleting:
        return []
    initialized = without(group.initialized, lost)
    return [states_record(group.group_id, together(group.initializing, again), initialized, deleting)]


def _failed(error: ApiError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.detail)
