"""The only way to the disk.

`FileSystem` and `File` are protocols: `OsFileSystem` is the real disk; tests and the simulator put a disk in memory
in its place, which loses unsynced bytes and fails on demand. Everything raises OSError; a log turns that into a
StorageError once, at its edge. Nothing is mapped into memory: a page that the disk cannot give would kill the process
(SIGBUS), where a `pread` fails.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from minikafka.storage import portable

Buffer = bytes | bytearray | memoryview

#: What the machine is short of, not what the disk cannot do.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})
#: File systems and kernels on which `copy_file_range` does not work.
_NO_COPY_RANGE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
_COPY_BYTES = 1 << 20


class SyncFailed(OSError):
    """A sync failed, for whatever reason. What it covered may be lost, and asking again may say otherwise: never retry."""


def is_shortage(error: OSError) -> bool:
    """Whether the machine lacks descriptors or memory, or a signal came: the disk is well, and the same call may succeed later."""
    return error.errno in SHORTAGES and not isinstance(error, SyncFailed)


class File(Protocol):
    """An open file, addressed by position. Any call on a closed one is OSError EBADF, whoever kept a method of it."""

    @property
    def path(self) -> str: ...
    def pwrite(self, data: Buffer, position: int, /) -> int:
        """Bytes written, perhaps fewer than given, like the system call."""

    def pread(self, count: int, position: int, /) -> bytes:
        """At most `count` bytes, perhaps fewer; none at or behind the end."""

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """As `pread`, into `buffer`; the number of bytes."""

    def size(self) -> int: ...
    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros that take no room on the disk."""

    def preallocate(self, size: int) -> None:
        """Make room for `size` bytes, failing with ENOSPC now instead of at a later write."""

    def fsync(self) -> None:
        """Raises SyncFailed."""

    def fileno(self) -> int:
        """Descriptor for sendfile; OSError if the file has none."""

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
    def fsync_dir(self, path: str) -> None:
        """Raises SyncFailed; FileNotFoundError if there is no such directory."""

    def lock(self, path: str) -> Lock:
        """Exclusive lock for this process; BlockingIOError if somebody holds it."""

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""


class OsFile:
    """A file of the operating system. The descriptor is looked up in every call: after `close` the number may be another file's."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pwrite(self, data: Buffer, position: int, /) -> int:
        return os.pwrite(self._fd, data, position)

    def pread(self, count: int, position: int, /) -> bytes:
        return os.pread(self._fd, count, position)

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        return os.preadv(self._fd, [buffer], position)

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def preallocate(self, size: int) -> None:
        portable.reserve(self.fileno(), size)

    def fsync(self) -> None:
        try:
            portable.sync_data(self.fileno())
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self.path) from error

    def fileno(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsFileSystem:
    """The real disk."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        return OsFile(path, os.open(path, flags, 0o600))

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
        # What is stored is nobody else's: records, and in the metadata log the verifiers of passwords.
        os.makedirs(path, mode=0o700, exist_ok=True)

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
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        return portable.FileLock(path)

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


def read_at(filesystem: FileSystem, path: str, count: int, position: int) -> bytes:
    """`count` bytes of a file that is not kept open; fewer only at its end."""
    file = filesystem.open(path, read_only=True)
    try:
        return read_all(file, count, position)
    finally:
        file.close()


def read_all(file: File, count: int, position: int) -> bytes:
    """pread until everything is read; fewer bytes only at the end of the file."""
    data = file.pread(count, position)
    while 0 < len(data) < count:
        more = file.pread(count - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def copy_file(source: File, target: File, size: int) -> None:
    """The first `size` bytes of `source`, inside of the kernel where it can do that. Raises OSError, also if `source` is shorter."""
    position = _copy_range(source, target, size)
    while position < size:
        data = source.pread(min(_COPY_BYTES, size - position), position)
        if not data:
            raise OSError(errno.EIO, "the file is shorter than it was", source.path)
        write_all(target, data, position)
        position += len(data)


def _copy_range(source: File, target: File, size: int) -> int:
    """Bytes that the kernel has copied."""
    if not (isinstance(source, OsFile) and isinstance(target, OsFile)) or not hasattr(os, "copy_file_range"):
        return 0
    position = 0
    try:
        while position < size:
            count = os.copy_file_range(source.fileno(), target.fileno(), size - position, position, position)
            if count == 0:
                break
            position += count
    except OSError as error:
        if error.errno not in _NO_COPY_RANGE:
            raise
    return position
