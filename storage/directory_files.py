"""What is written of a log directory as a whole: its checkpoints and its entries.

Each task is created on the loop. `run` blocks and may be called on another thread, one at a time for a directory, in order. If it raises
OSError, call `LogDirectory.disk_failed`; else call `finish` on the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from minikafka.storage import checkpoint
from minikafka.storage.filesystem import FileSystem, write_atomically

if TYPE_CHECKING:
    from minikafka.storage.log import Log

Key = tuple[str, int]


class Checkpoint:
    """A checkpoint file to be written. It is encoded by `run`: that of ten thousand logs takes a while."""

    __slots__ = ("_filesystem", "_offsets", "path")

    def __init__(self, filesystem: FileSystem, path: str, offsets: Mapping[Key, int]) -> None:
        """`offsets` belongs to the task: nobody changes it any more."""
        self._filesystem = filesystem
        self.path = path
        self._offsets = offsets

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it writes."""
        return (self.path,)

    def run(self) -> None:
        """Write, sync and rename."""
        write_atomically(self._filesystem, self.path, checkpoint.encode_offsets(self._offsets))

    def finish(self) -> None:
        """It is written."""


class RecoveryPoints(Checkpoint):
    """recovery-point-offset-checkpoint. Once it is written, it has no point any more that a truncation lowered before."""

    __slots__ = ("_lowered",)

    def __init__(self, filesystem: FileSystem, directory: str, logs: Mapping[Key, Log]) -> None:
        # The parts' fields, not the log's own: ten thousand logs are looked at in one turn of the loop.
        parts = {key: log.durability for key, log in logs.items()}
        offsets = {key: durability.recovery_point for key, durability in parts.items()}
        super().__init__(filesystem, f"{directory}/{checkpoint.RECOVERY_POINT_CHECKPOINT}", offsets)
        self._lowered = [(durability, durability.truncations) for durability in parts.values() if durability.stale_point]

    def finish(self) -> None:
        """Forget the points that are in no file any more, unless the log was cut again meanwhile."""
        for durability, truncations in self._lowered:
            if durability.truncations == truncations:
                durability.stale_point = 0


class HighWatermarks(Checkpoint):
    """replication-offset-checkpoint. `written` holds what was last written."""

    __slots__ = ("_written",)

    def __init__(self, filesystem: FileSystem, directory: str, offsets: Mapping[Key, int], written: list[Mapping[Key, int]]) -> None:
        super().__init__(filesystem, f"{directory}/{checkpoint.REPLICATION_OFFSET_CHECKPOINT}", offsets)
        self._written = written

    def finish(self) -> None:
        """Remember it: nothing is written again until something has changed."""
        self._written[:] = [self._offsets]


class RemovedLines:
    """Writes checkpoints without the lines of removed logs, which a later topic of the same name would inherit after a crash."""

    __slots__ = ("_checkpoints", "_removed", "_taken", "paths")

    def __init__(self, checkpoints: Iterable[Checkpoint], removed: set[Key]) -> None:
        """`removed` loses its present members once they are in no file any more."""
        self._checkpoints = list(checkpoints)
        #: The files that it writes.
        self.paths = tuple(one.path for one in self._checkpoints)
        self._removed, self._taken = removed, frozenset(removed)

    def run(self) -> None:
        """Write all of them."""
        for one in self._checkpoints:
            one.run()

    def finish(self) -> None:
        """They are written."""
        for one in self._checkpoints:
            one.finish()
        self._removed -= self._taken


class DirectorySync:
    """The sync of a log directory's entries."""

    __slots__ = ("_filesystem", "path")

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path

    def run(self) -> None:
        """Sync the directory."""
        self._filesystem.fsync_dir(self.path)

    def finish(self) -> None:
        """It is synced."""


#: A file in the directory of a copy that has its ordinary name and does not replace the log yet. No broker reads such a name.
COPY_MARK = ".copy"


class Promotion:
    """Gives the directory of a copy its ordinary name, durably, and the mark of a copy."""

    __slots__ = ("_filesystem", "_from", "path")

    def __init__(self, filesystem: FileSystem, begun: str, path: str) -> None:
        """`begun`, `path`: the two names."""
        self._filesystem = filesystem
        self._from = begun
        self.path = path

    def run(self) -> None:
        """Mark and rename the directory, and sync the one that holds it. After a shortage it goes on from where it was."""
        if self._filesystem.is_dir(self._from):
            self._filesystem.open(f"{self._from}/{COPY_MARK}", create=True).close()
            self._filesystem.fsync_dir(self._from)
            self._filesystem.rename(self._from, self.path)
        self._filesystem.fsync_dir(self.path.rpartition("/")[0])


DirectoryTask = Checkpoint | RemovedLines | DirectorySync
