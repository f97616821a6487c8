"""What a clean start can know about files that are gone: a clean stop wrote down the end of every log, as its recovery point."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from minikafka.storage.checkpoint import RECOVERY_POINT_CHECKPOINT
from minikafka.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from minikafka.storage.log import Log

_log = logging.getLogger(__name__)


class StoppedDirectory(Protocol):
    """A log directory, loaded."""

    path: str
    logs: dict[tuple[str, int], Log]
    #: Whether it was stopped cleanly, with these recovery points, and by which epoch of the broker; -1 if it is not whole.
    is_clean: bool
    recovery_points_read: dict[tuple[str, int], int]
    previous_broker_epoch: int


def has_recovery_points(filesystem: FileSystem, path: str, read: Mapping[tuple[str, int], int] | None) -> bool:
    """Whether a cleanly stopped log directory has its recovery points; `read` is what was read of them, None if that is not valid. A clean
    stop always writes them. Without them nobody can tell whether logs lost records since: the controller takes it for a crash."""
    name = f"{path}/{RECOVERY_POINT_CHECKPOINT}"
    if read or (read is not None and filesystem.exists(name) and filesystem.read(name)):
        return True
    found = "not valid" if read is None else "missing or empty"
    _log.error("%s is %s, though the broker stopped cleanly: it starts as after a crash", name, found)
    return False


def lacks_beginning(bases: Sequence[int], start_offset: int, epochs: Sequence[tuple[int, int]]) -> bool:
    """Whether a cleanly stopped log lost its first segments since. `bases`: of the segments that it has. `start_offset`: its start in the
    checkpoint, 0 if there is none. `epochs`: the valid entries of its file, of which a clean stop leaves none before the start."""
    return bool(bases and epochs) and epochs[0][1] < bases[0] and start_offset < bases[0]


def note_lost_records(directories: Sequence[StoppedDirectory]) -> None:
    """Look whether logs lost records while the broker was down; call it when all log directories are loaded. Names each in the log. Such a
    start is not a clean one for the controller: an empty log would lead, and others would truncate theirs to it. After a crash the broker
    does not count as complete anyway."""
    # Somebody may have moved a log to another directory of the broker meanwhile.
    ends: dict[tuple[str, int], int] = {}
    for directory in directories:
        for key, log in directory.logs.items():
            ends[key] = max(log.log_end_offset, ends.get(key, 0))
    for directory in directories:
        for log in directory.logs.values() if directory.is_clean else ():
            if log.watermarks.lacks_beginning:
                directory.previous_broker_epoch = -1
                _log.error(
                    "%s: the log begins at offset %d, and began at %d when the broker stopped cleanly: files were removed since. The broker"
                    " starts as after a crash: replicas that have the records come first",
                    log.directory, log.log_start_offset, log.epochs.entries[0][1],
                )  # fmt: skip
        for (topic, partition), stopped_at in directory.recovery_points_read.items() if directory.is_clean else ():
            end = ends.get((topic, partition), 0)
            if end < stopped_at:
                directory.previous_broker_epoch = -1
                _log.error(
                    "%s/%s-%d: the log ends at offset %d, and ended at %d when the broker stopped cleanly: files were removed or cut"
                    " since. The broker starts as after a crash: replicas that have the records come first",
                    directory.path, topic, partition, end, stopped_at,
                )  # fmt: skip
