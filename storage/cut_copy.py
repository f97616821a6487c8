"""The beginning of a segment's file under another name: it replaces the file when that is cut under slices in flight."""

from __future__ import annotations

import contextlib

from minikafka.storage.filesystem import File, FileSystem, own_temporary
from minikafka.storage.slice import FileSlice, SharedFile


class CutCopy:
    """`run` blocks and may be called on another thread; the other methods on the loop."""

    __slots__ = ("_file", "_filesystem", "_path", "_pinned")

    def __init__(self, filesystem: FileSystem, path: str, pinned: FileSlice) -> None:
        """`pinned`: what to copy, from the beginning of the file at `path`. It is released with the copy."""
        self._filesystem = filesystem
        # Another truncation may follow, of another leader, before this copy is made.
        self._path = own_temporary(path)
        self._pinned = pinned
        #: The synced copy, once it is made.
        self._file: File | None = None

    def run(self) -> None:
        """Copy, and sync the copy. Raises OSError."""
        file = self._filesystem.open(self._path, create=True)
        try:
            self._pinned.copy_to(file)
            file.fsync()
        except BaseException:
            file.close()
            with contextlib.suppress(OSError):
                self._filesystem.unlink(self._path)
            raise
        self._file = file

    def is_of(self, shared: SharedFile, size: int) -> bool:
        """Whether it is of the first `size` bytes of a file."""
        return self._file is not None and self._pinned.size == size and self._pinned.is_of(shared)

    def take(self, path: str) -> File:
        """The copy, which has the name `path` now. Makes it first if it is not made yet. Raises OSError."""
        if self._file is None:
            self.run()
        assert self._file is not None
        self._filesystem.rename(self._path, path)
        file, self._file = self._file, None
        return file

    def release(self) -> None:
        """It was taken, or is not needed. May be called twice."""
        self._pinned.release()
        if self._file is not None:
            self._file.close()
            self._file = None
            with contextlib.suppress(OSError):
                self._filesystem.unlink(self._path)
