"""Records of streams groups, as Apache Kafka 4.4 writes them (StreamsCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.consumer.records import Records
from minikafka.core.group.replay import Replay, apply_epoch, apply_target_epoch
from minikafka.core.group.streams.group import StreamsGroup
from minikafka.core.group.streams.member import StreamsMember, Task, by_subtopology
from minikafka.core.group.streams.model import Tasks, TasksTuple, Topology
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from minikafka.wire.records.group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

_Current = StreamsGroupCurrentMemberAssignmentValue
_Target = StreamsGroupTargetAssignmentMemberValue
_Topology = StreamsGroupTopologyValue


def epoch_record(
    group: StreamsGroup, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    """The group's epoch with its metadata hash and configuration. The description epochs stay as they are."""
    return CoordinatorRecord(
        StreamsGroupMetadataKey(group_id=group.group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[
                StreamsGroupMetadataValue.LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)
            ],
            stored_description_topology_epoch=group.stored_description_epoch,
            failed_description_topology_epoch=group.failed_description_epoch,
        ),
    )


def description_record(group: StreamsGroup, stored: int, failed: int) -> CoordinatorRecord:
    """The group's record with other description epochs: `stored` of the topology description that is stored, `failed` of one that is
    not."""
    record = epoch_record(group, group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
    value: Any = record.value
    value.stored_description_topology_epoch, value.failed_description_topology_epoch = stored, failed
    return record


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """A member's metadata."""
    kind, endpoint, tags = StreamsGroupMemberMetadataValue, member.user_endpoint, member.client_tags
    value = kind(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else kind.Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[kind.KeyValue(key=key, value=tags[key]) for key in sorted(tags)],
    )
    return CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: TasksTuple) -> CoordinatorRecord:
    """A member's target assignment."""

    def listed(tasks: Tasks) -> list[StreamsGroupTargetAssignmentMemberValue.TaskIds]:
        return [_Target.TaskIds(subtopology_id=one, partitions=sorted(tasks[one])) for one in sorted(tasks)]

    value = _Target(
        active_tasks=listed(target.active), standby_tasks=listed(target.standby), warmup_tasks=listed(target.warmup)
    )
    return CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of all targets, and when they were computed."""
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """A member's current assignment."""
    assigned, pending = member.assigned, member.pending
    value = _Current(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=_with_epochs(assigned.active),
        standby_tasks=_without_epochs(assigned.standby),
        warmup_tasks=_without_epochs(assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(pending.active),
        standby_tasks_pending_revocation=_without_epochs(pending.standby),
        warmup_tasks_pending_revocation=_without_epochs(pending.warmup),
    )
    return CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _with_epochs(tasks: Mapping[Task, int]) -> list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    found = []
    for subtopology_id, partitions in by_subtopology(tasks).items():
        ordered = sorted(partitions)
        epochs = [tasks[subtopology_id, partition] for partition in ordered]
        found.append(_Current.TaskIds(subtopology_id=subtopology_id, partitions=ordered, assignment_epochs=epochs))
    return found


def _without_epochs(tasks: Iterable[Task]) -> list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    return [_Current.TaskIds(subtopology_id=one, partitions=sorted(partitions)) for one, partitions in by_subtopology(tasks).items()]


# -- the topology --------------------------------------------------------------------------------------------------------


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    """The topology that the members run."""
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), value)


def topology_value(topology: StreamsGroupHeartbeatRequest.Topology) -> StreamsGroupTopologyValue:
    """A member's topology as it is recorded."""
    kind = _Topology.Subtopology
    return _Topology(
        epoch=topology.epoch,
        subtopologies=[
            kind(
                subtopology_id=one.subtopology_id,
                source_topics=one.source_topics,
                source_topic_regex=one.source_topic_regex,
                state_changelog_topics=_topic_infos(one.state_changelog_topics),
                repartition_sink_topics=one.repartition_sink_topics,
                repartition_source_topics=_topic_infos(one.repartition_source_topics),
                copartition_groups=[
                    _Topology.CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in one.copartition_groups
                ],
            )
            for one in topology.subtopologies
        ],
    )


def _topic_infos(topics: Iterable[StreamsGroupHeartbeatRequest.TopicInfo]) -> list[StreamsGroupTopologyValue.TopicInfo]:
    return [
        _Topology.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[_Topology.TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in topics
    ]


# -- the end -------------------------------------------------------------------------------------------------------------


def member_tombstones(group_id: str, member_id: str) -> Records:
    """Tombstones that remove a member."""
    return [
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: StreamsGroup) -> Records:
    """Tombstones that remove a group without members."""
    group_id = group.group_id
    return [
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]


# -- replay --------------------------------------------------------------------------------------------------------------


def _replay_epoch(group: StreamsGroup, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue) -> None:
    apply_epoch(group, key, value)
    group.validated_topology_epoch = value.validated_topology_epoch
    group.stored_description_epoch = value.stored_description_topology_epoch
    group.failed_description_epoch = value.failed_description_topology_epoch
    group.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}


#: Apply a committed record of streams groups.
replay_record = Replay(
    StreamsGroup,
    StreamsGroupMetadataKey,
    {
        StreamsGroupMetadataKey: _replay_epoch,
        StreamsGroupMemberMetadataKey: lambda group, key, value: group.set_metadata(key.member_id, value),
        StreamsGroupTargetAssignmentMetadataKey: apply_target_epoch,
        StreamsGroupTargetAssignmentMemberKey: lambda group, key, value: group.set_target(key.member_id, value),
        StreamsGroupCurrentMemberAssignmentKey: lambda group, key, value: group.set_current(key.member_id, value),
        StreamsGroupTopologyKey: lambda group, key, value: group.set_topology(None if value is None else Topology.of(value)),
    },
)
