"""A streams group: members, epochs, topology, targets and owners of tasks. Replay changes it; members report what no record holds.

Rules: org.apache.kafka.coordinator.group.streams.StreamsGroup of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from minikafka.core.group.streams.member import HeldTasks, MemberState, StreamsMember, Task
from minikafka.core.group.streams.model import ConfiguredTopology, TaskOffsets, TasksTuple, Topology
from minikafka.core.group.streams.owners import TaskOwners
from minikafka.late_dataclass import dataclass
from minikafka.wire.records.group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
)

EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = "Empty", "NotReady", "Assigning", "Reconciling", "Stable"
#: The topology epoch if there is no topology or no description.
NO_TOPOLOGY_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ReportedOffsets:
    """How far a member's tasks are, and where their changelogs end, as the member last reported."""

    task_offsets: TaskOffsets = field(default_factory=dict)
    task_end_offsets: TaskOffsets = field(default_factory=dict)


class StreamsGroup:
    """Invariants: `owners` has exactly the tasks that members have or still have to revoke. `static_members` (instance id -> member id) has
    every static member.

    In memory only, and lost with the coordinator: `configured`, `reported_offsets`, `shutdown_by` (the member that asked all members to
    shut down) and `endpoint_epoch` (counts changes of the endpoints for interactive queries and their partitions).
    """

    __slots__ = (
        "assignment_configs", "assignment_epoch", "assignment_wall_ms", "configured", "endpoint_epoch", "epoch",
        "failed_description_epoch", "group_id", "is_refresh_due", "members", "metadata_hash", "owners", "reported_offsets", "shutdown_by",
        "static_members", "stored_description_epoch", "targets", "topology", "validated_topology_epoch",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        #: The topology epoch for which all topics were last found valid.
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        self.stored_description_epoch = NO_TOPOLOGY_EPOCH
        self.failed_description_epoch = NO_TOPOLOGY_EPOCH
        #: The recorded configuration of the last assignment.
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_epoch = 1
        self.assignment_wall_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, TasksTuple] = {}
        self.owners = TaskOwners()
        self.configured: ConfiguredTopology | None = None
        self.reported_offsets: dict[str, ReportedOffsets] = {}
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0
        #: Whether topics may have changed since the last refresh.
        self.is_refresh_due = True

    # -- queries --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The name of the group's state, as in DescribeGroups."""
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return NOT_READY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        is_stable = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return STABLE if is_stable else RECONCILING

    def static_member(self, instance_id: str | None) -> StreamsMember | None:
        """The member with an instance id, or None."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target(self, member: StreamsMember) -> TasksTuple:
        """A member's target. A static member that rejoins has the target of its earlier member id."""
        existing = self.static_member(member.instance_id)
        return self.targets.get(member.member_id if existing is None else existing.member_id, TasksTuple())

    def members_with(self, updated: StreamsMember) -> list[StreamsMember]:
        """The members with `updated` added or replaced. It also replaces an earlier member with its instance id."""
        replaced = self.static_member(updated.instance_id)
        gone = {updated.member_id} if replaced is None else {updated.member_id, replaced.member_id}
        return [*(member for member_id, member in self.members.items() if member_id not in gone), updated]

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that tasks read; empty while the group is empty."""
        if not self.members or self.topology is None:
            return frozenset()
        names: set[str] = set()
        for subtopology in self.topology.subtopologies.values():
            names.update(subtopology.source_topics)
            names.update(topic.name for topic in subtopology.repartition_source_topics)
        return frozenset(names)

    # -- replay --------------------------------------------------------------------------------------------------------

    def set_metadata(self, member_id: str, value: StreamsGroupMemberMetadataValue | None) -> None:
        """Set a member's metadata; None removes the member."""
        existing = self.members.get(member_id)
        if value is None:
            if existing is not None:
                self._remove(existing)
            return
        endpoint = value.user_endpoint
        member = replace(
            existing or StreamsMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )
        self._put(member)

    def set_current(self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None) -> None:
        """Set a member's current assignment; None if it has none because it is about to be removed."""
        existing = self.members.get(member_id)
        if value is None:
            if existing is not None:
                self._put(replace(existing, member_epoch=-1, previous_member_epoch=-1, assigned=HeldTasks(), pending=HeldTasks()))
            return
        epoch = value.member_epoch
        member = replace(
            existing or StreamsMember(member_id),
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=HeldTasks(_epochs(value.active_tasks, epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)),
            pending=HeldTasks(
                _epochs(value.active_tasks_pending_revocation, epoch),
                _tasks(value.standby_tasks_pending_revocation),
                _tasks(value.warmup_tasks_pending_revocation),
            ),
        )
        self._put(member)

    def set_target(self, member_id: str, value: StreamsGroupTargetAssignmentMemberValue | None) -> None:
        """Set a member's target; None removes it."""
        if value is None:
            self.targets.pop(member_id, None)
            return
        active, standby, warmup = (
            {task.subtopology_id: frozenset(task.partitions) for task in tasks}
            for tasks in (value.active_tasks, value.standby_tasks, value.warmup_tasks)
        )
        self.targets[member_id] = TasksTuple(active, standby, warmup)

    def set_topology(self, topology: Topology | None) -> None:
        """Set the topology that the members run; None if there is none."""
        self.topology = topology
        self.configured = None
        self.is_refresh_due = True

    def _put(self, member: StreamsMember) -> None:
        existing = self.members.get(member.member_id)
        if existing is not None:
            self.owners.remove(existing)
            if existing.instance_id != member.instance_id:
                self._forget_instance(existing)
        self.members[member.member_id] = member
        self.owners.add(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _remove(self, member: StreamsMember) -> None:
        self.owners.remove(member)
        del self.members[member.member_id]
        self.reported_offsets.pop(member.member_id, None)
        self._forget_instance(member)
        if not self.members:
            self.shutdown_by = None

    def _forget_instance(self, member: StreamsMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]


def _tasks(value: Iterable[StreamsGroupCurrentMemberAssignmentValue.TaskIds]) -> frozenset[Task]:
    return frozenset((tasks.subtopology_id, partition) for tasks in value for partition in tasks.partitions)


def _epochs(value: Iterable[StreamsGroupCurrentMemberAssignmentValue.TaskIds], member_epoch: int) -> dict[Task, int]:
    """Tasks with their epochs. If the record has no epochs, the member's epoch is used."""
    found: dict[Task, int] = {}
    for tasks in value:
        epochs = tasks.assignment_epochs
        if epochs is None or len(epochs) != len(tasks.partitions):
            epochs = [member_epoch] * len(tasks.partitions)
        found.update({(tasks.subtopology_id, partition): epoch for partition, epoch in zip(tasks.partitions, epochs, strict=True)})
    return found
