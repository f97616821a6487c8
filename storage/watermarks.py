"""The offsets that a log publishes to its readers."""

from __future__ import annotations

from minikafka.storage.config import INT64_MAX
from minikafka.storage.producer_state import ProducerStateManager


class Watermarks:
    """Invariant between calls of the log: log_start_offset <= high_watermark <= log_end_offset."""

    __slots__ = ("_producers", "high_watermark", "log_end_offset", "log_start_offset", "lost", "truncated_to")

    def __init__(self, producers: ProducerStateManager) -> None:
        self._producers = producers
        #: The first offset that is served. Falls only if the log is truncated to an offset before it. The first segment may begin earlier.
        self.log_start_offset = 0
        #: The first and the end (exclusive) of the offsets among which records were removed while the log was closed, though others follow
        #: them. A follower gets them from its leader. None if nothing is known to be missing.
        self.lost: tuple[int, int] | None = None
        #: The offset of the next record. Moves only after the bytes before it are written.
        self.log_end_offset = 0
        #: Everything below this offset is replicated. Falls only when the log is truncated below it.
        self.high_watermark = 0
        #: The lowest end of a truncation since compaction last set this to INT64_MAX.
        self.truncated_to = INT64_MAX

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the first transaction that is open or whose marker is not replicated yet, if lower."""
        unstable = self._producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def move_high_watermark(self, offset: int) -> bool:
        """Set the high watermark to `offset`, clamped into [log start, log end]. True if it changed."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        if self._producers.transactions.unstable:
            self._producers.on_high_watermark(offset)
        return True

    def end_at(self, offset: int) -> None:
        """The log was truncated and now ends at `offset`."""
        self.log_end_offset = offset
        self.truncated_to = min(self.truncated_to, offset)
        if self.high_watermark > offset or self.high_watermark < self.log_start_offset:
            self.high_watermark = offset
        # The rebuilt producer state treats every completed transaction as not replicated yet.
        self._producers.on_high_watermark(self.high_watermark)
