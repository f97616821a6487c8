"""The `.snapshot` files of one log: caches of its producers' state, of which any may be missing or damaged."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Protocol

from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import File, FileSystem, own_temporary, write_all
from minikafka.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot

DELETED = ".deleted"


class Kept(Protocol):
    """A producer's state."""

    def snapshot(self) -> ProducerSnapshotEntry: ...


class SnapshotWrite:
    """A snapshot to be written beside the loop.

    `run` blocks and may be called on another thread. If it raises OSError, it may be repeated; else call `finish` on the loop. Nothing may
    change the entries before that. After a truncation below its offset, or if the segment is dropped, it has no file in the end.
    """

    __slots__ = ("_entries", "_files", "_filesystem", "_path", "_suffix", "is_cancelled", "offset")

    def __init__(self, files: SnapshotFiles, filesystem: FileSystem, offset: int, entries: Collection[Kept]) -> None:
        self._files = files
        self._filesystem = filesystem
        self._entries = tuple(entries)
        # Another write of the same offset may follow a truncation; and until it is written the directory may be renamed.
        self._suffix = own_temporary("")
        self._path = ""
        #: The state is of the log below it.
        self.offset = offset
        self.is_cancelled = False

    def run(self) -> None:
        """Encode, write, sync and rename. Does nothing if the log's directory was renamed or removed meanwhile. Raises OSError."""
        if self.is_cancelled:
            return
        path = self._files.path(self.offset)
        temporary = path + self._suffix
        with contextlib.suppress(FileNotFoundError):
            file = self._filesystem.open(temporary, create=True)
            try:
                file.truncate(0)
                write_all(file, encode_snapshot([entry.snapshot() for entry in self._entries]), 0)
                file.fsync()
            finally:
                file.close()
            if self.is_cancelled:
                self._filesystem.unlink(temporary)
                return
            # Only in its own directory is there a file of the temporary name.
            self._filesystem.rename(temporary, path)
            self._path = path

    def finish(self) -> None:
        """Note that it is written. One that was cancelled meanwhile is removed. Raises OSError."""
        if not self.is_cancelled:
            self._files.take(self, is_written=bool(self._path))
        elif self._path and self.offset not in self._files.offsets:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.unlink(self._path)


class SnapshotFiles:
    """Methods raise OSError."""

    __slots__ = ("_directory", "_filesystem", "_is_read_only", "offsets", "pending")

    def __init__(self, filesystem: FileSystem, directory: str, offsets: Collection[int] = (), *, is_read_only: bool = False) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._is_read_only = is_read_only
        #: Offsets of the files, ascending.
        self.offsets = list(offsets)
        #: Those that are being written beside the loop.
        self.pending: list[SnapshotWrite] = []

    def for_reading(self) -> SnapshotFiles:
        """The same files, of which this object only reads; what it removes it only forgets. For use on another thread."""
        return SnapshotFiles(self._filesystem, self._directory, self.offsets, is_read_only=True)

    @property
    def latest(self) -> int | None:
        """The highest offset; None without files."""
        return self.offsets[-1] if self.offsets else None

    def is_between(self, first: int, last: int) -> bool:
        """Whether there is a file with an offset from `first` to `last`, both inclusive."""
        index = bisect_left(self.offsets, first)
        return index < len(self.offsets) and self.offsets[index] <= last

    def find(self) -> None:
        """Find the files on disk. A directory is none of the log's, whatever its name."""
        names = [name for name in self._filesystem.list(self._directory) if is_snapshot(name)]
        self.offsets = sorted(int(name[:20]) for name in names if not self._filesystem.is_dir(f"{self._directory}/{name}"))

    def remove_strays(self, segment_base_offsets: list[int]) -> None:
        """Remove the files that belong to no segment, except the latest one if it lies beyond the last segment's base offset."""
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and segment_base_offsets and strays[-1] > segment_base_offsets[-1]:
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def keep_between(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove the files that are not in (log start, log end], and those that are being written."""
        for offset in [offset for offset in self.offsets if not log_start_offset < offset <= log_end_offset]:
            self.remove(offset)
        self._cancel(lambda offset: not log_start_offset < offset <= log_end_offset)

    def _cancel(self, is_unwanted: Callable[[int], bool]) -> None:
        """What is being written for such offsets gets no name."""
        for write in self.pending:
            write.is_cancelled = write.is_cancelled or is_unwanted(write.offset)
        self.pending = [write for write in self.pending if not write.is_cancelled]

    def clear(self) -> None:
        """Remove all files, and cancel what is being written."""
        self.keep_between(-1, -1)

    def read(self, offset: int) -> list[ProducerSnapshotEntry]:
        """The producers of a file. Raises CorruptFile, also if one of them is of batches behind the offset."""
        entries = decode_snapshot(self._filesystem.read(self.path(offset)))
        if any(max(entry.last_offset, entry.txn_first_offset) >= offset for entry in entries):
            raise CorruptFile(f"a producer of the snapshot at {offset} has a batch behind it")
        return entries

    def write(self, offset: int, entries: Collection[Kept]) -> File:
        """Write a file. Returns it open and unsynced."""
        file = self._filesystem.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            write_all(file, encode_snapshot([entry.snapshot() for entry in entries]), 0)
        except BaseException:
            file.close()
            raise
        self._note(offset)
        return file

    def begin(self, offset: int, entries: Collection[Kept]) -> SnapshotWrite:
        """The task that writes a file; see SnapshotWrite."""
        write = SnapshotWrite(self, self._filesystem, offset, entries)
        self.pending.append(write)
        return write

    def take(self, write: SnapshotWrite, *, is_written: bool) -> None:
        """A write has ended; there is no file if the log's directory was gone."""
        self.pending.remove(write)
        if is_written:
            self._note(write.offset)

    def path(self, offset: int) -> str:
        """The path of the file of an offset."""
        return f"{self._directory}/{offset:020d}.snapshot"

    def remove(self, offset: int) -> None:
        """Remove a file if there is one."""
        if self.forget(offset) is not None and not self._is_read_only:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.unlink(self.path(offset))

    def forget(self, offset: int) -> str | None:
        """The path of a file that no longer counts as one of the log's; None if there is none. One that is being written gets no name."""
        self._cancel(lambda pending: pending == offset)
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        return self.path(offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename a file to `.deleted`. Returns the new path, None if there is no such file."""
        path = self.forget(offset)
        if path is None:
            return None
        try:
            self._filesystem.rename(path, path + DELETED)
        except FileNotFoundError:
            return None
        return path + DELETED

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._directory = directory

    def _note(self, offset: int) -> None:
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()


def is_snapshot(name: str) -> bool:
    """Whether a broker names a snapshot so. A larger number is no offset."""
    return len(name) == 29 and name.endswith(".snapshot") and name.isascii() and name[:20].isdigit() and int(name[:20]) < 1 << 63
