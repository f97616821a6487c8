"""Records of consumer groups, as Apache Kafka 4.3 writes them (GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.core.group.consumer.member import Assignment, AssignmentEpochs, ConsumerMember
from minikafka.wire.records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

Records = list[CoordinatorRecord]
#: The last epoch (INT32). A group reaches it only if something else writes to the log.
EPOCH_MAX = (1 << 31) - 1


def epoch_after_leaving(epoch: int) -> int:
    """The group's epoch after a member has left. It stays at EPOCH_MAX, so that members can always leave."""
    return min(epoch + 1, EPOCH_MAX)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """A member's metadata."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """A member's target assignment."""
    topic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[topic(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)]
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of all targets, and when they were computed."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """A member's current assignment."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _topic_partitions(held: AssignmentEpochs) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    topics = []
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id])
        epochs = [held[topic_id][partition] for partition in partitions]
        topics.append(
            ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs)
        )
    return topics


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """The topics that a pattern matches."""
    value = ConsumerGroupRegularExpressionValue(topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.wall_ms)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Deletes a pattern without subscribers."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Deletes a record of brokers before 4.1, which the metadata hash replaces."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> Records:
    """Tombstones that remove a member."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: ConsumerGroup, member_ids: Sequence[str] | None = None) -> Records:
    """Tombstones that remove a group and its members. `member_ids`: the members to remove, all of them by default."""
    group_id, members = group.group_id, list(group.members) if member_ids is None else member_ids
    return [
        *(CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None) for one in members),
        *(CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None) for one in members),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), None) for one in members),
        *(regex_tombstone(group_id, regex) for regex in group.regexes),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
