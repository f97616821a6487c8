"""Replay of the records of consumer groups in `__consumer_offsets`."""

from __future__ import annotations

from typing import Any

from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.core.group.replay import Replay, apply_epoch, apply_target, apply_target_epoch
from minikafka.wire.records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


def _partition_metadata(group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _regex(group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> None:
    resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    group.set_regex(key.regular_expression, resolved)


replay_record: Replay[ConsumerGroup] = Replay(
    ConsumerGroup,
    ConsumerGroupMetadataKey,
    {
        ConsumerGroupMetadataKey: apply_epoch,
        ConsumerGroupPartitionMetadataKey: _partition_metadata,
        ConsumerGroupMemberMetadataKey: lambda group, key, value: group.set_metadata(key.member_id, value),
        ConsumerGroupTargetAssignmentMetadataKey: apply_target_epoch,
        ConsumerGroupTargetAssignmentMemberKey: apply_target,
        ConsumerGroupCurrentMemberAssignmentKey: lambda group, key, value: group.set_current(key.member_id, value),
        ConsumerGroupRegularExpressionKey: _regex,
    },
)
