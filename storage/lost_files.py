"""What a clean start can know about files that are gone: a clean stop wrote down the end of every log, as its recovery point."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.storage.log import Log

_log = logging.getLogger(__name__)


def lacks_records(path: str, recovery_points: Mapping[tuple[str, int], int], logs: Mapping[tuple[str, int], Log]) -> bool:
    """Whether logs of this log directory lost records while it was closed. Names each in the log. Call it after a clean stop alone: after
    a crash the broker does not count as complete anyway."""
    is_any_lost = False
    for (topic, partition), stopped_at in recovery_points.items():
        log = logs.get((topic, partition))
        end = 0 if log is None else log.log_end_offset
        if end < stopped_at:
            is_any_lost = True
            _log.error(
                "%s/%s-%d: the log ends at offset %d, and ended at %d when the broker stopped cleanly: files were removed or cut since."
                " The broker starts as after a crash: replicas that have the records come first",
                path, topic, partition, end, stopped_at,
            )  # fmt: skip
    return is_any_lost
