"""Bounds the number of open segment files and of index pages in memory, keeping those in use.

A file with unsynced bytes stays open, whatever the bound: Linux reports a failed write-back only through descriptors that were open at
the time. So a log costs one descriptor while it is written to, and none when it is not used.
"""

from __future__ import annotations

import errno
import sys
from collections import deque
from typing import Protocol

from minikafka.storage.filesystem import File, FileSystem

#: Segment files of one log directory that are kept open for the next reader.
OPEN_FILES_MAX = 1024
#: Pages of indexes at rest, of 8 and 12 KiB.
INDEX_PAGES_MAX = 4096
#: The most files that a roll or a truncation has open at once.
DESCRIPTORS_OF_A_CHANGE = 3
#: Files closed at once when no descriptors are left: closing takes a while, too.
_CLOSED_AT_ONCE = 64
#: Queue entries examined when a file is opened: while thousands of logs are being written to, hardly any file can be closed.
_LOOKS_MAX = 64
#: The same when a log was synced.
_LOOKS_AFTER_SYNC = 512
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Closable(Protocol):
    """A segment, as OpenFiles uses it."""

    @property
    def is_open(self) -> bool: ...
    def test_and_clear_used(self) -> bool:
        """Whether the file was used since the last call of this method."""

    def close_if_idle(self) -> bool:
        """Close the file if no slice is in flight and everything in it is synced. False if it stays open."""


class Paged(Protocol):
    """An index, as OpenFiles uses it."""

    def forget_page(self, number: int) -> None: ...


class OpenFiles:
    """Second-chance replacement: a file that was used since it was last examined goes to the back of the queue."""

    __slots__ = ("_is_exhausted", "_limit", "_most", "_pages", "_pages_max", "_queue")

    def __init__(self, limit: int = OPEN_FILES_MAX, pages_max: int = INDEX_PAGES_MAX, most: int = sys.maxsize) -> None:
        """`limit`: how many files to keep open for the next reader. `most`: how many may be open because they are not synced or in use;
        the process needs descriptors for other things, too, such as the connection that carries its heartbeats."""
        self._limit = limit
        self._most = most
        #: Whether no file could be closed when one was needed, and nothing has been synced since.
        self._is_exhausted = False
        self._pages_max = pages_max
        self._pages: deque[tuple[Paged, int]] = deque()
        self._queue: deque[Closable] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def excess(self) -> int:
        """How many more files are open than should be: they have bytes that are not synced, or were just used."""
        return max(len(self._queue) - self._limit, 0)

    def open(self, filesystem: FileSystem, path: str, *, create: bool = False) -> File:
        """Open a file. If no descriptors are left, or too many files are open, first close some files that can be closed. Raises
        OSError."""
        if len(self._queue) >= self._most and not self._make_room():
            raise OSError(errno.EMFILE, f"{len(self._queue)} log files are open, and none of them can be closed yet", path)
        try:
            return filesystem.open(path, create=create)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not self._make_room():
                raise
            return filesystem.open(path, create=create)

    def _make_room(self) -> bool:
        """Close some files. Returns whether any could be closed."""
        # Thousands of requests may come before the next sync: not each of them looks at every file in vain.
        looks = min(_LOOKS_MAX, len(self._queue)) if self._is_exhausted else len(self._queue)
        closed = self._close(_CLOSED_AT_ONCE, looks, used_too=True)
        self._is_exhausted = not closed
        return bool(closed)

    def require(self, filesystem: FileSystem, path: str, count: int = DESCRIPTORS_OF_A_CHANGE) -> None:
        """Check that `count` files can be opened now, so that a change of several steps does not stop half-way for lack of descriptors.
        Raises OSError if not."""
        opened: list[File] = []
        try:
            for _ in range(count):
                opened.append(self.open(filesystem, path))
        finally:
            for file in opened:
                file.close()

    def admit(self, segment: Closable) -> None:
        """A segment has opened its file: close others if there are too many."""
        self._queue.append(segment)
        self.shrink(_LOOKS_MAX)

    def admit_page(self, index: Paged, number: int) -> None:
        """An index has read a page: drop the oldest page if there are too many."""
        self._pages.append((index, number))
        if len(self._pages) > self._pages_max:
            oldest, its_number = self._pages.popleft()
            oldest.forget_page(its_number)

    def shrink(self, looks_max: int | None = None) -> None:
        """Close files above the bound, for example after a sync has made them closable."""
        excess = self.excess
        if looks_max is None:
            self._is_exhausted = False
        if excess:
            # With `looks_max`, the last file in the queue was just opened: spare it. Else go round twice, since syncing counts as use.
            # While thousands are written to, few can be closed, and each sync only looks at some.
            twice = min(2 * len(self._queue), _LOOKS_AFTER_SYNC)
            self._close(excess, twice if looks_max is None else min(looks_max, len(self._queue) - 1))

    def _close(self, wanted: int, looks: int, *, used_too: bool = False) -> int:
        """Close up to `wanted` of the next `looks` files in the queue; returns how many. `used_too`: even those used lately."""
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
