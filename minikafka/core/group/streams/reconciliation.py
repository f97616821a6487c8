"""How a member gets from its current tasks to its target: it revokes first, and takes only tasks without an owner.

An active task has one owner at a time. Within a process a task has one role at a time, because its members share a state directory.
Rules: org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minikafka.core.group.streams.member import HeldTasks, MemberState, StreamsMember, Task, flat
from minikafka.core.group.streams.model import TasksTuple
from minikafka.core.group.streams.owners import TaskOwners
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode

_UNKNOWN_STATE = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."


@dataclass(slots=True)
class _Change:
    """The changes of one role's tasks: kept, to be revoked, and granted now. `is_waiting`: some tasks of the target are not free yet."""

    kept: set[Task]
    revoked: set[Task]
    granted: set[Task]
    is_waiting: bool


def _change(has: frozenset[Task], target: frozenset[Task], is_taken: Callable[[Task], bool]) -> _Change:
    taken = {task for task in target - has if is_taken(task)}
    return _Change(set(has & target), set(has - target), set(target - has - taken), bool(taken))


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The input to a member's next step.

    `owned`: the tasks that the member reports to have; None if it does not say. `owners`: owners of tasks in the whole group.
    """

    target_epoch: int
    target: TasksTuple
    owned: HeldTasks | None
    owners: TaskOwners

    def step(self, member: StreamsMember) -> StreamsMember:
        """The member after this step; the same object if nothing changes. Raises FENCED_MEMBER_EPOCH."""
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
        active_target = flat(self.target.active)
        active = _change(frozenset(has.active), active_target, lambda task: self._is_active_taken(member, task))
        standby = _change(has.standby, flat(self.target.standby), lambda task: self._is_standby_taken(member, task))
        warmup = _change(has.warmup, flat(self.target.warmup), lambda task: self._is_warmup_taken(member, task))
        _change_roles(has, standby, warmup)
        for change in (standby, warmup):
            # A task that becomes active is not revoked: it continues with its state.
            change.revoked -= active_target
        pending = HeldTasks(_of(active.revoked, has), frozenset(standby.revoked), frozenset(warmup.revoked))
        has_to_revoke = bool(pending) and self._has_still(pending)
        given = set() if has_to_revoke else active.granted
        for change, roles in ((standby, has.standby), (warmup, has.warmup)):
            change.kept |= (roles & active_target) - given
        epochs = _of(active.kept, has)
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
        epochs.update(dict.fromkeys(sorted(active.granted), self.target_epoch))
        return replace(
            member,
            state=MemberState.UNRELEASED_TASKS if is_waiting else MemberState.STABLE,
            member_epoch=self.target_epoch,
            previous_member_epoch=member.member_epoch,
            assigned=HeldTasks(epochs, frozenset(standby.kept | standby.granted), frozenset(warmup.kept | warmup.granted)),
            pending=HeldTasks(),
        )

    # -- tasks of others ------------------------------------------------------------------------------------------------

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


def _of(tasks: set[Task], held: HeldTasks) -> dict[Task, int]:
    """Some active tasks with their epochs."""
    return {task: epoch for task, epoch in held.active.items() if task in tasks}


def _change_roles(has: HeldTasks, standby: _Change, warmup: _Change) -> None:
    """Move tasks between the standby and the warm-up role at once, because they keep their state."""
    continued = standby.granted & has.active.keys()
    standby.granted -= continued
    standby.kept |= continued
    for outgoing, incoming, tasks in ((standby, warmup, has.standby), (warmup, standby, has.warmup)):
        changed = tasks & incoming.granted
        incoming.granted -= changed
        incoming.kept |= changed
        outgoing.revoked -= changed
