"""What of a log is durable, and syncing it without holding up its appends."""

from __future__ import annotations

import contextlib

from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.errors import ResourceShortage, StorageError
from minikafka.storage.log_disk import LogDisk
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.segment import Segment
from minikafka.storage.slice import FileSlice
from minikafka.storage.watermarks import Watermarks

#: A roll syncs at most about so much, and what came within the last second.
SYNC_AHEAD_BYTES = 8 << 20


class Durability:
    """What a power cut leaves of a log. The tasks that it makes are run anywhere and finished on the loop."""

    __slots__ = (
        "_cut_sync",
        "_disk",
        "_epochs",
        "_segments",
        "_watermarks",
        "has_unsynced_names",
        "is_cut",
        "is_flush_requested",
        "recovery_point",
        "truncations",
        "unsynced_files",
        "unsynced_snapshots",
    )

    def __init__(self, disk: LogDisk, segments: LogSegments, epochs: EpochCache, watermarks: Watermarks) -> None:
        self._disk = disk
        self._segments = segments
        self._epochs = epochs
        self._watermarks = watermarks
        #: Everything before it is on the disk. Never beyond the log end; it falls with a truncation.
        self.recovery_point = 0
        #: Whether something besides appended records is to be synced soon.
        self.is_flush_requested = False
        #: How often the log was cut: a sync that began before tells nothing of what has its offsets now.
        self.truncations = 0
        #: What was cut may come back after a power cut: it must not, mixed with what is appended next.
        self.is_cut = False
        self._cut_sync: CutSync | None = None
        #: Whether a power cut may lose the name of the newest segment.
        self.has_unsynced_names = True
        #: Paths of producer snapshots, and of other files, that were written and not synced.
        self.unsynced_snapshots: list[str] = []
        self.unsynced_files: list[str] = []

    @property
    def should_sync_ahead(self) -> bool:
        """Whether a roll would have so much to sync that it had better be done before, elsewhere."""
        active = self._segments.active
        return self._segments.may_have_gaps and active.size - active.synced_size > SYNC_AHEAD_BYTES

    def request_flush(self) -> None:
        """The first records: the files beside them are to be synced soon."""
        self.is_flush_requested = True

    def add_file(self, path: str) -> None:
        """It was written and is to be synced with the next flush."""
        self.unsynced_files.append(path)
        self.is_flush_requested = True

    def before_roll(self) -> None:
        """What must be durable before another segment begins. Raises StorageError, OSError."""
        if self.is_cut:
            # It is the active segment's.
            self.sync_cut()

    def sync_names(self) -> None:
        """Where holes are lawful, a power cut must not keep the name of a segment and lose that of the one before. Anywhere else a start
        finds the hole, and the next flush syncs the names elsewhere. Raises OSError."""
        if self.has_unsynced_names:
            self._disk.filesystem.fsync_dir(self._disk.directory)

    def rolled(self, snapshot: str | None) -> None:
        """A segment has begun, and perhaps a producer snapshot was written."""
        self.has_unsynced_names = True
        if snapshot is not None:
            self.unsynced_snapshots.append(snapshot)
        self.is_flush_requested = True

    def cut_at(self, offset: int) -> None:
        """The log was cut and ends at `offset`."""
        self.recovery_point = min(self.recovery_point, offset)
        self.truncations += 1
        self.is_cut = True
        self._cut_sync = None
        self.is_flush_requested = True

    # -- truncations

    def prepare_cut_sync(self) -> CutSync | None:
        """What makes the last truncation durable, None if it is. Raises StorageError."""
        if not self.is_cut:
            return None
        with self._disk.guard("sync a truncation"):
            self._cut_sync = CutSync(self, self._disk, self._segments.active)
        return self._cut_sync

    def cut_is_synced(self, task: CutSync) -> None:
        """(CutSync.) Unless the log was cut once more."""
        if task is self._cut_sync:
            self.is_cut, self._cut_sync = False, None

    def sync_cut(self) -> None:
        """Make the last truncation durable, here and now. Raises StorageError."""
        task = self.prepare_cut_sync()
        if task is not None:
            try:
                task.run()
            except OSError as error:
                raise self.cut_sync_failed(task, error) from error
            task.finish()

    def cut_sync_failed(self, task: CutSync, error: OSError) -> StorageError:
        """`task.run` raised: the error to log or raise."""
        task.undo()
        return self._disk.fail("sync a truncation", error)

    # -- flushes

    def prepare_flush(self, up_to: int | None = None) -> FlushTask | None:
        """What must be synced so that everything below `up_to` (the log end) is durable; None if nothing. Raises StorageError."""
        end = self._watermarks.log_end_offset
        if up_to is not None:
            end = min(up_to, end)
        epochs = self._epochs
        self.is_flush_requested = False
        has_files = self.unsynced_snapshots or self.unsynced_files or epochs.is_unsynced or epochs.is_dirty
        if end <= self.recovery_point and not has_files:
            return None
        try:
            with self._disk.guard("flush the log"):
                if epochs.is_dirty:
                    epochs.write(sync=False)
                return FlushTask(self, self._disk, self._segments, epochs, end)
        except ResourceShortage:
            self.is_flush_requested = True
            raise

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to` and move the recovery point. Raises StorageError; never retried."""
        task = self.prepare_flush(up_to)
        if task is not None:
            try:
                task.run()
            except OSError as error:
                raise self.flush_failed(task, error) from error
            task.finish()

    def flush_failed(self, task: FlushTask, error: OSError) -> StorageError:
        """`task.run` raised: the error to log or raise. After a shortage the same is to be synced another time."""
        task.undo()
        return self._disk.fail("flush the log", error)

    def synced_to(self, offset: int, truncations: int) -> bool:
        """A sync that began after so many truncations covers what is before `offset`. False, and nothing is known, if the log was cut
        meanwhile: the offsets may have been given to other, unsynced batches."""
        if truncations != self.truncations:
            return False
        self.recovery_point = max(self.recovery_point, offset)
        return True


class CutSync:
    """What makes a truncation durable: what was cut must not come back behind what is appended next. `run` blocks and may be called from
    another thread; an OSError from it goes to `cut_sync_failed`. `finish` belongs on the loop."""

    def __init__(self, durability: Durability, disk: LogDisk, active: Segment) -> None:
        self._durability = durability
        self._filesystem = disk.filesystem
        self._directory = disk.directory
        self._piece = active.slice(0, 0)

    def run(self) -> None:
        """Sync the file and its directory. Raises OSError."""
        self._piece.fsync()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.fsync_dir(self._directory)

    def undo(self) -> None:
        """`run` raised."""
        self._piece.release()

    def finish(self) -> None:
        """The next append need not wait any more."""
        self._piece.release()
        self._durability.cut_is_synced(self)


class FlushTask:
    """Files to sync, collected on the loop. `run` blocks and may be called from another thread; an OSError from it goes to
    `flush_failed`: after a sync that failed nothing is synced again, for the pages are lost. `finish` belongs on the loop."""

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
        has_records = end_offset > recovery_point or bool(durability.unsynced_snapshots)
        for segment in reversed(segments if has_records else ()):
            if segment.base_offset < end_offset or segment is segments.active:
                self._collect(segment)
            if segment.base_offset <= recovery_point:
                break
        # Oldest first: a power cut in between must not leave a hole.
        self._slices.reverse()
        self._snapshots, self._files = durability.unsynced_snapshots, durability.unsynced_files
        durability.unsynced_snapshots, durability.unsynced_files = [], []
        self._epochs = [epochs.path] if epochs.is_unsynced else []
        epochs.is_unsynced = False

    def _collect(self, segment: Segment) -> None:
        # Pinned, so that neither truncation nor retention closes the descriptor while another thread syncs.
        self._slices.append(segment.slice(0, 0))
        self._sizes.append((segment, segment.size))
        segment.write_pending()
        self._paths.extend((segment.offset_index.path, segment.time_index.path, segment.txn_index.path))

    def run(self) -> None:
        """Sync the files and their directory. Raises OSError."""
        filesystem = self._disk.filesystem
        for piece in self._slices:
            piece.fsync()
        for path in (*self._paths, *self._snapshots, *self._files, *self._epochs):
            with contextlib.suppress(FileNotFoundError):
                file = filesystem.open(path)
                try:
                    file.fsync()
                finally:
                    file.close()
        with contextlib.suppress(FileNotFoundError):
            filesystem.fsync_dir(self._directory)

    def undo(self) -> None:
        """`run` raised. What it should have synced is not synced; if nothing but descriptors was lacking, another task may."""
        for piece in self._slices:
            piece.release()
        durability, epochs = self._durability, self._epoch_cache
        durability.unsynced_snapshots[:0] = self._snapshots
        durability.unsynced_files[:0] = self._files
        epochs.is_unsynced = epochs.is_unsynced or bool(self._epochs)
        durability.is_flush_requested = True

    def finish(self) -> None:
        """Note what is durable now."""
        for piece in self._slices:
            piece.release()
        if self._log_segments.active.base_offset == self._active_base_offset:
            self._durability.has_unsynced_names = False
        if self._durability.synced_to(self.end_offset, self._truncations):
            for segment, size in self._sizes:
                segment.synced_size = size
        self._disk.open_files.shrink()
