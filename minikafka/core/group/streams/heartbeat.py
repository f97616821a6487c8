"""The changes that a member's heartbeat makes to its streams group.

Rules: GroupMetadataManager.streamsGroupHeartbeat of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import check_released, existing_member, existing_static_member, invalid
from minikafka.core.group.consumer.records import Records
from minikafka.core.group.consumer.targets import is_early
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.streams.checks import check_epoch, check_room, check_same_topology, check_tasks, owned_tasks
from minikafka.core.group.streams.endpoints import partitions_by_endpoint
from minikafka.core.group.streams.group import NO_TOPOLOGY_EPOCH, ReportedOffsets, StreamsGroup
from minikafka.core.group.streams.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, HeldTasks, MemberState, StreamsMember
from minikafka.core.group.streams.model import ConfiguredTopology, Status, TaskOffsets, TasksTuple, Topology
from minikafka.core.group.streams.plans import Plan, replace_static, without
from minikafka.core.group.streams.reconciliation import Reconciliation
from minikafka.core.group.streams.records import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    topology_record,
    topology_value,
)
from minikafka.core.group.streams.settings import StreamsIntervals, StreamsSettings
from minikafka.core.group.streams.targets import is_large, target_changes, target_steps
from minikafka.core.group.streams.topology import InvalidTopology, configure, configure_steps
from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps, at_once
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

#: A topology with more entries is configured in steps, before the heartbeat's plan is made.
CONFIGURED_AT_ONCE_MAX = 300
#: From this version on, members understand the status MISSING_CLIENT_TAGS.
TAGS_VERSION = 1
_Answer = StreamsGroupHeartbeatResponse
_SHUTDOWN = "Streams group member {} encountered a fatal error and requested a shutdown for the entire application."
_MISSING_TAGS = (
    "Missing required client tags for rack-aware standby assignment: [{}]."
    " Configure them via 'client.tag.<tagKey>' in your Streams config."
)
_STALE = "The member's topology epoch {} is behind the group's topology epoch {}."


@dataclass(frozen=True, slots=True)
class Prepared:
    """A topology that was configured beforehand, in steps, and the result, or why it cannot work."""

    topology: Topology
    metadata_hash: int
    result: ConfiguredTopology | InvalidTopology


@dataclass(frozen=True, slots=True)
class Moment:
    """The conditions while a plan is made. `is_delayed`: the group's first assignment waits for more members. `is_existing`: the group
    exists already. `prepared`: see `HeartbeatPlanner.preparing`."""

    intervals: StreamsIntervals
    wall_ms: int
    is_delayed: bool
    is_existing: bool
    prepared: Prepared | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A member's heartbeat: the member before and after it, and the tasks that it reports to have (None if it does not say)."""

    request: StreamsGroupHeartbeatRequest
    before: StreamsMember
    updated: StreamsMember
    owned: HeldTasks | None


class HeartbeatPlanner:
    """Makes plans for heartbeats. It has no state of its own."""

    def __init__(self, settings: StreamsSettings, topics: Topics, hashes: TopicHashes) -> None:
        self._settings = settings
        self._topics = topics
        self._hashes = hashes

    def heartbeat(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, client: Client, moment: Moment) -> Plan:
        """A member joins or continues. Raises ApiError."""
        if request.member_epoch == JOIN_EPOCH:
            check_room(group, request, self._settings.size_max)
        plan = Plan(member_id=request.member_id)
        step = _step(group, request, client, plan.records)
        topology, configured = self._look_at_topics(group, step, plan, moment.prepared)
        epoch, configs = self._next_epoch(group, step, topology, configured, plan, moment)
        if configured.is_ready:
            check_tasks(configured, request)
        _note_offsets(group, request, configured, plan)
        if not group.members and moment.intervals.initial_rebalance_delay_ms > 0:
            plan.delay_ms = moment.intervals.initial_rebalance_delay_ms
        target_epoch, target = self._next_target(group, step.updated, epoch, configured, plan, moment)
        member = _reconcile(group, step, target_epoch, target, plan)
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or request.member_id
        self._answer(group, step, member, configured, plan, moment)
        _add_group_status(group, member, configured, client.version, configs.get("rack.aware.assignment.tags", ""), plan)
        return plan

    # -- topology ------------------------------------------------------------------------------------------------------

    def preparing(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> Steps[Prepared] | None:
        """The steps that configure a large topology before the plan is made; None if the heartbeat configures none."""
        topology = group.topology
        if topology is None:
            if request.topology is None:
                return None
            topology = Topology.of(topology_value(request.topology))
        elif group.configured is not None and not group.is_refresh_due:
            return None
        return self._preparing(topology) if topology.entries > CONFIGURED_AT_ONCE_MAX else None

    def _preparing(self, topology: Topology) -> Steps[Prepared]:
        metadata_hash = self._hashes.of(topology.required_topics())
        yield
        try:
            return Prepared(topology, metadata_hash, (yield from configure_steps(topology, self._topics, metadata_hash)))
        except InvalidTopology as error:
            return Prepared(topology, metadata_hash, error)

    def _configure(self, topology: Topology, metadata_hash: int, prepared: Prepared | None) -> ConfiguredTopology:
        try:
            if prepared is None or prepared.metadata_hash != metadata_hash or prepared.topology != topology:
                return configure(topology, self._topics, metadata_hash)
            if isinstance(prepared.result, InvalidTopology):
                raise prepared.result
        except InvalidTopology as error:
            raise ApiError(error.code, str(error)) from error
        return prepared.result

    def _look_at_topics(
        self, group: StreamsGroup, step: _Step, plan: Plan, prepared: Prepared | None
    ) -> tuple[Topology, ConfiguredTopology]:
        """The group's topology, and the same configured for the topics that exist now."""
        if step.updated != step.before:
            plan.records.append(member_record(group.group_id, step.updated))
        topology = _next_topology(group, step.request, plan)
        if group.topology is not None and step.updated.topology_epoch < group.topology.epoch:
            plan.add_status(Status.STALE_TOPOLOGY, _STALE.format(step.updated.topology_epoch, group.topology.epoch))
        configured, is_new = group.configured, group.topology is None
        if configured is not None and not is_new and not group.is_refresh_due:
            return topology, configured
        plan.is_refreshed = True
        metadata_hash = self._hashes.of(topology.required_topics())
        if configured is None or is_new or metadata_hash != group.metadata_hash or metadata_hash != configured.metadata_hash:
            configured = group.configured = self._configure(topology, metadata_hash, prepared)
        return topology, configured

    def _next_epoch(
        self,
        group: StreamsGroup,
        step: _Step,
        topology: Topology,
        configured: ConfiguredTopology,
        plan: Plan,
        moment: Moment,
    ) -> tuple[int, dict[str, str]]:
        """The group's epoch, increased if something has changed that affects assignments, and the configuration of assignments."""
        validated_epoch = topology.epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
        configs = dict(moment.intervals.assignment_configs())
        is_other = (
            _changes_assignment(step)
            or configured.metadata_hash != group.metadata_hash
            or validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        )
        if not is_other:
            return group.epoch, configs
        epoch = group.epoch + 1
        plan.records.append(epoch_record(group, epoch, configured.metadata_hash, validated_epoch, configs))
        return epoch, configs

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _next_target(
        self, group: StreamsGroup, updated: StreamsMember, epoch: int, configured: ConfiguredTopology, plan: Plan, moment: Moment
    ) -> tuple[int, TasksTuple]:
        if moment.is_delayed or plan.delay_ms is not None:
            plan.add_status(Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay.")
            return group.assignment_epoch, TasksTuple()
        if group.assignment_epoch >= epoch:
            return group.assignment_epoch, group.target(updated)
        if is_early(group, moment.intervals, moment.wall_ms):
            plan.add_status(Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
            return group.assignment_epoch, group.target(updated)
        if is_large(group, configured):
            plan.is_assignment_due = True
            return group.assignment_epoch, group.target(updated)
        targets = self._targets(group, updated, configured, moment.intervals)
        plan.records += target_changes(group, targets)
        plan.records.append(target_epoch_record(group.group_id, epoch, moment.wall_ms))
        return epoch, targets[updated.member_id]

    def _targets(
        self, group: StreamsGroup, updated: StreamsMember | None, configured: ConfiguredTopology, intervals: StreamsIntervals
    ) -> dict[str, TasksTuple]:
        return at_once(target_steps(group, updated, configured, intervals, self._settings))

    def delayed_assignment(self, group: StreamsGroup, intervals: StreamsIntervals, wall_ms: int) -> Plan:
        """The initial rebalance delay of a new group has ended. The plan has no records if a heartbeat must refresh the topics first."""
        plan, configured = Plan(), group.configured
        if not group.members or configured is None or group.assignment_epoch >= group.epoch:
            return plan
        if is_large(group, configured):
            plan.is_assignment_due = True
            return plan
        plan.records += target_changes(group, self._targets(group, None, configured, intervals))
        plan.records.append(target_epoch_record(group.group_id, group.epoch, wall_ms))
        return plan

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(
        self,
        group: StreamsGroup,
        step: _Step,
        member: StreamsMember,
        configured: ConfiguredTopology,
        plan: Plan,
        moment: Moment,
    ) -> None:
        """Fill in the answer. It has the tasks if the member joins or its tasks have changed, and the endpoints for interactive queries if
        the member's endpoint epoch is not current.

        It also has the tasks if the member reports to lack some: the answer that named them may have been lost. In Apache Kafka 4.4 nobody
        runs such a task until the member's tasks change again."""
        intervals = moment.intervals
        answer = plan.answer = _Answer(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=intervals.heartbeat_interval_ms,
            task_offset_interval_ms=intervals.task_offset_interval_ms,
            acceptable_recovery_lag=intervals.acceptable_recovery_lag,
            status=plan.status,
        )
        has_others = member.assigned != step.before.assigned
        lacks_tasks = step.owned is not None and not step.owned.contains(member.assigned)
        if step.request.member_epoch == JOIN_EPOCH or has_others or lacks_tasks:
            tasks = member.assigned.tasks()
            answer.active_tasks, answer.standby_tasks, answer.warmup_tasks = (
                [_Answer.TaskIds(subtopology_id=one, partitions=sorted(role[one])) for one in role]
                for role in (tasks.active, tasks.standby, tasks.warmup)
            )
        if member.user_endpoint != step.before.user_endpoint or (has_others and member.user_endpoint is not None):
            group.endpoint_epoch += 1
        if group.endpoint_epoch != step.request.endpoint_information_epoch:
            answer.partitions_by_user_endpoint = partitions_by_endpoint(group, member, configured, self._topics)
        if moment.is_existing:
            answer.endpoint_information_epoch = group.endpoint_epoch

    def leave(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> Plan:
        """A member leaves, permanently (epoch -1) or temporarily (epoch -2). Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if request.instance_id is None:
            member = existing_member(group, request.member_id)
        else:
            member = existing_static_member(group, request.member_id, request.instance_id)
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or request.member_id
        answer = _Answer(member_id=request.member_id, member_epoch=request.member_epoch, status=[])
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            assigned = replace(member.assigned, active=dict.fromkeys(member.assigned.active, 0))
            left = replace(member, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending=HeldTasks())
            return Plan([current_record(group.group_id, left)], answer)
        plan = without(group, member)
        plan.answer = answer
        return plan


# -- the sender ----------------------------------------------------------------------------------------------------------


def _step(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, client: Client, records: Records) -> _Step:
    owned = owned_tasks(request)
    before = _sender(group, request, owned, records)
    return _Step(request, before, _updated(before, request, client), owned)


def _sender(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: HeldTasks | None, records: Records
) -> StreamsMember:
    """The sender as the group has it, or a new member if it joins."""
    member_id, instance_id, is_joining = request.member_id, request.instance_id, request.member_epoch == JOIN_EPOCH
    if is_joining:
        left = group.static_member(instance_id)
        if instance_id is None or left is None:
            return group.members.get(member_id) or StreamsMember(member_id)
        check_released(left, member_id, instance_id)
        return replace_static(group, left, member_id, records)
    if instance_id is None:
        member = existing_member(group, member_id)
    else:
        member = existing_static_member(group, member_id, instance_id)
    check_epoch(member, request.member_epoch, owned)
    return member


def _updated(before: StreamsMember, request: StreamsGroupHeartbeatRequest, client: Client) -> StreamsMember:
    """The member with the fields that the request sets. The others stay, except for the endpoint of a joining member.

    Raises UNKNOWN_SERVER_ERROR for a tag that is there twice, as Apache Kafka does."""
    endpoint, tags = request.user_endpoint, request.client_tags
    if tags and len({tag.key for tag in tags}) < len(tags):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    address = None if endpoint is None else (endpoint.host, endpoint.port)
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        user_endpoint=address if address is not None or request.member_epoch == JOIN_EPOCH else before.user_endpoint,
        client_tags=before.client_tags if tags is None else {tag.key: tag.value for tag in tags},
        client_id=client.client_id,
        client_host=client.host,
    )


def _changes_assignment(step: _Step) -> bool:
    """Whether the request changes fields of the member that affect assignments. For a static member these are fewer."""
    before, updated = step.before, step.updated
    if step.request.instance_id is None:
        return updated != before
    compared = [(member.topology_epoch, member.rack_id, member.client_tags, member.process_id) for member in (before, updated)]
    return compared[0] != compared[1]


def _next_topology(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, plan: Plan) -> Topology:
    existing = group.topology
    if request.topology is None:
        if existing is None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return existing
    value = topology_value(request.topology)
    received = Topology.of(value)
    if existing is None:
        plan.records.append(topology_record(group.group_id, value))
        return received
    check_same_topology(existing, received)
    return existing


def _note_offsets(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, configured: ConfiguredTopology, plan: Plan) -> None:
    """Keep the task offsets that the member reports. Those of a joining member are kept once it is a member. Raises INVALID_REQUEST for a
    duplicate task."""
    if request.task_offsets is None and request.task_end_offsets is None:
        return
    before = group.reported_offsets.get(request.member_id, ReportedOffsets())
    reported = ReportedOffsets(
        before.task_offsets if request.task_offsets is None else _offsets(request.task_offsets, configured),
        before.task_end_offsets if request.task_end_offsets is None else _offsets(request.task_end_offsets, configured),
    )
    if request.member_id in group.members:
        group.reported_offsets[request.member_id] = reported
    else:
        plan.offsets = reported


def _offsets(reported: Iterable[StreamsGroupHeartbeatRequest.TaskOffset], configured: ConfiguredTopology) -> TaskOffsets:
    found: dict[str, dict[int, int]] = {}
    for one in reported:
        partitions = found.setdefault(one.subtopology_id, {})
        if one.partition in partitions:
            what = f"subtopology {one.subtopology_id} and partition {one.partition}"
            raise invalid(f"Task offsets contain a duplicate entry for {what}.")
        partitions[one.partition] = one.offset
    counts = {name: subtopology.task_count for name, subtopology in (configured.subtopologies or {}).items()}
    return {name: {n: offset for n, offset in found[name].items() if 0 <= n < count} for name, count in counts.items() if name in found}


def _reconcile(group: StreamsGroup, step: _Step, target_epoch: int, target: TasksTuple, plan: Plan) -> StreamsMember:
    """The member after reconciling to its target as far as possible now. Raises FENCED_MEMBER_EPOCH."""
    member = step.updated
    reconciled = Reconciliation(target_epoch, target, step.owned, group.owners).step(member)
    if reconciled != member:
        plan.records.append(current_record(group.group_id, reconciled))
        if reconciled.state is MemberState.UNREVOKED_TASKS:
            plan.unrevoked = reconciled
        else:
            plan.settled = reconciled.member_id
    return reconciled


def _add_group_status(
    group: StreamsGroup, member: StreamsMember, configured: ConfiguredTopology, version: int, tags: str, plan: Plan
) -> None:
    """Add to the answer what prevents assignments in the group, and which tags the member lacks."""
    if configured.problem is not None:
        plan.add_status(*configured.problem)
        plan.missing_topics = configured.missing_topics
    if group.shutdown_by is not None:
        plan.add_status(Status.SHUTDOWN_APPLICATION, _SHUTDOWN.format(group.shutdown_by))
    missing = [tag.strip() for tag in tags.split(",") if tag.strip() not in member.client_tags] if tags.strip() else []
    if missing and version >= TAGS_VERSION:
        plan.add_status(Status.MISSING_CLIENT_TAGS, _MISSING_TAGS.format(", ".join(missing)))
