"""Rebuilds the state of producers from the batches of segments."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.storage.batch_scan import batches, prepare_producer
from minikafka.storage.filesystem import read_all
from minikafka.storage.producer_state import BATCHES_KEPT, LAST_OFFSET, LAST_SEQUENCE, ProducerStateManager, ProducerUpdate, add_to_sequence
from minikafka.storage.segment import Segment
from minikafka.wire.batch import CONTROL_BIT
from minikafka.wire.batch_header import ATTRIBUTES, BASE_OFFSET, BASE_SEQUENCE, LAST_DELTA, MAX_TIMESTAMP, PRODUCER_EPOCH, PRODUCER_ID

RECENT_BYTES = 64 << 10
RECENT_ENTRIES = 8
_NO_BYTES = memoryview(b"")


def rebuild_producers(
    producers: ProducerStateManager, segments: Sequence[Segment], log_start_offset: int, end_offset: int, wall_ms: int
) -> None:
    """Bring the state to `end_offset`: load the newest copy or snapshot, then replay the batches after it
    (UnifiedLog.rebuildProducerState). Writes snapshots at the base offsets of the last two segments and at the end."""
    snapshot_at = {segment.base_offset for segment in segments[-2:]}
    was_empty = not producers.entries and producers.end_offset >= end_offset
    if producers.truncate_and_reload(log_start_offset, end_offset, wall_ms):
        remember_recent_batches(producers, segments)
    # Producers that expired since a copy or a snapshot may be back: then they must be as of the end.
    if end_offset > producers.end_offset and (producers.entries or not was_empty):
        for index, segment in enumerate(segments):
            after = segments[index + 1].base_offset if index + 1 < len(segments) else None
            if (after is not None and after <= producers.end_offset) or segment.base_offset >= end_offset:
                continue
            start = max(segment.base_offset, producers.end_offset, log_start_offset)
            producers.advance(start)
            if segment.base_offset in snapshot_at and start == max(segment.base_offset, log_start_offset):
                producers.save_snapshot()
            replay_producers(producers, segment, start, end_offset)
    producers.advance(end_offset)
    producers.save_snapshot()


def remember_recent_batches(producers: ProducerStateManager, segments: Sequence[Segment]) -> None:
    """Restore the last five batches of each producer from the log's end: a producer may repeat those, but a snapshot holds only the last.

    Without them, a producer that lost its responses together with the broker and repeats two batches is refused as out of order, which
    librdkafka treats as fatal. Reads the last `RECENT_BYTES` before the snapshot and at least `RECENT_ENTRIES` entries of the index.
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
        newest, kept = recent[-1], entry.batches[0]
        if (newest[LAST_SEQUENCE], newest[LAST_OFFSET]) == (kept[LAST_SEQUENCE], kept[LAST_OFFSET]):
            entry.batches = recent[-BATCHES_KEPT:]


def _recent_position(segment: Segment) -> int:
    index = segment.offset_index
    for number in range(index.entries - RECENT_ENTRIES, -1, -1):
        _, position = index.entry(number)
        if position <= segment.size - RECENT_BYTES:
            return position
    return 0


def replay_producers(producers: ProducerStateManager, segment: Segment, start: int, end_offset: int) -> None:
    """Apply the batches of a valid segment that lie in [start, end_offset). Indexes are not changed."""
    found = segment.translate(start)
    if found is None:
        return
    begin, _ = found
    for position, size, header in batches(segment.file, begin, segment.size):
        last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
        if last_offset >= end_offset:
            break
        if last_offset < start:
            continue
        if header[PRODUCER_ID] >= 0:
            update = ProducerUpdate()
            is_control = header[ATTRIBUTES] & CONTROL_BIT
            view = memoryview(read_all(segment.file, size, position)) if is_control else _NO_BYTES
            prepare_producer(producers, update, view, 0, header)
            producers.complete(update)
        producers.advance(last_offset + 1, 1, size)
