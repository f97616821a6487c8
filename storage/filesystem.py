"""The only way to the disk.

`FileSystem` and `File` are protocols: `OsFileSystem` is the real disk; tests and the simulator put a disk in memory
in its place, which loses unsynced bytes and fails on demand. Everything raises OSError; a log turns that into a
StorageError once, at its edge.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file, addressed by position. `pwrite` may write less than given, like the system call."""

    @property
    def path(self) -> str: ...
    @property
    def pwrite(self) -> Callable[[Buffer, int], int]: ...
    @property
    def pread(self) -> Callable[[int, int], bytes]: ...

    def size(self) -> int: ...
    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros that take no room on the disk."""

    def preallocate(self, size: int) -> None:
        """Make room for `size` bytes, failing with ENOSPC now instead of at a later write."""

    def fsync(self) -> None: ...
    def fileno(self) -> int:
        """Descriptor for sendfile; OSError if the file has none."""

    def map(self) -> AbstractContextManager[memoryview]:
        """The whole content, read only, as long as the context lives. Only the file's owner may cut it meanwhile."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    """Paths are absolute or relative strings. A created, renamed or unlinked name is durable after `fsync_dir`."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """FileNotFoundError unless there or `create`."""

    def read(self, path: str) -> bytes: ...
    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target`."""

    def unlink(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None:
        """With its parents; no error if there."""

    def list(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def fsync_dir(self, path: str) -> None: ...
    def lock(self, path: str) -> Lock:
        """Exclusive lock for this process; BlockingIOError if somebody holds it."""

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""


class OsFile:
    """A file of the operating system. `pwrite` and `pread` are bound system calls: no Python frame in between."""

    __slots__ = ("_fd", "path", "pread", "pwrite")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.pwrite: Callable[[Buffer, int], int] = partial(os.pwrite, fd)
        self.pread: Callable[[int, int], bytes] = partial(os.pread, fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def preallocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def fsync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        if self._fd < 0:
            raise OSError(9, "the file is closed", self.path)
        return self._fd

    @contextlib.contextmanager
    def map(self) -> Iterator[memoryview]:
        size = self.size()
        if size == 0:
            yield memoryview(b"")
            return
        mapped = mmap.mmap(self._fd, size, prot=mmap.PROT_READ)
        view = memoryview(mapped)
        try:
            yield view
        finally:
            # A piece of the view that an exception still holds keeps the map alive until it is gone.
            with contextlib.suppress(BufferError):
                view.release()
                mapped.close()

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            # The number may be reused by another file: no stale write may reach it.
            self.pwrite = self.pread = _closed
            os.close(fd)


def _closed(*_: object) -> Any:
    raise OSError(9, "the file is closed")


class OsLock:
    """flock keeps a second log directory of this process out (and other Pythons); the POSIX lock keeps out Apache
    Kafka, whose FileChannel.tryLock takes one."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """The real disk."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        return OsFile(path, os.open(path, flags, 0o644))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        return OsLock(path)

    def space(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def write_atomically(filesystem: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """Write `<path>.tmp`, fsync, rename, fsync the directory: a reader sees the old content or the new, also after a
    power cut (KAFKA-16541). Without `sync` a power cut may leave an empty or torn file, until somebody syncs it."""
    temporary = path + ".tmp"
    if filesystem.exists(temporary):
        filesystem.unlink(temporary)
    file = filesystem.open(temporary, create=True)
    try:
        write_all(file, data, 0)
        if sync:
            file.fsync()
    finally:
        file.close()
    filesystem.rename(temporary, path)
    if sync:
        filesystem.fsync_dir(os.path.dirname(path) or ".")


def write_all(file: File, data: Buffer, position: int) -> None:
    """pwrite until everything is written; ENOSPC and the like surface as OSError."""
    size = len(data)
    written = file.pwrite(data, position)
    if written == size:
        return
    view = memoryview(data)
    while written < size:
        count = file.pwrite(view[written:], position + written)
        if count <= 0:
            raise OSError(5, "the disk accepted no more bytes", file.path)
        written += count
