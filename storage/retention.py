"""Which segments may go (UnifiedLog.deleteOldSegments), and producer state from segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from minikafka.storage.batch_scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    batches,
    prepare_producer,
)
from minikafka.storage.filesystem import read_all
from minikafka.storage.producer_state import BATCHES_KEPT, ProducerStateManager, ProducerUpdate, add_to_sequence
from minikafka.storage.segment import Segment
from minikafka.wire.batch import CONTROL_BIT

if TYPE_CHECKING:
    from minikafka.storage.log_state import LogState

RECENT_BYTES = 64 << 10
RECENT_ENTRIES = 8
_NO_BYTES = memoryview(b"")

# (segment, base offset of the next one or None) -> whether it may go
_Predicate = Callable[[Segment, int | None], bool]


def delete_old_segments(log: LogState, wall_ms: int) -> int:
    """Number of segments dropped, in Kafka's order: log start offset, size, time."""
    count = _delete(log, lambda _, after: after is not None and after <= log.log_start_offset, wall_ms)
    config = log.config
    if not config.is_deleted:
        return count
    if 0 <= config.retention_bytes < log.size:
        count += _delete(log, _too_large(log.size - config.retention_bytes), wall_ms)
    if config.retention_ms >= 0:
        limit = wall_ms - config.retention_ms
        count += _delete(log, lambda segment, _: segment.largest_timestamp() < limit, wall_ms)
    return count


def _too_large(excess: int) -> _Predicate:
    def may_go(segment: Segment, _: int | None) -> bool:
        nonlocal excess
        if segment.size > excess:
            return False
        excess -= segment.size
        return True

    return may_go


def _delete(log: LogState, may_go: _Predicate, wall_ms: int) -> int:
    """Drop the longest run of old segments that may go and end at or below the high watermark. An active segment that
    may go is rolled first."""
    gone: list[Segment] = []
    for index, segment in enumerate(log.segments):
        after = log.bases[index + 1] if index + 1 < len(log.bases) else None
        upper_bound = log.log_end_offset if after is None else after
        if log.high_watermark < upper_bound or (after is None and segment.size == 0) or not may_go(segment, after):
            break
        gone.append(segment)
    if not gone:
        return 0
    if len(gone) == len(log.segments):
        log.roll(wall_ms)
    log.drop_first(gone, wall_ms)
    return len(gone)


def rebuild_producers(log: LogState, segments: Sequence[Segment], end_offset: int, wall_ms: int) -> None:
    """Bring `log.producer_state` to `end_offset`: newest snapshot, then the batches after it
    (UnifiedLog.rebuildProducerState). Snapshots are written at the base of the last two segments and at the end."""
    producers = log.producer_state
    snapshot_at = {segment.base_offset for segment in segments[-2:]}
    was_empty = not producers.entries and producers.end_offset >= end_offset
    producers.truncate_and_reload(log.log_start_offset, end_offset, wall_ms)
    remember_recent_batches(producers, segments)
    if end_offset > producers.end_offset and not was_empty:
        for index, segment in enumerate(segments):
            after = segments[index + 1].base_offset if index + 1 < len(segments) else None
            if (after is not None and after <= producers.end_offset) or segment.base_offset >= end_offset:
                continue
            start = max(segment.base_offset, producers.end_offset, log.log_start_offset)
            producers.advance(start)
            if segment.base_offset in snapshot_at:
                producers.save_snapshot()
            replay_producers(producers, segment, start, end_offset)
    producers.advance(end_offset)
    producers.save_snapshot()


def remember_recent_batches(producers: ProducerStateManager, segments: Sequence[Segment]) -> None:
    """A snapshot holds the last batch of each producer, a producer may repeat its last five: the others are taken from the log's end.

    Without them a producer whose answers were lost together with the broker is refused as out of order when it repeats two batches, which
    librdkafka takes for fatal. Looks at the last `RECENT_BYTES` before the snapshot and at no fewer than `RECENT_ENTRIES` of the index.
    """
    wanted = {producer_id: entry for producer_id, entry in producers.entries.items() if len(entry.batches) == 1}
    end_offset = producers.end_offset
    holding = [segment for segment in segments if segment.base_offset < end_offset]
    if not wanted or not holding:
        return
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for segment in holding[-2:]:
        for _, _, header in batches(segment.file, _recent_position(segment), segment.size):
            last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
            if last_offset >= end_offset:
                break
            entry = wanted.get(header[PRODUCER_ID])
            if entry is not None and header[PRODUCER_EPOCH] == entry.epoch and not header[ATTRIBUTES] & CONTROL_BIT:
                last_sequence = add_to_sequence(header[BASE_SEQUENCE], header[LAST_DELTA])
                batch = (last_sequence, last_offset, header[LAST_DELTA], header[MAX_TIMESTAMP])
                found.setdefault(header[PRODUCER_ID], []).append(batch)
    for producer_id, recent in found.items():
        entry = wanted[producer_id]
        if recent[-1][:2] == entry.batches[0][:2]:
            entry.batches = recent[-BATCHES_KEPT:]


def _recent_position(segment: Segment) -> int:
    index = segment.offset_index
    for number in range(index.entries - RECENT_ENTRIES, -1, -1):
        _, position = index.entry(number)
        if position <= segment.size - RECENT_BYTES:
            return position
    return 0


def replay_producers(producers: ProducerStateManager, segment: Segment, start: int, end_offset: int) -> None:
    """Take in the batches of a valid segment that lie in [start, end_offset). Indexes are not touched."""
    found = segment.translate(start)
    if found is None:
        return
    for position, size, header in batches(segment.file, found[0], segment.size):
        last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
        if last_offset >= end_offset:
            break
        if header[PRODUCER_ID] >= 0 and last_offset >= start:
            update = ProducerUpdate()
            is_control = header[ATTRIBUTES] & CONTROL_BIT
            view = memoryview(read_all(segment.file, size, position)) if is_control else _NO_BYTES
            prepare_producer(producers, update, view, 0, header)
            producers.publish(update)
            for completed in update.completed:
                producers.complete(completed)
