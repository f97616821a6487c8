"""The offsets by which a log is known to its readers."""

from __future__ import annotations

from minikafka.storage.config import INT64_MAX
from minikafka.storage.producer_state import ProducerStateManager


class Watermarks:
    """When a call of the log has returned: log_start_offset <= high_watermark <= log_end_offset."""

    __slots__ = ("_producers", "high_watermark", "log_end_offset", "log_start_offset", "truncated_to")

    def __init__(self, producers: ProducerStateManager) -> None:
        self._producers = producers
        #: The first offset that is served. It only rises, but for a log that is begun anew. Segments may begin before it.
        self.log_start_offset = 0
        #: The offset of the next record. It moves after the bytes before it are written.
        self.log_end_offset = 0
        #: Everything before it is replicated. It falls only to the end of a truncation.
        self.high_watermark = 0
        #: The lowest end of a truncation since somebody (compaction) set it to INT64_MAX.
        self.truncated_to = INT64_MAX

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the first transaction that is open or not replicated yet."""
        unstable = self._producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def move_high_watermark(self, offset: int) -> bool:
        """Clamped into [log start, log end]; True when it moved."""
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self._producers.on_high_watermark(offset)
        return True

    def end_at(self, offset: int) -> None:
        """The log was cut and ends at `offset`."""
        self.log_end_offset = offset
        self.truncated_to = min(self.truncated_to, offset)
        if self.high_watermark > offset or self.high_watermark < self.log_start_offset:
            self.high_watermark = offset
        # The rebuilt state takes every transaction for one that is not replicated yet.
        self._producers.on_high_watermark(self.high_watermark)
