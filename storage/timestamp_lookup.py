"""One step of a look-up by timestamp: a batch that may hold the record, and the search in it."""

from __future__ import annotations

from minikafka.storage.types import TimestampOffset
from minikafka.storage.validation import LIGHT_BYTES_MAX
from minikafka.wire.batch import OVERHEAD, RecordBatch
from minikafka.wire.compression import is_larger_than


class TimestampCandidate:
    """A copy of a batch, so that another thread can search it while the log changes."""

    __slots__ = ("_batch", "_from_offset", "_timestamp")

    def __init__(self, batch: bytes, timestamp: int, from_offset: int) -> None:
        """The look-up is for the first record at or after `from_offset` with a timestamp >= `timestamp`."""
        self._batch = RecordBatch(batch)
        self._timestamp = timestamp
        self._from_offset = from_offset

    @property
    def next_offset(self) -> int:
        """Where to continue if the record is not in this batch."""
        return self._batch.next_offset

    @property
    def is_heavy(self) -> bool:
        """Whether `find` may take long and belongs on another thread."""
        return is_larger_than(self._batch.compression, self._batch.view[OVERHEAD:], LIGHT_BYTES_MAX)

    def find(self, size_max: int) -> TimestampOffset | None:
        """The record; None if the batch does not hold it. Raises CorruptRecord, and TooLarge if it lies beyond `size_max` bytes."""
        found = self._batch.find_record(self._timestamp, self._from_offset, size_max)
        if found is None:
            return None
        offset, timestamp = found
        return TimestampOffset(timestamp, offset, self._batch.partition_leader_epoch)

    def largest(self, size_max: int) -> TimestampOffset:
        """The record with the batch's largest timestamp, or the batch's last record if the header is wrong. Raises as `find`."""
        batch = self._batch
        return self.find(size_max) or TimestampOffset(batch.max_timestamp, batch.last_offset, batch.partition_leader_epoch)
