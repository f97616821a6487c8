"""Records of `__consumer_offsets` that are of consumer groups, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.wire.records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

Groups = dict[str, ConsumerGroup]


def replay_record(groups: Groups, key: Any, value: Any) -> bool:
    """Apply a committed record; False when it is not one of consumer groups. A tombstone of what is not there is harmless: compaction
    may leave it alone in the log."""
    apply = _RECORDS.get(type(key))
    if apply is None:
        return False
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return True
        group = groups[key.group_id] = ConsumerGroup(key.group_id)
    if isinstance(key, ConsumerGroupMetadataKey) and value is None:
        del groups[key.group_id]
    else:
        apply(group, key, value)
    return True


def _epoch(group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _partition_metadata(group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _member(group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: Any) -> None:
    group.set_metadata(key.member_id, value)


def _target_epoch(
    group: ConsumerGroup, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
) -> None:
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_wall_ms = 0 if value is None else value.assignment_timestamp


def _target(group: ConsumerGroup, key: ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
    group.set_target(key.member_id, value)


def _current(group: ConsumerGroup, key: ConsumerGroupCurrentMemberAssignmentKey, value: Any) -> None:
    group.set_current(key.member_id, value)


def _regex(group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> None:
    resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    group.set_regex(key.regular_expression, resolved)


_RECORDS: dict[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _epoch,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member,
    ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _target,
    ConsumerGroupCurrentMemberAssignmentKey: _current,
    ConsumerGroupRegularExpressionKey: _regex,
}
