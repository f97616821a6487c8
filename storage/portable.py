"""System calls that Linux has and other Unixes lack: syncing data alone, reserving disk space, locks within one process.

Each function looks up its system call when it is called, so that a test can remove one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys

_ZEROS_BYTES = 1 << 20
#: The kernel reads ahead as much and more.
_LOOKED_AT_EVERY = 128 * 1024


def sync_data(fd: int) -> None:
    """Make the file's bytes and size durable. macOS needs F_FULLFSYNC, as Java uses: its fsync leaves the bytes in the drive's cache."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
        return
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):
                raise
    os.fsync(fd)


def reserve(fd: int, size: int) -> None:
    """Make the file at least `size` bytes long, with disk space reserved for all of it. Raises OSError (ENOSPC)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    end = os.fstat(fd).st_size
    zeros = memoryview(bytes(min(max(size - end, 0), _ZEROS_BYTES)))
    while end < size:
        end += os.pwrite(fd, zeros[: size - end], end)


def is_cached(fd: int, position: int, size: int) -> bool:
    """Whether `size` bytes can be read without waiting for the disk. True where the system does not tell (other Unixes, some file systems),
    and if the read will fail."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    byte = bytearray(1)
    try:
        for at in (*range(position, position + size, _LOOKED_AT_EVERY), position + size - 1):
            os.preadv(fd, [byte], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def read_if_cached(fd: int, buffer: memoryview, position: int) -> int | None:
    """Read into `buffer`, perhaps less, and return the number of bytes; None if that would wait for the disk. Waits where the system does
    not tell."""
    try:
        return os.preadv(fd, [buffer], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except AttributeError:
        pass  # not of this system
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    return os.preadv(fd, [buffer], position)


class FileLock:
    """An exclusive lock on a file. It keeps out this process, other Python processes, and Apache Kafka, whose FileChannel.tryLock takes a
    POSIX lock. Raises BlockingIOError if the lock is held.

    A POSIX lock belongs to the process and ends when the process closes any descriptor of the file. So this class remembers the files it
    has locked and never opens them a second time. Where flock and POSIX locks exclude each other (BSD, macOS), only the POSIX lock is
    taken."""

    __slots__ = ("_fd", "_key")

    _held: set[tuple[int, int]] = set()

    def __init__(self, path: str) -> None:
        if os.path.exists(path) and _identity(os.stat(path)) in FileLock._held:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if sys.platform == "linux":
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.EACCES:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path) from error
            raise
        self._fd = fd
        self._key = _identity(os.fstat(fd))
        FileLock._held.add(self._key)

    def release(self) -> None:
        """Release the lock; may be called again."""
        if self._fd >= 0:
            FileLock._held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
