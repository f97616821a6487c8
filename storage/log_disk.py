"""The directory of a log, and whether its disk has failed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from minikafka.storage import cold_reads
from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError
from minikafka.storage.filesystem import FileSystem, is_shortage
from minikafka.storage.open_files import OpenFiles


class LogDisk:
    """The directory of one log; turns the disk's errors into StorageError."""

    __slots__ = ("_on_failure", "any_file", "directory", "failure", "filesystem", "name", "open_files")

    def __init__(
        self, filesystem: FileSystem, directory: str, name: str, open_files: OpenFiles, on_failure: Callable[[StorageError], None] | None
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        #: `<topic>-<partition>`, for messages.
        self.name = name
        self.open_files = open_files
        #: Path of the newest segment's file; None before there is one.
        self.any_file: str | None = None
        #: Set once, when the disk fails or the log is closed, moved or deleted. Every later call raises it.
        self.failure: StorageError | None = None
        self._on_failure = on_failure

    def guard(self, action: str) -> DiskGuard:
        """A context that turns OSError into StorageError and refuses to run after a failure."""
        return DiskGuard(self, action)

    def change(self, action: str) -> DiskGuard:
        """As `guard`, for an action of several steps: ResourceShortage is raised only before the first step."""
        return DiskGuard(self, action, is_change=True)

    def require_descriptors(self) -> None:
        """Raises OSError if there are too few descriptors for a change of several steps."""
        if self.any_file is not None:
            # A log without records may have no file yet; then there is nothing that could be left half done.
            with contextlib.suppress(FileNotFoundError):
                self.open_files.require(self.filesystem, self.any_file)

    def fail(self, action: str, error: OSError, *, is_half_done: bool = False) -> StorageError:
        """The error to raise. A failed disk takes the log offline; a shortage (ResourceShortage) does not, unless it left a change half
        done."""
        message = f"cannot {action} of {self.name} in {self.directory}"
        if is_shortage(error) and not is_half_done:
            return ResourceShortage(message, path=self.directory, cause=error)
        failure = StorageError(message, path=self.directory, cause=error)
        self.give_up(failure)
        return failure

    def give_up(self, failure: StorageError) -> None:
        """Refuse all further calls with `failure`, and call `on_failure` the first time."""
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                with cold_reads.waiting():
                    self._on_failure(failure)

    def take_offline(self, failure: StorageError) -> None:
        """Refuse all further calls, without calling `on_failure`: its owner knows that the log directory has failed."""
        self.failure = self.failure or failure

    def close(self) -> None:
        """Refuse all further calls: the log is closed."""
        if self.failure is None:
            self.failure = LogClosed(f"the log of {self.name} in {self.directory} is closed", path=self.directory)

    def on_error(self, error: OSError) -> None:
        """Called when reading a slice in flight has failed."""
        self.fail("read the log", error)


class DiskGuard:
    """See LogDisk.guard."""

    __slots__ = ("_action", "_disk", "_is_change")

    def __init__(self, disk: LogDisk, action: str, *, is_change: bool = False) -> None:
        self._disk = disk
        self._action = action
        self._is_change = is_change

    def __enter__(self) -> None:
        if self._disk.failure is not None:
            raise self._disk.failure
        if self._is_change:
            try:
                self._disk.require_descriptors()
            except OSError as error:
                raise self._disk.fail(self._action, error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._disk.fail(self._action, error, is_half_done=self._is_change) from error
