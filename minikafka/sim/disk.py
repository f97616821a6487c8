"""A disk in memory behind the FileSystem protocol: it loses unsynced bytes, tears writes, fills up and fails.

`Disk` is the device. `DiskView` is one process's access to it, which ends with the process. Every file records how to undo the writes since
its last fsync, every directory its names as of the last fsync_dir. SIGKILL loses nothing. A power cut keeps each file's synced bytes, and
none, some or all of the others, perhaps torn or with a gap, because pages are written in any order. Of each directory's unsynced changes it
keeps the first ones, as a journalling file system does.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from minikafka.storage.filesystem import Buffer, SyncFailed

#: Largest gap that a power cut leaves. Pages are larger, but logs this small would rarely have two unsynced ones.
GAP_BYTES_MAX = 200


#: The unit that a device writes completely or not at all.
SECTOR_BYTES = 512


def mixed_sectors(before: bytes, after: bytes, generator: random.Random) -> bytes:
    """`after` with only some of its sectors written, in any order; the others are as in `before`, or zeros."""
    old = before[: len(after)].ljust(len(after), b"\0")
    return b"".join(
        (after if generator.random() < 0.5 else old)[start : start + SECTOR_BYTES] for start in range(0, len(after), SECTOR_BYTES)
    )


class Inode:
    """A file: `data`, and zeros up to `size`. `undo`: (position, bytes before, length and size before) of each unsynced change.

    `parsed`, `sums` and `parsed_end` are a cache for minikafka.sim.replicas, which reads the file from outside: the bytes below
    `parsed_end` have not changed since they were parsed.
    """

    __slots__ = ("data", "parsed", "parsed_end", "size", "sums", "undo")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.size = len(data)
        self.undo: list[tuple[int, bytes, int, int]] = []
        self.parsed: list[Any] = []
        self.sums: list[int] = []
        self.parsed_end = 0

    def write(self, data: Buffer, position: int) -> None:
        """Overwrite and extend."""
        content = self.data
        length, count = len(content), len(data)
        if position == length:
            self.undo.append((position, b"", length, self.size))
            content += data
        else:
            self.undo.append((position, bytes(content[position : position + count]), length, self.size))
            if length < position:
                content.extend(bytes(position - length))
            content[position : position + count] = data
        self.size = max(self.size, position + count)
        self.parsed_end = min(self.parsed_end, position)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros that are not stored."""
        content = self.data
        length = len(content)
        if size < length:
            self.undo.append((size, bytes(content[size:]), length, self.size))
            del content[size:]
            self.parsed_end = min(self.parsed_end, size)
        elif size != self.size:
            self.undo.append((length, b"", length, self.size))
        self.size = size

    def durable(self) -> tuple[bytes, int]:
        """(bytes, size) as of the last fsync."""
        content, size = bytearray(self.data), self.size
        for position, before, length, size_before in reversed(self.undo):
            if len(content) < length:
                content.extend(bytes(length - len(content)))
            content[position : position + len(before)] = before
            del content[length:]
            size = size_before
        return bytes(content), size

    def after_power_cut(self, generator: random.Random, *, in_order: bool = False) -> Inode:
        """The file that the next process finds. `in_order`: no unsynced bytes are kept after lost ones."""
        kind = generator.randrange(5)
        if not self.undo or kind == 0:
            return _inode(bytes(self.data), self.size)
        durable, size = self.durable()
        current = bytes(self.data)
        if kind <= 2 or not current:
            return _inode(durable, size)
        common = 0
        limit = min(len(current), len(durable))
        while common < limit and current[common] == durable[common]:
            common += 1
        cut = generator.randint(common, max(len(current), common))
        if kind == 3:
            return _inode(current[:cut] if cut >= len(durable) else current[:cut] + durable[cut:], max(cut, size))
        if not in_order and cut % 3 == 0 and len(current) > SECTOR_BYTES:
            return _inode(mixed_sectors(durable, current, generator), self.size)
        # The length was written but not the bytes; in half of the cases those of some later pages were.
        lost = len(current) - cut
        if not in_order and cut % 2:
            lost = min(lost, 1 + cut * 7919 % GAP_BYTES_MAX)
        return _inode(current[:cut] + bytes(lost) + current[cut + lost :], self.size)


def _inode(data: bytes, size: int) -> Inode:
    inode = Inode(data)
    inode.size = max(size, len(data))
    return inode


class Disk:
    """Names, files, and how the device behaves.

    `failing` maps an operation (write, fsync, open, rename, ...) to an errno; `space_left` bounds further writes (None = enough);
    `stall` is called with each operation that a device can be slow at and may let the process wait.
    """

    def __init__(self, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self.files: dict[str, dict[str, Inode]] = {"/": {}}
        self.durable: dict[str, dict[str, Inode]] = {"/": {}}
        #: Changes of each directory since its last sync, in order: name -> new inode (None: removed).
        self.journal: dict[str, list[dict[str, Inode | None]]] = {}
        #: Directories in which a call has failed since their last sync: nobody may rely on names that they have had since then.
        self.unsynced: set[str] = set()
        #: A cache for minikafka.sim.replicas: the segments of each directory, dropped when any name changes.
        self.segments: dict[str, list[tuple[int, Inode]]] = {}
        self.locks: set[str] = set()
        self.failing: dict[str, int] = {}
        self.space_left: int | None = None
        self.stall: Callable[[str], None] | None = None
        #: How many files a process may have open; None: any number.
        self.descriptors_max: int | None = None
        #: One in this many reads returns half of the requested bytes; 0: none does.
        self.short_reads_every = 7
        self.reads = 0
        #: One in this many reads that do not wait finds nothing in memory; 0: none does. Who waits gets it (`File.pread_if_cached`).
        self.misses_every = 0
        self.looks = self.misses = 0
        self.wall_ms = wall_ms
        self.bytes_written = 0
        self.syncs = 0

    @property
    def is_short(self) -> bool:
        """Whether descriptors or memory are lacking."""
        return self.descriptors_max is not None or errno.ENOMEM in self.failing.values()

    def fail(self, pick: int) -> str:
        """One kind of call fails from now on; returns which."""
        operation = ("write", "fsync", "fsync_dir", "rename", "read", "open")[pick % 6]
        self.failing[operation] = errno.EIO
        return operation

    def run_short(self, pick: int, descriptors: int) -> str:
        """A process that has `descriptors` open gets almost no more, or the kernel lacks memory for one kind of call. Returns which."""
        pick, is_memory = divmod(pick, 2)
        if is_memory:
            operation = ("open", "read", "write", "list")[pick % 4]
            self.failing[operation] = errno.ENOMEM
            return f"memory to {operation}"
        self.descriptors_max = descriptors + pick % 4
        return "descriptors"

    def heal(self) -> None:
        """The device works again, and nothing is lacking."""
        self.failing.clear()
        self.space_left = self.descriptors_max = None

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """Suspend faults while a check reads the disk from outside."""
        kept = self.failing, self.stall, self.descriptors_max, self.misses_every
        self.failing, self.stall, self.descriptors_max, self.misses_every = {}, None, None, 0
        try:
            yield
        finally:
            self.failing, self.stall, self.descriptors_max, self.misses_every = kept

    def check(self, operation: str, path: str) -> None:
        """Raises OSError if the operation is to fail; may make the process wait."""
        if self.failing and operation in self.failing:
            self.leave_unsynced(path)
            raise OSError(self.failing[operation], "injected", path)
        if self.stall is not None:
            self.stall(operation)

    def is_missing(self) -> bool:
        """Whether bytes are not in memory, so that reading them would wait for the device."""
        every = self.misses_every
        if not every:
            return False
        self.looks += 1
        is_missing = self.looks % every == 0
        self.misses += is_missing
        return is_missing

    def leave_unsynced(self, path: str) -> None:
        """A call has failed. Perhaps it was part of a sync, which has not come to the names in the directory."""
        self.unsynced.add(path if path in self.files else posixpath.dirname(path))

    def room(self, size: int, path: str) -> int:
        """How many bytes of a write fit. Raises OSError ENOSPC if none do."""
        left = self.space_left
        if left is None:
            return size
        if left <= 0 and size:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        size = min(size, left)
        self.space_left = left - size
        return size

    def note(self, directory: str, change: dict[str, Inode | None]) -> None:
        """Record a change of names that takes effect completely or not at all."""
        self.segments.clear()
        self.journal.setdefault(directory, []).append(change)

    def find(self, path: str) -> Inode:
        """The file at a path. Raises FileNotFoundError and IsADirectoryError."""
        directory, name = posixpath.split(path)
        inode = self.files.get(directory, {}).get(name)
        if inode is None:
            if path in self.files:
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return inode

    def power_cut(self, generator: random.Random, in_order: Collection[str] = ()) -> int:
        """Lose unsynced bytes and names. Returns the number of files and directories that changed. Existing views must not be used any
        more. Files in the directories `in_order` get no gaps."""
        self.segments.clear()
        survivors: dict[str, dict[str, Inode]] = {directory: {} for directory in self.files}
        fresh: dict[int, Inode] = {}
        lost = 0
        for directory in sorted({*self.files, *self.durable}):
            names = dict(self.durable.get(directory, {}))
            changes = self.journal.get(directory, [])
            for change in changes[: generator.randint(0, len(changes)) if generator.random() < 0.5 else len(changes)]:
                names.update({name: inode for name, inode in change.items() if inode is not None})
                for name in [name for name, inode in change.items() if inode is None]:
                    names.pop(name, None)
            lost += names.keys() != self.files.get(directory, {}).keys()
            for name, inode in sorted(names.items()):
                if id(inode) not in fresh:
                    fresh[id(inode)] = inode.after_power_cut(generator, in_order=directory in in_order)
                    lost += fresh[id(inode)].data != inode.data
                survivors.setdefault(directory, {})[name] = fresh[id(inode)]
        self.files = survivors
        self.durable = {directory: dict(names) for directory, names in survivors.items()}
        self.journal.clear()
        self.unsynced.clear()
        self.locks.clear()
        return lost

    def remove(self, directory: str) -> None:
        """Remove a directory and everything in it, durably."""
        self.segments.clear()
        for tree in (self.files, self.durable, self.journal):
            tree.pop(directory, None)

    def wipe(self) -> None:
        """Empty the disk."""
        self.files, self.durable = {"/": {}}, {"/": {}}
        self.segments.clear()
        self.journal.clear()
        self.unsynced.clear()
        self.locks.clear()


class DiskFile:
    """An open file with a descriptor number of its process. After `close` the next opened file gets the number, as on a real system."""

    __slots__ = ("_number", "_view", "inode", "path")

    def __init__(self, view: DiskView, path: str, inode: Inode) -> None:
        self.path = path
        self.inode = inode
        self._view = view
        self._number = view.take_number(path)

    def _check(self, operation: str) -> None:
        view = self._view
        if self._number < 0 or view.is_dead:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        disk = view.disk
        if disk.failing or disk.stall is not None:
            disk.check(operation, self.path)

    def pwrite(self, data: Buffer, position: int, /) -> int:
        """See File."""
        self._check("write")
        disk = self._view.disk
        if disk.space_left is not None:
            data = bytes(data)[: disk.room(len(data), self.path)]
        self.inode.write(data, position)
        disk.bytes_written += len(data)
        return len(data)

    def pread(self, count: int, position: int, /) -> bytes:
        """See File; some reads return fewer bytes than requested (`Disk.short_reads_every`)."""
        self._check("read")
        disk = self._view.disk
        if disk.short_reads_every:
            disk.reads += 1
            if disk.reads % disk.short_reads_every == 0:
                count = min(count, max(count // 2, 1))
        inode = self.inode
        content = inode.data
        data = bytes(memoryview(content)[position : position + count])
        if len(data) == count or inode.size <= len(content):
            return data
        missing = min(count, max(inode.size - position, 0)) - len(data)
        return data + bytes(missing) if missing > 0 else data

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """See File."""
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pread_if_cached(self, buffer: memoryview, position: int, /) -> int | None:
        """See File; some bytes are not there (`Disk.misses_every`)."""
        if self._view.disk.is_missing():
            self._check("read")
            return None
        return self.pread_into(buffer, position)

    def is_cached(self, position: int, size: int, /) -> bool:
        """See File."""
        self._check("read")
        return not self._view.disk.is_missing()

    def size(self) -> int:
        """The size in bytes, including zeros that are not stored."""
        self._check("stat")
        return self.inode.size

    def truncate(self, size: int) -> None:
        """See File."""
        self._check("truncate")
        self.inode.truncate(size)

    def preallocate(self, size: int) -> None:
        """See File."""
        if size > self.inode.size:
            self.truncate(size)

    def fsync(self) -> None:
        """Make everything written durable. Raises SyncFailed."""
        try:
            self._check("fsync")
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self.path) from error
        self._view.disk.syncs += 1
        self.inode.undo.clear()

    def fileno(self) -> int:
        """There is none."""
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", self.path)

    def close(self) -> None:
        """See File."""
        if self._number >= 0:
            self._view.numbers.discard(self._number)
            self._number = -1


class DiskLock:
    """A held lock."""

    def __init__(self, view: DiskView, path: str) -> None:
        self._view, self._path = view, path

    def release(self) -> None:
        """Release the lock; a dead process has none."""
        if not self._view.is_dead:
            self._view.disk.locks.discard(self._path)


class DiskView:
    """The disk as one process sees it: a `storage.filesystem.FileSystem`."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.is_dead = False
        #: Descriptor numbers in use.
        self.numbers: set[int] = set()

    def take_number(self, path: str) -> int:
        """The lowest free descriptor. Raises OSError EMFILE."""
        numbers = self.numbers
        limit = self.disk.descriptors_max
        if limit is not None and len(numbers) >= limit:
            self.disk.leave_unsynced(path)
            raise OSError(errno.EMFILE, "Too many open files", path)
        number = len(numbers)
        if number in numbers:
            number = next(free for free in range(number) if free not in numbers)
        numbers.add(number)
        return number

    def kill(self) -> None:
        """The process is gone: its open files are closed, its locks free."""
        self.is_dead = True
        self.disk.locks.clear()

    def _open_directory(self, path: str) -> None:
        """What lists or syncs a directory has it open meanwhile. Raises OSError EMFILE."""
        if self.disk.descriptors_max is not None:
            self.numbers.discard(self.take_number(path))

    def _check(self, operation: str, path: str) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the process is gone", path)
        disk = self.disk
        if disk.failing or disk.stall is not None:
            disk.check(operation, path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """See FileSystem."""
        self._check("open", path)
        directory, name = posixpath.split(path)
        names = self.disk.files.get(directory)
        inode = None if names is None else names.get(name)
        if inode is None:
            if path in self.disk.files:
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
            if names is None or not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            inode = names[name] = Inode()
            self.disk.note(directory, {name: inode})
        return DiskFile(self, path, inode)

    def read(self, path: str) -> bytes:
        """See FileSystem."""
        self.numbers.discard(self.take_number(path))
        self._check("read", path)
        inode = self.disk.find(path)
        return bytes(inode.data) + bytes(inode.size - len(inode.data))

    def rename(self, source: str, target: str) -> None:
        """See FileSystem."""
        self._check("rename", source)
        disk = self.disk
        if source in disk.files:
            disk.segments.clear()
            trees: tuple[dict[str, Any], ...] = (disk.files, disk.durable, disk.journal)
            for tree in trees:
                for path in [path for path in tree if path == source or path.startswith(source + "/")]:
                    tree[target + path[len(source) :]] = tree.pop(path)
            return
        inode = disk.find(source)
        directory, name = posixpath.split(source)
        del disk.files[directory][name]
        into, new_name = posixpath.split(target)
        disk.files[into][new_name] = inode
        if into == directory:
            disk.note(directory, {name: None, new_name: inode})
        else:
            disk.note(into, {new_name: inode})
            disk.note(directory, {name: None})

    def unlink(self, path: str) -> None:
        """See FileSystem."""
        self._check("unlink", path)
        self.disk.find(path)
        directory, name = posixpath.split(path)
        del self.disk.files[directory][name]
        self.disk.note(directory, {name: None})

    def rmdir(self, path: str) -> None:
        """See FileSystem."""
        self._check("rmdir", path)
        if path not in self.disk.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self.disk.segments.clear()
        self.disk.files.pop(path, None)
        self.disk.durable.pop(path, None)
        self.disk.journal.pop(path, None)

    def mkdir(self, path: str) -> bool:
        """See FileSystem."""
        self._check("mkdir", path)
        is_new = path not in self.disk.files
        while path not in self.disk.files:
            self.disk.files[path] = {}
            path = posixpath.dirname(path)
        return is_new

    def list(self, path: str) -> list[str]:
        """See FileSystem."""
        self._check("list", path)
        self._open_directory(path)
        prefix = path.rstrip("/") + "/"
        if path not in self.disk.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        below = [name[len(prefix) :] for name in self.disk.files if name.startswith(prefix)]
        return sorted([*self.disk.files[path], *(name for name in below if name and "/" not in name)])

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        directory, name = posixpath.split(path)
        return path in self.disk.files or name in self.disk.files.get(directory, ())

    def is_dir(self, path: str) -> bool:
        """See FileSystem."""
        return path in self.disk.files

    def size(self, path: str) -> int:
        """See FileSystem."""
        self._check("stat", path)
        return self.disk.find(path).size

    def modified_ms(self, path: str) -> int:
        """See FileSystem; every file seems just modified."""
        self._check("stat", path)
        self.disk.find(path)
        return self.disk.wall_ms()

    def fsync_dir(self, path: str) -> None:
        """See FileSystem."""
        self._open_directory(path)
        try:
            self._check("fsync_dir", path)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error
        if path not in self.disk.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.disk.syncs += 1
        self.disk.unsynced.discard(path)
        self.disk.durable[path] = dict(self.disk.files[path])
        self.disk.journal.pop(path, None)

    def lock(self, path: str) -> DiskLock:
        """See FileSystem."""
        self._check("open", path)
        self._open_directory(path)
        if path in self.disk.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.disk.locks.add(path)
        return DiskLock(self, path)

    def space(self, path: str) -> tuple[int, int]:
        """See FileSystem."""
        left = self.disk.space_left
        return 1 << 40, 1 << 39 if left is None else left
