"""What the logs of a directory need now: files to unlink, syncs, a write of lowered recovery points. A look at ten thousand logs takes tens
of milliseconds, so it goes in steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from minikafka.steps import Steps
    from minikafka.storage.log import Log

#: Logs of a step, at some microseconds each.
STEP_LOGS = 64


class DueWork(NamedTuple):
    """`paths`: renamed files whose delay has passed, now the caller's to unlink. `flushes`: logs to be flushed. `has_stale_points`: whether
    the checkpoint may have recovery points that truncations lowered since."""

    paths: list[str]
    flushes: list[Log]
    has_stale_points: bool


def due_work(logs: Iterable[Log], wall_ms: int, excess: int) -> Steps[DueWork]:
    """Look at the logs, in steps. `excess`: how many more files are open than should be. Of logs whose active segments can only be closed
    once they are synced, so many are to be flushed as a whole. A log may have been closed when the result is used."""
    paths: list[str] = []
    flushes: list[Log] = []
    has_stale_points = False
    for number, log in enumerate(logs, 1):
        if number % STEP_LOGS == 0:
            yield
        if log.failure is not None:
            continue
        segments, durability = log.segments, log.durability
        if segments.scheduled_deletions:
            paths += segments.take_due_deletions(wall_ms)
        if durability.stale_point > durability.recovery_point:
            has_stale_points = True
        if excess:
            active = segments.active
            if active.is_open and active.synced_size < active.size:
                durability.is_whole_flush_requested = True
                excess -= 1
        if durability.is_flush_requested or durability.should_sync_ahead:
            flushes.append(log)
    return DueWork(paths, flushes, has_stale_points)


def overdue(logs: Iterable[Log], now_ms: int, last_look_ms: int) -> Steps[list[Log]]:
    """Find the logs with records that are not synced whose last flush is older than flush.ms, and ask for their whole flush; in steps. Of
    a flush since the last look nobody knows when it was: it counts as one of that time."""
    found: list[Log] = []
    for number, log in enumerate(logs, 1):
        if number % STEP_LOGS == 0:
            yield
        if log.failure is not None:
            continue
        durability = log.durability
        if durability.seen_point != durability.recovery_point:
            durability.seen_point, durability.flushed_ms = durability.recovery_point, last_look_ms
        if durability.recovery_point < log.log_end_offset and now_ms - durability.flushed_ms >= log.config.flush_ms:
            durability.is_whole_flush_requested = True
            found.append(log)
    return found
