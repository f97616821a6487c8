"""Committed offsets of the groups of one shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minikafka.core.group.effects import CoordinatorRecord
from wire.records.group_records import OffsetCommitKey, OffsetCommitValue
from wire.uuid import ZERO_UUID

OFFSET_COMMIT_VALUE_VERSION = 4


@dataclass(slots=True, frozen=True)
class CommittedOffset:
    """What a group committed for one partition; `expire_wall_ms` is -1 unless the client asked for an expiry."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_wall_ms: int
    expire_wall_ms: int = -1
    topic_id: bytes = ZERO_UUID


class OffsetStore:
    """group -> (topic, partition) -> CommittedOffset. A group without offsets has no entry."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Remember a commit; the latest one counts."""
        self._groups.setdefault(group_id, {})[(topic, partition)] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget one commit; harmless when there is none."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop((topic, partition), None)
            if not offsets:
                del self._groups[group_id]

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The commit, or None."""
        return self._groups.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Every commit of a group, in the order of first commit."""
        return self._groups.get(group_id, {})

    def __iter__(self) -> Iterator[tuple[str, dict[tuple[str, int], CommittedOffset]]]:
        return iter(self._groups.items())


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    """The record that stores a commit, as Kafka 4.3 writes it (value version 4 with the topic id)."""
    version = OFFSET_COMMIT_VALUE_VERSION if committed.expire_wall_ms < 0 else 1
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch if version >= 3 else -1,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_wall_ms,
        expire_timestamp=committed.expire_wall_ms,
        topic_id=committed.topic_id if version >= 4 else ZERO_UUID,
    )
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that deletes a commit."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def committed_from_value(value: OffsetCommitValue) -> CommittedOffset:
    """A commit as its record tells it."""
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_wall_ms=value.commit_timestamp,
        expire_wall_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )
