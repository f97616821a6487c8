"""Sparse index files: fixed-size entries in ascending order of their key, looked up by "largest key <= target".

The active segment's entries live in arrays and are written behind, in groups; its file is preallocated (sparse) as
Kafka's is and cut to its entries on roll and close. An index at rest is a read-only map of its file. An index is a
cache: nothing in it is trusted that the log contradicts, and it can always be rebuilt from the log. It is never
written through a map, because a full disk would then kill the process (SIGBUS).
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from contextlib import ExitStack
from struct import Struct

from storage.errors import CorruptFile
from storage.filesystem import File, FileSystem, write_all

_WRITE_BEHIND_ENTRIES = 64


class SparseIndex:
    """Entries are (key, value) pairs packed by ENTRY; keys ascend, values do not descend."""

    ENTRY: Struct
    KEY_TYPE: str
    __slots__ = (
        "_file",
        "_filesystem",
        "_map",
        "_view",
        "_written",
        "base_offset",
        "entries",
        "entries_max",
        "keys",
        "path",
        "size_max",
        "values",
    )

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, size_max: int) -> None:
        self._filesystem = filesystem
        self.path = path
        self.base_offset = base_offset
        self.size_max = size_max - size_max % self.ENTRY.size
        self.entries_max = size_max // self.ENTRY.size
        self.entries = 0
        self.keys: array[int] | None = None
        self.values: array[int] | None = None
        self._file: File | None = None
        self._written = 0
        self._map: ExitStack | None = None
        self._view: memoryview | None = None

    # -- files

    def open_at_rest(self) -> None:
        """Count the entries of a closed segment's file. Raises CorruptFile, FileNotFoundError."""
        size = self._filesystem.size(self.path)
        if size % self.ENTRY.size:
            raise CorruptFile(f"{self.path}: {size} bytes are not a multiple of {self.ENTRY.size}")
        self.entries = self._written = size // self.ENTRY.size

    def activate(self) -> None:
        """Take the entries into memory and preallocate the file, for appending."""
        if self.keys is None:
            self._load()
        size = max(self.size_max, self.entries * self.ENTRY.size)
        file = self._open()
        if file.size() != size:
            file.truncate(size)

    def trim(self) -> None:
        """Write what is pending, cut the file to its entries and go to rest."""
        if self.keys is None:
            return
        self.write_pending()
        self._open().truncate(self.entries * self.ENTRY.size)
        self._rest()

    def reset(self) -> None:
        """Forget all entries, in memory and on disk."""
        self._unmap()
        self.keys, self.values = array(self.KEY_TYPE), array("i")
        self.entries = self._written = 0
        self._open(create=True).truncate(0)

    def write_pending(self) -> None:
        written, entries = self._written, self.entries
        if written == entries or self.keys is None or self.values is None:
            return
        pack = self.ENTRY.pack
        pairs = zip(self.keys[written:], self.values[written:], strict=True)
        write_all(self._open(), b"".join(pack(key, value) for key, value in pairs), written * self.ENTRY.size)
        self._written = entries

    def close(self) -> None:
        self._unmap()
        if self._file is not None:
            self._file.close()
            self._file = None

    def rename(self, suffix: str) -> str:
        """Close, rename to the path with `suffix`; returns the new name. A missing file is no error."""
        self.close()
        target = self.path + suffix
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rename(self.path, target)
        self.path = target
        return target

    # -- entries

    def append(self, key: int, value: int) -> None:
        assert self.keys is not None and self.values is not None
        self.keys.append(key)
        self.values.append(value)
        self.entries += 1
        if self.entries - self._written >= _WRITE_BEHIND_ENTRIES:
            self.write_pending()

    def entry(self, position: int) -> tuple[int, int]:
        if self.keys is not None and self.values is not None:
            return self.keys[position], self.values[position]
        key, value = self.ENTRY.unpack_from(self._mapped(), position * self.ENTRY.size)
        return key, value

    def floor(self, key: int) -> int:
        """Position of the largest entry with a key <= `key`; -1 if there is none."""
        if self.keys is not None:
            return bisect_right(self.keys, key) - 1
        view, unpack, size = self._mapped(), self.ENTRY.unpack_from, self.ENTRY.size
        return bisect_right(range(self.entries), key, key=lambda position: unpack(view, position * size)[0]) - 1

    def cut(self, entries: int) -> None:
        """Keep the first `entries`, active."""
        if self.keys is None:
            self._load()
        assert self.keys is not None and self.values is not None
        del self.keys[entries:], self.values[entries:]
        self.entries = entries
        if self._written > entries:
            self._written = entries
            # Zeros behind the entries, as in a new preallocated file: stale ones must not come back.
            self._open().truncate(entries * self.ENTRY.size)

    def all_entries(self) -> list[tuple[int, int]]:
        return [self.entry(position) for position in range(self.entries)]

    # -- inside

    def _open(self, create: bool = False) -> File:
        if self._file is None:
            self._file = self._filesystem.open(self.path, create=create)
        return self._file

    def _load(self) -> None:
        keys, values = array(self.KEY_TYPE), array("i")
        if self.entries:
            for key, value in self.ENTRY.iter_unpack(self._mapped()[: self.entries * self.ENTRY.size]):
                keys.append(key)
                values.append(value)
        self._unmap()
        self.keys, self.values = keys, values

    def _rest(self) -> None:
        self.keys = self.values = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _mapped(self) -> memoryview:
        if self._view is None:
            stack = ExitStack()
            file = self._filesystem.open(self.path, read_only=True)
            stack.callback(file.close)
            self._view = stack.enter_context(file.map())
            self._map = stack
        return self._view

    def _unmap(self) -> None:
        if self._map is not None:
            self._view = None
            self._map.close()
            self._map = None


class OffsetIndex(SparseIndex):
    """`.index`: (last offset of a batch - base offset, file position of that batch)."""

    ENTRY = Struct(">ii")
    KEY_TYPE = "i"
    __slots__ = ()

    @property
    def is_full(self) -> bool:
        return self.entries >= self.entries_max

    def position_for(self, offset: int) -> int:
        """A file position at or before the batch that holds `offset`."""
        position = self.floor(offset - self.base_offset) if self.entries else -1
        return 0 if position < 0 else self.entry(position)[1]

    def offset_at_or_after(self, file_position: int) -> int | None:
        """Offset of the first entry at or beyond a file position (OffsetIndex.fetchUpperBoundOffset)."""
        index = bisect_right(range(self.entries), file_position - 1, key=lambda i: self.entry(i)[1])
        return self.base_offset + self.entry(index)[0] if index < self.entries else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for offsets >= `offset`."""
        self.cut(self.floor(offset - self.base_offset - 1) + 1)


class TimeIndex(SparseIndex):
    """`.timeindex`: (largest timestamp so far, last offset of the batch with it - base offset)."""

    ENTRY = Struct(">qi")
    KEY_TYPE = "q"
    __slots__ = ()

    @property
    def is_full(self) -> bool:
        """One entry is kept free for the one that a roll adds."""
        return self.entries >= self.entries_max - 1

    @property
    def last_timestamp(self) -> int:
        return self.entry(self.entries - 1)[0] if self.entries else -1

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.entry(self.entries - 1)[1] if self.entries else 0)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Only if `timestamp` is larger than the last one."""
        if timestamp > self.last_timestamp:
            self.append(timestamp, offset - self.base_offset)

    def offset_for(self, timestamp: int) -> int:
        """An offset at or before which no later record than `timestamp` is indexed; the base offset if none."""
        position = self.floor(timestamp) if self.entries else -1
        return self.base_offset if position < 0 else self.base_offset + self.entry(position)[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for offsets >= `offset`."""
        relative = offset - self.base_offset
        self.cut(bisect_right(range(self.entries), relative - 1, key=lambda position: self.entry(position)[1]))
