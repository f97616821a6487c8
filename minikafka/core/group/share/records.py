"""Records of share groups, as Apache Kafka 4.3 writes them (GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.consumer.member import Assignment
from minikafka.core.group.share.group import ShareGroup, ShareMember, TopicStates
from minikafka.wire.records.group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

Records = list[CoordinatorRecord]


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch."""
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """A member's metadata."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """A member's target assignment."""
    kind = ShareGroupTargetAssignmentMemberValue.TopicPartition
    partitions = [kind(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)]
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of all targets, and when they were computed."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """A member's current assignment."""
    kind = ShareGroupCurrentMemberAssignmentValue.TopicPartitions
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=[
            kind(topic_id=topic_id, partitions=sorted(member.assigned[topic_id])) for topic_id in sorted(member.assigned)
        ],
    )
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def states_record(
    group_id: str, initializing: Mapping[bytes, TopicStates], initialized: Mapping[bytes, TopicStates], deleting: Mapping[bytes, str]
) -> CoordinatorRecord:
    """Which partitions are getting a state, have one, or are losing it."""
    kind = ShareGroupStatePartitionMetadataValue

    def infos(topics: Mapping[bytes, TopicStates]) -> list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]:
        return [
            kind.TopicPartitionsInfo(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(topics[topic_id].partitions))
            for topic_id in sorted(topics)
        ]

    value = kind(
        initializing_topics=infos(initializing),
        initialized_topics=infos(initialized),
        deleting_topics=[kind.TopicInfo(topic_id=topic_id, topic_name=deleting[topic_id]) for topic_id in sorted(deleting)],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def member_tombstones(group_id: str, member_id: str) -> Records:
    """Tombstones that remove a member."""
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> Records:
    """Tombstones that remove a group without members."""
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group.group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group.group_id), None),
    ]
