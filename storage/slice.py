"""Lazy slices of a segment file, for zero-copy sends.

A slice pins its file: until it is released, the file stays open, truncation replaces the file instead of cutting it, and retention only
unlinks it. So the bytes of a slice never change (KAFKA-18723).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

from minikafka.storage import cold_reads
from minikafka.storage.filesystem import File, copy_file

#: Called when reading a slice fails.
OnDiskError = Callable[[OSError], object]


class SharedFile:
    """A `.log` file and the end positions of the slices in flight. It is closed when retired and no longer pinned."""

    __slots__ = ("ends", "file", "is_retired", "on_error", "was_used")

    def __init__(self, file: File, on_error: OnDiskError | None = None) -> None:
        self.file = file
        self.on_error = on_error
        self.is_retired = False
        #: Whether the file was used since OpenFiles last examined it.
        self.was_used = True
        #: End positions of the slices in flight; each slice adds its own.
        self.ends: list[int] = []

    @property
    def is_pinned(self) -> bool:
        return bool(self.ends)

    def reaches_beyond(self, position: int) -> bool:
        """Whether a slice in flight holds bytes at or beyond `position`."""
        return any(end > position for end in self.ends)

    def unpin(self, end: int) -> None:
        self.ends.remove(end)
        if self.is_retired and not self.ends:
            self.file.close()

    def retire(self) -> None:
        """The segment no longer needs the file: close it, or let the last slice close it."""
        self.is_retired = True
        if not self.ends:
            self.file.close()


class FileSlice:
    """`size` bytes from `position` of an open file.

    Send it with `os.sendfile(out, slice.fileno(), position, size)` or copy the bytes with `read()`; then call `release()` (dropping the
    last reference does the same). If a read fails outside this class, as in sendfile, call `failed` with the error.
    """

    __slots__ = ("_end", "_shared", "position", "size")

    def __init__(self, shared: SharedFile | None, position: int, size: int) -> None:
        self._shared = shared
        self.position = position
        self.size = size
        self._end = end = position + size
        if shared is not None:
            shared.was_used = True
            shared.ends.append(end)

    def fileno(self) -> int:
        """The file descriptor. Raises ValueError for an empty or released slice, OSError for a disk in memory."""
        return self._pinned().file.fileno()

    def read(self) -> bytes:
        """A copy of the bytes. Raises ValueError if the slice was released, and OSError."""
        if self._shared is None and not self.size:
            return b""
        return self.pread(self.size, 0)

    def pread(self, count: int, offset: int) -> bytes:
        """A copy of at most `count` bytes from `offset` within the slice, fewer only at its end. If the disk fails, or has lost the file's
        end, takes the log offline and raises OSError. Raises NotInMemory within a look-up."""
        shared = self._pinned()
        try:
            count = min(count, self.size - offset)
            data = cold_reads.read(shared.file, count, self.position + offset)
            if len(data) != count:
                raise OSError(errno.EIO, "the file is shorter than before", shared.file.path)
            return data
        except OSError as error:
            self.failed(error)
            raise

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """Read bytes of the whole file, not only of the slice. May run on another thread. Raises OSError without taking the log offline."""
        return self._pinned().file.pread_into(buffer, position)

    def is_cached(self) -> bool:
        """Whether the bytes can be read without waiting for the disk, as far as the system tells."""
        shared = self._pinned()
        try:
            return shared.file.is_cached(self.position, self.size)
        except OSError:
            return True  # whoever reads them will see

    def read_through(self) -> None:
        """Read the bytes, so that the system has them in memory. Errors are for those who need the bytes. May run on another thread, as
        `pread_into`."""
        with contextlib.suppress(OSError, ValueError):
            cold_reads.through(self._pinned().file, self.position, self.size)

    def rest(self, position: int) -> FileSlice:
        """Another slice, of the bytes from a position of the file on."""
        return FileSlice(self._pinned(), position, self._end - position)

    def is_of(self, shared: SharedFile) -> bool:
        """Whether it is a slice of this file, and not released."""
        return self._shared is shared

    def copy_to(self, file: File) -> None:
        """Copy the bytes to the beginning of a file. The slice must begin where its file does. May run on another thread, as
        `pread_into`."""
        copy_file(self._pinned().file, file, self.size)

    def fsync(self) -> None:
        """Sync the slice's file. May run on another thread, as `pread_into`."""
        if self._shared is not None:
            self._shared.file.fsync()

    def failed(self, error: OSError) -> None:
        """Report, on the loop, that the file could not be read: its log and log directory go offline."""
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

    #: A cycle of garbage may hold the slice and a coroutine that releases it, too.
    __del__ = release

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"


def empty_slice() -> FileSlice:
    return FileSlice(None, 0, 0)
