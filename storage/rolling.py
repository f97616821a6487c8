"""Rolling: closing the active segment and beginning the next."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.storage.config import LogConfig
from minikafka.storage.log_parts import LogParts
from minikafka.storage.segment import Segment


class Rolling:
    """Rolls of one log."""

    __slots__ = ("_config", "_parts", "_pick_jitter", "jitter_ms")

    def __init__(self, parts: LogParts, config: LogConfig, pick_jitter: Callable[[int], int] | None) -> None:
        """`pick_jitter(bound)` gives a random number below `bound`."""
        self._parts = parts
        self._pick_jitter = pick_jitter
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed configuration."""
        self._config = config
        self._choose_jitter()

    def _choose_jitter(self) -> None:
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        #: The active segment is rolled this much earlier than segment.ms.
        self.jitter_ms = self._pick_jitter(bound) if self._pick_jitter is not None and bound > 0 else 0

    def roll(self, wall_ms: int, first_offset: int = 0) -> Segment:
        """Close the active segment and begin the next at `first_offset` or at the log end, whichever is larger. Raises StorageError."""
        parts = self._parts
        with parts.disk.change("begin a segment"):
            return self._roll(wall_ms, max(parts.watermarks.log_end_offset, first_offset))

    def _roll(self, wall_ms: int, offset: int) -> Segment:
        parts = self._parts
        segments, durability, active = parts.segments, parts.durability, parts.segments.active
        durability.before_roll()
        if offset == active.base_offset and active.size == 0:
            # The segment is empty but its index is full (KAFKA-6492): replace it.
            segments.drop([active], wall_ms)
        else:
            active.become_inactive(trims_later=True)
            durability.has_unwritten_indexes.append(active)
            if segments.may_have_gaps and durability.recovery_point < parts.watermarks.log_end_offset:
                # After a power cut, recovery could not tell a gap of lost records here from one that compaction left. A caller that can
                # wait has flushed the log on another thread (`must_sync_first`).
                active.file.fsync()
        if segments.may_have_gaps:
            durability.sync_names()
        segment = segments.create(offset, wall_ms)
        segments.add(segment)
        self._choose_jitter()
        parts.producers.advance(offset)
        durability.write_snapshot(parts.producers.begin_snapshot())
        durability.rolled(segment)
        return segment
