"""The owners of tasks in a streams group: tasks that members run, and tasks that they still have to revoke."""

from __future__ import annotations

from minikafka.core.group.streams.member import StreamsMember, Task


class TaskOwners:
    """Only replay changes it. An active task has one owner; standby and warm-up tasks have any number."""

    __slots__ = ("_active", "_standby", "_warmup")

    def __init__(self) -> None:
        #: Task -> member and its process.
        self._active: dict[Task, tuple[str, str]] = {}
        #: Task -> processes by member.
        self._standby: dict[Task, dict[str, str]] = {}
        self._warmup: dict[Task, dict[str, str]] = {}

    def add(self, member: StreamsMember) -> None:
        """Add the assigned and pending tasks of a member."""
        for held in (member.assigned, member.pending):
            for task in held.active:
                self._active[task] = member.member_id, member.process_id
            for tasks, owners in ((held.standby, self._standby), (held.warmup, self._warmup)):
                for task in sorted(tasks):
                    owners.setdefault(task, {})[member.member_id] = member.process_id

    def remove(self, member: StreamsMember) -> None:
        """Remove all tasks of a member."""
        for held in (member.assigned, member.pending):
            for task in held.active:
                if self._active.get(task, ("",))[0] == member.member_id:
                    del self._active[task]
            for tasks, owners in ((held.standby, self._standby), (held.warmup, self._warmup)):
                for task in sorted(tasks):
                    processes = owners.get(task, {})
                    processes.pop(member.member_id, None)
                    if not processes:
                        owners.pop(task, None)

    def active_process(self, task: Task) -> str | None:
        """The process that runs a task; None if none does."""
        owner = self._active.get(task)
        return None if owner is None else owner[1]

    def standby_processes(self, task: Task) -> frozenset[str]:
        """The processes that have the task as a standby task."""
        return frozenset(self._standby.get(task, {}).values())

    def warmup_processes(self, task: Task) -> frozenset[str]:
        """The processes that have the task as a warm-up task."""
        return frozenset(self._warmup.get(task, {}).values())
