"""StreamsGroupDescribe: the committed state of a group, and the task offsets that its members last reported."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.core.group.consumer.describe import MEMBERS_AT_ONCE
from minikafka.core.group.streams.group import ReportedOffsets, StreamsGroup
from minikafka.core.group.streams.member import StreamsMember
from minikafka.core.group.streams.model import ConfiguredSubtopology, InternalTopic, TaskOffsets, Tasks, TasksTuple
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeResponse
from minikafka.wire.records.group_records import StreamsGroupTopologyValue

_Kind = StreamsGroupDescribeResponse
#: More subtopologies than this are described as they are encoded.
SUBTOPOLOGIES_AT_ONCE = 16


def described_group(group: StreamsGroup, assignor: str) -> StreamsGroupDescribeResponse.DescribedGroup:
    """The description of a group. The topology is the configured one if there is one, otherwise as the members sent it."""
    return _Kind.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=lazy_list(group.members.values(), lambda member: _member(group, member), MEMBERS_AT_ONCE),
        assignor_name=assignor,
    )


def _topology(group: StreamsGroup) -> StreamsGroupDescribeResponse.Topology | None:
    configured, topology = group.configured, group.topology
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = lazy_list(configured.subtopologies.items(), lambda item: _configured(*item), SUBTOPOLOGIES_AT_ONCE)
        return _Kind.Topology(epoch=configured.epoch, subtopologies=subtopologies)
    if topology is None:
        return None
    recorded = lazy_list(sorted(topology.subtopologies), lambda one: _recorded(topology.subtopologies[one]), SUBTOPOLOGIES_AT_ONCE)
    return _Kind.Topology(epoch=topology.epoch, subtopologies=recorded)


def _configured(subtopology_id: str, subtopology: ConfiguredSubtopology) -> StreamsGroupDescribeResponse.Subtopology:
    def listed(topics: Iterable[InternalTopic]) -> list[StreamsGroupDescribeResponse.TopicInfo]:
        return [
            _Kind.TopicInfo(
                name=topic.name,
                partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                topic_configs=[_Kind.KeyValue(key=key, value=topic.configs[key]) for key in sorted(topic.configs)],
            )
            for topic in sorted(topics, key=lambda topic: topic.name)
        ]

    return _Kind.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=listed(subtopology.state_changelog_topics.values()),
        repartition_source_topics=listed(subtopology.repartition_source_topics.values()),
    )


def _recorded(subtopology: StreamsGroupTopologyValue.Subtopology) -> StreamsGroupDescribeResponse.Subtopology:
    def listed(topics: Iterable[StreamsGroupTopologyValue.TopicInfo]) -> list[StreamsGroupDescribeResponse.TopicInfo]:
        return [
            _Kind.TopicInfo(
                name=topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                topic_configs=[_Kind.KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
            )
            for topic in sorted(topics, key=lambda topic: topic.name)
        ]

    return _Kind.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=listed(subtopology.state_changelog_topics),
        repartition_source_topics=listed(subtopology.repartition_source_topics),
    )


def _member(group: StreamsGroup, member: StreamsMember) -> StreamsGroupDescribeResponse.Member:
    reported, endpoint = group.reported_offsets.get(member.member_id, ReportedOffsets()), member.user_endpoint
    return _Kind.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else _Kind.Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[_Kind.KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(reported.task_offsets),
        task_end_offsets=_offsets(reported.task_end_offsets),
        assignment=_assignment(member.assigned.tasks()),
        target_assignment=_assignment(group.targets.get(member.member_id, TasksTuple())),
    )


def _assignment(tasks: TasksTuple) -> StreamsGroupDescribeResponse.Assignment:
    def listed(role: Tasks) -> list[StreamsGroupDescribeResponse.TaskIds]:
        return [_Kind.TaskIds(subtopology_id=one, partitions=sorted(role[one])) for one in sorted(role)]

    return _Kind.Assignment(active_tasks=listed(tasks.active), standby_tasks=listed(tasks.standby), warmup_tasks=listed(tasks.warmup))


def _offsets(offsets: TaskOffsets) -> list[StreamsGroupDescribeResponse.TaskOffset]:
    tasks = [(one, partition, offset) for one in sorted(offsets) for partition, offset in sorted(offsets[one].items())]
    return lazy_list(tasks, lambda task: _Kind.TaskOffset(subtopology_id=task[0], partition=task[1], offset=task[2]))
