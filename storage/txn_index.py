"""The `.txnindex` of a segment: the transactions whose abort marker lies in it (TransactionIndex, AbortedTxn).

The first abort creates the file, which is never preallocated. It is opened for each write and closed again, because aborts are few.
Those of one append, or of a recovered segment, are written together.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from struct import Struct

from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import File, FileSystem, write_all
from minikafka.storage.types import AbortedTransaction

_ENTRY = Struct(">hqqqq")


class TransactionIndex:
    """The aborted transactions in the order of their markers. They are few: the first look-up loads all of them into memory."""

    __slots__ = ("_entries", "_filesystem", "path")

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries. Raises OSError, also if the file is no longer what it was when the log was loaded."""
        if self._entries is None:
            try:
                self._entries = self._load()
            except CorruptFile as error:
                raise OSError(errno.EIO, str(error), self.path) from error
        return self._entries

    def check(self, base_offset: int) -> None:
        """Check that the file holds whole entries of this version, in order. Keeps nothing in memory. Raises CorruptFile, OSError."""
        last = base_offset - 1
        for entry in self._load():
            if entry.last_offset <= last or entry.first_offset < 0 or entry.last_stable_offset < 0:
                raise CorruptFile(f"{self.path}: {entry} is out of order")
            last = entry.last_offset

    def append(self, aborted: list[AbortedTransaction]) -> None:
        """Add entries, with one write. Without any, no file is created."""
        if not aborted:
            return
        entries = self.entries
        data = b"".join(_ENTRY.pack(0, *entry) for entry in aborted)
        self._write(lambda file: write_all(file, data, len(entries) * _ENTRY.size))
        entries.extend(aborted)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or beyond `offset`."""
        entries = self.entries
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._write(lambda file: file.truncate(len(kept) * _ENTRY.size))
            self._entries = kept

    def reset(self) -> None:
        """Remove all entries and the file, before the index is rebuilt."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(self.path)
        self._entries = []

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
        """Drop the entries in memory; they are read again when needed."""
        self._entries = None

    def _write(self, change: Callable[[File], None]) -> None:
        file = self._filesystem.open(self.path, create=True)
        try:
            change(file)
        finally:
            file.close()

    def _load(self) -> list[AbortedTransaction]:
        try:
            data = self._filesystem.read(self.path)
        except FileNotFoundError:
            return []
        if len(data) % _ENTRY.size:
            raise CorruptFile(f"{self.path}: {len(data)} bytes are not a multiple of {_ENTRY.size}")
        entries = []
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != 0 or entry.last_offset < entry.first_offset:
                raise CorruptFile(f"{self.path}: {entry} of version {version}")
            entries.append(entry)
        return entries
