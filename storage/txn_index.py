"""The `.txnindex` of a segment: the transactions whose abort marker lies in it (TransactionIndex, AbortedTxn).

The first abort creates the file, which is never preallocated. It is opened for each look into it and each write, and closed again.
The aborted transactions of one append, or of a recovered segment, are written together.

Clients decide how many there are. So no look reads the whole file: entries are found by bisection, and one page of them stays in memory,
which is all of most files. While one transaction is open, any number of others may begin and end: a look for those that began before some
offset passes over whole pages of others, whose smallest first offset is known.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from struct import Struct

from minikafka.storage import cold_reads
from minikafka.storage.config import INT64_MAX
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import File, FileSystem, read_all, write_all
from minikafka.storage.types import AbortedTransaction

_ENTRY = Struct(">hqqqq")
_SIZE = _ENTRY.size
_PAGE_ENTRIES = 512


class TransactionIndex:
    """The aborted transactions in the order of their markers. Methods raise OSError, also if the file is no longer what it was when the log
    was loaded, and NotInMemory within a look-up."""

    __slots__ = ("_begins", "_count", "_filesystem", "_last_offset", "_page", "_page_number", "path")

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path
        #: The number of entries; None until it is needed.
        self._count: int | None = None
        #: Offset of the last marker; -1 without entries.
        self._last_offset = -1
        #: The page that was used last, as in the file.
        self._page = b""
        self._page_number = 0
        #: Of the pages that were looked at or written: the smallest first offset, and the last stable offset of the first entry.
        self._begins: dict[int, tuple[int, int]] = {}

    # -- reading

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries."""
        found, _ = self.search(0, INT64_MAX)
        return found

    def search(self, start_offset: int, end_offset: int, most: int = sys.maxsize) -> tuple[list[AbortedTransaction], bool]:
        """The first `most` entries that overlap [start_offset, end_offset), and whether the search ends with them: if not, entries of later
        segments may overlap it, too (TransactionIndex.collectAbortedTxns)."""
        found: list[AbortedTransaction] = []
        count = self._look()
        if self._last_offset < start_offset:
            return found, False
        first, pages = self._count_before(start_offset, count), -(-count // _PAGE_ENTRIES)
        for page in range(first // _PAGE_ENTRIES, pages):
            begin, stable = self._begins_of(page, count)
            if begin >= end_offset:
                if stable >= end_offset:
                    return found, True
                continue
            for number in range(max(first, page * _PAGE_ENTRIES), min((page + 1) * _PAGE_ENTRIES, count)):
                entry = self._entry(number, count)
                if entry.first_offset < end_offset:
                    found.append(entry)
                if entry.stable_after >= end_offset or len(found) == most:
                    return found, True
        return found, False

    def _begins_of(self, page: int, count: int) -> tuple[int, int]:
        """See `_begins`."""
        known = self._begins.get(page)
        if known is None:
            start = page * _PAGE_ENTRIES
            known = self._begins[page] = _begins([self._entry(number, count) for number in range(start, min(start + _PAGE_ENTRIES, count))])
        return known

    def check(self, base_offset: int) -> None:
        """Check that the file holds whole entries of this version, in order. Reads all of it, and keeps nothing of it in memory. Raises
        CorruptFile, too."""
        last, count = base_offset - 1, 0
        self._begins.clear()
        for number, entry in enumerate(self._in_file()):
            if entry.last_offset <= last or entry.first_offset < 0 or entry.last_stable_offset < 0:
                raise CorruptFile(f"{self.path}: {entry} is out of order")
            last, count = entry.last_offset, number + 1
            self._note_begin(number, entry)
        self._count, self._last_offset = count, last if count else -1

    def _in_file(self) -> Iterator[AbortedTransaction]:
        with self._opened(read_only=True) as file:
            size = 0 if file is None else file.size()
            if size % _SIZE:
                raise CorruptFile(f"{self.path}: {size} bytes are not a multiple of {_SIZE}")
            for start in range(0, size, _PAGE_ENTRIES * _SIZE):
                assert file is not None
                data = read_all(file, min(_PAGE_ENTRIES * _SIZE, size - start), start)
                for position in range(0, len(data), _SIZE):
                    yield self._decoded(data, position)

    def _look(self) -> int:
        """The number of entries."""
        if self._count is None:
            with self._opened(read_only=True) as file:
                size = 0 if file is None else file.size()
                if size % _SIZE:
                    raise OSError(errno.EIO, f"{size} bytes are not a multiple of {_SIZE}", self.path)
                count = size // _SIZE
                self._last_offset = -1 if not count or file is None else self._single(file, count - 1).last_offset
            self._count = count
        return self._count

    def _count_before(self, offset: int, count: int) -> int:
        """The number of entries whose markers are before `offset`."""
        first, entries = self._page_number * _PAGE_ENTRIES, len(self._page) // _SIZE
        if entries:
            is_from = first == 0 or self._decoded_or_eio(self._page, 0).last_offset < offset
            if is_from and (first + entries == count or self._decoded_or_eio(self._page, (entries - 1) * _SIZE).last_offset >= offset):
                numbers = range(entries)
                return first + bisect_left(numbers, offset, key=lambda n: self._decoded_or_eio(self._page, n * _SIZE).last_offset)
        with self._opened(read_only=True) as file:
            if file is None:
                raise OSError(errno.EIO, "the index of transactions is gone", self.path)
            return bisect_left(range(count), offset, key=lambda number: self._single(file, number).last_offset)

    def _entry(self, number: int, count: int) -> AbortedTransaction:
        page = number // _PAGE_ENTRIES
        if page != self._page_number or not self._page:
            with self._opened(read_only=True) as file:
                start = page * _PAGE_ENTRIES
                entries = min(_PAGE_ENTRIES, count - start)
                data = b"" if file is None else cold_reads.read(file, entries * _SIZE, start * _SIZE, self._filesystem)
            if len(data) != entries * _SIZE:
                raise OSError(errno.EIO, "the index of transactions is shorter than before", self.path)
            self._page, self._page_number = data, page
        return self._decoded_or_eio(self._page, (number % _PAGE_ENTRIES) * _SIZE)

    def _single(self, file: File, number: int) -> AbortedTransaction:
        data = cold_reads.read(file, _SIZE, number * _SIZE, self._filesystem)
        if len(data) != _SIZE:
            raise OSError(errno.EIO, "the index of transactions is shorter than before", self.path)
        return self._decoded_or_eio(data, 0)

    def _decoded(self, data: bytes, position: int) -> AbortedTransaction:
        """Raises CorruptFile."""
        version, *fields = _ENTRY.unpack_from(data, position)
        entry = AbortedTransaction(*fields)
        if version != 0 or entry.last_offset < entry.first_offset:
            raise CorruptFile(f"{self.path}: {entry} of version {version}")
        return entry

    def _decoded_or_eio(self, data: bytes, position: int) -> AbortedTransaction:
        try:
            return self._decoded(data, position)
        except CorruptFile as error:
            raise OSError(errno.EIO, str(error), self.path) from error

    # -- changing

    def append(self, aborted: list[AbortedTransaction]) -> None:
        """Add entries, with one write. Without any, no file is created."""
        if not aborted:
            return
        count = self._look()
        data = b"".join(_ENTRY.pack(0, *entry) for entry in aborted)
        self._write(lambda file: write_all(file, data, count * _SIZE))
        in_page = count % _PAGE_ENTRIES
        if not in_page or count // _PAGE_ENTRIES in self._begins:
            for number, entry in enumerate(aborted, count):
                self._note_begin(number, entry)
        if self._page_number == count // _PAGE_ENTRIES and len(self._page) == in_page * _SIZE:
            self._page += data[: (_PAGE_ENTRIES - in_page) * _SIZE]
        self._count, self._last_offset = count + len(aborted), aborted[-1].last_offset

    def _note_begin(self, number: int, entry: AbortedTransaction) -> None:
        """An entry is added to `_begins`, in which those before it in its page are."""
        page = number // _PAGE_ENTRIES
        known = self._begins.get(page)
        self._begins[page] = _begins([entry]) if known is None else (min(known[0], entry.first_offset), known[1])

    def begins_as(self, written: TransactionIndex) -> None:
        """Know what another object knows, which wrote the file."""
        self._begins = written._begins

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or beyond `offset`."""
        count = self._look()
        if self._last_offset < offset:
            return
        kept = self._count_before(offset, count)
        last_offset = self._entry(kept - 1, count).last_offset if kept else -1
        self._write(lambda file: file.truncate(kept * _SIZE))
        self._page = self._page[: max(kept - self._page_number * _PAGE_ENTRIES, 0) * _SIZE]
        self._count, self._last_offset = kept, last_offset
        self._begins = {page: begin for page, begin in self._begins.items() if page < kept // _PAGE_ENTRIES}

    def reset(self) -> None:
        """Remove all entries and the file, before the index is rebuilt."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(self.path)
        self.forget()
        self._begins.clear()
        self._count, self._last_offset = 0, -1

    def rename(self, suffix: str) -> str | None:
        """Append `suffix` to the file's name and return the new path; None if there is no file."""
        target = self.path + suffix
        try:
            self._filesystem.rename(self.path, target)
        except FileNotFoundError:
            return None
        self.path = target
        return target

    def forget(self) -> None:
        """Drop the page in memory; it is read again when needed."""
        self._page, self._page_number = b"", 0

    @contextlib.contextmanager
    def _opened(self, *, read_only: bool) -> Iterator[File | None]:
        """The file; None if there is none and it is only to be read."""
        if read_only:
            cold_reads.before_opening(self._filesystem, self.path)
        try:
            file = self._filesystem.open(self.path, read_only=True) if read_only else self._filesystem.open(self.path, create=True)
        except FileNotFoundError:
            if not read_only:
                raise
            yield None
            return
        try:
            yield file
        finally:
            file.close()

    def _write(self, change: Callable[[File], None]) -> None:
        with self._opened(read_only=False) as file:
            assert file is not None
            change(file)


def _begins(entries: list[AbortedTransaction]) -> tuple[int, int]:
    """The smallest first offset of some entries, and the last stable offset of the first."""
    return min(entry.first_offset for entry in entries), entries[0].stable_after
