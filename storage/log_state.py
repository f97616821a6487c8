"""What the parts of a log share: its segments, watermarks, epochs and producers, rolling, and failing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from minikafka.storage import retention
from minikafka.storage.checkpoint import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, write_partition_metadata
from minikafka.storage.config import INT64_MAX, LogConfig
from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.errors import ResourceShortage, StorageError
from minikafka.storage.filesystem import FileSystem, is_shortage
from minikafka.storage.flush import CutSync, FlushTask
from minikafka.storage.open_files import OpenFiles
from minikafka.storage.producer_state import ProducerStateManager
from minikafka.storage.segment import CLEANED, INDEX_SUFFIXES, SWAP, Segment, segment_path
from minikafka.storage.types import EpochEnd, OffsetPosition
from minikafka.wire.batch import decompressed_bytes_max
from minikafka.wire.errors import ApiError, ErrorCode

_ZERO_UUID = bytes(16)
#: A roll syncs at most about so much, and what came within the last second.
SYNC_AHEAD_BYTES = 8 << 20


class LogState:
    """Attributes are for reading only."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        on_failure: Callable[[StorageError], None] | None = None,
        jitter_ms: Callable[[int], int] | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        self.filesystem = filesystem
        self.open_files = OpenFiles() if open_files is None else open_files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = _ZERO_UUID
        #: Compaction leaves lawful holes between segments.
        self.may_have_holes = topic.startswith("__") and topic != "__cluster_metadata"
        self.epochs = EpochCache(filesystem, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.producer_state = ProducerStateManager(filesystem, directory, self.name, config.producer_id_expiration_ms)
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.size = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        self.failure: StorageError | None = None
        self.is_flush_wanted = False
        #: Whether the newest segment's name may be lost by a power cut.
        self.has_unsynced_names = True
        self.truncations = 0
        self.truncated_to = INT64_MAX
        #: What was cut may come back after a power cut: it must not, mixed with what is appended next.
        self.is_cut = False
        self._cut_sync: CutSync | None = None
        self.unsynced_snapshots: list[str] = []
        self.unsynced_files: list[str] = []
        self.doomed: list[tuple[int, str]] = []
        self._on_failure = on_failure
        self._pick_jitter = jitter_ms
        self._position_cache: OffsetPosition | None = None
        self._active: Segment
        self.config: LogConfig
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Take a changed topic configuration; index sizes apply from the next segment on."""
        self.config = config
        self.may_have_holes = self.may_have_holes or config.is_compacted
        self.producer_state.expiration_ms = config.producer_id_expiration_ms
        self._choose_jitter()
        self._batch_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        self._records_bytes_max = decompressed_bytes_max(config.max_message_bytes)
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._flush_messages = config.flush_messages - 1
        # Batches as clients usually send them skip fit_to_topic.
        self._is_plain = (
            config.compression_type == "producer" and not config.is_log_append_time and not config.is_compacted
        )

    def set_segments(self, segments: list[Segment], log_end_offset: int) -> None:
        """(Loading and truncation.) The last segment must be ready for appends."""
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._active.forget_recent(log_end_offset)
        self.size = sum(segment.size for segment in segments)
        self.log_end_offset = log_end_offset
        self._position_cache = None

    # -- watermarks and small facts

    @property
    def active_segment_base_offset(self) -> int:
        return self._active.base_offset

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest if self.epochs.latest >= 0 else None

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the first transaction that is open or not replicated yet."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> bool:
        """Clamped into [log start, log end]; True when it moved."""
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producer_state.on_high_watermark(offset)
        return True

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata, to be synced with the next flush. Raises ApiError(INCONSISTENT_TOPIC_ID) if the log
        belongs to another topic."""
        if self.topic_id == topic_id:
            return
        if self.topic_id != _ZERO_UUID:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.name} is the log of another topic of that name")
        with self.disk("write partition.metadata"):
            path = f"{self.directory}/{PARTITION_METADATA}"
            write_partition_metadata(self.filesystem, path, topic_id, sync=False)
        self.unsynced_files.append(path)
        self.is_flush_wanted = True
        self.topic_id = topic_id

    def assign_epoch_start(self, leader_epoch: int, offset: int) -> None:
        """A leader notes its epoch at once, before any record."""
        with self.disk("write the leader epoch checkpoint"):
            self.epochs.assign(leader_epoch, offset)
        self.is_flush_wanted = True

    def write_epochs(self) -> None:
        """Write the epochs if their file still has some that ended before the log's start. Loading drops those as well, so
        that this may wait."""
        if self.epochs.is_dirty:
            with self.disk("write the leader epoch checkpoint"):
                self.epochs.write()

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """KIP-101/279: (largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- segments

    def roll(self, wall_ms: int, first_offset: int | None = None) -> Segment:
        """Close the active segment and begin the next at max(`first_offset`, log end). Raises StorageError."""
        with self.change("roll"):
            return self._roll(wall_ms, max(self.log_end_offset, first_offset or 0))

    def _roll(self, wall_ms: int, offset: int) -> Segment:
        if self.is_cut:
            # It is the active segment's.
            self.sync_cut()
        active = self._active
        if offset == active.base_offset and active.size == 0:
            # Nothing to keep (an index that is full although the segment is empty, KAFKA-6492): begin it anew.
            self._drop([active], wall_ms)
        else:
            active.become_inactive()
            if self.may_have_holes and self.recovery_point < self.log_end_offset:
                # No start could tell a hole that a power cut tore here from those that compaction leaves.
                active.file.fsync()
        if self.has_unsynced_names:
            # A power cut must not keep the name of a segment and lose that of the one before.
            self.filesystem.fsync_dir(self.directory)
        self.has_unsynced_names = True
        segment = self.create_segment(offset, wall_ms)
        self.segments.append(segment)
        self.bases.append(offset)
        self._active = segment
        self._choose_jitter()
        self.producer_state.advance(offset)
        snapshot = self.producer_state.take_snapshot(sync=False)
        if snapshot is not None:
            self.unsynced_snapshots.append(snapshot.path)
            snapshot.close()
        self.is_flush_wanted = True
        return segment

    def create_segment(self, base_offset: int, wall_ms: int) -> Segment:
        """An empty one. Raises OSError."""
        return Segment.create(
            self.filesystem, self.directory, base_offset, self.config, wall_ms, open_files=self.open_files, on_error=self.on_disk_error
        )

    @property
    def should_sync_ahead(self) -> bool:
        """Whether a roll would have so much to sync that it had better be done before, elsewhere."""
        return self.may_have_holes and self._active.size - self._active.synced_size > SYNC_AHEAD_BYTES

    def _drop(self, segments: list[Segment], wall_ms: int) -> None:
        """Rename the files of `segments` and forget them."""
        due = wall_ms + self.config.file_delete_delay_ms
        for segment in segments:
            names = segment.mark_deleted()
            snapshot = self.producer_state.mark_snapshot_deleted(segment.base_offset)
            self.doomed.extend((due, name) for name in (names if snapshot is None else [*names, snapshot]))
        gone = {segment.base_offset for segment in segments}
        self.segments = [segment for segment in self.segments if segment.base_offset not in gone]
        self.bases = [segment.base_offset for segment in self.segments]
        self._position_cache = None

    def replace_segments(self, old: list[Segment], wall_ms: int) -> None:
        """(Compaction.) The synced `.cleaned` files of the first of these neighbours take the place of them all; none is
        the active segment. A crash in between leaves `.swap` files, which loading puts in place."""
        first = old[0].base_offset
        stem = segment_path(self.directory, first, "")
        due = wall_ms + self.config.file_delete_delay_ms
        with self.change("replace segments"):
            # The .log first: without it an index that was renamed would be taken for one of the old segment.
            self._rename_parts(stem, CLEANED, SWAP)
            for segment in old:
                snapshot = self.producer_state.mark_snapshot_deleted(segment.base_offset) if segment is not old[0] else None
                names = segment.mark_deleted()
                self.doomed.extend((due, name) for name in (names if snapshot is None else [*names, snapshot]))
            self._rename_parts(stem, SWAP, "")
            cleaned = Segment.open(
                self.filesystem, self.directory, first, self.config, wall_ms, open_files=self.open_files, on_error=self.on_disk_error
            )
            start = self.bases.index(first)
            self.segments[start : start + len(old)] = [cleaned]
            # The names become durable with the next flush; until then a start finishes what it finds.
            self.unsynced_files.append(cleaned.log_path)
            self.is_flush_wanted = True
            self.bases = [segment.base_offset for segment in self.segments]
            self.size = sum(segment.size for segment in self.segments)
            self._position_cache = None

    def _rename_parts(self, stem: str, before: str, after: str) -> None:
        for suffix in (".log", *INDEX_SUFFIXES):
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.rename(stem + suffix + before, stem + suffix + after)

    # -- going back, and durability

    def drop_first(self, segments: list[Segment], wall_ms: int) -> None:
        """(Retention.) The oldest segments go; the log starts at the next."""
        self.size -= sum(segment.size for segment in segments)
        self._drop(segments, wall_ms)
        if self.bases[0] > self.log_start_offset:
            self.increment_log_start_offset(self.bases[0])

    def truncate_fully_and_start_at(self, offset: int, wall_ms: int = 0) -> None:
        """Drop everything; the empty log starts at `offset`."""
        with self.change("truncate the log"):
            self._drop(self.segments[:], wall_ms)
            self.segments = [self.create_segment(offset, wall_ms)]
            self.epochs.clear()
            self.producer_state.truncate_fully_and_start_at(offset)
            self.log_start_offset = offset
            self._restart_at(offset, wall_ms)

    def _restart_at(self, offset: int, wall_ms: int) -> None:
        # Producers and the first unstable offset go back before the end offset is published (KAFKA-12153).
        retention.rebuild_producers(self, self.segments, offset, wall_ms)
        self.set_segments(self.segments, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.truncations += 1
        self.is_cut = True
        self._cut_sync = None
        self.is_flush_wanted = True
        self.truncated_to = min(self.truncated_to, offset)
        if self.high_watermark > offset or self.high_watermark < self.log_start_offset:
            self.high_watermark = offset
        # The rebuilt state takes every transaction for one that is not replicated yet.
        self.producer_state.on_high_watermark(self.high_watermark)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Hide what is below `offset`; True if it moved. Raises ApiError(OFFSET_OUT_OF_RANGE) beyond the high
        watermark. Segments go at the next `delete_old_segments`."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is larger than "
                f"the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        with self.disk("move the log start"):
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset, write=False)
            self.producer_state.on_log_start_offset(offset)
        return True

    def prepare_cut_sync(self) -> CutSync | None:
        """What makes the last truncation durable, None if it is. Run it anywhere, then call its `finish` here; who appends before waits
        for the disk. Raises StorageError."""
        if not self.is_cut:
            return None
        with self.disk("sync a truncation"):
            self._cut_sync = CutSync(self)
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
        return self.fail("sync a truncation", error)

    def prepare_flush(self, up_to: int | None = None) -> FlushTask | None:
        """What must be synced so that everything below `up_to` (the log end) is durable; None if nothing. Run it
        anywhere, then call its `finish` here."""
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        self.is_flush_wanted = False
        has_files = self.unsynced_snapshots or self.unsynced_files or self.epochs.is_unsynced or self.epochs.is_dirty
        if end <= self.recovery_point and not has_files:
            return None
        try:
            with self.disk("flush the log"):
                if self.epochs.is_dirty:
                    self.epochs.write(sync=False)
                return FlushTask(self, end)
        except ResourceShortage:
            self.is_flush_wanted = True
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
        return self.fail("flush the log", error)

    # -- failing

    def fail(self, action: str, error: OSError, *, is_half_done: bool = False) -> StorageError:
        """The error to raise. A disk that failed takes the log offline, a shortage (ResourceShortage) does not, unless it left something
        half done."""
        message = f"cannot {action} of {self.name} in {self.directory}"
        if is_shortage(error) and not is_half_done:
            return ResourceShortage(message, path=self.directory, cause=error)
        failure = StorageError(message, path=self.directory, cause=error)
        self.give_up(failure)
        return failure

    def give_up(self, failure: StorageError) -> None:
        """The log is of no use any more, and whoever made it is told, once."""
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)

    def on_disk_error(self, error: OSError) -> None:
        """The disk failed under a slice in flight."""
        self.fail("read the log", error)

    def disk(self, action: str) -> _DiskGuard:
        """Context in which an OSError becomes a StorageError."""
        return _DiskGuard(self, action)

    def change(self, action: str) -> _DiskGuard:
        """As `disk`, for what takes several steps: ResourceShortage only before the first of them."""
        return _DiskGuard(self, action, is_change=True)

    def require_descriptors(self) -> None:
        """Raises OSError if too few files could be opened for a change."""
        self.open_files.require(self.filesystem, self._active.log_path)

    def _choose_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = self._pick_jitter(bound) if self._pick_jitter is not None and bound > 0 else 0


class _DiskGuard:
    __slots__ = ("_action", "_is_change", "_log")

    def __init__(self, log: LogState, action: str, *, is_change: bool = False) -> None:
        self._log = log
        self._action = action
        self._is_change = is_change

    def __enter__(self) -> None:
        if self._log.failure is not None:
            raise self._log.failure
        if self._is_change:
            try:
                self._log.require_descriptors()
            except OSError as error:
                raise self._log.fail(self._action, error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._log.fail(self._action, error, is_half_done=self._is_change) from error
