"""`.txnindex` of a segment: transactions whose abort marker lies in it (TransactionIndex, AbortedTxn). The file is
created by the first abort and never preallocated."""

from __future__ import annotations

import contextlib
from struct import Struct

from storage.errors import CorruptFile
from storage.filesystem import File, FileSystem, write_all
from storage.types import AbortedTransaction

_ENTRY = Struct(">hqqqq")


class TransactionIndex:
    """Entries in order of their markers. Few, so all are in memory once one was asked for."""

    __slots__ = ("_entries", "_file", "_filesystem", "path")

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None

    @property
    def entries(self) -> list[AbortedTransaction]:
        """Raises CorruptFile."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        entries = self.entries
        if self._file is None:
            self._file = self._filesystem.open(self.path, create=True)
        write_all(self._file, _ENTRY.pack(0, *aborted), len(entries) * _ENTRY.size)
        entries.append(aborted)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or beyond `offset`."""
        entries = self.entries
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            if self._file is None:
                self._file = self._filesystem.open(self.path)
            self._file.truncate(len(kept) * _ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Forget everything: the index is about to be rebuilt. The file goes, if there is one."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(self.path)
        self._entries = []

    def rename(self, suffix: str) -> str | None:
        """Name after renaming; None if there is no file."""
        self.close()
        target = self.path + suffix
        try:
            self._filesystem.rename(self.path, target)
        except FileNotFoundError:
            return None
        self.path = target
        return target

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

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
