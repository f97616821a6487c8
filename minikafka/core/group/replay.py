"""Replay of the records of consumer, share and streams groups in `__consumer_offsets` (KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from minikafka.core.group.consumer.member import Assignment


class HeartbeatGroup(Protocol):
    """The fields that the records of all these group types change."""

    group_id: str
    epoch: int
    metadata_hash: int
    assignment_epoch: int
    assignment_wall_ms: int


class PartitionGroup(HeartbeatGroup, Protocol):
    """A group that assigns partitions to its members (consumer and share groups)."""

    targets: dict[str, Assignment]


G = TypeVar("G", bound=HeartbeatGroup)


class Replay(Generic[G]):
    """Replays the records of one group type. `new`: makes a group with an id. `metadata_key`: the key type whose tombstone ends a group.
    `records`: key type -> function (group, key, value) that applies the record."""

    def __init__(self, new: Callable[[str], G], metadata_key: type, records: Mapping[type, Callable[[G, Any, Any], None]]) -> None:
        self._new = new
        self._metadata_key = metadata_key
        self._records = records

    def __call__(self, groups: dict[str, G], key: Any, value: Any) -> bool:
        """Apply a committed record. Returns False if it does not belong to this group type. A tombstone for something that does not exist
        has no effect; compaction may leave one in the log."""
        apply = self._records.get(type(key))
        if apply is None:
            return False
        group = groups.get(key.group_id)
        if group is None:
            if value is None:
                return True
            group = groups[key.group_id] = self._new(key.group_id)
        if value is None and type(key) is self._metadata_key:
            del groups[group.group_id]
        else:
            apply(group, key, value)
        return True


def apply_epoch(group: HeartbeatGroup, key: Any, value: Any) -> None:
    """Apply the group's epoch, and the hash of the metadata that its members subscribed to at that time."""
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def apply_target_epoch(group: HeartbeatGroup, key: Any, value: Any) -> None:
    """Apply the epoch of the target assignment, and when it was computed."""
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_wall_ms = 0 if value is None else value.assignment_timestamp


def apply_target(group: PartitionGroup, key: Any, value: Any) -> None:
    """Apply a member's target assignment."""
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
