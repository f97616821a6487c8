"""Lazy pieces of a segment file, for zero-copy sends.

A slice pins its file: as long as one is unreleased the file stays open, truncation never cuts what is under it, and retention only
unlinks it, so the bytes under a slice never change (KAFKA-18723).
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.storage.filesystem import File, read_all

#: Hears of a disk that failed under a slice.
OnDiskError = Callable[[OSError], object]


class SharedFile:
    """A `.log` file and where the slices in flight on it end. Closed when retired and no longer pinned."""

    __slots__ = ("_ends", "file", "is_retired", "on_error", "was_used")

    def __init__(self, file: File, on_error: OnDiskError | None = None) -> None:
        self.file = file
        self.on_error = on_error
        self.is_retired = False
        #: Since OpenFiles looked last.
        self.was_used = True
        self._ends: list[int] = []

    @property
    def is_pinned(self) -> bool:
        return bool(self._ends)

    def reaches_beyond(self, position: int) -> bool:
        """Whether a slice in flight holds bytes at or behind `position`."""
        return any(end > position for end in self._ends)

    def pin(self, end: int) -> None:
        self.was_used = True
        self._ends.append(end)

    def unpin(self, end: int) -> None:
        self._ends.remove(end)
        if self.is_retired and not self._ends:
            self.file.close()

    def retire(self) -> None:
        """The segment is done with the file; the last slice closes it."""
        self.is_retired = True
        if not self._ends:
            self.file.close()


class FileSlice:
    """`size` bytes from `position` of an open file. Send it with `os.sendfile(out, slice.fileno(), position, size)`
    or take the bytes with `read()`; then `release()` (dropping the last reference does the same). Whoever meets an error of the disk
    that is not told here - sendfile's - tells it with `failed`."""

    __slots__ = ("_end", "_shared", "position", "size")

    def __init__(self, shared: SharedFile | None, position: int, size: int) -> None:
        self._shared = shared
        self.position = position
        self.size = size
        self._end = position + size
        if shared is not None:
            shared.pin(self._end)

    def fileno(self) -> int:
        """File descriptor; raises ValueError for an empty or released slice and OSError for a disk in memory."""
        return self._pinned().file.fileno()

    def read(self) -> bytes:
        """Copy of the bytes; raises ValueError if released, OSError."""
        if self._shared is None and not self.size:
            return b""
        return self.pread(self.size, 0)

    def pread(self, count: int, offset: int) -> bytes:
        """Copy of at most `count` bytes from `offset` within the slice. A disk that fails takes the log offline; raises OSError then."""
        shared = self._pinned()
        try:
            return read_all(shared.file, min(count, self.size - offset), self.position + offset)
        except OSError as error:
            self.failed(error)
            raise

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """Bytes of the file, not of the slice, from anywhere: may run elsewhere, and tells nobody of an OSError."""
        return self._pinned().file.pread_into(buffer, position)

    def fsync(self) -> None:
        """Sync the file the slice is of; as `pread_into`, may run elsewhere."""
        if self._shared is not None:
            self._shared.file.fsync()

    def failed(self, error: OSError) -> None:
        """(On the loop.) The file under the slice could not be read: its log and log directory go offline."""
        if self._shared is not None and self._shared.on_error is not None:
            self._shared.on_error(error)

    def release(self) -> None:
        """Unpin the file; may be called twice."""
        shared = self._shared
        if shared is not None:
            self._shared = None
            shared.unpin(self._end)

    def _pinned(self) -> SharedFile:
        if self._shared is None:
            raise ValueError("the slice is empty or released")
        return self._shared

    def __len__(self) -> int:
        return self.size

    def __del__(self) -> None:
        if self._shared is not None:
            self._shared.unpin(self._end)

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"


def empty_slice() -> FileSlice:
    return FileSlice(None, 0, 0)
