"""The leader epochs of a log and the offset at which each began (LeaderEpochFileCache), kept in `leader-epoch-checkpoint`.

A new epoch is written at once if that is one short write, else with the next flush: then it can be found in the batches, too. So can it
be seen in them that epochs ended before the log's start, or that a truncation dropped them; loading removes those again. But the recovery
point never goes beyond what the file says. An invalid file is rebuilt from the log.

Where batches were compacted away, nobody can tell from a log where an epoch began between two of them. Then it counts as begun at the end
of the earlier one. Apache Kafka takes the beginning of the later one; a leader that was a follower does not find records there that were
never committed and that a replica brings back from an older epoch. They stay on that replica.

The short write overwrites the old content in place. A rename would make file systems such as ext4 start writing the data, which takes a
millisecond for each of perhaps a thousand partitions that a broker begins to lead, and 0.2 s behind other writers. In-place writing is used
only while the file fits into one sector, which a disk writes whole or not at all: a power cut may leave of a longer file a mixture that
looks valid. A longer file is written and renamed beside the loop.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right

from minikafka.storage.checkpoint import INT32_MAX, INT64_MAX, decode_checkpoint, encode_checkpoint, number_of
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import FileSystem, is_shortage, own_temporary, write_all, write_atomically
from minikafka.storage.types import EpochEnd

UNDEFINED = EpochEnd(-1, -1)
#: The smallest unit that every disk writes whole or not at all.
SECTOR_BYTES = 512


class EpochCache:
    """Epochs and start offsets, both strictly increasing."""

    __slots__ = (
        "_changes", "_file_size", "_filesystem", "_starts", "_under_way", "epochs", "is_closed", "is_dirty", "is_stale", "is_unsynced",
        "latest", "path",
    )  # fmt: skip

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path
        self.epochs: list[int] = []
        self._starts: list[int] = []
        #: The largest epoch; -1 without entries.
        self.latest = -1
        #: Whether the file lacks a change of the entries.
        self.is_dirty = False
        #: Whether the file still has epochs that a truncation dropped. A start would drop them again.
        self.is_stale = False
        #: Counts what was changed or written.
        self._changes = 0
        #: Whether the file was written but not synced.
        self.is_unsynced = False
        #: Whether the log is closed: its directory may be renamed, and another made under the same name.
        self.is_closed = False
        #: Size of the file as this object last read or wrote it; 0 if there is none.
        self._file_size = 0
        #: The write that is under way, perhaps on another thread.
        self._under_way: EpochWrite | None = None

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs."""
        return list(zip(self.epochs, self._starts, strict=True))

    def load(self) -> None:
        """Read the file; a missing file gives no entries. Raises CorruptFile."""
        entries: list[tuple[int, int]] = []
        if self._filesystem.exists(self.path):
            data = self._filesystem.read(self.path)
            self._file_size = len(data)
            for words in decode_checkpoint(data, 2):
                entry = number_of(words[0], INT32_MAX), number_of(words[1], INT64_MAX)
                if min(entry) < 0 or (entries and not (entry[0] > entries[-1][0] and entry[1] > entries[-1][1])):
                    raise CorruptFile(f"entry {entry} after {entries[-1:]} is out of order")
                entries.append(entry)
        self.epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self._update_latest()

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> bool:
        """Note that `epoch` begins at `start_offset`, and drop entries that contradict it. True if something changed."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset}")
        if self.epochs and self.epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        keep = min(bisect_left(self.epochs, epoch), bisect_left(self._starts, start_offset))
        self.epochs[keep:] = [epoch]
        self._starts[keep:] = [start_offset]
        self.latest = epoch
        if write:
            self._write_in_place()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The log's largest epoch <= `epoch` and the offset at which it ended (KIP-279)."""
        epochs = self.epochs
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNDEFINED
        if epoch == epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(epochs, epoch)
        if higher == 0:
            return EpochEnd(epoch, self._starts[0])
        return EpochEnd(epochs[higher - 1], self._starts[higher])

    def epoch_for_offset(self, offset: int) -> int:
        """Epoch of the record at `offset`, -1 if unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self.epochs[index] if index >= 0 else -1

    def start_offset_of(self, epoch: int) -> int | None:
        index = bisect_left(self.epochs, epoch)
        return self._starts[index] if index < len(self.epochs) and self.epochs[index] == epoch else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after `end_offset`. The file is written with the sync of the truncation, or the next flush: a
        start drops them again, too (LeaderEpochFileCache.truncateFromEndAsyncFlush)."""
        self._keep(bisect_left(self._starts, end_offset))

    def _keep(self, count: int) -> None:
        if count < len(self.epochs):
            del self.epochs[count:], self._starts[count:]
            self._update_latest()
            self.is_stale = True
            self._changes += 1

    def truncate_from_start(self, start_offset: int, *, write: bool = True) -> None:
        """Drop the epochs that ended at or before `start_offset`; the epoch that contains it now begins there."""
        last = bisect_right(self._starts, start_offset) - 1
        if last > 0 or (last == 0 and self._starts[0] != start_offset):
            del self.epochs[:last], self._starts[:last]
            self._starts[0] = start_offset
            self._changed()
            if write:
                self.write()

    def on_recovered_batch(self, epoch: int, begin: int, last_offset: int) -> None:
        """Recovery found that the offsets from `begin` to `last_offset` are of this epoch: entries that contradict it belonged to records
        that are lost. Those of other offsets stay, for not all of the log may be looked at. Writes no file."""
        epochs, starts = self.epochs, self._starts
        index = bisect_right(starts, last_offset) - 1
        if epoch < 0 or (index >= 0 and epochs[index] == epoch and starts[index] <= begin):
            return
        known = self.start_offset_of(epoch)
        begin = begin if known is None else min(begin, known)
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, begin))
        after = max(bisect_right(epochs, epoch), bisect_right(starts, last_offset))
        epochs[keep:after], starts[keep:after] = [epoch], [begin]
        self._update_latest()
        self._changes += 1

    def precede(self, earlier: list[tuple[int, int]]) -> None:
        """Put epochs before the first one, which began earlier than known if it is among them, and write the file. Without any, nothing
        happens."""
        if not earlier:
            return
        known = self.entries
        entries = [*earlier, *(known[1:] if known[0][0] == earlier[-1][0] else known)]
        self.epochs, self._starts = [epoch for epoch, _ in entries], [start for _, start in entries]
        self.write()

    def copy_from(self, other: EpochCache) -> None:
        """Take the entries of another log of the same records, including epochs without records. The next flush writes the file."""
        self.epochs, self._starts = other.epochs[:], other._starts[:]
        self._update_latest()
        self._changed()

    def _changed(self) -> None:
        """The file lacks a change, and so does what is being written beside the loop."""
        self.is_dirty = True
        self._changes += 1

    def clear(self) -> None:
        """Drop all epochs; as `truncate_from_end`."""
        self.truncate_from_end(-1)

    @property
    def is_under_way(self) -> bool:
        """Whether a write has begun and not ended."""
        return self._under_way is not None

    def begin_write(self) -> EpochWrite | None:
        """The task that writes the file; None if another is under way, which may not have the last changes."""
        if self._under_way is not None:
            return None
        self._under_way = EpochWrite(self, self._filesystem, self._changes, self.epochs[:], self._starts[:])
        return self._under_way

    def is_due(self, write: EpochWrite) -> bool:
        """Whether the file is still to be written, and its directory is that of the log. May be called on any thread."""
        return write is self._under_way and not self.is_closed and self.path == write.path

    def ended(self, write: EpochWrite) -> bool:
        """Returns whether the file was written."""
        if write is not self._under_way:
            return False
        self._under_way = None
        if write.written is None:
            return False
        self._file_size = write.written
        if write.changes == self._changes:
            self.is_dirty = self.is_stale = False
        return True

    def write(self, *, sync: bool = True) -> None:
        """Write the file, blocking. Without `sync` the log's next flush syncs it, and also writes it if descriptors are lacking now."""
        data = encoded(self.epochs, self._starts)
        self._changed()
        # A write under way is out of date, and gives its file no name any more.
        self._under_way = None
        try:
            write_atomically(self._filesystem, self.path, data, sync=sync)
        except OSError as error:
            if sync or not is_shortage(error):
                raise
            return
        self._file_size = len(data)
        self.is_dirty = self.is_stale = False
        self.is_unsynced = not sync

    def _write_in_place(self) -> None:
        """Write the file if that is short, and neither a thread nor a lack of descriptors is in the way; else the next flush does."""
        self._changed()
        size = self._file_size
        if self._under_way is not None or size > SECTOR_BYTES:
            return
        data = encoded(self.epochs, self._starts)
        # A shorter file would need a second step: a process that is killed before it would leave old entries behind the new ones.
        if not size <= len(data) <= SECTOR_BYTES:
            return
        try:
            self._overwrite(data, size)
        except OSError as error:
            if not is_shortage(error):
                raise
            return
        self._file_size = len(data)
        self.is_dirty = self.is_stale = False
        self.is_unsynced = True

    def _overwrite(self, data: bytes, size: int) -> None:
        file = self._filesystem.open(self.path, create=size == 0)
        try:
            write_all(file, data, 0)
        finally:
            file.close()

    def _update_latest(self) -> None:
        self.latest = self.epochs[-1] if self.epochs else -1


def encoded(epochs: list[int], starts: list[int]) -> bytes:
    """The content of the file."""
    return encode_checkpoint(f"{epoch} {start}" for epoch, start in zip(epochs, starts, strict=True))


class EpochWrite:
    """Writes the epochs of a log beside the loop. `run` blocks and may be called on another thread. If it raises OSError, call `undo`; else
    `finish`, both on the loop."""

    __slots__ = ("_cache", "_epochs", "_filesystem", "_starts", "changes", "path", "written")

    def __init__(self, cache: EpochCache, filesystem: FileSystem, changes: int, epochs: list[int], starts: list[int]) -> None:
        self._cache = cache
        self._filesystem = filesystem
        self._epochs, self._starts = epochs, starts
        self.changes = changes
        self.path = cache.path
        #: Size of the file; None before it is written.
        self.written: int | None = None

    def run(self) -> None:
        """Write, sync and rename the file; a sync of the directory makes its name durable. Does nothing if the log was closed or moved.
        Raises OSError."""
        data, temporary = encoded(self._epochs, self._starts), own_temporary(self.path)
        with contextlib.suppress(FileNotFoundError):
            file = self._filesystem.open(temporary, create=True)
            try:
                write_all(file, data, 0)
                file.fsync()
            finally:
                file.close()
            # A log that is still there now has not made way for another, so the temporary file lies in its directory, and goes with it.
            if not self._cache.is_due(self):
                self._filesystem.unlink(temporary)
                return
            self._filesystem.rename(temporary, self.path)
            self.written = len(data)

    def finish(self) -> bool:
        """Note what the file has now. False if it was not written."""
        return self._cache.ended(self)

    def undo(self) -> None:
        """`run` raised, or was not called."""
        self._cache.ended(self)
