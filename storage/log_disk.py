"""Where the files of a log are, and whether the disk still gives and takes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError
from minikafka.storage.filesystem import FileSystem, is_shortage
from minikafka.storage.open_files import OpenFiles


class LogDisk:
    """The directory of one log."""

    __slots__ = ("_on_failure", "any_file", "directory", "failure", "filesystem", "name", "open_files")

    def __init__(
        self, filesystem: FileSystem, directory: str, name: str, open_files: OpenFiles, on_failure: Callable[[StorageError], None] | None
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        #: `<topic>-<partition>`, for messages.
        self.name = name
        self.open_files = open_files
        #: Path of the newest segment's file, None before there is one.
        self.any_file: str | None = None
        #: Once set it stays: the disk failed, or the log was closed, moved or deleted. Every call is refused with it.
        self.failure: StorageError | None = None
        self._on_failure = on_failure

    def guard(self, action: str) -> DiskGuard:
        """Context in which an OSError becomes a StorageError."""
        return DiskGuard(self, action)

    def change(self, action: str) -> DiskGuard:
        """As `guard`, for what takes several steps: ResourceShortage only before the first of them."""
        return DiskGuard(self, action, is_change=True)

    def require_descriptors(self) -> None:
        """Raises OSError if too few files could be opened for a change."""
        if self.any_file is not None:
            # A log to which nothing was written has no file, and nothing that could be done by half.
            with contextlib.suppress(FileNotFoundError):
                self.open_files.require(self.filesystem, self.any_file)

    def fail(self, action: str, error: OSError, *, is_half_done: bool = False) -> StorageError:
        """The error to raise. A disk that failed takes the log offline, a shortage (ResourceShortage) does not, unless it left something
        half done."""
        message = f"cannot {action} of {self.name} in {self.directory}"
        if is_shortage(error) and not is_half_done:
            return ResourceShortage(message, path=self.directory, cause=error)
        failure = StorageError(message, path=self.directory, cause=error)
        self.give_up(failure)
        return failure

    def give_up(self, failure: StorageError) -> None:
        """The log is of no use any more, and whoever made it is told, once."""
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)

    def take_offline(self, failure: StorageError) -> None:
        """The directory of the log has failed; who made the log knows."""
        self.failure = self.failure or failure

    def close(self) -> None:
        """Nothing may use the files any more."""
        if self.failure is None:
            self.failure = LogClosed(f"the log of {self.name} in {self.directory} is closed", path=self.directory)

    def on_error(self, error: OSError) -> None:
        """The disk failed under a slice in flight."""
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
