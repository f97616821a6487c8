"""Lazy pieces of a segment file, for zero-copy sends.

A slice pins its file: as long as one is unreleased, truncation replaces the file instead of cutting it and retention
only unlinks it, so the bytes under a slice never change (KAFKA-18723).
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from storage.filesystem import File


class SharedFile:
    """A `.log` file and the number of slices in flight on it. Closed when retired and no longer pinned."""

    __slots__ = ("file", "is_retired", "pins")

    def __init__(self, file: File) -> None:
        self.file = file
        self.pins = 0
        self.is_retired = False

    def retire(self) -> None:
        """The segment is done with the file; the last slice closes it."""
        self.is_retired = True
        if self.pins == 0:
            self.file.close()

    def unpin(self) -> None:
        self.pins -= 1
        if self.pins == 0 and self.is_retired:
            self.file.close()


class FileSlice:
    """`size` bytes from `position` of an open file. Send it with `os.sendfile(out, slice.fileno(), position, size)`
    or take the bytes with `read()`; then `release()` (dropping the last reference does the same)."""

    __slots__ = ("_shared", "position", "size")

    def __init__(self, shared: SharedFile | None, position: int, size: int) -> None:
        self._shared = shared
        self.position = position
        self.size = size
        if shared is not None:
            shared.pins += 1

    def fileno(self) -> int:
        """File descriptor; raises ValueError for an empty or released slice and OSError for a disk in memory."""
        if self._shared is None:
            raise ValueError("the slice is empty or released")
        return self._shared.file.fileno()

    def read(self) -> bytes:
        """Copy of the bytes; raises ValueError if released."""
        if self._shared is None:
            if self.size:
                raise ValueError("the slice is released")
            return b""
        return self._shared.file.pread(self.size, self.position)

    def pread(self, count: int, offset: int) -> bytes:
        """Copy of at most `count` bytes from `offset` within the slice."""
        if self._shared is None:
            raise ValueError("the slice is empty or released")
        return self._shared.file.pread(min(count, self.size - offset), self.position + offset)

    def map(self) -> AbstractContextManager[memoryview]:
        """The whole file the slice is of, read only."""
        if self._shared is None:
            raise ValueError("the slice is empty or released")
        return self._shared.file.map()

    def fsync(self) -> None:
        """Sync the file the slice is of."""
        if self._shared is not None:
            self._shared.file.fsync()

    def release(self) -> None:
        """Unpin the file; may be called twice."""
        shared = self._shared
        if shared is not None:
            self._shared = None
            shared.unpin()

    def __len__(self) -> int:
        return self.size

    def __del__(self) -> None:
        if self._shared is not None:
            self._shared.unpin()

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"


def empty_slice() -> FileSlice:
    return FileSlice(None, 0, 0)
