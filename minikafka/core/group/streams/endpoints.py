"""Which process answers interactive queries for which partitions (KIP-1071).

Rules: org.apache.kafka.coordinator.group.streams.topics.EndpointToPartitionsManager of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.streams.group import StreamsGroup
from minikafka.core.group.streams.member import StreamsMember, Task, by_subtopology
from minikafka.core.group.streams.model import ConfiguredTopology
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

#: Members whose endpoints are built in one step; each may have very many partitions.
ENDPOINTS_AT_ONCE = 32
_Endpoint = StreamsGroupHeartbeatResponse.EndpointToPartitions


def partitions_by_endpoint(
    group: StreamsGroup, updated: StreamsMember, configured: ConfiguredTopology, topics: Topics
) -> list[StreamsGroupHeartbeatResponse.EndpointToPartitions]:
    """The endpoint and partitions of every member with an endpoint, `updated` last. With many members, they are built while the answer is
    encoded in steps."""

    def one(member: StreamsMember) -> StreamsGroupHeartbeatResponse.EndpointToPartitions:
        host, port = member.user_endpoint or ("", 0)
        return _Endpoint(
            user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(host=host, port=port),
            active_partitions=_partitions(member.assigned.active, configured, topics),
            standby_partitions=_partitions(member.assigned.standby | member.assigned.warmup, configured, topics),
        )

    return lazy_list([member for member in group.members_with(updated) if member.user_endpoint is not None], one, ENDPOINTS_AT_ONCE)


def _partitions(
    tasks: Iterable[Task], configured: ConfiguredTopology, topics: Topics
) -> list[StreamsGroupHeartbeatResponse.TopicPartition]:
    """The partitions that tasks read; a topic may have fewer than its subtopology has tasks."""
    found = []
    for subtopology_id, partitions in by_subtopology(tasks).items():
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None:
            continue
        for name in sorted(subtopology.source_topics.union(subtopology.repartition_source_topics)):
            topic = topics.by_name(name)
            indexes = [] if topic is None else [index for index in sorted(partitions) if index < topic.partition_count]
            if indexes:
                found.append(StreamsGroupHeartbeatResponse.TopicPartition(topic=name, partitions=indexes))
    return found
