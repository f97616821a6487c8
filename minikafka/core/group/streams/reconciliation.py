"""How a member gets from the tasks that it has to those that it is to have: it gives up first, and takes only what nobody else has.

An active task is with one member at a time; a task is in one role at a time in a process, for its members share a directory of states.
Rules: org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from minikafka.core.group.streams.member import HeldTasks, MemberState, StreamsMember, Task, flat
from minikafka.core.group.streams.model import TasksTuple
from minikafka.core.group.streams.owners import TaskOwners
from minikafka.wire.errors import ApiError, ErrorCode

_UNKNOWN_STATE = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."


@dataclass(slots=True)
class _Change:
    """One role's tasks: those that stay, those that have to go, and those that may come; `is_waiting`: some may not come yet."""

    kept: set[Task]
    revoked: set[Task]
    granted: set[Task]
    is_waiting: bool

    def keep(self, task: Task) -> None:
        """Have a task that was to come now, for the member has it already in another role."""
        self.granted.discard(task)
        self.kept.add(task)


def _change(has: frozenset[Task], wanted: frozenset[Task], is_taken: Callable[[Task], bool]) -> _Change:
    taken = {task for task in wanted - has if is_taken(task)}
    return _Change(set(has & wanted), set(has - wanted), set(wanted - has - taken), bool(taken))


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What decides a member's next step.

    `owned`: what the member says that it has; None when it does not say. `owners`: who has which task, of the whole group.
    """

    target_epoch: int
    target: TasksTuple
    owned: HeldTasks | None
    owners: TaskOwners

    def step(self, member: StreamsMember) -> StreamsMember:
        """The member after this step; the same one when there is none. Raises FENCED_MEMBER_EPOCH."""
        if member.is_reconciled_to(self.target_epoch):
            return member
        if member.state is MemberState.UNREVOKED_TASKS:
            return member if self._has_still(member.pending) else self._next(member, member.member_epoch + 1)
        if member.state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
            return self._next(member, self.target_epoch)
        return self._next(member, member.member_epoch)

    def _has_still(self, pending: HeldTasks) -> bool:
        return self.owned is None or self.owned.overlaps(pending)

    def _next(self, member: StreamsMember, member_epoch: int) -> StreamsMember:
        has = member.assigned
        active_wanted = flat(self.target.active)
        active = _change(frozenset(has.active), active_wanted, lambda task: self._is_active_taken(member, task))
        standby = _change(has.standby, flat(self.target.standby), lambda task: self._is_standby_taken(member, task))
        warmup = _change(has.warmup, flat(self.target.warmup), lambda task: self._is_warmup_taken(member, task))
        _change_roles(has, standby, warmup)
        for change in (standby, warmup):
            # What becomes active is not given up: its state goes on from where it is.
            change.revoked -= active_wanted
        pending = HeldTasks({task: has.active[task] for task in active.revoked}, frozenset(standby.revoked), frozenset(warmup.revoked))
        has_to_revoke = bool(pending) and self._has_still(pending)
        given = set() if has_to_revoke else active.granted
        for change, roles in ((standby, has.standby), (warmup, has.warmup)):
            change.kept |= (roles & active_wanted) - given
        epochs = {task: has.active[task] for task in active.kept}
        if has_to_revoke:
            return replace(
                member,
                state=MemberState.UNREVOKED_TASKS,
                member_epoch=member_epoch,
                previous_member_epoch=member.member_epoch,
                assigned=HeldTasks(epochs, frozenset(standby.kept), frozenset(warmup.kept)),
                pending=pending,
            )
        is_waiting = active.is_waiting or standby.is_waiting or warmup.is_waiting
        epochs.update(dict.fromkeys(active.granted, self.target_epoch))
        return replace(
            member,
            state=MemberState.UNRELEASED_TASKS if is_waiting else MemberState.STABLE,
            member_epoch=self.target_epoch,
            previous_member_epoch=member.member_epoch,
            assigned=HeldTasks(epochs, frozenset(standby.kept | standby.granted), frozenset(warmup.kept | warmup.granted)),
            pending=HeldTasks(),
        )

    # -- what others have ----------------------------------------------------------------------------------------------

    def _is_active_taken(self, member: StreamsMember, task: Task) -> bool:
        return (
            self.owners.active_process(task) is not None
            or self._is_elsewhere(member, self.owners.standby_processes(task), task, member.assigned.standby)
            or self._is_elsewhere(member, self.owners.warmup_processes(task), task, member.assigned.warmup)
        )

    def _is_standby_taken(self, member: StreamsMember, task: Task) -> bool:
        is_run = self.owners.active_process(task) == member.process_id and task not in member.assigned.active
        return (
            is_run
            or member.process_id in self.owners.standby_processes(task)
            or self._is_elsewhere(member, self.owners.warmup_processes(task), task, member.assigned.warmup)
        )

    def _is_warmup_taken(self, member: StreamsMember, task: Task) -> bool:
        return (
            self.owners.active_process(task) == member.process_id
            or self._is_elsewhere(member, self.owners.standby_processes(task), task, member.assigned.standby)
            or member.process_id in self.owners.warmup_processes(task)
        )

    @staticmethod
    def _is_elsewhere(member: StreamsMember, processes: frozenset[str], task: Task, own: frozenset[Task]) -> bool:
        """Whether another member of the same process has the task."""
        return member.process_id in processes and task not in own


def _change_roles(has: HeldTasks, standby: _Change, warmup: _Change) -> None:
    """A task whose state the member has keeps it: it goes from one role to the other at once."""
    for task in has.active:
        if task in standby.granted:
            standby.keep(task)
    for outgoing, incoming, tasks in ((standby, warmup, has.standby), (warmup, standby, has.warmup)):
        for task in tasks & incoming.granted:
            incoming.keep(task)
            outgoing.revoked.discard(task)
