"""A member of a streams group (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum

from minikafka.core.group.streams.model import Tasks, TasksTuple
from minikafka.late_dataclass import dataclass

#: Subtopology id and partition.
Task = tuple[str, int]

#: Member epochs of a heartbeat with which a member joins, leaves, and leaves temporarily (static members).
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is in reconciling to its target. The values are those of its record."""

    STABLE = 1
    #: It has to revoke tasks before it can continue.
    UNREVOKED_TASKS = 2
    #: It waits for tasks that other members still have.
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state with the number of a record."""
        return cls(value) if value in _STATES else cls.UNKNOWN


_STATES = frozenset(int(state) for state in MemberState)


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """The tasks of a member: active ones, each with the member epoch since which it has the task, standby ones and warm-up ones."""

    active: Mapping[Task, int] = field(default_factory=dict)
    standby: frozenset[Task] = frozenset()
    warmup: frozenset[Task] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def tasks(self) -> TasksTuple:
        """Without the epochs."""
        return TasksTuple(by_subtopology(self.active), by_subtopology(self.standby), by_subtopology(self.warmup))

    def overlaps(self, other: HeldTasks) -> bool:
        """Whether at least one task is in both, in the same role."""
        is_active = not self.active.keys().isdisjoint(other.active)
        return is_active or not self.standby.isdisjoint(other.standby) or not self.warmup.isdisjoint(other.warmup)

    def contains(self, other: HeldTasks) -> bool:
        """Whether every task of the other is here, in the same role."""
        return other.active.keys() <= self.active.keys() and other.standby <= self.standby and other.warmup <= self.warmup


def by_subtopology(tasks: Iterable[Task]) -> dict[str, frozenset[int]]:
    """Partitions by subtopology id, in the order of the ids."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in found.items()}


def flat(tasks: Tasks) -> frozenset[Task]:
    """The tasks as a flat set."""
    return frozenset((subtopology_id, partition) for subtopology_id, partitions in tasks.items() for partition in partitions)


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member of a streams group. Only replay changes it.

    `assigned`: tasks that the member may run. `pending`: tasks that it has to revoke first. It counts as the owner of both until it reports
    otherwise. `user_endpoint`: host and port at which its process answers interactive queries; None if it answers none.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: HeldTasks = HeldTasks()
    pending: HeldTasks = HeldTasks()

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has exactly its target of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def active_since(self, task: Task) -> int | None:
        """The epoch since which the member has an active task; None if it does not."""
        since = self.assigned.active.get(task)
        return self.pending.active.get(task) if since is None else since
