"""Checks of requests of streams groups' members, with the errors and messages of Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minikafka.core.group.consumer.checks import MEMBER_EPOCH_VERSION, CommitCheck, check_texts, commit_any, existing_member, invalid
from minikafka.core.group.streams.group import StreamsGroup
from minikafka.core.group.streams.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, HeldTasks, StreamsMember, Task
from minikafka.core.group.streams.model import ConfiguredTopology, Topology
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

#: Most entries of a topology: subtopologies, the topics that they read, write or keep their state in, and copartition groups. They limit
#: the internal topics, and what is done at once beside the configuration. Apache Kafka only limits the bytes of a request.
TOPOLOGY_ENTRIES_MAX = 4_000
#: Most characters of an endpoint's host, as of a domain name (RFC 1035). Every member receives the endpoints of all others.
ENDPOINT_HOST_MAX = 255
#: Most tags of a client, and characters of each tag, of its rack and of its process id. Apache Kafka's clients have 5 tags of 50
#: characters. Every change of these values is written to the log and read by the assignor.
CLIENT_TAGS_MAX, CLIENT_TEXT_MAX = 32, 255
_TaskIds = Sequence[StreamsGroupHeartbeatRequest.TaskIds]


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY for a heartbeat that no group would accept."""
    topology, endpoint = request.topology, request.user_endpoint
    if topology is not None:
        check_size(topology)
    if endpoint is not None and len(endpoint.host) > ENDPOINT_HOST_MAX:
        raise invalid(f"The host of UserEndpoint has {len(endpoint.host)} characters, but must have {ENDPOINT_HOST_MAX} at most.")
    _check_client(request)
    if topology is not None and any(subtopology.source_topic_regex for subtopology in topology.subtopologies):
        raise invalid("Regular expressions for source topics are not supported yet.")
    check_texts(
        [
            ("MemberId", request.member_id), ("GroupId", request.group_id), ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        ]
    )  # fmt: skip
    if request.member_epoch == JOIN_EPOCH:
        _check_joining(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(one is not None for one in tasks) and any(one is None for one in tasks):
        raise invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")


def _check_client(request: StreamsGroupHeartbeatRequest) -> None:
    tags = request.client_tags or []
    if len(tags) > CLIENT_TAGS_MAX:
        raise invalid(f"There are {len(tags)} ClientTags, but there may be {CLIENT_TAGS_MAX} at most.")
    named = [("ClientTags", text) for tag in tags for text in (tag.key, tag.value)]
    for name, text in [*named, ("RackId", request.rack_id), ("ProcessId", request.process_id)]:
        if text is not None and len(text) > CLIENT_TEXT_MAX:
            raise invalid(f"{name} has {len(text)} characters, but must have {CLIENT_TEXT_MAX} at most.")


def check_size(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY for a topology that has more than TOPOLOGY_ENTRIES_MAX entries."""
    entries = len(topology.subtopologies) + sum(
        len(one.source_topics)
        + len(one.repartition_source_topics)
        + len(one.repartition_sink_topics)
        + len(one.state_changelog_topics)
        + len(one.copartition_groups)
        for one in topology.subtopologies
    )
    if entries > TOPOLOGY_ENTRIES_MAX:
        message = f"The topology has {entries} subtopologies, topics and copartition groups, but may have {TOPOLOGY_ENTRIES_MAX} at most."
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (("Active", request.active_tasks), ("Standby", request.standby_tasks), ("Warmup", request.warmup_tasks)):
        if tasks is None or tasks:
            raise invalid(f"{name}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise invalid("Topology must be non-null when (re-)joining.")
    _check_topology(request.topology)


def _check_topology(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    """Raises the errors of Apache Kafka, which answers UNKNOWN_SERVER_ERROR for topologies that it did not expect."""
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                message = f"Changelog topic {topic.name} must have an undefined partition count, but it is set to {topic.partitions}."
                raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    is_odd = topology.epoch < 0 or len({one.subtopology_id for one in topology.subtopologies}) < len(topology.subtopologies)
    if is_odd or any(_is_odd(subtopology) for subtopology in topology.subtopologies):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _is_odd(subtopology: StreamsGroupHeartbeatRequest.Subtopology) -> bool:
    """Whether the subtopology has a duplicate topic or property, or a copartition group with a topic that it lacks."""
    for topics in (subtopology.repartition_source_topics, subtopology.state_changelog_topics):
        if len({topic.name for topic in topics}) < len(topics):
            return True
        if any(len({config.key for config in topic.topic_configs}) < len(topic.topic_configs) for topic in topics):
            return True
    sources, repartitions = len(subtopology.source_topics), len(subtopology.repartition_source_topics)
    return any(
        not all(0 <= index < sources for index in group.source_topics)
        or not all(0 <= index < repartitions for index in group.repartition_source_topics)
        for group in subtopology.copartition_groups
    )


def check_room(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, size_max: int) -> None:
    """Raises GROUP_MAX_SIZE_REACHED if a new member would exceed `size_max`. A static member that rejoins is not a new one."""
    is_new = request.member_id not in group.members and group.static_member(request.instance_id) is None
    if is_new and len(group.members) >= size_max:
        message = f"The streams group has reached its maximum capacity of {size_max} members."
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_epoch(member: StreamsMember, epoch: int, owned: HeldTasks | None) -> None:
    """Raises FENCED_MEMBER_EPOCH unless the member sends its current epoch, or the previous one because the answer with the current epoch
    may have been lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch == member.previous_member_epoch and epoch < member.member_epoch and _is_within(owned, member.assigned):
        return
    word = "greater" if epoch > member.member_epoch else "smaller"
    message = (
        f"The streams group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.member_epoch}). The member must abandon all its partitions and rejoin."
    )
    raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_within(owned: HeldTasks | None, assigned: HeldTasks) -> bool:
    if owned is None:
        return False
    return owned.active.keys() <= assigned.active.keys() and owned.standby <= assigned.standby and owned.warmup <= assigned.warmup


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> HeldTasks | None:
    """The tasks that a member reports to have; None if the request does not list them."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return HeldTasks(dict.fromkeys(_tasks(active), 0), frozenset(_tasks(standby)), frozenset(_tasks(warmup)))


def _tasks(role: _TaskIds) -> Iterable[Task]:
    return ((one.subtopology_id, partition) for one in role for partition in one.partitions)


def check_tasks(configured: ConfiguredTopology, request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST for tasks that the topology does not have."""
    subtopologies = configured.subtopologies or {}
    for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for one in tasks or ():
            subtopology = subtopologies.get(one.subtopology_id)
            if subtopology is None:
                raise invalid(f"Subtopology {one.subtopology_id} does not exist in the topology.")
            count = subtopology.task_count
            for partition in one.partitions:
                if not 0 <= partition < count:
                    what = f"Task {partition} for subtopology {one.subtopology_id} is invalid."
                    raise invalid(f"{what} Number of tasks for this subtopology: {count}")


def check_same_topology(existing: Topology, received: Topology) -> None:
    """Raises INVALID_REQUEST if a member whose topology epoch is not behind has another topology than its group."""
    if received.epoch >= existing.epoch and received != existing:
        raise invalid("Topology updates are not supported yet.")


# -- offsets -------------------------------------------------------------------------------------------------------------


def check_commit(group: StreamsGroup, member_id: str, instance_id: str | None, epoch: int, version: int | None) -> CommitCheck:
    """A check for each partition that a member commits. In its current epoch a member may commit all partitions, in an older one those of
    tasks that it has had since then. `version`: of the OffsetCommit, None for a TxnOffsetCommit. Raises UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH."""
    if epoch < 0 and not group.members:
        return commit_any
    if version is None and epoch == -1 and not member_id and instance_id is None:
        return commit_any
    member = existing_member(group, member_id)
    if version is not None and version < MEMBER_EPOCH_VERSION:
        message = "OffsetCommit version 9 or above must be used by members using the streams group protocol"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    if epoch == member.member_epoch:
        return commit_any
    if epoch > member.member_epoch or group.topology is None:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)
    topology = group.topology

    def check(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
        subtopology_id = topology.subtopology_of(topic)
        since = None if subtopology_id is None else member.active_since((subtopology_id, partition))
        return ErrorCode.NONE if since is not None and epoch >= since else ErrorCode.STALE_MEMBER_EPOCH

    return check


def check_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Check that a member may read offsets. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    if member_id is None and epoch < 0:
        return
    if epoch != existing_member(group, member_id or "").member_epoch:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)
