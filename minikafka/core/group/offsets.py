"""Committed offsets of the groups of one shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.writes import WritesInProgress
from minikafka.late_dataclass import dataclass
from minikafka.wire.records.group_records import OffsetCommitKey, OffsetCommitValue
from minikafka.wire.uuid import ZERO_UUID

OFFSET_COMMIT_VALUE_VERSION = 4
#: The client asked for no expiry.
NO_EXPIRY = -1
INT64_WRAP = 1 << 63


@dataclass(slots=True, frozen=True)
class CommittedOffset:
    """A group's committed offset for one partition. `expire_wall_ms` is NO_EXPIRY unless the client asked for one."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_wall_ms: int
    expire_wall_ms: int = NO_EXPIRY
    topic_id: bytes = ZERO_UUID
    #: Position in the log relative to the shard's other commits.
    order: int = field(default=0, compare=False)


class OffsetStore:
    """group -> (topic, partition) -> CommittedOffset. A group without offsets has no entry.

    The commits of open transactions are kept separately, by producer id. They count when the transaction is committed (KIP-98).
    `writes` and `open_writes` are commits that are being written, outside of transactions and in them."""

    __slots__ = ("_groups", "_open", "_open_in", "_order", "open_writes", "writes")

    def __init__(self) -> None:
        self.writes = WritesInProgress()
        self.open_writes = WritesInProgress()
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._open: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        #: group -> (topic, partition) -> producers with an open commit for it.
        self._open_in: dict[str, dict[tuple[str, int], dict[int, None]]] = {}
        self._order = 0

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store a commit. It replaces an earlier one."""
        self._order += 1
        self._groups.setdefault(group_id, {})[(topic, partition)] = replace(committed, order=self._order)

    def put_open(self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store a commit of an open transaction."""
        self._order += 1
        self._open.setdefault(producer_id, {})[(group_id, topic, partition)] = replace(committed, order=self._order)
        self._open_in.setdefault(group_id, {}).setdefault((topic, partition), {})[producer_id] = None

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction has ended. `commit`: its commits now count, except where a later commit outside of transactions
        exists. Otherwise they are dropped."""
        for (group_id, topic, partition), committed in self._open.pop(producer_id, {}).items():
            self._close(producer_id, group_id, topic, partition)
            current = self.get(group_id, topic, partition)
            if commit and (current is None or current.order < committed.order):
                self._groups.setdefault(group_id, {})[(topic, partition)] = committed

    def _close(self, producer_id: int, group_id: str, topic: str, partition: int) -> None:
        of_group = self._open_in[group_id]
        producers = of_group[topic, partition]
        del producers[producer_id]
        if not producers:
            del of_group[topic, partition]
        if not of_group:
            del self._open_in[group_id]

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a commit for the partition (KIP-447), which may be one that is being written."""
        key = topic, partition
        return key in self._open_in.get(group_id, ()) or self.open_writes.concern(group_id, key)

    def open_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """Partitions of a group that open transactions have commits for."""
        return list(self._open_in.get(group_id, ()))

    def to_delete(self, group_id: str) -> list[tuple[str, int]]:
        """Partitions of a group whose tombstones delete all its commits: those that count, those of open transactions, and those that are
        being written."""
        counted, opened = self._groups.get(group_id, ()), self._open_in.get(group_id, ())
        written = *self.writes.partitions(group_id), *self.open_writes.partitions(group_id)
        return list(dict.fromkeys((*counted, *opened, *written)))

    def has_few(self, group_id: str, most: int) -> bool:
        """Whether a group has at most so many offsets, and commits in open transactions."""
        return len(self._groups.get(group_id, ())) + len(self._open_in.get(group_id, ())) <= most

    def group_ids_to_delete(self) -> list[str]:
        """Groups that have anything in `to_delete`."""
        return list(dict.fromkeys((*self.group_ids(), *self.writes.group_ids(), *self.open_writes.group_ids())))

    def group_ids(self) -> list[str]:
        """Groups that have offsets, or that open transactions have commits for."""
        return list({**dict.fromkeys(self._groups), **dict.fromkeys(self._open_in)})

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget the commits for one partition, those of open transactions included. Does nothing if there are none."""
        for producer_id in list(self._open_in.get(group_id, {}).get((topic, partition), ())):
            self._close(producer_id, group_id, topic, partition)
            commits = self._open[producer_id]
            del commits[group_id, topic, partition]
            if not commits:
                del self._open[producer_id]
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


def expiry(wall_ms: int, retention_ms: int) -> int:
    """When a commit expires whose client asked for a retention, NO_EXPIRY if it did not. As in Apache Kafka, a sum beyond 64 bits wraps."""
    return NO_EXPIRY if retention_ms == NO_EXPIRY else (wall_ms + retention_ms + INT64_WRAP) % (2 * INT64_WRAP) - INT64_WRAP


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    """The record that stores a commit, as Kafka 4.3 writes it (value version 4 with the topic id)."""
    version = OFFSET_COMMIT_VALUE_VERSION if committed.expire_wall_ms == NO_EXPIRY else 1
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
    """The commit that a record describes."""
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_wall_ms=value.commit_timestamp,
        expire_wall_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )
