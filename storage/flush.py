"""Syncing a log without holding up its appends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from minikafka.storage.slice import FileSlice

if TYPE_CHECKING:
    from minikafka.storage.log_state import LogState
    from minikafka.storage.segment import Segment


class CutSync:
    """What makes a truncation durable: what was cut must not come back behind what is appended next. `run` blocks and may be called from
    another thread; an OSError from it goes to
    `log.cut_sync_failed`. `finish` belongs on the loop."""

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._filesystem = log.filesystem
        self._directory = log.directory
        self._piece = log.segments[-1].slice(0, 0)

    def run(self) -> None:
        self._piece.fsync()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.fsync_dir(self._directory)

    def undo(self) -> None:
        """`run` raised."""
        self._piece.release()

    def finish(self) -> None:
        """The next append need not wait any more."""
        self._piece.release()
        self._log.cut_is_synced(self)


class FlushTask:
    """Files to sync, collected on the loop. `run` blocks and may be called from another thread; an OSError from it goes to
    `log.flush_failed`: after a sync that failed nothing is synced again, for the pages are lost. `finish` belongs on the loop."""

    def __init__(self, log: LogState, end_offset: int) -> None:
        self._log = log
        self.end_offset = end_offset
        self._truncations = log.truncations
        self._filesystem = log.filesystem
        self._directory = log.directory
        self._active_base_offset = log.active_segment_base_offset
        self._slices: list[FileSlice] = []
        self._sizes: list[tuple[Segment, int]] = []
        self._paths: list[str] = []
        has_records = end_offset > log.recovery_point or bool(log.unsynced_snapshots)
        for segment in reversed(log.segments if has_records else ()):
            if segment.base_offset < end_offset or segment is log.segments[-1]:
                # Pinned, so that neither truncation nor retention closes the descriptor while another thread syncs.
                self._slices.append(segment.slice(0, 0))
                self._sizes.append((segment, segment.size))
                segment.write_pending()
                self._paths.extend((segment.offset_index.path, segment.time_index.path, segment.txn_index.path))
            if segment.base_offset <= log.recovery_point:
                break
        # Oldest first: a power cut in between must not leave a hole.
        self._slices.reverse()
        self._snapshots, self._files = log.unsynced_snapshots, log.unsynced_files
        log.unsynced_snapshots, log.unsynced_files = [], []
        self._epochs = [log.epochs.path] if log.epochs.is_unsynced else []
        log.epochs.is_unsynced = False

    def run(self) -> None:
        for piece in self._slices:
            piece.fsync()
        for path in (*self._paths, *self._snapshots, *self._files, *self._epochs):
            with contextlib.suppress(FileNotFoundError):
                file = self._filesystem.open(path)
                try:
                    file.fsync()
                finally:
                    file.close()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.fsync_dir(self._directory)

    def undo(self) -> None:
        """`run` raised. What it should have synced is not synced; if nothing but descriptors was lacking, another task may."""
        for piece in self._slices:
            piece.release()
        log = self._log
        log.unsynced_snapshots[:0] = self._snapshots
        log.unsynced_files[:0] = self._files
        log.epochs.is_unsynced = log.epochs.is_unsynced or bool(self._epochs)
        log.is_flush_wanted = True

    def finish(self) -> None:
        for piece in self._slices:
            piece.release()
        log = self._log
        if log.active_segment_base_offset == self._active_base_offset:
            log.has_unsynced_names = False
        # Offsets that were truncated meanwhile may have been given to other, unsynced batches.
        if log.truncations == self._truncations:
            for segment, size in self._sizes:
                segment.synced_size = size
            log.recovery_point = max(log.recovery_point, self.end_offset)
        log.open_files.shrink()
