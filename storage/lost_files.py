"""What a start can know about files that were removed while the broker was down.

A clean stop wrote down the end of every log, as its recovery point, and the segments of every log that has several. A directory that Apache
Kafka stopped has no such list: there a log that was never compacted has no gap between its segments, and no epoch before its first.
A log that lost records before others is marked by a file in its directory until it has them again.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from minikafka.storage.checkpoint import (
    CLEAN_SHUTDOWN,
    INT64_MAX,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_clean_shutdown,
)
from minikafka.storage.errors import StorageError
from minikafka.storage.filesystem import FileSystem, write_atomically
from minikafka.storage.lost_marks import write_mark

if TYPE_CHECKING:
    from minikafka.storage.log import Log

_log = logging.getLogger(__name__)

#: In a log directory: the segments of its logs, and the broker's epoch of the clean stop that wrote it.
STOPPED_SEGMENTS = ".segments"
#: In a log directory: the clean-shutdown file, from the opening until all logs are loaded.
LOADING = ".loading"

Key = tuple[str, int]


class StoppedDirectory(Protocol):
    """A log directory, loaded."""

    filesystem: FileSystem
    path: str
    failure: StorageError | None
    logs: dict[Key, Log]
    #: By which epoch of the broker it was stopped cleanly; -1 if it was not, or is not whole.
    previous_broker_epoch: int
    recovery_points_read: dict[Key, int]

    @property
    def is_as_stopped(self) -> bool:
        """Whether it was stopped cleanly with these recovery points, and no start has loaded all logs since."""

    def load_again(self, topic: str, partition: int) -> Log:
        """An empty log in the place of one that is gone."""

    def disk_failed(self, action: str, error: OSError) -> StorageError:
        """Its disk has failed."""


class StoppedSegments:
    """The segments that the logs of a directory had when it was stopped, as far as they are known."""

    def __init__(self, bases: Mapping[str, Sequence[int]]) -> None:
        self._bases = bases

    def of(self, name: str) -> Sequence[int]:
        """The base offsets of a log's segments, ascending; none if they are not known."""
        return self._bases.get(name, ())


def write_segments(filesystem: FileSystem, path: str, logs: Mapping[Key, Log], broker_epoch: int) -> None:
    """Write down the segments of logs with several, for a clean stop by a broker of this epoch. Raises OSError."""
    segments = {log.name: log.segments.bases for log in logs.values() if len(log.segments.bases) > 1}
    document = {"version": 0, "brokerEpoch": broker_epoch, "segments": segments}
    write_atomically(filesystem, f"{path}/{STOPPED_SEGMENTS}", json.dumps(document, separators=(",", ":")).encode())


def read_segments(filesystem: FileSystem, path: str) -> StoppedSegments | None:
    """What `write_segments` wrote; call it after `loading`. None if a start has loaded all logs since. Empty if another broker stopped the
    directory, or if the file is not valid. Raises OSError."""
    epoch = read_clean_shutdown(filesystem, f"{path}/{LOADING}")
    if epoch is None:
        return None
    name = f"{path}/{STOPPED_SEGMENTS}"
    if epoch >= 0 and filesystem.exists(name):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            document = json.loads(filesystem.read(name))
            if document["version"] == 0 and document["brokerEpoch"] == epoch:
                found = document["segments"]
                return StoppedSegments({key: found[key] for key in found if all(0 <= base <= INT64_MAX for base in found[key])})
    return StoppedSegments({})


def is_used_since(filesystem: FileSystem, path: str) -> bool:
    """Whether a broker has run since the clean stop although no start has loaded all logs: one that does not know the file, or one that
    could not mark a loss for want of descriptors. It wrote checkpoints, and may have deleted segments or truncated logs. Raises OSError."""
    if not filesystem.exists(f"{path}/{LOADING}"):
        return False
    begun_ms = filesystem.modified_ms(f"{path}/{LOADING}")
    names = (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
    return any(filesystem.exists(f"{path}/{name}") and filesystem.modified_ms(f"{path}/{name}") > begun_ms for name in names)


def loading(filesystem: FileSystem, path: str) -> None:
    """A start begins to load the logs of a cleanly stopped directory: a crash while it does must not count as clean (KAFKA-10471). Raises
    OSError."""
    filesystem.rename(f"{path}/{CLEAN_SHUTDOWN}", f"{path}/{LOADING}")
    filesystem.fsync_dir(path)


def loaded(filesystem: FileSystem, path: str) -> None:
    """All logs of a directory are loaded, and those that lost records are marked. Raises OSError."""
    if filesystem.exists(f"{path}/{LOADING}"):
        filesystem.unlink(f"{path}/{LOADING}")
        filesystem.fsync_dir(path)


def has_recovery_points(filesystem: FileSystem, path: str, read: Mapping[Key, int] | None) -> bool:
    """Whether a cleanly stopped log directory has its recovery points; `read` is what was read of them, None if that is not valid. A clean
    stop always writes them. Without them nobody can tell whether logs lost records since: the controller takes it for a crash."""
    name = f"{path}/{RECOVERY_POINT_CHECKPOINT}"
    if read or (read is not None and filesystem.exists(name) and filesystem.read(name)):
        return True
    found = "not valid" if read is None else "missing or empty"
    _log.error("%s is %s, though the broker stopped cleanly: it starts as after a crash", name, found)
    return False


def lost_before(
    bases: Sequence[int], stopped: Sequence[int], ends: Sequence[int], epochs: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """The first and the end of the offsets among which a log lost segments since it was stopped, without those behind its end.

    `bases`: of the segments that it has. `stopped`: of those that it had, empty if that is not known; then `ends` has where each ends,
    unless gaps are allowed, and `epochs` the valid entries of its file, of which a clean stop leaves none before the start.
    """
    if not bases:
        return None
    if stopped:
        left = frozenset(bases)
        gaps = [(first, after) for first, after in pairwise(stopped) if first not in left and after <= bases[-1]]
        return (gaps[0][0], min(base for base in bases if base >= gaps[-1][1])) if gaps else None
    gaps = [(end, base) for end, base in zip(ends, bases[1:], strict=False) if end < base]
    if epochs and epochs[0][1] < bases[0]:
        gaps.insert(0, (epochs[0][1], bases[0]))
    return (gaps[0][0], gaps[-1][1]) if gaps else None


def note_lost_records(directories: Sequence[StoppedDirectory]) -> None:
    """Look whether logs lost records while the broker was down, and mark those that did; call it when all log directories are loaded. Names
    each in the log. Such a start is not a clean one for the controller: an empty log would lead, and others would truncate theirs to it.
    After a crash the broker does not count as complete anyway."""
    # Somebody may have moved a log to another directory of the broker meanwhile.
    longest: dict[Key, Log] = {}
    for directory in directories:
        for key, log in directory.logs.items():
            if key not in longest or longest[key].log_end_offset < log.log_end_offset:
                longest[key] = log
    for directory in directories:
        if directory.failure is None:
            try:
                _note_lost_ends(directory, longest)
                for log in directory.logs.values():
                    if log.watermarks.lost is not None:
                        directory.previous_broker_epoch = -1
                        _log.error(
                            "%s: records among offsets %d to %d are missing: files were removed or cut while the broker was down. It starts"
                            " as after a crash: replicas that have the records come first",
                            log.directory, *log.watermarks.lost,
                        )  # fmt: skip
                loaded(directory.filesystem, directory.path)
            except (StorageError, OSError) as error:
                directory.previous_broker_epoch = -1
                _log.error("%s: logs cannot be marked: %s", directory.path, error)
                if not isinstance(error, StorageError):
                    directory.disk_failed("mark logs in", error)


def _note_lost_ends(directory: StoppedDirectory, longest: Mapping[Key, Log]) -> None:
    """Look for logs that end too early. Those that are gone get a directory again, for the mark. Raises OSError, StorageError."""
    for key, stopped_at in directory.recovery_points_read.items() if directory.is_as_stopped else ():
        log = longest.get(key)
        if log is None and stopped_at:
            log = directory.load_again(*key)
        if log is None or (end := log.log_end_offset) >= stopped_at:
            continue
        marked = log.watermarks.lost or (end, stopped_at)
        log.watermarks.lost = min(end, marked[0]), max(stopped_at, marked[1])
        write_mark(directory.filesystem, log.directory, log.watermarks.lost)

