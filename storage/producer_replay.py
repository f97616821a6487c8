"""Rebuilds the state of producers from the batches of segments: at once, or in pieces of which each runs on another thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

from minikafka.storage.batch_scan import Readable, batches, prepare_producer
from minikafka.storage.producer_state import BATCHES_KEPT, LAST_OFFSET, LAST_SEQUENCE, ProducerStateManager, ProducerUpdate, add_to_sequence
from minikafka.storage.segment import Segment
from minikafka.wire.batch import CONTROL_BIT
from minikafka.wire.batch_header import ATTRIBUTES, BASE_OFFSET, BASE_SEQUENCE, LAST_DELTA, MAX_TIMESTAMP, PRODUCER_EPOCH, PRODUCER_ID

RECENT_BYTES = 64 << 10
RECENT_ENTRIES = 8
_NO_BYTES = memoryview(b"")
#: Bytes of a file, from the first position to the second.
Piece = tuple[Readable, int, int]


def rebuild_producers(
    producers: ProducerStateManager, segments: Sequence[Segment], log_start_offset: int, end_offset: int, wall_ms: int
) -> None:
    """Bring the state to `end_offset`: load the newest copy or snapshot, then replay the batches after it
    (UnifiedLog.rebuildProducerState). Writes snapshots at the base offsets of the last two segments and at the end."""
    snapshot_at = {segment.base_offset for segment in segments[-2:]}
    was_empty = not producers.entries and producers.end_offset >= end_offset
    if producers.truncate_and_reload(log_start_offset, end_offset, wall_ms):
        end = producers.end_offset
        recent = [(segment.file, _recent_position(segment, end), segment.size) for segment in _recent_segments(segments, end)]
        remember_recent_batches(producers, recent)
    # Producers that expired since a copy or a snapshot may be back: then they must be as of the end.
    if end_offset > producers.end_offset and (producers.entries or not was_empty):
        for segment in _segments_to_replay(producers, segments, end_offset):
            start = max(segment.base_offset, producers.end_offset, log_start_offset)
            producers.advance(start)
            if segment.base_offset in snapshot_at and start == max(segment.base_offset, log_start_offset):
                producers.save_snapshot()
            found = segment.translate(start)
            if found is not None:
                replay_producers(producers, (segment.file, found[0], segment.size), start, end_offset)
    producers.advance(end_offset)
    producers.save_snapshot()


class ProducerRebuild:
    """As `rebuild_producers`, of a log that stays in use meanwhile, for a truncation to `end_offset`. Changes neither log nor files."""

    def __init__(
        self, producers: ProducerStateManager, segments: Sequence[Segment], log_start_offset: int, end_offset: int, wall_ms: int
    ) -> None:
        """`segments`: those of the log, which may be others whenever the next piece is asked for."""
        #: The state; complete when there are no more pieces.
        self.state = producers.fork()
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._end_offset = end_offset
        self._wall_ms = wall_ms
        self._is_snapshot_loaded = False

    def pieces(self) -> Generator[Callable[[], None]]:
        """Ask for each on the loop, and run it on any thread before the next: it blocks. Asking, and running, raise OSError. Files are
        pinned until the next piece is asked for, or the generator is closed."""
        state = self.state
        yield self._load
        if self._is_snapshot_loaded:
            recent = _recent_segments(self._segments, state.end_offset)
            with contextlib.ExitStack() as pinned:
                pieces = [_pin(pinned, segment, _recent_position(segment, state.end_offset)) for segment in recent]
                yield partial(remember_recent_batches, state, pieces)
        for segment in _segments_to_replay(state, self._segments, self._end_offset):
            start = max(segment.base_offset, state.end_offset, self._log_start_offset)
            state.advance(start)
            found = segment.translate(start)
            if found is not None:
                with contextlib.ExitStack() as pinned:
                    yield partial(replay_producers, state, _pin(pinned, segment, found[0]), start, self._end_offset)
        state.advance(self._end_offset)

    def _load(self) -> None:
        self._is_snapshot_loaded = self.state.truncate_and_reload(self._log_start_offset, self._end_offset, self._wall_ms)


def _pin(stack: contextlib.ExitStack, segment: Segment, position: int) -> Piece:
    """A segment from `position` on, whose file stays open while the stack does."""
    pinned = segment.slice(position, 0)
    stack.callback(pinned.release)
    return pinned, position, segment.size


def _segments_to_replay(producers: ProducerStateManager, segments: Sequence[Segment], end_offset: int) -> Iterable[Segment]:
    """The segments with batches between the state's end, as it is when the next is asked for, and `end_offset`."""
    segments = list(segments)
    for index, segment in enumerate(segments):
        after = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if (after is None or after > producers.end_offset) and segment.base_offset < end_offset:
            yield segment


def _recent_segments(segments: Sequence[Segment], end_offset: int) -> list[Segment]:
    return [segment for segment in segments if segment.base_offset < end_offset][-2:]


def remember_recent_batches(producers: ProducerStateManager, pieces: Iterable[Piece]) -> None:
    """Restore the last five batches of each producer from the log's end: a producer may repeat those, but a snapshot holds only the last.

    Without them, a producer that lost its responses together with the broker and repeats two batches is refused as out of order, which
    librdkafka treats as fatal. Reads the last `RECENT_BYTES` before the snapshot and at least `RECENT_ENTRIES` entries of the index, of the
    last two segments that begin before it.
    """
    wanted = {producer_id: entry for producer_id, entry in producers.entries.items() if len(entry.batches) == 1}
    end_offset = producers.end_offset
    if not wanted:
        return
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for file, position, end in pieces:
        for _, _, header in batches(file, position, end):
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


def _recent_position(segment: Segment, end_offset: int) -> int:
    index = segment.offset_index
    last = index.floor(end_offset - segment.base_offset)
    end = segment.size if last in (-1, index.entries - 1) else index.entry(last)[1]
    for number in range(last + 1 - RECENT_ENTRIES, -1, -1):
        _, position = index.entry(number)
        if position <= end - RECENT_BYTES:
            return position
    return 0


def replay_producers(producers: ProducerStateManager, piece: Piece, start: int, end_offset: int) -> None:
    """Apply the valid batches of a segment that lie in [start, end_offset)."""
    file, begin, end = piece
    for position, size, header in batches(file, begin, end):
        last_offset = header[BASE_OFFSET] + header[LAST_DELTA]
        if last_offset >= end_offset:
            break
        if last_offset < start:
            continue
        if header[PRODUCER_ID] >= 0:
            update = ProducerUpdate()
            is_control = header[ATTRIBUTES] & CONTROL_BIT
            view = _read(file, position, size) if is_control else _NO_BYTES
            prepare_producer(producers, update, view, 0, header)
            producers.complete(update)
        producers.advance(last_offset + 1, 1, size)


def _read(file: Readable, position: int, size: int) -> memoryview:
    """Bytes of a file; fewer if it ends before."""
    view = memoryview(bytearray(size))
    filled = 0
    while filled < size and (count := file.pread_into(view[filled:], position + filled)) > 0:
        filled += count
    return view[:filled]
