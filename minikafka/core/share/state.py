"""The state of one share partition at the share coordinator, and its records (ShareGroupOffset, ShareCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.share.state_batches import StateBatch, combine
from minikafka.late_dataclass import dataclass
from minikafka.wire.records.share_records import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from minikafka.wire.uuid import uuid_to_text

B = TypeVar("B")


class SharePartitionKey(NamedTuple):
    """A partition that a share group reads."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """The key by which FindCoordinator finds the share coordinator."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


@dataclass(frozen=True, slots=True)
class ShareState:
    """`start_offset` and `delivery_complete_count` are -1 if unknown. Times are wall times in ms."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()
    create_wall_ms: int = 0
    write_wall_ms: int = 0

    @property
    def looks_new(self) -> bool:
        """Whether no leader has left a trace in it. One whose records are all settled may look so, too."""
        return not self.batches and self.delivery_complete_count <= 0 and self.leader_epoch == 0

    def merged(self, value: ShareUpdateValue) -> ShareState:
        """The state after an update."""
        start = self.start_offset if value.start_offset == -1 else value.start_offset
        return replace(
            self,
            leader_epoch=self.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
            start_offset=start,
            delivery_complete_count=value.delivery_complete_count,
            batches=combine(self.batches, _read(value.state_batches), start),
        )


def _read(batches: Iterable[ShareSnapshotValue.StateBatch] | Iterable[ShareUpdateValue.StateBatch]) -> list[StateBatch]:
    return [StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in batches]


def _written(kind: Callable[..., B], batches: Iterable[StateBatch]) -> list[B]:
    return [kind(first_offset=b[0], last_offset=b[1], delivery_state=b[2], delivery_count=b[3]) for b in batches]


def state_of(value: ShareSnapshotValue) -> ShareState:
    """The state in a snapshot."""
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_read(value.state_batches),
        create_wall_ms=value.create_timestamp,
        write_wall_ms=value.write_timestamp,
    )


def snapshot_record(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    """A snapshot: the whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_wall_ms,
        write_timestamp=state.write_wall_ms,
        state_batches=_written(ShareSnapshotValue.StateBatch, state.batches),
    )
    return CoordinatorRecord(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value)


def update_record(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    """An update: the changes since the snapshot with the same epoch. A start offset of -1 changes nothing."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=_written(ShareUpdateValue.StateBatch, state.batches),
    )
    return CoordinatorRecord(ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value)


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """Deletes the state."""
    return CoordinatorRecord(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None)
