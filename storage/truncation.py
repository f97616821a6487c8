"""Truncating a log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator

from minikafka.storage.cut_copy import CutCopy
from minikafka.storage.log_parts import LogParts
from minikafka.storage.producer_replay import ProducerRebuild, rebuild_producers
from minikafka.storage.producer_state import ProducerStateManager

#: Bytes of batches that a truncation replays on the loop; they are a thousand of the smallest.
REPLAYED_AT_ONCE_BYTES = 64 << 10
#: Segments that a step of a truncation drops; each has four or five files to rename.
DROPPED_AT_ONCE = 8


class TruncationPreparation:
    """What a truncation to `offset` needs and takes long to make: the state of the producers below it, and a copy of the beginning of the
    last segment if slices in flight reach beyond the cut. The log stays in use meanwhile; what is below the offset does not change."""

    def __init__(self, parts: LogParts, offset: int, copy: CutCopy | None, rebuild: ProducerRebuild | None) -> None:
        self.offset = offset
        self._parts = parts
        self._truncations = parts.durability.truncations
        self._copy = copy
        self._rebuild = rebuild
        self._is_rebuilt = False

    def pieces(self) -> Generator[Callable[[], None]]:
        """Ask for each piece on the loop, and run it on any thread before the next. Running raises OSError, asking raises StorageError.
        Close the generator in the end."""
        if self._copy is not None:
            yield self._copy.run
        if self._rebuild is None:
            return
        pieces = self._rebuild.pieces()
        try:
            while not self._is_out_of_date:
                with self._parts.disk.guard("read the log"):
                    piece = next(pieces, None)
                if piece is None:
                    self._is_rebuilt = True
                    return
                yield piece
        finally:
            pieces.close()

    @property
    def _is_out_of_date(self) -> bool:
        """Whether the log was cut meanwhile, or begins behind the offset."""
        parts = self._parts
        return parts.durability.truncations != self._truncations or parts.watermarks.log_start_offset > self.offset

    def producers(self) -> ProducerStateManager | None:
        """The state of the producers below the offset; None if it is not known."""
        return self._rebuild.state if self._rebuild is not None and self._is_rebuilt and not self._is_out_of_date else None

    def copy(self) -> CutCopy | None:
        """The copy; None if none was needed, or if it is out of date."""
        return None if self._is_out_of_date else self._copy

    def release(self) -> None:
        """The truncation was carried out, or will not be. May be called twice."""
        if self._copy is not None:
            self._copy.release()


class Truncation:
    """Truncations of one log."""

    __slots__ = ("_parts",)

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def step(self, offset: int) -> int:
        """See Log.truncation_step."""
        bases = self._parts.segments.bases
        return max(offset, bases[-DROPPED_AT_ONCE - 1]) if len(bases) > DROPPED_AT_ONCE else offset

    def prepare(self, offset: int, wall_ms: int) -> TruncationPreparation | None:
        """See Log.prepare_truncation."""
        parts, segments = self._parts, self._parts.segments
        if not segments.bases[0] <= offset < parts.watermarks.log_end_offset:
            return None
        with parts.disk.guard("read the log"):
            rebuild = None
            if parts.producers.entries and self._is_replay_long(offset):
                rebuild = ProducerRebuild(parts.producers, segments, min(parts.watermarks.log_start_offset, offset), offset, wall_ms)
            copy = segments[bisect_right(segments.bases, offset) - 1].prepare_cut(offset)
        return None if copy is None and rebuild is None else TruncationPreparation(parts, offset, copy, rebuild)

    def _is_replay_long(self, offset: int) -> bool:
        """Whether many batches lie between the copy of the producers' state from which a truncation would go on, and `offset`."""
        parts = self._parts
        begin = parts.producers.copies.before(offset)
        if begin == offset:
            return False
        if begin is None or begin <= parts.watermarks.log_start_offset or parts.producers.snapshots.is_between(begin, offset):
            return True
        first, last = (parts.segments.position_of(one) for one in (begin, offset))
        if first is None or last is None or first.segment_base_offset != last.segment_base_offset:
            return True
        return last.file_position - first.file_position > REPLAYED_AT_ONCE_BYTES

    def truncate_to(self, offset: int, wall_ms: int, prepared: TruncationPreparation | None = None) -> bool:
        """See Log.truncate_to."""
        parts = self._parts
        segments = parts.segments
        if prepared is not None and prepared.offset != offset:
            prepared = None
        with parts.disk.change("truncate the log"):
            if offset >= parts.watermarks.log_end_offset:
                parts.epochs.truncate_from_end(offset)
                parts.durability.epochs_cut()
                return False
            if offset < segments.bases[0]:
                self.truncate_fully_and_start_at(offset, wall_ms)
                return True
            keep = bisect_right(segments.bases, offset)
            segments.drop(segments[keep:], wall_ms)
            segments[-1].truncate_to(offset, wall_ms, None if prepared is None else prepared.copy())
            parts.epochs.truncate_from_end(offset)
            parts.watermarks.log_start_offset = min(parts.watermarks.log_start_offset, offset)
            self.restart_at(offset, wall_ms, None if prepared is None else prepared.producers())
        return True

    def truncate_fully_and_start_at(self, offset: int, wall_ms: int) -> None:
        """Drop everything; the empty log starts at `offset`."""
        parts = self._parts
        with parts.disk.change("truncate the log"):
            parts.segments.drop(parts.segments[:], wall_ms)
            parts.segments.add(parts.segments.create(offset, wall_ms))
            parts.epochs.clear()
            parts.producers.truncate_fully_and_start_at(offset)
            parts.watermarks.log_start_offset = offset
            parts.durability.found_again()
            self.restart_at(offset, wall_ms)

    def restart_at(self, offset: int, wall_ms: int, rebuilt: ProducerStateManager | None = None) -> None:
        """Bring producers, durability and watermarks to `offset`, where the segments now end. `rebuilt`: the producers' state there."""
        parts = self._parts
        producers, log_start_offset = parts.producers, parts.watermarks.log_start_offset
        # Producers and the first unstable offset go back before the end offset is published (KAFKA-12153).
        if rebuilt is None:
            rebuild_producers(producers, parts.segments, log_start_offset, offset, wall_ms)
        else:
            producers.adopt(rebuilt, log_start_offset)
            parts.durability.write_snapshot(producers.begin_snapshot())
        parts.segments.set(parts.segments, offset)
        parts.durability.cut_at(offset)
        parts.watermarks.end_at(offset)
