"""Which segments may go (UnifiedLog.deleteOldSegments). Nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.storage.config import LogConfig
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.segment import Segment
from minikafka.storage.watermarks import Watermarks

#: (segment, base offset of the next one or None) -> whether it may go
MayGo = Callable[[Segment, int | None], bool]


def before_log_start(log_start_offset: int) -> MayGo:
    """All its offsets are below the log start."""
    return lambda _, after: after is not None and after <= log_start_offset


def by_size(segments: LogSegments, config: LogConfig) -> MayGo:
    """The log is larger than retention.bytes without it, too."""
    excess = segments.size - config.retention_bytes if config.retention_bytes >= 0 else 0

    def may_go(segment: Segment, _: int | None) -> bool:
        nonlocal excess
        if excess <= 0 or segment.size > excess:
            return False
        excess -= segment.size
        return True

    return may_go


def by_time(config: LogConfig, wall_ms: int) -> MayGo:
    """Its records are older than retention.ms."""
    limit = wall_ms - config.retention_ms
    return lambda segment, _: config.retention_ms >= 0 and segment.largest_timestamp() < limit


def oldest_that_may_go(segments: LogSegments, watermarks: Watermarks, may_go: MayGo) -> list[Segment]:
    """The longest run of old segments that may go and end at or below the high watermark. Raises OSError."""
    gone: list[Segment] = []
    for index, segment in enumerate(segments):
        after = segments.bases[index + 1] if index + 1 < len(segments) else None
        upper_bound = watermarks.log_end_offset if after is None else after
        if watermarks.high_watermark < upper_bound or (after is None and segment.size == 0) or not may_go(segment, after):
            break
        gone.append(segment)
    return gone
