"""A disk in memory behind the FileSystem protocol: it can lose what was not synced and fail on demand.

Every inode has durable bytes (as of the last fsync) and current ones; every name is durable after fsync_dir. `crash()`
returns the disk as it is after a power cut: of each file the synced bytes, then - chosen by the generator - none, some
or all of the unsynced ones, in any order of their sectors; unsynced names are kept or lost.
"""

from __future__ import annotations

import errno
import posixpath
import random

from minikafka.sim.disk import SECTOR_BYTES, mixed_sectors
from minikafka.storage.filesystem import SyncFailed


class Inode:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)


class MemoryFile:
    def __init__(self, filesystem: MemoryFileSystem, path: str, inode: Inode) -> None:
        self._filesystem = filesystem
        self.path = path
        self.inode = inode
        self.is_closed = False
        filesystem.opened += 1

    def _check(self, operation: str) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        self._filesystem.check(operation, self.path)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int, /) -> int:
        self._check("write")
        data = bytes(data)[: self._filesystem.room(len(data), self.path)]
        content = self.inode.data
        if len(content) < position:
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        return len(data)

    def pread(self, count: int, position: int, /) -> bytes:
        """Every other read returns only half of the requested bytes."""
        self._check("read")
        filesystem = self._filesystem
        filesystem.reads += 1
        if filesystem.reads % 2:
            count = min(count, max(count // 2, 1))
        return bytes(self.inode.data[position : position + count])

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pread_if_cached(self, buffer: memoryview, position: int, /) -> int | None:
        return self.pread_into(buffer, position)

    def is_cached(self, position: int, size: int, /) -> bool:
        self._check("read")
        return True

    def size(self) -> int:
        self._check("stat")
        return len(self.inode.data)

    def truncate(self, size: int) -> None:
        self._check("truncate")
        content = self.inode.data
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def preallocate(self, size: int) -> None:
        if size > self.size():
            self.truncate(size)

    def fsync(self) -> None:
        try:
            self._check("fsync")
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self.path) from error
        self._filesystem.syncs.append(self.path)
        self.inode.durable = bytes(self.inode.data)

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", self.path)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._filesystem.opened -= 1


class MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFileSystem:
    """`fail(operation, error, path_contains, after)` makes the operation fail: write, read, truncate, fsync, rename,
    unlink, open, mkdir, rmdir, list, stat, fsync_dir. `space_left` bounds the bytes that can still be written, `descriptors_max` the
    files that are open at once. `opened`: how many are; `syncs`: the paths of what was synced, in order."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.directories: set[str] = {"/"}
        self.space_left: int | None = None
        self.now_ms = 0
        self.locks: set[str] = set()
        self.descriptors_max: int | None = None
        self.opened = 0
        self.opened_max = 0
        self.reads = 0
        self.syncs: list[str] = []
        self._failures: list[list[object]] = []

    def fail(self, operation: str, error: int = errno.EIO, path_contains: str = "", after: int = 0) -> None:
        self._failures.append([operation, error, path_contains, after])

    def heal(self) -> None:
        self._failures.clear()
        self.space_left = self.descriptors_max = None

    def check(self, operation: str, path: str) -> None:
        for failure in self._failures:
            if failure[0] == operation and str(failure[2]) in path:
                if failure[3]:
                    failure[3] = int(str(failure[3])) - 1
                    continue
                raise OSError(int(str(failure[1])), "injected", path)

    def room(self, size: int, path: str) -> int:
        if self.space_left is None:
            return size
        if self.space_left <= 0 and size:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        size = min(size, self.space_left)
        self.space_left -= size
        return size

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.check("open", path)
        self.take_descriptor(path)
        if path not in self.names:
            self._check_no_directory(path)
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            if posixpath.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "No such directory", path)
            self.names[path] = Inode()
        return MemoryFile(self, path, self.names[path])

    def take_descriptor(self, path: str) -> None:
        if self.descriptors_max is not None and self.opened >= self.descriptors_max:
            raise OSError(errno.EMFILE, "Too many open files", path)
        self.opened_max = max(self.opened_max, self.opened + 1)

    def read(self, path: str) -> bytes:
        self.check("read", path)
        self.take_descriptor(path)
        return bytes(self._inode(path).data)

    def write(self, path: str, data: bytes) -> None:
        """For tests: a file as it stands on a disk."""
        self.mkdir(posixpath.dirname(path))
        self.names[path] = self.durable_names[path] = Inode(data)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        if source in self.directories:
            self._rename_directory(source, target)
            return
        inode = self._inode(source)
        if posixpath.dirname(target) not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", target)
        del self.names[source]
        self.names[target] = inode

    def _rename_directory(self, source: str, target: str) -> None:
        for path in [path for path in self.directories if path == source or path.startswith(source + "/")]:
            self.directories.remove(path)
            self.directories.add(target + path[len(source) :])
        for names in (self.names, self.durable_names):
            for path in [path for path in names if path.startswith(source + "/")]:
                names[target + path[len(source) :]] = names.pop(path)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        self._inode(path)
        del self.names[path]

    def rmdir(self, path: str) -> None:
        self.check("rmdir", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self.directories.discard(path)

    def mkdir(self, path: str) -> bool:
        self.check("mkdir", path)
        is_new = path not in self.directories
        while path not in self.directories:
            self.directories.add(path)
            path = posixpath.dirname(path)
        return is_new

    def list(self, path: str) -> list[str]:
        self.check("list", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        prefix = path.rstrip("/") + "/"
        everything = [*self.names, *self.directories]
        return sorted({name[len(prefix) :].split("/")[0] for name in everything if name.startswith(prefix)} - {""})

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def is_dir(self, path: str) -> bool:
        return path in self.directories

    def size(self, path: str) -> int:
        self.check("stat", path)
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        self.check("stat", path)
        self._inode(path)
        return self.now_ms

    def fsync_dir(self, path: str) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        try:
            self.check("fsync_dir", path)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error
        self.syncs.append(path)
        prefix = path.rstrip("/") + "/"
        for names, others in ((self.names, self.durable_names), (self.durable_names, self.names)):
            for name in [name for name in names if name.startswith(prefix) and "/" not in name[len(prefix) :]]:
                if name not in others or others[name] is not names[name]:
                    if names is self.names:
                        self.durable_names[name] = names[name]
                    elif name not in self.names:
                        del self.durable_names[name]

    def lock(self, path: str) -> MemoryLock:
        if path in self.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.locks.add(path)
        return MemoryLock(self.locks, path)

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def crash(self, generator: random.Random) -> MemoryFileSystem:
        """The disk after a power cut. The old one must not be used any more."""
        disk = MemoryFileSystem()
        disk.directories = set(self.directories)
        disk.now_ms = self.now_ms
        survivors: dict[str, Inode] = {}
        for name in sorted({*self.names, *self.durable_names}):
            volatile, durable = self.names.get(name), self.durable_names.get(name)
            inode = volatile if generator.random() < 0.5 else durable
            if inode is not None:
                survivors[name] = inode
        surviving: dict[int, bytes] = {}
        for name, inode in survivors.items():
            data = surviving.setdefault(id(inode), self._after_power_cut(inode, generator))
            disk.write(name, data)
        return disk

    def kill(self) -> MemoryFileSystem:
        """The disk after SIGKILL: everything written is there."""
        disk = MemoryFileSystem()
        disk.directories = set(self.directories)
        disk.now_ms = self.now_ms
        for name, inode in self.names.items():
            disk.write(name, bytes(inode.data))
        return disk

    @staticmethod
    def _after_power_cut(inode: Inode, generator: random.Random) -> bytes:
        current, durable = bytes(inode.data), inode.durable
        kind = generator.randrange(5)
        if current == durable or kind == 0:
            return durable
        if kind == 1:
            return current
        if kind == 4:
            return mixed_sectors(durable, current, generator)
        common = 0
        while common < min(len(current), len(durable)) and current[common] == durable[common]:
            common += 1
        cut = generator.randint(common, max(len(current), common))
        if kind == 2:
            if cut >= len(durable):
                return current[:cut]
            cut -= cut % SECTOR_BYTES  # what was there before is overwritten by whole sectors
            return current[:cut] + durable[cut:]
        # The length was written, but not the bytes.
        return current[:cut] + bytes(len(current) - cut)

    def _check_no_directory(self, path: str) -> None:
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)

    def _inode(self, path: str) -> Inode:
        self._check_no_directory(path)
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.names[path]
