"""The next target assignment of a streams group: computed at once for a small group, in steps for a large one.

As in Apache Kafka 4.4, targets have active and standby tasks, and no warm-up tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.consumer.targets import AT_ONCE_MAX, is_early
from minikafka.core.group.streams.assignors import ASSIGNORS
from minikafka.core.group.streams.group import ReportedOffsets, StreamsGroup
from minikafka.core.group.streams.member import StreamsMember
from minikafka.core.group.streams.model import ConfiguredTopology, GroupSpec, MemberSpec, TasksTuple
from minikafka.core.group.streams.records import target_epoch_record, target_record
from minikafka.core.group.streams.settings import StreamsIntervals, StreamsSettings
from minikafka.steps import Steps


def is_large(group: StreamsGroup, configured: ConfiguredTopology) -> bool:
    """Whether the group has more members and tasks than one turn of the event loop should assign."""
    tasks = sum(subtopology.task_count for subtopology in (configured.subtopologies or {}).values())
    return configured.is_ready and len(group.members) + tasks > AT_ONCE_MAX


def assignor_name(intervals: StreamsIntervals, settings: StreamsSettings) -> str:
    """The assignor of a group: its own, if the broker has it, or else the broker's first."""
    return intervals.assignor if intervals.assignor in settings.assignors else settings.assignors[0]


def target_steps(
    group: StreamsGroup,
    updated: StreamsMember | None,
    configured: ConfiguredTopology,
    intervals: StreamsIntervals,
    settings: StreamsSettings,
) -> Steps[dict[str, TasksTuple]]:
    """Compute the target of every member, for the group as it is at the first step. `updated` replaces the member with its id, and an
    earlier member with its instance id. All targets are empty while the topology is not ready."""
    members = list(group.members.values()) if updated is None else group.members_with(updated)
    if not configured.is_ready:
        return {member.member_id: TasksTuple() for member in members}
    spec = GroupSpec(
        {member.member_id: _spec(group, member) for member in members},
        intervals.num_standby_replicas,
        intervals.rack_aware_assignment_tags,
    )
    assignor = ASSIGNORS.get(assignor_name(intervals, settings), ASSIGNORS["sticky"])
    found = yield from assignor(spec, configured)
    return {member.member_id: found.get(member.member_id, TasksTuple()) for member in members}


def _spec(group: StreamsGroup, member: StreamsMember) -> MemberSpec:
    reported = group.reported_offsets.get(member.member_id, ReportedOffsets())
    return MemberSpec(
        process_id=member.process_id,
        tasks=member.assigned.tasks(),
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_tags=member.client_tags,
        task_offsets=reported.task_offsets,
        task_end_offsets=reported.task_end_offsets,
    )


class StreamsTargets:
    """The TargetRule of streams groups."""

    def __init__(self, settings: StreamsSettings) -> None:
        self._settings = settings

    def is_early(self, group: StreamsGroup, wall_ms: int) -> bool:
        """Whether the last assignment is too recent for another one, or no heartbeat has configured the topology yet."""
        return group.configured is None or is_early(group, self._settings.intervals(group.group_id), wall_ms)

    def steps(self, group: StreamsGroup) -> Steps[dict[str, TasksTuple]]:
        """Compute the target of each member."""
        assert group.configured is not None
        return target_steps(group, None, group.configured, self._settings.intervals(group.group_id), self._settings)

    target_record: Callable[[str, str, TasksTuple], CoordinatorRecord] = staticmethod(target_record)
    epoch_record: Callable[[str, int, int], CoordinatorRecord] = staticmethod(target_epoch_record)


def target_changes(group: StreamsGroup, targets: Mapping[str, TasksTuple]) -> list[CoordinatorRecord]:
    """Records of the members whose targets have changed."""
    return [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
