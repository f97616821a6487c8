"""Truncating a log."""

from __future__ import annotations

from bisect import bisect_right

from minikafka.storage.log_parts import LogParts
from minikafka.storage.producer_replay import rebuild_producers


class Truncation:
    """Truncations of one log."""

    __slots__ = ("_parts",)

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def truncate_to(self, offset: int, wall_ms: int) -> bool:
        """See Log.truncate_to."""
        parts = self._parts
        segments = parts.segments
        with parts.disk.change("truncate the log"):
            if offset >= parts.watermarks.log_end_offset:
                parts.epochs.truncate_from_end(offset, sync=False)
                parts.durability.is_flush_requested = True
                return False
            if offset < segments.bases[0]:
                self.truncate_fully_and_start_at(offset, wall_ms)
                return True
            keep = bisect_right(segments.bases, offset)
            segments.drop(segments[keep:], wall_ms)
            segments[-1].truncate_to(offset, wall_ms)
            parts.epochs.truncate_from_end(offset, sync=False)
            parts.watermarks.log_start_offset = min(parts.watermarks.log_start_offset, offset)
            self.restart_at(offset, wall_ms)
        return True

    def truncate_fully_and_start_at(self, offset: int, wall_ms: int) -> None:
        """Drop everything; the empty log starts at `offset`."""
        parts = self._parts
        with parts.disk.change("truncate the log"):
            parts.segments.drop(parts.segments[:], wall_ms)
            parts.segments.add(parts.segments.create(offset, wall_ms))
            # As for other truncations, the flush that is requested below syncs the file: a start would drop what is stale in it.
            parts.epochs.clear(sync=False)
            parts.producers.truncate_fully_and_start_at(offset)
            parts.watermarks.log_start_offset = offset
            self.restart_at(offset, wall_ms)

    def restart_at(self, offset: int, wall_ms: int) -> None:
        """Bring producers, durability and watermarks to `offset`, where the segments now end."""
        parts = self._parts
        # Producers and the first unstable offset go back before the end offset is published (KAFKA-12153).
        rebuild_producers(parts.producers, parts.segments, parts.watermarks.log_start_offset, offset, wall_ms)
        parts.segments.set(parts.segments, offset)
        parts.durability.cut_at(offset)
        parts.watermarks.end_at(offset)
