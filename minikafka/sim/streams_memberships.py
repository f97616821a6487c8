"""S27 for the streams group (KIP-1071), as the committed part of its log tells of it: who runs which task. See `memberships`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minikafka.sim.streams_members import GROUP, SUBTOPOLOGY, TOPIC, Task, tasks_of
from minikafka.wire.records import group_records as kinds

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants


@dataclass(slots=True)
class StreamsMembership:
    """A member's epoch, and the active tasks that it has or still has to revoke."""

    epoch: int = 0
    active: list[Task] = field(default_factory=list)
    pending: list[Task] = field(default_factory=list)


class StreamsMemberships:
    """The streams group."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._world = invariants.world
        self._epoch = 0
        self._target_epoch = 0
        self._members: dict[str, StreamsMembership] = {}
        #: (task, member epoch) -> the member that was answered to have it as active in that epoch.
        self._answered: dict[tuple[Task, int], str] = {}

    def apply(self, key: Any, value: Any) -> bool:
        """Apply a committed record. Returns whether it can change who has what."""
        if isinstance(key, kinds.StreamsGroupMetadataKey):
            if value is not None and value.epoch < self._epoch:
                self._world.violate("S27", f"the epoch of {key.group_id} falls from {self._epoch} to {value.epoch}")
            self._epoch = 0 if value is None else value.epoch
        elif isinstance(key, kinds.StreamsGroupTargetAssignmentMetadataKey):
            self._target_epoch = 0 if value is None else value.assignment_epoch
        elif isinstance(key, kinds.StreamsGroupMemberMetadataKey):
            if value is None:
                self._members.pop(key.member_id, None)
            else:
                self._members.setdefault(key.member_id, StreamsMembership())
        elif isinstance(key, kinds.StreamsGroupCurrentMemberAssignmentKey):
            if value is not None:
                held = tasks_of(value.active_tasks), tasks_of(value.active_tasks_pending_revocation)
                self._members[key.member_id] = StreamsMembership(value.member_epoch, *held)
            elif key.member_id in self._members:
                self._members[key.member_id] = StreamsMembership(-1)
            return True
        return False

    def check_owners(self, where: str) -> None:
        """No two members have one active task."""
        self._invariants.checked["S27"] += 1
        owners: dict[Task, str] = {}
        for member_id, member in self._members.items():
            for task in (*member.active, *member.pending):
                if owners.setdefault(task, member_id) != member_id:
                    self._world.violate("S27", f"{where}: task {task} of {GROUP} belongs to both {owners[task]} and {member_id}")

    def answered(self, node: SimNode, response: Any) -> None:
        """A heartbeat is answered: in one epoch a task is given to one member as active."""
        if response.error_code or response.active_tasks is None or response.member_epoch <= 0:
            return
        self._invariants.checked["S27"] += 1
        for task in tasks_of(response.active_tasks):
            place = (task, response.member_epoch)
            if self._answered.setdefault(place, response.member_id) != response.member_id:
                both = f"{self._answered[place]} and {response.member_id}"
                self._world.violate("S27", f"{node} gives task {task} in epoch {response.member_epoch} to {both}")

    def unrest(self) -> tuple[str, str] | None:
        """Why the group is not at rest, as (rule, text): a task has no owner, or a member is not where its group is."""
        expected = self._world.options.streams_members
        if not expected:
            return None
        if len(self._members) != expected:
            return "S27", f"{GROUP} has the members {list(self._members)}, but {expected} take part"
        behind = {member_id: member.epoch for member_id, member in self._members.items() if member.epoch != self._epoch or member.pending}
        if behind or self._target_epoch != self._epoch:
            return "S27", f"{GROUP} is in epoch {self._epoch}, its targets are in {self._target_epoch}; lagging members: {behind}"
        owned = sorted(task for member in self._members.values() for task in member.active)
        wanted = [(SUBTOPOLOGY, index) for index in sorted(self._invariants.image.topics_by_name[TOPIC].partitions)]
        if owned != wanted:
            return "S27", f"{GROUP} runs the tasks {owned} of {wanted}"
        self._invariants.checked["S27"] += 1
        return None
