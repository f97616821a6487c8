"""Which segments keep their file open, and which pages of indexes are in memory: the used ones, up to a bound.

A file that has bytes which no sync has covered stays open, whatever the bound: Linux tells of a write-back that failed only those who
had the file open. So a log costs one descriptor while it is written to, and none when it is not used.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Protocol

from minikafka.storage.filesystem import File, FileSystem

#: Files of segments that are kept open for the next reader, in one log directory.
OPEN_FILES_MAX = 1024
#: Pages of indexes at rest, of 8 and 12 KiB.
INDEX_PAGES_MAX = 4096
#: Files that a roll or a truncation has open at once, at most.
DESCRIPTORS_OF_A_CHANGE = 3
#: Entries that one opened file may look at: where thousands of logs are being written to, hardly any can be closed.
_LOOKS_MAX = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Closable(Protocol):
    """A segment, as OpenFiles sees it."""

    @property
    def is_open(self) -> bool: ...
    def test_and_clear_used(self) -> bool:
        """Whether the file was used since the last call."""

    def close_if_idle(self) -> bool:
        """Close the file, if nobody reads it and everything in it is synced; False if it stays open."""


class Paged(Protocol):
    """An index, as OpenFiles sees it."""

    def forget_page(self, number: int) -> None: ...


class OpenFiles:
    """Second-chance replacement: a file that was used since it was looked at last goes to the back of the queue."""

    __slots__ = ("_limit", "_pages", "_pages_max", "_queue")

    def __init__(self, limit: int = OPEN_FILES_MAX, pages_max: int = INDEX_PAGES_MAX) -> None:
        self._limit = limit
        self._pages_max = pages_max
        self._pages: deque[tuple[Paged, int]] = deque()
        self._queue: deque[Closable] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def open(self, filesystem: FileSystem, path: str, *, create: bool = False) -> File:
        """Open a file; if there are no descriptors left, after everything that can be closed was. Raises OSError."""
        try:
            return filesystem.open(path, create=create)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not self._close(len(self._queue), len(self._queue), used_too=True):
                raise
            return filesystem.open(path, create=create)

    def require(self, filesystem: FileSystem, path: str, count: int = DESCRIPTORS_OF_A_CHANGE) -> None:
        """Whether so many files can be opened now: a change in several steps must not stop half-way for want of a descriptor.
        Raises OSError."""
        opened: list[File] = []
        try:
            for _ in range(count):
                opened.append(self.open(filesystem, path))
        finally:
            for file in opened:
                file.close()

    def admit(self, segment: Closable) -> None:
        """The segment has opened its file; others make room."""
        self._queue.append(segment)
        self.shrink(_LOOKS_MAX)

    def admit_page(self, index: Paged, number: int) -> None:
        """The index has read a page; the one that was read first goes."""
        self._pages.append((index, number))
        if len(self._pages) > self._pages_max:
            oldest, its_number = self._pages.popleft()
            oldest.forget_page(its_number)

    def shrink(self, looks_max: int | None = None) -> None:
        """Close what is above the bound, after a sync made it possible."""
        excess = len(self._queue) - self._limit
        if excess > 0:
            # With a bound of looks a file has just been opened, the last one. Without, twice around: who synced a file has used it, too.
            self._close(excess, 2 * len(self._queue) if looks_max is None else min(looks_max, len(self._queue) - 1))

    def _close(self, wanted: int, looks: int, *, used_too: bool = False) -> int:
        """Close up to `wanted` files of the next `looks` in the queue; how many were."""
        closed = 0
        for _ in range(looks):
            segment = self._queue.popleft()
            if not segment.is_open:
                closed += 1
            elif (segment.test_and_clear_used() and not used_too) or not segment.close_if_idle():
                self._queue.append(segment)
            else:
                closed += 1
            if closed >= wanted:
                break
        return closed
