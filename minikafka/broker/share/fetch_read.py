"""Reads a partition for share fetches: as many batches as needed, and which of them belong to aborted transactions."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from minikafka.core.share.partition import Acquired, Fetched
from minikafka.wire.batch import RecordBatch, iterate_batches

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition
    from minikafka.storage.types import AbortedTransaction

#: Size of the first read; it grows fourfold until enough records are read.
CHUNK_BYTES = 64 * 1024
_last_offset = attrgetter("last_offset")


class ShareRead(NamedTuple):
    """Whole batches: their bytes, their headers, and the offsets that the share partition gets."""

    data: memoryview
    batches: list[RecordBatch]
    fetched: Fetched

    def records_of(self, acquired: list[Acquired]) -> memoryview:
        """The bytes of the batches that contain the acquired records, from the first to the last."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        start, end, position = 0, 0, 0
        for batch in self.batches:
            size = batch.size_in_bytes
            if batch.last_offset < first:
                start = position + size
            elif batch.base_offset <= last:
                end = position + size
            position += size
        return self.data[start:end]


def end_offset(partition: Partition, *, is_read_committed: bool) -> int:
    """The exclusive end of the offsets that may be handed out."""
    watermarks = partition.log.watermarks
    return watermarks.last_stable_offset if is_read_committed else watermarks.high_watermark


def read(partition: Partition, offset: int, records_max: int, bytes_max: int, *, is_read_committed: bool) -> ShareRead:
    """Read batches, from the one that contains `offset`, up to `records_max` offsets or `bytes_max` bytes.

    Raises ApiError, StorageError, and NotInMemory within a look-up.
    """
    end, size = end_offset(partition, is_read_committed=is_read_committed), min(CHUNK_BYTES, bytes_max)
    log = partition.log
    while True:
        found = log.read(offset, size, end_offset=end)
        try:
            with log.disk("read for a share group"):
                data = memoryview(found.slice.read()) if found.slice.size else memoryview(b"")
        finally:
            found.slice.release()
        batches = list(iterate_batches(data))
        is_enough = not batches or batches[-1].next_offset - offset >= records_max or len(data) < size or size >= bytes_max
        if is_enough:
            break
        size = min(4 * size, bytes_max)
    aborted = log.aborted_transactions(offset, batches[-1].next_offset) if is_read_committed and batches else []
    bounds = [(batch.base_offset, batch.last_offset) for batch in batches]
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for entry in aborted:
        by_producer.setdefault(entry.producer_id, []).append(entry)
    aborted_bounds = [(batch.base_offset, batch.last_offset) for batch in batches if aborted and _is_aborted(batch, by_producer)]
    return ShareRead(data, batches, Fetched(offset, bounds, aborted_bounds))


def _is_aborted(batch: RecordBatch, aborted: dict[int, list[AbortedTransaction]]) -> bool:
    """`aborted`: the transactions of each producer, which follow each other."""
    entries = aborted.get(batch.producer_id)
    if entries is None or not batch.is_transactional or batch.is_control:
        return False
    found = bisect_left(entries, batch.base_offset, key=_last_offset)
    return found < len(entries) and entries[found].first_offset <= batch.base_offset
