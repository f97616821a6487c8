"""Records of `__consumer_offsets` that are of groups whose members heartbeat (KIP-848, KIP-932): each changes the group that its key
names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from minikafka.core.group.consumer.member import Assignment


class HeartbeatGroup(Protocol):
    """What the records of every such group change."""

    group_id: str
    epoch: int
    metadata_hash: int
    assignment_epoch: int
    assignment_wall_ms: int


class PartitionGroup(HeartbeatGroup, Protocol):
    """What is assigned to its members are partitions."""

    targets: dict[str, Assignment]


G = TypeVar("G", bound=HeartbeatGroup)


class Replay(Generic[G]):
    """Replays the records of one type of groups. `new`: makes a group of an id; `metadata_key`: the record whose tombstone ends a group;
    `records`: key -> (group, key, value) applies it."""

    def __init__(self, new: Callable[[str], G], metadata_key: type, records: Mapping[type, Callable[[G, Any, Any], None]]) -> None:
        self._new = new
        self._metadata_key = metadata_key
        self._records = records

    def __call__(self, groups: dict[str, G], key: Any, value: Any) -> bool:
        """Apply a committed record; False when it is not one of these groups. A tombstone of what is not there is harmless: compaction
        may leave it alone in the log."""
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
    """The group's epoch, and what its members subscribed to then."""
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def apply_target_epoch(group: HeartbeatGroup, key: Any, value: Any) -> None:
    """The epoch of the targets, and when they were made."""
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_wall_ms = 0 if value is None else value.assignment_timestamp


def apply_target(group: PartitionGroup, key: Any, value: Any) -> None:
    """What a member is to have."""
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
