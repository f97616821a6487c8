"""Sparse index files: fixed-size entries in ascending order of their key, looked up by "largest key <= target".

The active segment's entries are in arrays and are written later, in groups. Its file is preallocated (sparse), as Kafka's is, and
trimmed to its entries after a roll and on close. `IndexWrite` makes, writes and trims the files beside the event loop. Of an inactive
segment's index, recently used pages are in memory, up to a bound for all indexes
of a log directory. No index keeps its file open. An index is a cache: the log overrules it, and it can always be rebuilt from the log.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from struct import Struct

from minikafka.storage import cold_reads
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import File, FileSystem, is_shortage, read_at, write_all
from minikafka.storage.open_files import OpenFiles

_WRITE_BEHIND_ENTRIES = 1024
_PAGE_ENTRIES = 1024
_KEY, _VALUE = 0, 1


class _OpenOnce:
    """A context with a file that is opened on first use and closed at the end."""

    __slots__ = ("_file", "_filesystem", "_index")

    def __init__(self, filesystem: FileSystem, index: SparseIndex) -> None:
        self._filesystem = filesystem
        self._index = index
        self._file: File | None = None

    def read(self, count: int, position: int) -> bytes:
        """Raises OSError; within a look-up NotInMemory."""
        if self._file is None:
            index = self._index
            if not index.was_opened:
                cold_reads.before_opening(self._filesystem, index.path, position, count)
            self._file = self._filesystem.open(index.path, read_only=True)
            index.was_opened = True
        return cold_reads.read(self._file, count, position, self._filesystem)

    def __enter__(self) -> _OpenOnce:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


class SparseIndex:
    """An index of (key, value) pairs packed by ENTRY. Keys strictly ascend, values never descend."""

    ENTRY: Struct
    KEY_TYPE: str
    #: Entries that only a roll may add.
    RESERVED_ENTRIES = 0
    __slots__ = (
        "_filesystem",
        "_open_files",
        "_page",
        "_page_number",
        "_pages",
        "_starts",
        "_written",
        "base_offset",
        "changes",
        "entries",
        "full_at",
        "is_to_be_trimmed",
        "keys",
        "may_have_file",
        "path",
        "size_max",
        "values",
        "was_opened",
    )

    def __init__(
        self, filesystem: FileSystem, path: str, base_offset: int, size_max: int, open_files: OpenFiles | None = None
    ) -> None:
        self._filesystem = filesystem
        self._open_files = OpenFiles() if open_files is None else open_files
        self.path = path
        self.base_offset = base_offset
        self.size_max = size_max - size_max % self.ENTRY.size
        #: With so many entries the segment must roll.
        self.full_at = size_max // self.ENTRY.size - self.RESERVED_ENTRIES
        self.entries = 0
        #: All entries while active or not trimmed yet; None while inactive, when pages of the file are used.
        self.keys: array[int] | None = None
        self.values: array[int] | None = None
        #: False between `begin` and the first write: there is no file yet.
        self.may_have_file = True
        #: Whether the segment is inactive, and `IndexWrite` trims the file.
        self.is_to_be_trimmed = False
        #: How often entries were dropped, or the index became active again: what an IndexWrite wrote before that may be wrong.
        self.changes = 0
        #: Number of entries in the file; the others are only in memory.
        self._written = 0
        #: Whether the file was opened a short while ago, which needs no disk to be done again.
        self.was_opened = False
        #: While inactive: the raw pages by number, and the first entry of each page that a search has visited.
        self._pages: dict[int, bytes] = {}
        self._starts: dict[int, tuple[int, int]] = {}
        #: The page used last: sequential reads find their next entry there.
        self._page = b""
        self._page_number = 0

    # -- files

    def open_at_rest(self) -> None:
        """Count the entries of an inactive segment's file. Raises CorruptFile, FileNotFoundError."""
        size = self._filesystem.size(self.path)
        if size % self.ENTRY.size:
            raise CorruptFile(f"{self.path}: {size} bytes are not a multiple of {self.ENTRY.size}")
        self.entries = self._written = size // self.ENTRY.size

    def activate(self) -> None:
        """Load the entries into memory and preallocate the file, for appends."""
        self.changes += 1
        self.is_to_be_trimmed = False
        if self.keys is None:
            self._load()
        if not self.may_have_file:
            return
        size = max(self.size_max, self.entries * self.ENTRY.size)
        with self._opened() as file:
            if file.size() != size:
                file.truncate(size)

    def begin(self, *, is_new_directory: bool = False) -> None:
        """Get ready for appends, in a new segment. `begin_write`, or a write that cannot wait for it, creates and preallocates the file. A
        leftover of the same name is emptied."""
        if not is_new_directory and self._filesystem.exists(self.path):
            self.reset()
            self.activate()
            return
        self.keys, self.values = array(self.KEY_TYPE), array("i")
        self.may_have_file = False

    def trim(self) -> None:
        """Become inactive: write pending entries, trim the file to its entries, and drop the arrays."""
        if self.keys is None:
            return
        with self._opened() as file:
            self._write_pending(file)
            file.truncate(self.entries * self.ENTRY.size)
        self.trimmed()

    def trimmed(self) -> None:
        """The file has exactly the entries: drop the arrays."""
        self.keys = self.values = None
        self.is_to_be_trimmed = False

    def begin_write(self) -> IndexWrite | None:
        """The task that creates the file, writes pending entries and trims the file; None if nothing of that is due."""
        if self.keys is None or (self.may_have_file and self._written == self.entries and not self.is_to_be_trimmed):
            return None
        trimmed = self.entries * self.ENTRY.size if self.is_to_be_trimmed else None
        preallocated = None if self.may_have_file else self.size_max
        return IndexWrite(self, self._filesystem, self._packed(), self._written * self.ENTRY.size, preallocated, trimmed)

    def is_as_of(self, changes: int) -> bool:
        """Whether an IndexWrite that was begun after so many changes is still right."""
        return changes == self.changes

    def written(self, entries: int) -> None:
        """An IndexWrite has written the first `entries` entries."""
        self.may_have_file = True
        self._written = max(self._written, entries)

    def reset(self) -> None:
        """Drop all entries, in memory and on disk."""
        with self._opened(create=True) as file:
            file.truncate(0)
        self.forget()
        self.changes += 1
        self.is_to_be_trimmed = False
        self.keys, self.values = array(self.KEY_TYPE), array("i")
        self.entries = self._written = 0

    def write_pending(self) -> None:
        if self._written != self.entries and self.keys is not None:
            with self._opened() as file:
                self._write_pending(file)

    def forget(self) -> None:
        """Drop the pages in memory; they are read again when needed."""
        self._page, self._page_number, self.was_opened = b"", 0, False
        self._pages.clear()
        self._starts.clear()

    def forget_page(self, number: int) -> None:
        """Drop one page from memory."""
        self._pages.pop(number, None)
        if number == self._page_number:
            self._page = b""

    def rename(self, suffix: str) -> str:
        """Append `suffix` to the file's name and return the new path. A missing file is not an error."""
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
        if self.entries - self._written >= _WRITE_BEHIND_ENTRIES and self.may_have_file:
            try:
                self.write_pending()
            except OSError as error:
                if not is_shortage(error):
                    raise

    def entry(self, position: int) -> tuple[int, int]:
        if self.keys is not None and self.values is not None:
            return self.keys[position], self.values[position]
        number = position // _PAGE_ENTRIES
        if number != self._page_number or not self._page:
            with _OpenOnce(self._filesystem, self) as file:
                self._turn_to(number, file)
        key, value = self.ENTRY.unpack_from(self._page, (position - number * _PAGE_ENTRIES) * self.ENTRY.size)
        return key, value

    def floor(self, key: int) -> int:
        """Position of the largest entry with a key <= `key`; -1 if there is none."""
        return self._count_up_to(key, _KEY) - 1

    def _count_up_to(self, target: int, field: int) -> int:
        """The number of entries whose key (or value, by `field`) is at most `target`."""
        if self.keys is not None and self.values is not None:
            return bisect_right(self.values if field else self.keys, target)
        if not self._is_in_page(target, field):
            self._find_page(target, field)
        page, unpack, size = self._page, self.ENTRY.unpack_from, self.ENTRY.size
        count = bisect_right(range(len(page) // size), target, key=lambda entry: unpack(page, entry * size)[field])
        return self._page_number * _PAGE_ENTRIES + count

    def _is_in_page(self, target: int, field: int) -> bool:
        """Whether the current page contains the last entry <= `target`."""
        page, size = self._page, self.ENTRY.size
        if not page:
            return False
        if self.ENTRY.unpack_from(page)[field] > target:
            return self._page_number == 0
        is_last = self._page_number * _PAGE_ENTRIES + len(page) // size == self.entries
        return is_last or self.ENTRY.unpack_from(page, len(page) - size)[field] > target

    def _find_page(self, target: int, field: int) -> None:
        """Make the page with the last entry <= `target` current, or the first page if there is no such entry."""
        if not self.entries:
            return
        with _OpenOnce(self._filesystem, self) as file:
            low, high = 0, (self.entries - 1) // _PAGE_ENTRIES
            while low < high:
                middle = (low + high + 1) // 2
                if self._start_of(middle, file)[field] <= target:
                    low = middle
                else:
                    high = middle - 1
            self._turn_to(low, file)

    def _start_of(self, number: int, file: _OpenOnce) -> tuple[int, int]:
        """The first entry of a page."""
        found = self._starts.get(number)
        if found is None:
            key, value = self.ENTRY.unpack(self._read(file.read, number * _PAGE_ENTRIES, 1))
            found = self._starts[number] = key, value
        return found

    def _turn_to(self, number: int, file: _OpenOnce) -> None:
        page = self._pages.get(number)
        if page is None:
            start = number * _PAGE_ENTRIES
            page = self._pages[number] = self._read(file.read, start, min(_PAGE_ENTRIES, self.entries - start))
            self._open_files.admit_page(self, number)
        self._page, self._page_number = page, number

    def cut(self, entries: int) -> None:
        """Keep only the first `entries` entries; the index becomes active."""
        if self.keys is None:
            self._load()
        assert self.keys is not None and self.values is not None
        self.changes += 1
        del self.keys[entries:], self.values[entries:]
        self.entries = entries
        if self._written > entries:
            self._written = entries
            # Truncate, so that stale entries cannot reappear behind the kept ones.
            with self._opened() as file:
                file.truncate(entries * self.ENTRY.size)

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before another entry is added."""
        return self.entries >= self.full_at

    def all_entries(self) -> list[tuple[int, int]]:
        return [self.entry(position) for position in range(self.entries)]

    # -- inside

    @contextlib.contextmanager
    def _opened(self, create: bool = False) -> Iterator[File]:
        file = self._filesystem.open(self.path, create=create or not self.may_have_file)
        self.was_opened = True
        try:
            if not self.may_have_file:
                file.truncate(self.size_max)
                self.may_have_file = True
            yield file
        finally:
            file.close()

    def _read(self, read: Callable[[int, int], bytes], start: int, count: int) -> bytes:
        """The bytes of some entries. Raises OSError if the file has become shorter, which counts as a failed disk."""
        size = self.ENTRY.size
        data = read(count * size, start * size)
        if len(data) != count * size:
            raise OSError(errno.EIO, "the index is shorter than before", self.path)
        return data

    def _write_pending(self, file: File) -> None:
        packed = self._packed()
        if packed:
            write_all(file, packed, self._written * self.ENTRY.size)
            self._written = self.entries

    def _packed(self) -> bytes:
        """The entries that are only in memory."""
        written, entries = self._written, self.entries
        if written == entries or self.keys is None or self.values is None:
            return b""
        pairs = zip(self.keys[written:], self.values[written:], strict=True)
        return struct.pack(">" + self.ENTRY.format[1:] * (entries - written), *chain.from_iterable(pairs))

    def _load(self) -> None:
        keys, values = array(self.KEY_TYPE), array("i")
        if self.entries:
            data = self._read(partial(read_at, self._filesystem, self.path), 0, self.entries)
            for key, value in self.ENTRY.iter_unpack(data):
                keys.append(key)
                values.append(value)
        self.forget()
        self.keys, self.values = keys, values


class IndexWrite:
    """Writes the file of an index beside the loop, without syncing it. `run` blocks and may be called on another thread. If it does not
    raise, call `finish` on the loop.

    The index may go on meanwhile. What it writes itself is the same, and what it drops is behind its entries in the file, where a trim
    removes it, as does a start after a crash: there, the last entries do not fit the log, and the index is rebuilt.
    """

    __slots__ = ("_changes", "_entries", "_filesystem", "_index", "_packed", "_position", "_preallocated", "_trimmed", "path")

    def __init__(
        self, index: SparseIndex, filesystem: FileSystem, packed: bytes, position: int, preallocated: int | None, trimmed: int | None
    ) -> None:
        """`preallocated`: the size of a file that is to be created. `trimmed`: the size of one that is to be trimmed."""
        self._index = index
        self._filesystem = filesystem
        self._packed = packed
        self._position = position
        self._preallocated = preallocated
        self._trimmed = trimmed
        self._entries = index.entries
        self._changes = index.changes
        self.path = index.path

    def run(self) -> None:
        """Does nothing if the segment was deleted, or if another write came first. Raises OSError."""
        if self._is_out_of_date:
            return
        with contextlib.suppress(FileNotFoundError):
            file = self._filesystem.open(self.path, create=self._preallocated is not None)
            try:
                if self._packed:
                    write_all(file, self._packed, self._position)
                size = self._preallocated if self._trimmed is None else self._trimmed
                if size is not None:
                    file.truncate(size)
            finally:
                file.close()

    @property
    def _is_out_of_date(self) -> bool:
        """Whether the index has changed in another way than by appends, or somebody else has created or trimmed the file."""
        index = self._index
        has_file = self._preallocated is not None and index.may_have_file
        return index.path != self.path or index.keys is None or has_file or not index.is_as_of(self._changes)

    def finish(self) -> None:
        """Note what the file has."""
        if not self._is_out_of_date:
            index = self._index
            index.written(self._entries)
            if self._trimmed is not None and index.is_to_be_trimmed:
                index.trimmed()


class OffsetIndex(SparseIndex):
    """`.index`: (last offset of a batch - base offset, file position of that batch)."""

    ENTRY = Struct(">ii")
    KEY_TYPE = "i"
    __slots__ = ()

    def position_for(self, offset: int) -> int:
        """A file position at or before the batch that holds `offset`."""
        position = self.floor(offset - self.base_offset) if self.entries else -1
        return 0 if position < 0 else self.entry(position)[_VALUE]

    def offset_at_or_after(self, file_position: int) -> int | None:
        """Offset of the first entry at or beyond a file position (OffsetIndex.fetchUpperBoundOffset)."""
        index = self._count_up_to(file_position - 1, _VALUE)
        return self.base_offset + self.entry(index)[0] if index < self.entries else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for offsets >= `offset`."""
        self.cut(self.floor(offset - self.base_offset - 1) + 1)


class TimeIndex(SparseIndex):
    """`.timeindex`: (largest timestamp so far, last offset of the batch with it - base offset)."""

    ENTRY = Struct(">qi")
    KEY_TYPE = "q"
    RESERVED_ENTRIES = 1
    __slots__ = ()

    @property
    def last_timestamp(self) -> int:
        return self.entry(self.entries - 1)[_KEY] if self.entries else -1

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.entry(self.entries - 1)[_VALUE] if self.entries else 0)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Append an entry if `timestamp` is larger than the last one."""
        keys = self.keys
        if timestamp > (keys[-1] if keys else self.last_timestamp):
            self.append(timestamp, offset - self.base_offset)

    def offset_for(self, timestamp: int) -> int:
        """The offset of the last entry whose timestamp is at most `timestamp`; the base offset if there is none."""
        position = self.floor(timestamp) if self.entries else -1
        return self.base_offset if position < 0 else self.base_offset + self.entry(position)[_VALUE]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for offsets >= `offset`."""
        relative = offset - self.base_offset
        self.cut(self._count_up_to(relative - 1, _VALUE))
