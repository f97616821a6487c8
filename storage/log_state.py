"""What the parts of a log share: its segments, watermarks, epochs and producers, rolling, and failing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from storage import retention
from storage.checkpoint import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, write_partition_metadata
from storage.config import INT64_MAX, LogConfig
from storage.epoch_cache import EpochCache
from storage.errors import StorageError
from storage.filesystem import FileSystem
from storage.flush import FlushTask
from storage.producer_state import ProducerStateManager
from storage.segment import CLEANED, INDEX_SUFFIXES, SWAP, Segment, segment_path
from storage.types import EpochEnd, OffsetPosition
from wire.errors import ApiError, ErrorCode

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
    ) -> None:
        self.filesystem = filesystem
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
        """Close the active segment and begin the next at max(`first_offset`, log end). OSError if the disk fails."""
        offset = max(self.log_end_offset, first_offset or 0)
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
        segment = Segment.create(self.filesystem, self.directory, offset, self.config, wall_ms)
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
        with self.disk("replace segments"):
            # The .log first: without it an index that was renamed would be taken for one of the old segment.
            self._rename_parts(stem, CLEANED, SWAP)
            for segment in old:
                snapshot = self.producer_state.mark_snapshot_deleted(segment.base_offset) if segment is not old[0] else None
                names = segment.mark_deleted()
                self.doomed.extend((due, name) for name in (names if snapshot is None else [*names, snapshot]))
            self._rename_parts(stem, SWAP, "")
            cleaned = Segment.open(self.filesystem, self.directory, first, self.config, wall_ms)
            start = self.bases.index(first)
            self.segments[start : start + len(old)] = [cleaned]
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
        with self.disk("truncate the log"):
            self._drop(self.segments[:], wall_ms)
            self.segments = [Segment.create(self.filesystem, self.directory, offset, self.config, wall_ms)]
            self.epochs.clear()
            self.producer_state.truncate_fully_and_start_at(offset)
            self.log_start_offset = offset
            self._restart_at(offset, wall_ms)

    def _restart_at(self, offset: int, wall_ms: int) -> None:
        # What was cut must not come back after a power cut, mixed with what is appended next.
        self.filesystem.fsync_dir(self.directory)
        # Producers and the first unstable offset go back before the end offset is published (KAFKA-12153).
        retention.rebuild_producers(self, self.segments, offset, wall_ms)
        self.set_segments(self.segments, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.truncations += 1
        self.truncated_to = min(self.truncated_to, offset)
        if self.high_watermark > offset or self.high_watermark < self.log_start_offset:
            self.high_watermark = offset
            self.producer_state.on_high_watermark(offset)

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

    def prepare_flush(self, up_to: int | None = None) -> FlushTask | None:
        """What must be synced so that everything below `up_to` (the log end) is durable; None if nothing. Run it
        anywhere, then call its `finish` here."""
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        self.is_flush_wanted = False
        if end <= self.recovery_point and not (self.unsynced_snapshots or self.unsynced_files or self.epochs.is_unsynced):
            return None
        with self.disk("flush the log"):
            return FlushTask(self, end)

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to` and move the recovery point. Raises StorageError; never retried."""
        task = self.prepare_flush(up_to)
        if task is not None:
            with self.disk("flush the log"):
                task.run()
            task.finish()

    # -- failing

    def fail(self, action: str, error: OSError) -> StorageError:
        """Take the log offline; the error to raise."""
        failure = StorageError(f"cannot {action} of {self.name} in {self.directory}", path=self.directory, cause=error)
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)
        return failure

    def disk(self, action: str) -> _DiskGuard:
        """Context in which an OSError becomes a StorageError."""
        return _DiskGuard(self, action)

    def _choose_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = self._pick_jitter(bound) if self._pick_jitter is not None and bound > 0 else 0


class _DiskGuard:
    __slots__ = ("_action", "_log")

    def __init__(self, log: LogState, action: str) -> None:
        self._log = log
        self._action = action

    def __enter__(self) -> None:
        if self._log.failure is not None:
            raise self._log.failure

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._log.fail(self._action, error) from error

