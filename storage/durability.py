"""Which part of a log is durable, and how it is synced without holding up appends."""

from __future__ import annotations

import contextlib

from minikafka.storage.epoch_cache import EpochCache, EpochWrite
from minikafka.storage.errors import ResourceShortage, StorageError
from minikafka.storage.log_disk import LogDisk
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.lost_marks import remove_mark
from minikafka.storage.producer_snapshot_files import SnapshotWrite
from minikafka.storage.segment import Segment
from minikafka.storage.slice import FileSlice
from minikafka.storage.sparse_index import IndexWrite
from minikafka.storage.watermarks import Watermarks

#: A compacted log with more unsynced bytes than this is synced before its next roll, which then has little left to sync.
SYNC_AHEAD_BYTES = 8 << 20


class Durability:
    """Tracks what a power cut would leave of a log. Its tasks may run on any thread and are finished on the event loop."""

    __slots__ = (
        "_cut_sync",
        "_disk",
        "_epochs",
        "_segments",
        "_watermarks",
        "flushed_ms",
        "has_old_mark",
        "has_unsynced_names",
        "has_unwritten_indexes",
        "is_cut",
        "is_flush_requested",
        "is_whole_flush_requested",
        "recovery_point",
        "seen_point",
        "snapshot_writes",
        "stale_point",
        "superseded",
        "truncations",
        "unsynced_files",
    )

    def __init__(self, disk: LogDisk, segments: LogSegments, epochs: EpochCache, watermarks: Watermarks) -> None:
        self._disk = disk
        self._segments = segments
        self._epochs = epochs
        self._watermarks = watermarks
        #: Everything below this offset is durable. Never beyond the log end offset; a truncation lowers it.
        self.recovery_point = 0
        #: The recovery point that the log directory's checkpoint may still have since a truncation lowered it; 0 if it has none such. What
        #: is appended below it is not synced, but a start after a power cut would not check it.
        self.stale_point = 0
        #: The recovery point as `due_work.overdue` last saw it, and since when.
        self.seen_point, self.flushed_ms = -1, 0
        #: Whether something other than appended records must be synced soon.
        self.is_flush_requested = False
        #: Whether the active segment must be synced soon, too, so that its file can be closed.
        self.is_whole_flush_requested = False
        #: Number of truncations so far. A sync that began before the last one does not cover the records that now have those offsets.
        self.truncations = 0
        #: Whether the last truncation is not durable yet. The next append syncs it first: after a power cut the truncated batches must
        #: not reappear behind newer ones.
        self.is_cut = False
        #: The newest CutSync; None if the last truncation is durable or no sync was prepared.
        self._cut_sync: CutSync | None = None
        #: Whether a power cut may lose the directory entry of the newest segment.
        self.has_unsynced_names = True
        #: Whether the file that says that the log lost records is out of date: the next sync removes it.
        self.has_old_mark = False
        #: Paths of files that were written but not synced.
        self.unsynced_files: list[str] = []
        #: Producer snapshots that the next flush writes.
        self.snapshot_writes: list[SnapshotWrite] = []
        #: Segments whose index files the next flush creates or trims.
        self.has_unwritten_indexes: list[Segment] = []
        #: Log directories in which a power cut may bring back the name of the log that this one replaced.
        self.superseded: list[str] = []

    @property
    def should_sync_ahead(self) -> bool:
        """Whether so many bytes are unsynced that they should be synced on another thread before the next roll, or the file be closed."""
        active = self._segments.active
        return self.is_whole_flush_requested or (self._segments.may_have_gaps and active.size - active.synced_size > SYNC_AHEAD_BYTES)

    @property
    def has_stale_point(self) -> bool:
        """Whether the log directory's checkpoint may have a recovery point that is too high."""
        return self.stale_point > self.recovery_point

    @property
    def must_sync_for_roll(self) -> bool:
        """Whether the next roll will sync, unless the log is flushed before it."""
        # As in `has_stale_point`, without its call: every append asks.
        if not self._segments.may_have_gaps and self.stale_point <= self.recovery_point:
            return False
        return self.recovery_point < self._watermarks.log_end_offset or self.has_unsynced_names

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self.unsynced_files = [f"{directory}/{path.rpartition('/')[2]}" for path in self.unsynced_files]

    def supersedes(self, directory: str) -> None:
        """The log replaced one in another log directory. Nothing of it counts as durable before that one's name is durably gone."""
        self.superseded.append(directory)
        self.is_flush_requested = True

    def found_again(self) -> None:
        """The log is not regarded as one that lost records any more. The mark goes once that is durable."""
        if self._watermarks.lost is not None:
            self._watermarks.lost = None
            self.has_old_mark = self.is_flush_requested = True

    def request_flush(self) -> None:
        """Ask for a flush soon: the log got its first records, or a leader epoch, and its other files are not synced yet."""
        self.is_flush_requested = True

    def begun(self) -> None:
        """The log got its first records: its index files are to be created."""
        self.has_unwritten_indexes.append(self._segments.active)
        self.is_flush_requested = True

    def add_file(self, path: str) -> None:
        """Sync this written file with the next flush."""
        self.unsynced_files.append(path)
        self.is_flush_requested = True

    def before_roll(self) -> None:
        """Make durable what must be before a new segment begins: a truncation of the active segment, and what a start after a power cut
        would not check. Raises StorageError, OSError."""
        if self.is_cut:
            self.sync_cut()
        if self.has_stale_point:
            self.flush()

    def sync_names(self) -> None:
        """Sync the directory if it has unsynced entries. Raises OSError.

        Needed where gaps between segments are allowed: a power cut must not keep the entry of a segment and lose that of the one before.
        In other logs recovery detects such a gap, and the next flush syncs the directory on another thread.
        """
        if self.has_unsynced_names:
            self._disk.filesystem.fsync_dir(self._disk.directory)

    def rolled(self, segment: Segment) -> None:
        """A new segment has begun."""
        self.has_unwritten_indexes.append(segment)
        self.has_unsynced_names = True
        self.is_flush_requested = True

    def write_snapshot(self, snapshot: SnapshotWrite | None) -> None:
        """The next flush writes this snapshot of the producers."""
        if snapshot is not None:
            self.snapshot_writes.append(snapshot)
        self.is_flush_requested = True

    def cut_at(self, offset: int) -> None:
        """The log was truncated and now ends at `offset`."""
        if offset < self.recovery_point:
            self.stale_point = max(self.stale_point, self.recovery_point)
            self.recovery_point = offset
        self.truncations += 1
        self.is_cut = True
        self._cut_sync = None
        self.is_flush_requested = True

    def epochs_cut(self) -> None:
        """Epochs without records were truncated: CutSync writes their file on another thread, before the next append or flush."""
        if self._epochs.is_stale:
            self.is_cut, self._cut_sync = True, None
        self.is_flush_requested = True

    # -- truncations

    def prepare_cut_sync(self) -> CutSync | None:
        """The task that makes the last truncation durable; None if it already is. Raises StorageError."""
        if not self.is_cut:
            return None
        with self._disk.guard("sync a truncation"):
            self._cut_sync = CutSync(self, self._disk, self._segments.active, self._epochs)
        return self._cut_sync

    def cut_is_synced(self, task: CutSync) -> None:
        """Called by `CutSync.finish`. Has no effect if the log was truncated again since."""
        if task is self._cut_sync:
            self.is_cut, self._cut_sync = False, None

    def sync_cut(self) -> None:
        """Make the last truncation durable now, blocking. Raises StorageError."""
        task = self.prepare_cut_sync()
        if task is not None:
            try:
                task.run()
            except OSError as error:
                raise self.cut_sync_failed(task, error) from error
            task.finish()

    def cut_sync_failed(self, task: CutSync, error: OSError) -> StorageError:
        """Call this if `task.run` raised; returns the error to log or raise."""
        task.undo()
        return self._disk.fail("sync a truncation", error)

    # -- flushes

    @property
    def must_write_epochs(self) -> bool:
        """Whether a flush writes the file of the epochs, too."""
        return self._epochs.is_dirty or (self._epochs.is_stale and not self.is_cut)

    def epochs_written(self, write: EpochWrite | None) -> bool:
        """A task has run, perhaps with a write of the epochs. False if that wrote nothing, because the log was closed or moved before."""
        is_written = write is None or write.finish()
        if self.must_write_epochs:
            self.is_flush_requested = True
        return is_written

    def prepare_flush(self, up_to: int | None = None) -> FlushTask | None:
        """The task that makes everything below `up_to` durable (by default: up to the log end); None if there is nothing to sync.
        Raises StorageError."""
        end = self._watermarks.log_end_offset
        if up_to is not None:
            end = min(up_to, end)
        epochs = self._epochs
        self.is_flush_requested = False
        if up_to is None:
            self.is_whole_flush_requested = False
        has_epochs = epochs.is_unsynced or self.must_write_epochs
        has_files = self.snapshot_writes or self.has_unwritten_indexes or self.unsynced_files or has_epochs or self.superseded
        has_names = (up_to is None and self.has_unsynced_names) or self.has_old_mark
        if end <= self.recovery_point and not has_files and not has_names:
            return None
        try:
            with self._disk.guard("flush the log"):
                return FlushTask(self, self._disk, self._segments, epochs, end)
        except ResourceShortage:
            self.is_flush_requested = True
            raise

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to`, blocking, and move the recovery point. Raises StorageError; a failed sync is never retried."""
        if self.must_write_epochs and self._epochs.is_under_way:
            with self._disk.guard("write the leader epoch checkpoint"):
                self._epochs.write()
        task = self.prepare_flush(up_to)
        if task is not None:
            try:
                task.run()
            except OSError as error:
                raise self.flush_failed(task, error) from error
            task.finish()

    def flush_failed(self, task: FlushTask, error: OSError) -> StorageError:
        """Call this if `task.run` raised; returns the error to log or raise. After a ResourceShortage the next task syncs the same."""
        task.undo()
        return self._disk.fail("flush the log", error)

    def snapshots_written(self, writes: list[SnapshotWrite]) -> None:
        """Called by `FlushTask.finish`. Raises StorageError."""
        if not writes or self._disk.failure is not None:
            return
        with self._disk.guard("write a snapshot of the producers"):
            for write in writes:
                write.finish()

    def synced_to(self, offset: int, truncations: int) -> bool:
        """A sync that began when `truncations` was this number covers everything below `offset`. False, and nothing changes, if the log was
        truncated meanwhile: other, unsynced batches may have these offsets now."""
        if truncations != self.truncations:
            return False
        self.recovery_point = max(self.recovery_point, offset)
        return True


class CutSync:
    """Makes a truncation durable, so that the truncated batches cannot reappear behind newer ones after a power cut.

    `run` blocks and may be called on another thread. If it raises OSError, call `cut_sync_failed`; else call `finish` on the loop.
    """

    def __init__(self, durability: Durability, disk: LogDisk, active: Segment, epochs: EpochCache) -> None:
        self._durability = durability
        self._filesystem = disk.filesystem
        self._directory = disk.directory
        self._piece = active.slice(0, 0)
        self._epochs = epochs.begin_write() if epochs.is_stale else None
        self._has_old_mark = durability.has_old_mark

    def run(self) -> None:
        """Sync the file and its directory, and write the epochs. Raises OSError."""
        self._piece.fsync()
        if self._epochs is not None:
            self._epochs.run()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.fsync_dir(self._directory)
            if self._has_old_mark:
                remove_mark(self._filesystem, self._directory)

    def undo(self) -> None:
        """`run` raised."""
        self._piece.release()
        if self._epochs is not None:
            self._epochs.undo()

    def finish(self) -> None:
        """The truncation is durable: the next append need not sync it."""
        self._piece.release()
        if self._has_old_mark:
            self._durability.has_old_mark = False
        self._durability.cut_is_synced(self)
        self._durability.epochs_written(self._epochs)


class FlushTask:
    """Files to sync, collected on the loop.

    `run` blocks and may be called on another thread. If it raises OSError, call `flush_failed`: a failed sync is never repeated, because
    the kernel has dropped the pages. Else call `finish` on the loop.
    """

    def __init__(self, durability: Durability, disk: LogDisk, segments: LogSegments, epochs: EpochCache, end_offset: int) -> None:
        self._durability = durability
        self._disk = disk
        self._log_segments = segments
        self._epoch_cache = epochs
        self.end_offset = end_offset
        self._truncations = durability.truncations
        self._directory = disk.directory
        self._active_base_offset = segments.active.base_offset
        self._slices: list[FileSlice] = []
        self._sizes: list[tuple[Segment, int]] = []
        self._paths: list[str] = []
        recovery_point = durability.recovery_point
        self._index_writes: list[IndexWrite] = []
        self._unwritten, durability.has_unwritten_indexes = durability.has_unwritten_indexes, []
        for segment in self._unwritten:
            self._index_writes += segment.index_writes()
        for segment in reversed(segments if end_offset > recovery_point else ()):
            if segment.base_offset < end_offset or segment is segments.active:
                self._collect(segment)
            if segment.base_offset <= recovery_point:
                break
        # Oldest first: a power cut in between must not leave a gap.
        self._slices.reverse()
        self._files, durability.unsynced_files = durability.unsynced_files, []
        self._snapshot_writes, durability.snapshot_writes = durability.snapshot_writes, []
        self._superseded, durability.superseded = durability.superseded, []
        must_write = durability.must_write_epochs
        self._epoch_write = epochs.begin_write() if must_write else None
        #: Whether another task writes the epochs, perhaps without the last ones: then nothing counts as durable behind this one.
        self._is_held = must_write and self._epoch_write is None
        self._epochs = [epochs.path] if epochs.is_unsynced else []
        epochs.is_unsynced = False
        self._has_old_mark = durability.has_old_mark

    def _collect(self, segment: Segment) -> None:
        # The slice pins the file: neither truncation nor retention closes its descriptor while another thread syncs.
        self._slices.append(segment.slice(0, 0))
        self._sizes.append((segment, segment.size))
        if segment not in self._unwritten:
            self._index_writes += segment.index_writes()
        self._paths.extend((segment.offset_index.path, segment.time_index.path, segment.txn_index.path))

    def run(self) -> None:
        """Sync the files and their directory. Raises OSError."""
        filesystem = self._disk.filesystem
        for directory in self._superseded:
            with contextlib.suppress(OSError):  # a disk that has failed is not read again
                filesystem.fsync_dir(directory)
        for snapshot in self._snapshot_writes:
            snapshot.run()
        for index in self._index_writes:
            index.run()
        for piece in self._slices:
            piece.fsync()
        # Each file once: the slices and the writes of the indexes may name the same.
        for path in dict.fromkeys((*self._paths, *(write.path for write in self._index_writes), *self._files, *self._epochs)):
            with contextlib.suppress(FileNotFoundError):
                file = filesystem.open(path)
                try:
                    file.fsync()
                finally:
                    file.close()
        if self._epoch_write is not None:
            self._epoch_write.run()
        with contextlib.suppress(FileNotFoundError):
            filesystem.fsync_dir(self._directory)
            if self._has_old_mark:
                remove_mark(filesystem, self._directory)

    def undo(self) -> None:
        """`run` raised: note that its files are still not synced. After a mere shortage another task may sync them."""
        for piece in self._slices:
            piece.release()
        durability, epochs = self._durability, self._epoch_cache
        durability.has_unwritten_indexes[:0] = self._unwritten
        durability.unsynced_files[:0] = self._files
        durability.snapshot_writes[:0] = self._snapshot_writes
        durability.superseded[:0] = self._superseded
        epochs.is_unsynced = epochs.is_unsynced or bool(self._epochs)
        if self._epoch_write is not None:
            self._epoch_write.undo()
        durability.is_flush_requested = True

    def finish(self) -> None:
        """Note what is durable now. Call it on the loop after `run`. Raises StorageError."""
        for piece in self._slices:
            piece.release()
        for write in self._index_writes:
            write.finish()
        if self._log_segments.active.base_offset == self._active_base_offset:
            self._durability.has_unsynced_names = False
        if self._has_old_mark:
            self._durability.has_old_mark = False
        has_epochs = self._durability.epochs_written(self._epoch_write)
        if has_epochs and not self._is_held and self._durability.synced_to(self.end_offset, self._truncations):
            for segment, size in self._sizes:
                segment.synced_size = size
        self._disk.open_files.shrink()
        self._durability.snapshots_written(self._snapshot_writes)
