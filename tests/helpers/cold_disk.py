"""The real disk as it is when the system has nothing of the files in memory and each read from the device takes long.

The time is counted, not waited for: `waited_s` grows with each page, or inode, that the thread of the event loop has to wait for. Other
threads read for nothing. What was read or written once is in memory, until `cool` is called.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from minikafka.storage.cold_reads import Look, looking_within
from minikafka.storage.filesystem import File, OsFile, OsFileSystem

T = TypeVar("T")
PAGE_BYTES = 4096
#: What a busy disk takes for one read.
READ_S = 0.05
#: What is promised of a turn.
TURN_S = 0.02


class ColdDisk(OsFileSystem):
    """`waits`: what the loop waited for."""

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self._in_memory: set[tuple[str, int]] = set()
        self.is_cold = False
        self.waited_s = 0.0
        self.waits: list[str] = []

    def cool(self) -> None:
        """The system has forgotten everything."""
        self._in_memory.clear()
        self.is_cold = True

    def missing(self, path: str, pages: range) -> bool:
        return self.is_cold and any((path, page) not in self._in_memory for page in pages)

    def touch(self, path: str, pages: range, *, writes: bool = False) -> None:
        """Have these pages in memory; -1 is the inode."""
        if not self.is_cold:
            return
        for page in pages:
            if (path, page) not in self._in_memory:
                self._in_memory.add((path, page))
                if not writes and threading.get_ident() == self._loop_thread:
                    self.waited_s += READ_S
                    self.waits.append(f"{path} {page}")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        is_there = os.path.exists(path)
        file = super().open(path, create=create, read_only=read_only)
        self.touch(path, range(-1, 0), writes=not is_there)
        return ColdFile(self, path, file)

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.touch(path, range(-1, len(data) // PAGE_BYTES + 1))
        return data

    def modified_ms(self, path: str) -> int:
        self.touch(path, range(-1, 0))
        return super().modified_ms(path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        for path, page in list(self._in_memory):
            if path == source or path.startswith(f"{source}/"):
                self._in_memory.add((target + path[len(source) :], page))

    @contextmanager
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """Yields what the turns of the loop waited for that took too long."""
        found: list[str] = []
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            before_s, known = self.waited_s, len(self.waits)
            run(handle)
            if self.waited_s - before_s > TURN_S:
                found.append(f"{1000 * (self.waited_s - before_s):.0f} ms for {self.waits[known:]}")

        with monkeypatch.context() as patched:
            patched.setattr(asyncio.Handle, "_run", timed)
            yield found


class ColdFile:
    """An open file of a ColdDisk."""

    def __init__(self, disk: ColdDisk, path: str, file: Any) -> None:
        self._disk, self.path, self._file = disk, path, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _pages(self, position: int, size: int) -> range:
        end = min(position + size, self._file.size())
        return range(position // PAGE_BYTES, -(-end // PAGE_BYTES)) if position < end else range(0)

    def pwrite(self, data: Any, position: int, /) -> int:
        count: int = self._file.pwrite(data, position)
        self._disk.touch(self.path, self._pages(position, count), writes=True)
        return count

    def pread(self, count: int, position: int, /) -> bytes:
        self._disk.touch(self.path, self._pages(position, count))
        data: bytes = self._file.pread(count, position)
        return data

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        self._disk.touch(self.path, self._pages(position, len(buffer)))
        return OsFile.pread_into(self._file, buffer, position)

    def pread_if_cached(self, buffer: memoryview, position: int, /) -> int | None:
        if self._disk.missing(self.path, self._pages(position, len(buffer))):
            return None
        return OsFile.pread_into(self._file, buffer, position)

    def is_cached(self, position: int, size: int, /) -> bool:
        return not self._disk.missing(self.path, self._pages(position, size))


def looked_up(look: Callable[[Look], T]) -> T:
    """The result of a look-up for which this thread waits."""
    steps = looking_within(look)
    while True:
        try:
            missing = next(steps)
        except StopIteration as over:
            result: T = over.value
            return result
        missing.read_through()
