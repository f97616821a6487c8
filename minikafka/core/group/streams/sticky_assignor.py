"""The assignor `sticky`: tasks stay where they or their state are, if that is balanced; the least loaded process gets the rest.

Rules: org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor of Apache Kafka 4.4, which ignores racks and client tags. The
result is the same even where several members are equally good, so the order of its tables and queues is the same, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.core.group.consumer.assignor import Pace
from minikafka.core.group.streams.model import ConfiguredTopology, GroupSpec, MemberSpec, Tasks, TasksTuple
from minikafka.core.java_hash import names_in_computed_order, names_in_table_order, text_order
from minikafka.core.java_queue import PriorityQueue
from minikafka.steps import Steps

#: Subtopology id and partition.
Task = tuple[str, int]


def assign_sticky(spec: GroupSpec, topology: ConfiguredTopology) -> Steps[dict[str, TasksTuple]]:
    """Active and standby tasks of every member. The topology must be ready."""
    if not spec.members:
        return {}
    return (yield from _Assignment(spec, topology).assign())


class _Process:
    """The tasks assigned to the members of one process so far."""

    __slots__ = ("_by_load", "_given", "counts", "load", "tasks")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.tasks: set[Task] = set()
        self.load = 0.0
        self._given = 0
        self._by_load: PriorityQueue[str] | None = None

    def add(self, member_id: str, task: Task) -> int:
        """Assign a task to a member. Returns how many tasks the member has now."""
        self._by_load = None
        return self._add(member_id, task)

    def add_to_least(self, task: Task) -> tuple[str, int]:
        """Assign a task to the member with the fewest tasks. Returns the member id and how many tasks it has now."""
        if len(self.counts) == 1:
            (member_id,) = self.counts
            return member_id, self._add(member_id, task)
        if self._by_load is None:
            self._by_load = PriorityQueue()
            for member_id in names_in_table_order(self.counts):
                self._by_load.add(self.counts[member_id], member_id)
        member_id = self._by_load.poll()
        count = self._add(member_id, task)
        self._by_load.add(count, member_id)
        return member_id, count

    def _add(self, member_id: str, task: Task) -> int:
        self.tasks.add(task)
        self.counts[member_id] += 1
        self._given += 1
        self.load = self._given / len(self.counts)
        return self.counts[member_id]


class _Quota:
    """How many tasks a member may have: its share of the remaining tasks, rounded up. A member with its full share no longer counts, and
    neither do its tasks."""

    __slots__ = ("_members", "_tasks", "size")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.size = 0
        self._divide()

    def count(self, size: int) -> None:
        """A member has received one more task and now has `size`."""
        if size == self.size:
            self._members -= 1
            self._tasks -= size
            self._divide()

    def _divide(self) -> None:
        self.size = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(self, spec: GroupSpec, topology: ConfiguredTopology) -> None:
        subtopologies = topology.subtopologies or {}
        in_order = sorted(subtopologies, key=text_order)
        self._spec = spec
        self._counts = {subtopology_id: subtopologies[subtopology_id].task_count for subtopology_id in in_order}
        self._stateful = [subtopology_id for subtopology_id in in_order if subtopologies[subtopology_id].is_stateful]
        active, stateful = sum(self._counts.values()), sum(self._counts[subtopology_id] for subtopology_id in self._stateful)
        self._active_quota = _Quota(active, len(spec.members))
        self._quota = _Quota(active + stateful * spec.num_standby_replicas, len(spec.members))
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._had_active: dict[Task, str] = {}
        self._had_state: dict[Task, list[str]] = {}
        self._active: dict[str, list[Task]] = {member_id: [] for member_id in spec.members}
        self._standby: dict[str, list[Task]] = {member_id: [] for member_id in spec.members}
        self._pace = Pace()

    def assign(self) -> Steps[dict[str, TasksTuple]]:
        yield from self._look_back()
        rest = yield from self._keep_active()
        yield from self._spread_active(rest)
        if self._spec.num_standby_replicas > 0:
            few = yield from self._keep_standbys()
            yield from self._spread_standbys(few)
        found = {}
        for member_id, active in self._active.items():
            found[member_id] = TasksTuple(_by_subtopology(active), _by_subtopology(self._standby[member_id]))
            if self._pace.is_due(1 + len(active) + len(self._standby[member_id])):
                yield
        return found

    # -- previous owners --------------------------------------------------------------------------------------------------

    def _look_back(self) -> Steps[None]:
        candidates: dict[Task, list[tuple[bool, int, str]]] = {}
        for member_id, member in self._spec.members.items():
            process = self._processes.setdefault(member.process_id, _Process())
            process.counts[member_id] = 0
            self._process_of[member_id] = process
            for task in _tasks(member.tasks.active):
                self._had_active[task] = member_id
            for task, weight in _state_held(member):
                candidates.setdefault(task, []).append((*weight, member_id))
                if self._pace.is_due():
                    yield
            if self._pace.is_due(1 + sum(map(len, member.tasks.active.values()))):
                yield
        for task, holders in candidates.items():
            holders.sort(key=lambda holder: holder[:2])
            self._had_state[task] = [member_id for *_, member_id in holders]
            if self._pace.is_due():
                yield
        in_order = names_in_computed_order(self._processes, len(self._spec.members))
        self._processes = {process_id: self._processes[process_id] for process_id in in_order}

    def _least_loaded(self, members: list[str], standby: Task | None) -> str | None:
        """The first of the task's previous owners, unless another one and its process both have fewer tasks."""
        found, load, count = None, 0.0, 0
        for member_id in members:
            process = self._process_of[member_id]
            if standby is not None and standby in process.tasks:
                continue
            if found is None or (process.load < load and process.counts[member_id] < count):
                found, load, count = member_id, process.load, process.counts[member_id]
        return found

    # -- active tasks ----------------------------------------------------------------------------------------------------

    def _keep_active(self) -> Steps[list[Task]]:
        """Assign each task to its previous owner, or else to a member that has its state. The result is the remaining tasks."""
        tasks = yield from self._by_partition(list(self._counts))
        for had in (self._active_before, self._state_before):
            rest = []
            for task in tasks:
                member_id = had(task)
                if member_id is not None and self._process_of[member_id].counts[member_id] < self._active_quota.size:
                    self._give_active(member_id, task, self._process_of[member_id].add(member_id, task))
                else:
                    rest.append(task)
                if self._pace.is_due():
                    yield
            tasks = rest
        return tasks

    def _active_before(self, task: Task) -> str | None:
        return self._had_active.get(task)

    def _state_before(self, task: Task) -> str | None:
        return self._least_loaded(self._had_state.get(task, []), None)

    def _spread_active(self, tasks: list[Task]) -> Steps[None]:
        by_load = self._by_load()
        for task in (yield from self._by_name(tasks)):
            process = by_load.poll()
            self._give_active(*_with_task(process.add_to_least(task), task))
            by_load.add(process.load, process)
            if self._pace.is_due():
                yield

    def _give_active(self, member_id: str, task: Task, count: int) -> None:
        self._active[member_id].append(task)
        self._active_quota.count(count)
        self._quota.count(count)

    # -- standby tasks ---------------------------------------------------------------------------------------------------

    def _keep_standbys(self) -> Steps[dict[Task, int]]:
        """Assign standby tasks to members that had the task, active or not. The result is the number of standbys that tasks still lack."""
        tasks = yield from self._by_partition(self._stateful)
        few: dict[Task, int] = {}
        for task in reversed(tasks):
            for lacking in range(self._spec.num_standby_replicas, 0, -1):
                member_id = self._standby_before(task)
                if member_id is None:
                    few[task] = lacking
                    break
                self._give_standby(member_id, task, self._process_of[member_id].add(member_id, task))
                if self._pace.is_due():
                    yield
            if self._pace.is_due():
                yield
        return few

    def _standby_before(self, task: Task) -> str | None:
        member_id = self._had_active.get(task)
        if member_id is not None and task not in self._process_of[member_id].tasks and self._has_room(member_id):
            return member_id
        member_id = self._least_loaded(self._had_state.get(task, []), task)
        return member_id if member_id is not None and self._has_room(member_id) else None

    def _has_room(self, member_id: str) -> bool:
        return self._process_of[member_id].counts[member_id] < self._quota.size

    def _spread_standbys(self, few: dict[Task, int]) -> Steps[None]:
        by_load = self._by_load()
        # `few` has the partitions in reverse order.
        tasks = yield from self._by_name(list(few)[::-1])
        for task in reversed(tasks):
            for _ in range(few[task]):
                # Processes that already have the task return to the queue in reverse order.
                passed = [by_load.poll()]
                while task in passed[-1].tasks and by_load:
                    passed.append(by_load.poll())
                has_found = task not in passed[-1].tasks
                if has_found:
                    self._give_standby(*_with_task(passed[-1].add_to_least(task), task))
                for process in reversed(passed):
                    by_load.add(process.load, process)
                if self._pace.is_due(len(passed)):
                    yield
                if not has_found:
                    break

    def _give_standby(self, member_id: str, task: Task, count: int) -> None:
        self._standby[member_id].append(task)
        self._quota.count(count)

    # -- both ------------------------------------------------------------------------------------------------------------

    def _by_partition(self, subtopology_ids: list[str]) -> Steps[list[Task]]:
        """All tasks of these subtopologies, by partition. Sorting them in one step would take too long."""
        tasks: list[Task] = []
        for partition in range(max((self._counts[subtopology_id] for subtopology_id in subtopology_ids), default=0)):
            found = [(subtopology_id, partition) for subtopology_id in subtopology_ids if partition < self._counts[subtopology_id]]
            tasks += found
            if self._pace.is_due(len(subtopology_ids)):
                yield
        return tasks

    def _by_name(self, tasks: list[Task]) -> Steps[list[Task]]:
        """Tasks in the order of partitions, reordered by subtopology."""
        found: dict[str, list[Task]] = {subtopology_id: [] for subtopology_id in self._counts}
        for task in tasks:
            found[task[0]].append(task)
            if self._pace.is_due():
                yield
        return [task for listed in found.values() for task in listed]

    def _by_load(self) -> PriorityQueue[_Process]:
        queue: PriorityQueue[_Process] = PriorityQueue()
        for process in self._processes.values():
            queue.add(process.load, process)
        return queue


def _with_task(given: tuple[str, int], task: Task) -> tuple[str, Task, int]:
    return given[0], task, given[1]


def _state_held(member: MemberSpec) -> Iterable[tuple[Task, tuple[bool, int]]]:
    """Tasks whose state a member has, with their rank: standby tasks before tasks with reported offsets only, and those with more state
    first."""
    standby = dict.fromkeys(_tasks(member.tasks.standby))
    for task in standby:
        yield task, (False, -member.task_offsets.get(task[0], {}).get(task[1], 0))
    for subtopology_id, offsets in member.task_offsets.items():
        for partition, offset in offsets.items():
            if (subtopology_id, partition) not in standby:
                yield (subtopology_id, partition), (True, -offset)


def _tasks(tasks: Tasks) -> list[Task]:
    return [(subtopology_id, partition) for subtopology_id, partitions in tasks.items() for partition in partitions]


def _by_subtopology(tasks: list[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for subtopology_id, partition in tasks:
        found.setdefault(subtopology_id, set()).add(partition)
    return {subtopology_id: frozenset(found[subtopology_id]) for subtopology_id in sorted(found, key=text_order)}
