"""The log of one topic partition (Kafka's UnifiedLog), composed of segments, watermarks, durability, epochs and producers.

Single-threaded: all calls come from one event loop (or from one worker while the log is being loaded). Syncing, which blocks for long,
is split off as a FlushTask that may run on another thread. Offsets are published after their bytes are written. A failed write is
truncated again and takes the log offline (`failure`).
"""

from __future__ import annotations

import contextlib
import sys
from bisect import bisect_right
from collections.abc import Callable

from minikafka.storage import retention
from minikafka.storage.checkpoint import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, write_partition_metadata
from minikafka.storage.config import INT64_MAX, LogConfig
from minikafka.storage.durability import CutSync, Durability, FlushTask
from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.errors import StorageError
from minikafka.storage.filesystem import FileSystem
from minikafka.storage.log_append import LogAppender
from minikafka.storage.log_disk import DiskGuard, LogDisk
from minikafka.storage.log_parts import LogParts
from minikafka.storage.log_segments import LogSegments
from minikafka.storage.open_files import OpenFiles
from minikafka.storage.producer_state import ProducerStateManager
from minikafka.storage.rolling import Rolling
from minikafka.storage.segment import Segment
from minikafka.storage.slice import empty_slice
from minikafka.storage.timestamp_lookup import TimestampCandidate, TimestampScan
from minikafka.storage.truncation import Truncation, TruncationPreparation
from minikafka.storage.types import AbortedTransaction, EpochEnd, OffsetPosition, ReadResult, TimestampOffset
from minikafka.storage.watermarks import Watermarks
from minikafka.wire.batch import decompressed_bytes_max
from minikafka.wire.errors import ApiError, ErrorCode

_ZERO_UUID = bytes(16)
#: `must_sync_soon` says so when this much room is left in a segment, or an eighth of it.
ROLLED_EARLY_BYTES = 1 << 20


class Log:
    """A log, created by `storage.recovery.load_log`. Callers only read its parts; the log's methods change them."""

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
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        #: Zeros until the log is assigned a topic id; never changes after that.
        self.topic_id = _ZERO_UUID
        #: Whether this object created the log's directory.
        self.is_new = False
        self.config = config
        disk = self._disk = LogDisk(filesystem, directory, self.name, OpenFiles() if open_files is None else open_files, on_failure)
        self.epochs = EpochCache(filesystem, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.producer_state = ProducerStateManager(filesystem, directory, self.name, config.producer_id_expiration_ms)
        self.watermarks = Watermarks(self.producer_state)
        may_have_gaps = config.is_compacted or (topic.startswith("__") and topic != "__cluster_metadata")
        self.segments = LogSegments(disk, config, self.producer_state, may_have_gaps=may_have_gaps)
        self.durability = Durability(disk, self.segments, self.epochs, self.watermarks)
        parts = LogParts(disk, self.epochs, self.producer_state, self.watermarks, self.segments, self.durability)
        self._rolling = Rolling(parts, config, jitter_ms)
        self._truncation = Truncation(parts)
        self._appender = LogAppender(parts, config, self._rolling, self._truncation)
        #: Whether an append may make a sync due (flush.messages).
        self.flushes_by_count = config.flush_messages < INT64_MAX
        # Bound directly: an extra call for every batch would cost.
        self.append_as_leader = self._appender.append_as_leader
        self.append_as_follower = self._appender.append_as_follower
        self.begin_run = self._appender.begin_run
        self.append_run = self._appender.append_run
        self.is_heavy = self._appender.is_heavy
        self.prepare = self._appender.prepare
        self.must_sync_first = self._appender.must_sync_first

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed topic configuration; index sizes take effect with the next segment."""
        self.config = config
        self.segments.config = config
        self.segments.may_have_gaps = self.segments.may_have_gaps or config.is_compacted
        self.producer_state.expiration_ms = config.producer_id_expiration_ms
        self._rolling.update_config(config)
        self._appender.update_config(config)
        self.flushes_by_count = config.flush_messages < INT64_MAX

    # -- facts

    @property
    def directory(self) -> str:
        """Path of the log's directory."""
        return self._disk.directory

    @property
    def failure(self) -> StorageError | None:
        """Why the log can no longer be used; None while it can."""
        return self._disk.failure

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def log_start_offset(self) -> int:
        """See Watermarks."""
        return self.watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """See Watermarks."""
        return self.watermarks.log_end_offset

    @property
    def high_watermark(self) -> int:
        """See Watermarks."""
        return self.watermarks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """See Watermarks."""
        return self.watermarks.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """See Durability."""
        return self.durability.recovery_point

    @property
    def counted_end(self) -> int:
        """Records below this offset may count as stored: behind the recovery point there are fewer than flush.messages of them."""
        return self.durability.recovery_point + self.config.flush_messages - 1

    @property
    def is_sync_due(self) -> bool:
        """Whether flush.messages asks for a flush now. Who appends flushes the log, on another thread, before the append is answered."""
        return self.watermarks.log_end_offset >= self.durability.recovery_point + self.config.flush_messages

    @property
    def truncations(self) -> int:
        """See Durability."""
        return self.durability.truncations

    @property
    def active_segment_base_offset(self) -> int:
        """Base offset of the active segment."""
        return self.segments.active.base_offset

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch; -1 if there is none."""
        return self.epochs.latest

    @property
    def decompressed_bytes_max(self) -> int:
        """Bound in bytes for the decompressed records of one batch."""
        return decompressed_bytes_max(self.config.max_message_bytes)

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark to `offset`, clamped into [log start, log end]. True if it moved."""
        return self.watermarks.move_high_watermark(offset)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata; the next flush syncs it. Raises ApiError(INCONSISTENT_TOPIC_ID) if the log belongs to another topic."""
        if self.topic_id == topic_id:
            return
        if self.topic_id != _ZERO_UUID:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.name} is the log of another topic with the same name")
        with self.disk("write partition.metadata"):
            path = f"{self.directory}/{PARTITION_METADATA}"
            write_partition_metadata(self.filesystem, path, topic_id, sync=False, is_new=self.is_new)
        self.durability.unsynced_files.append(path)
        self._flush_soon()
        self.topic_id = topic_id

    def assign_epoch_start(self, leader_epoch: int, offset: int) -> None:
        """Note the epoch of a new leader, before it appends a record."""
        with self.disk("write the leader epoch checkpoint"):
            self.epochs.assign(leader_epoch, offset)
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Request a flush of the metadata files if the log has records. An empty log waits for its first record, which requests one."""
        self.durability.is_flush_requested = self.durability.is_flush_requested or not self.is_new or self.size > 0

    def write_epochs(self) -> None:
        """Write the epoch file if it still has epochs that ended before the log's start or were truncated. Not urgent: loading drops those
        too."""
        if self.epochs.is_dirty or self.epochs.is_stale:
            with self.disk("write the leader epoch checkpoint"):
                self.epochs.write()

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The log's largest epoch <= `epoch` and its end offset (KIP-101, KIP-279); (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.watermarks.log_end_offset)

    # -- reading

    def read(self, offset: int, bytes_max: int, *, end_offset: int, at_least_one: bool = True) -> ReadResult:
        """Read batches of one segment, from the batch that holds `offset`, up to `bytes_max` bytes and below `end_offset` (exclusive).

        `at_least_one`: the first batch is returned whole even if it is larger; else the slice is empty then, because a part of a batch
        helps nobody. It is also empty if there is nothing below `end_offset` yet. Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE).
        """
        watermarks, segments = self.watermarks, self.segments
        log_end_offset = watermarks.log_end_offset
        if self._disk.failure is not None or not watermarks.log_start_offset <= offset <= log_end_offset:
            self._refuse_offset(offset)
        if offset >= end_offset or offset == log_end_offset:
            return ReadResult(empty_slice(), self.offset_position(offset))
        try:
            stop = None if end_offset >= log_end_offset else self.offset_position(end_offset)
            for index in range(bisect_right(segments.bases, offset) - 1, len(segments.bases)):
                segment = segments.all[index]
                found = segment.translate(offset)
                if found is None:
                    continue
                position, first_size = found
                limit = segment.size
                if stop is not None and stop.segment_base_offset <= segment.base_offset:
                    limit = stop.file_position if stop.segment_base_offset == segment.base_offset else 0
                size = min(limit - position, max(bytes_max, first_size))
                where = OffsetPosition(offset, segment.base_offset, position)
                if size <= 0 or (bytes_max < first_size and not at_least_one):
                    return ReadResult(empty_slice(), where)
                return ReadResult(segment.slice(position, size), where, segment.is_recent(offset))
        except OSError as error:
            raise self.fail("read the log", error) from error
        return ReadResult(empty_slice(), self._end_position())

    def _refuse_offset(self, offset: int) -> None:
        if self._disk.failure is not None:
            raise self._disk.failure
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self.name}, but we only have log segments from "
            f"offset {self.log_start_offset} to {self.log_end_offset}.",
        )

    def offset_position(self, offset: int) -> OffsetPosition:
        """The segment of an offset and the byte position in it. Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        watermarks = self.watermarks
        if offset == watermarks.log_end_offset:
            return self._end_position()
        cached = self.segments.cached_position
        if cached is not None and cached.offset == offset:
            return cached
        if not watermarks.log_start_offset <= offset <= watermarks.log_end_offset:
            self._refuse_offset(offset)
        with self.disk("read the log"):
            return self.segments.position_of(offset) or self._end_position()

    def _end_position(self) -> OffsetPosition:
        active = self.segments.active
        return OffsetPosition(self.watermarks.log_end_offset, active.base_offset, active.size)

    def upper_bound_offset(self, result: ReadResult) -> int:
        """An offset shortly after the last record of a read; the end offset for `aborted_transactions`."""
        bases = self.segments.bases
        index = max(bisect_right(bases, result.position.segment_base_offset) - 1, 0)
        bound = self.segments[index].offset_index.offset_at_or_after(result.position.file_position + result.slice.size)
        if bound is not None:
            return bound
        return bases[index + 1] if index + 1 < len(bases) else self.log_end_offset

    def aborted_transactions(self, start_offset: int, end_offset: int, most: int = sys.maxsize) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start_offset, end_offset), in the order of their markers. Of more than `most`, only the
        first; the others follow behind the marker of the last of these.
        """
        found: list[AbortedTransaction] = []
        with self.disk("read the transaction index"):
            for segment in self.segments.from_offset(start_offset):
                some, is_end = segment.txn_index.search(start_offset, end_offset, most - len(found))
                found += some
                if is_end:
                    break
        return found

    def timestamp_candidate(self, timestamp: int, from_offset: int) -> TimestampCandidate | TimestampScan | None:
        """The first batch at or after `from_offset` that may hold a record with a timestamp >= `timestamp`; or what must be searched for
        it, if that is much."""
        with self.disk("look up a timestamp"):
            for segment in self.segments.from_offset(from_offset):
                if segment.largest_timestamp() >= timestamp:
                    found = segment.timestamp_candidate(timestamp, from_offset)
                    if found is not None:
                        return found
        return None

    def max_timestamp_candidate(self) -> TimestampCandidate | None:
        """The batch with the largest timestamp (ListOffsets -3); None if there is none."""
        with self.disk("look up a timestamp"):
            best = max(self.segments, key=lambda segment: segment.max_timestamp)
            return best.max_timestamp_candidate()

    def lookup_offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record, by offset, with a timestamp >= `timestamp`. Blocks while it decompresses batches. Raises CorruptRecord."""
        candidate = self.timestamp_candidate(timestamp, self.log_start_offset)
        while candidate is not None:
            with self.disk("look up a timestamp"):
                found = candidate.find(self.decompressed_bytes_max)
            candidate.release()
            if found is not None:
                return found
            candidate = self.timestamp_candidate(timestamp, candidate.next_offset)
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None if there is none. Raises CorruptRecord."""
        candidate = self.max_timestamp_candidate()
        return None if candidate is None else candidate.largest(self.decompressed_bytes_max)

    # -- rolling, truncation and retention

    def roll(self, wall_ms: int, first_offset: int | None = None) -> Segment:
        """Close the active segment and begin the next at max(`first_offset`, log end). Raises StorageError."""
        return self._rolling.roll(wall_ms, first_offset or 0)

    def must_sync_soon(self, wall_ms: int) -> bool:
        """Whether to flush the log on another thread, and then `roll_if_synced`, before the next append: it may begin a segment, and before
        that the log must be synced. For those who do not know yet how much they append."""
        size = min(ROLLED_EARLY_BYTES, self.config.segment_bytes // 8)
        return self.durability.must_sync_for_roll and self._appender.is_roll_due(size, wall_ms, wall_ms)

    def roll_if_synced(self, wall_ms: int) -> bool:
        """Roll, unless the roll would sync. Raises StorageError."""
        if self.durability.must_sync_for_roll or not self.segments.active.size:
            return False
        self._rolling.roll(wall_ms)
        return True

    def truncation_step(self, offset: int) -> int:
        """Where the first of the truncations ends that bring the log to `offset` without dropping more than some segments at a time. Each
        leaves a log that a truncation could have been meant to leave."""
        return self._truncation.step(offset)

    def prepare_truncation(self, offset: int, wall_ms: int) -> TruncationPreparation | None:
        """What `truncate_to` would otherwise do itself and what takes long, on other threads; None if nothing does. Raises StorageError."""
        return self._truncation.prepare(offset, wall_ms)

    def truncate_to(self, offset: int, wall_ms: int = 0, prepared: TruncationPreparation | None = None) -> bool:
        """Drop everything from `offset` on. False if the log already ends there; then only the epochs are truncated (KAFKA-10706).
        `prepare_cut_sync`, or the next append, makes it durable. `prepared`: for this offset; has no effect if it is out of date."""
        if offset < 0:
            raise ValueError(f"truncation to offset {offset}")
        return self._truncation.truncate_to(offset, wall_ms, prepared)

    def truncate_fully_and_start_at(self, offset: int, wall_ms: int = 0) -> None:
        """Drop everything; the empty log starts at `offset`."""
        self._truncation.truncate_fully_and_start_at(offset, wall_ms)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset to `offset`; True if it moved. Raises ApiError(OFFSET_OUT_OF_RANGE) beyond the high watermark.
        The next `delete_old_segments` drops the segments below it."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is larger than "
                f"the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        return True

    def accept_loss(self) -> None:
        """Nobody has the records that the log lost while it was closed: what is left is the log."""
        self.durability.found_again()

    def _start_at(self, offset: int) -> None:
        with self.disk("move the log start"):
            self.watermarks.log_start_offset = offset
            lost = self.watermarks.lost
            if lost is not None and offset >= lost[1]:
                self.durability.found_again()
            self.epochs.truncate_from_start(offset, write=False)
            self.producer_state.on_log_start_offset(offset)

    def delete_old_segments(self, wall_ms: int, most: int = sys.maxsize) -> int:
        """Apply retention: by log start, then by size and time if the policy includes delete. Drops `most` segments at most, the oldest
        first, and returns how many. Their files are renamed now; `delete_files` unlinks them after file.delete.delay.ms."""
        with self.disk("delete old segments"):
            count = self._delete(retention.before_log_start(self.log_start_offset), wall_ms, most)
            if self.config.is_deleted:
                count += self._delete(retention.by_size(self.segments, self.config), wall_ms, most - count)
                count += self._delete(retention.by_time(self.config, wall_ms), wall_ms, most - count)
        return count

    def _delete(self, is_deletable: retention.IsDeletable, wall_ms: int, most: int) -> int:
        """Drop the oldest deletable segments and raise the log start offset to the next one. The active segment is rolled first."""
        gone = retention.deletable_segments(self.segments, self.watermarks, is_deletable, most)
        if not gone:
            return 0
        if len(gone) == len(self.segments):
            self.roll(wall_ms)
        self.segments.drop(gone, wall_ms)
        if self.segments.bases[0] > self.log_start_offset:
            self.increment_log_start_offset(self.segments.bases[0])
        return len(gone)

    def replace_segments(self, old: list[Segment], wall_ms: int) -> Segment:
        """Replace segments by their compacted one, and return it; see LogSegments.replace."""
        with self._disk.change("replace segments"):
            cleaned = self.segments.replace(old, wall_ms)
        # The next flush makes the renames durable. After a crash before that, loading completes the replacement.
        self.durability.add_file(cleaned.log_path)
        return cleaned

    def delete_files(self, wall_ms: int) -> None:
        """Unlink renamed files whose delay has passed."""
        with self.disk("delete files"):
            for path in self.segments.take_due_deletions(wall_ms):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(path)

    # -- durability and the end

    def prepare_cut_sync(self) -> CutSync | None:
        """The task that makes the last truncation durable; None if it already is. Run it on any thread, then call its `finish` on the
        loop. An append before that syncs by itself and blocks. Raises StorageError."""
        return self.durability.prepare_cut_sync()

    def prepare_flush(self, up_to: int | None = None) -> FlushTask | None:
        """The task that makes everything below `up_to` durable (by default: up to the log end); None if there is nothing to sync. Run it
        on any thread, then call its `finish` on the loop. Raises StorageError."""
        return self.durability.prepare_flush(up_to)

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to`, blocking, and move the recovery point. Raises StorageError; a failed sync is never retried."""
        self.durability.flush(up_to)

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed to `directory`. No task of the log may be under way; open files stay open."""
        self._disk.directory = directory
        self.epochs.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self.producer_state.relocate(directory)
        self.durability.relocate(directory)
        self.segments.relocate(directory)

    def close(self) -> None:
        """Close cleanly: write a producer snapshot, sync, trim the indexes. After a failure only close the files."""
        if self.failure is not None:
            self.close_files()
            return
        with self.disk("close the log"):
            self.producer_state.take_snapshot()
            self.durability.sync_cut()
            self.flush()
            self.write_epochs()
            for segment in self.segments:
                segment.close()
        self.close_files()

    def close_files(self) -> None:
        """Close the files without writing. The log can no longer be used."""
        self._disk.close()
        self.epochs.is_closed = True
        self.segments.close_files()

    def delete(self) -> None:
        """Unlink every file of the log, and its directory."""
        with self.disk("delete the log"):
            self.close_files()
            for name in self.filesystem.list(self.directory):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(f"{self.directory}/{name}")
            self.filesystem.rmdir(self.directory)

    # -- failing

    def disk(self, action: str) -> DiskGuard:
        """Context in which an OSError becomes a StorageError."""
        return self._disk.guard(action)

    def fail(self, action: str, error: OSError) -> StorageError:
        """The error to raise; see LogDisk."""
        return self._disk.fail(action, error)

    def take_offline(self, failure: StorageError) -> None:
        """Refuse all further calls: the log directory has failed."""
        self._disk.take_offline(failure)
