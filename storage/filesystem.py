"""All access to the disk.

`FileSystem` and `File` are protocols. `OsFileSystem` is the real disk; tests and the simulator replace it by a disk in memory, which
loses unsynced bytes and fails on demand. All methods raise OSError; a log turns that into a StorageError in one place. Nothing is mapped
into memory: an unreadable page would kill the process (SIGBUS), while a `pread` only fails.
"""

from __future__ import annotations

import errno
import itertools
import os
from typing import Protocol

from minikafka.storage import portable

Buffer = bytes | bytearray | memoryview

#: Errors that mean a shortage of the machine (or a signal), not a failure of the disk.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})
#: File systems and kernels on which `copy_file_range` does not work.
_NO_COPY_RANGE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
_COPY_BYTES = 1 << 20
#: How the names of temporary files end.
TEMPORARY = ".tmp"
_temporaries = itertools.count(1)


class SyncFailed(OSError):
    """A sync failed, for whatever reason. Never retry it: the data may be lost, and a second sync may still report success."""


def is_shortage(error: OSError) -> bool:
    """Whether descriptors or memory are lacking, or a signal came: the disk is fine, and the same call may succeed later."""
    return error.errno in SHORTAGES and not isinstance(error, SyncFailed)


class File(Protocol):
    """An open file, addressed by position. Every call on a closed file raises OSError (EBADF), even through a bound method kept earlier."""

    @property
    def path(self) -> str: ...
    def pwrite(self, data: Buffer, position: int, /) -> int:
        """Write; returns the number of bytes written, which may be fewer than given, as with the system call."""

    def pread(self, count: int, position: int, /) -> bytes:
        """Read at most `count` bytes, perhaps fewer; none at or beyond the end."""

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """As `pread`, into `buffer`; returns the number of bytes."""

    def pread_if_cached(self, buffer: memoryview, position: int, /) -> int | None:
        """As `pread_into`; None if it would wait for the disk, as far as the system tells."""

    def is_cached(self, position: int, size: int, /) -> bool:
        """Whether these bytes, of which there are some, can be read without waiting for the disk, as far as the system tells."""

    def size(self) -> int: ...
    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros that take no disk space."""

    def preallocate(self, size: int) -> None:
        """Reserve disk space for `size` bytes, so that ENOSPC is raised now and not by a later write."""

    def fsync(self) -> None:
        """Raises SyncFailed."""

    def fileno(self) -> int:
        """The descriptor, for sendfile. Raises OSError if the file has none."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    """Paths are absolute or relative strings. A created, renamed or unlinked name is durable after `fsync_dir`."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file. Raises FileNotFoundError if it does not exist, unless `create`."""

    def read(self, path: str) -> bytes: ...
    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing `target`."""

    def unlink(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def mkdir(self, path: str) -> bool:
        """Create the directory and its parents; False if it exists."""

    def list(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def fsync_dir(self, path: str) -> None:
        """Sync the directory's entries. Raises SyncFailed, or FileNotFoundError if there is no such directory."""

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock for this process. Raises BlockingIOError if it is held already."""

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""


class OsFile:
    """A file of the operating system. Every call looks up the descriptor: after `close` its number may belong to another file."""

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

    def pread_if_cached(self, buffer: memoryview, position: int, /) -> int | None:
        return portable.read_if_cached(self.fileno(), buffer, position)

    def is_cached(self, position: int, size: int, /) -> bool:
        return portable.is_cached(self.fileno(), position, size)

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

    def mkdir(self, path: str) -> bool:
        # Readable by the owner alone: the files hold records and, in the metadata log, password verifiers.
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        except FileNotFoundError:
            os.makedirs(path, mode=0o700, exist_ok=True)
        return True

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


def own_temporary(path: str) -> str:
    """The path of a temporary file that nobody else uses: other threads may prepare another `path`, even one in a directory that was made
    again. A start removes it."""
    return f"{path}.{next(_temporaries)}{TEMPORARY}"


def write_atomically(filesystem: FileSystem, path: str, data: bytes, *, sync: bool = True, is_new: bool = False) -> None:
    """Write `<path>.tmp`, fsync, rename, fsync the directory: readers see the old content or the new, even after a power cut
    (KAFKA-16541). Without `sync` a power cut may leave an empty or torn file until it is synced. `is_new`: no earlier attempt can have left
    its temporary file."""
    temporary = path + TEMPORARY
    if not is_new and filesystem.exists(temporary):
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
    """Call pwrite until everything is written. Raises OSError (ENOSPC and others)."""
    size = len(data)
    written = file.pwrite(data, position)
    if written == size:
        return
    view = memoryview(data)
    while written < size:
        count = file.pwrite(view[written:], position + written)
        if count <= 0:
            raise OSError(5, "the disk accepts no more data", file.path)
        written += count


def read_at(filesystem: FileSystem, path: str, count: int, position: int) -> bytes:
    """Read `count` bytes of a file that is opened only for this; fewer only at its end."""
    file = filesystem.open(path, read_only=True)
    try:
        return read_all(file, count, position)
    finally:
        file.close()


def read_all(file: File, count: int, position: int) -> bytes:
    """Call pread until everything is read; fewer bytes only at the end of the file."""
    data = file.pread(count, position)
    while 0 < len(data) < count:
        more = file.pread(count - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def copy_file(source: File, target: File, size: int) -> None:
    """Copy the first `size` bytes of `source`, inside the kernel if it can. Raises OSError, also if `source` is shorter."""
    position = _copy_range(source, target, size)
    while position < size:
        data = source.pread(min(_COPY_BYTES, size - position), position)
        if not data:
            raise OSError(errno.EIO, "the file is shorter than before", source.path)
        write_all(target, data, position)
        position += len(data)


def _copy_range(source: File, target: File, size: int) -> int:
    """Let the kernel copy; returns the number of bytes copied."""
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
