"""Which segments retention may delete (UnifiedLog.deleteOldSegments). Pure: changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from minikafka.storage.config import LogConfig
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.segment import Segment
from minikafka.storage.watermarks import Watermarks

#: (segment, base offset of the next segment or None) -> whether the segment may be deleted.
IsDeletable = Callable[[Segment, int | None], bool]


def before_log_start(log_start_offset: int) -> IsDeletable:
    """Deletable if all offsets of the segment are below the log start."""
    return lambda _, after: after is not None and after <= log_start_offset


def by_size(segments: LogSegments, config: LogConfig) -> IsDeletable:
    """Deletable if the log without the segment is still at least retention.bytes large."""
    excess = segments.size - config.retention_bytes if config.retention_bytes >= 0 else 0

    def is_deletable(segment: Segment, _: int | None) -> bool:
        nonlocal excess
        if excess <= 0 or segment.size > excess:
            return False
        excess -= segment.size
        return True

    return is_deletable


def by_time(config: LogConfig, wall_ms: int) -> IsDeletable:
    """Deletable if the segment's records are older than retention.ms."""
    limit = wall_ms - config.retention_ms
    return lambda segment, _: config.retention_ms >= 0 and segment.largest_timestamp() < limit


def deletable_segments(segments: LogSegments, watermarks: Watermarks, is_deletable: IsDeletable, most: int) -> list[Segment]:
    """The longest run of oldest segments, `most` at most, that are deletable and end at or below the high watermark. Raises OSError."""
    deletable: list[Segment] = []
    for index, segment in enumerate(itertools.islice(segments, most)):
        after = segments.bases[index + 1] if index + 1 < len(segments) else None
        upper_bound = watermarks.log_end_offset if after is None else after
        if watermarks.high_watermark < upper_bound or (after is None and segment.size == 0) or not is_deletable(segment, after):
            break
        deletable.append(segment)
    return deletable
