"""The result types of a log."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.storage.slice import FileSlice


class AppendInfo:
    """The result of an append. Offsets are inclusive; `log_append_time_ms` is -1 unless the topic uses LogAppendTime. For a duplicate
    (`is_duplicate`) nothing was written, and the offsets are those of the first append."""

    __slots__ = (
        "batches",
        "first_offset",
        "is_duplicate",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        log_append_time_ms: int,
        log_start_offset: int,
        is_duplicate: bool = False,
        batches: int = 1,
        leader_epoch: int = -1,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate
        self.batches = batches
        self.leader_epoch = leader_epoch

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"AppendInfo({fields})"


class OffsetPosition(NamedTuple):
    """The position of an offset (Kafka's LogOffsetMetadata). Distances in bytes exist only within one segment."""

    offset: int
    segment_base_offset: int
    file_position: int

    def is_on_older_segment(self, other: OffsetPosition) -> bool:
        return self.segment_base_offset < other.segment_base_offset

    def is_on_same_segment(self, other: OffsetPosition) -> bool:
        return self.segment_base_offset == other.segment_base_offset

    def bytes_from(self, other: OffsetPosition) -> int:
        """Bytes from `other` to this position; both must be in the same segment."""
        return self.file_position - other.file_position


class ReadResult:
    """The result of a read. `slice` starts at a batch boundary and may end inside a batch; its first batch may begin below the requested
    offset. `position` is the start of the read. `is_recent`: this process has appended the records a short while ago, or there are none."""

    __slots__ = ("is_recent", "position", "slice")

    def __init__(self, slice: FileSlice, position: OffsetPosition, is_recent: bool = True) -> None:
        self.slice = slice
        self.position = position
        self.is_recent = is_recent

    @property
    def is_cold(self) -> bool:
        """Whether reading the records would wait for the disk, as far as the system tells."""
        return not self.is_recent and not self.slice.is_cached()


class TimestampOffset(NamedTuple):
    """A record found by timestamp; `leader_epoch` is -1 if its batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int = -1


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index: the producer's records in [first_offset, last_offset] are aborted. `last_stable_offset` is the
    log's when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @property
    def stable_after(self) -> int:
        """No transaction that ends later began before this offset.

        An Apache Kafka follower that appended several transactions at once may write a last stable offset beyond the offset after the
        marker; the right one is the offset after the marker.
        """
        return min(self.last_stable_offset, self.last_offset + 1)


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch; (-1, -1) if undefined."""

    epoch: int
    end_offset: int
