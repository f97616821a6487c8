"""The log of one topic partition (Kafka's UnifiedLog): segments, epochs, producers, watermarks.

Single-threaded: all calls come from one event loop (or from one worker while the log is being loaded). What blocks
long - syncing - is split off as a FlushTask that may run elsewhere. Offsets are published after their bytes are
written; a failed write is cut off again and takes the log offline (`failure`).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right

from minikafka.storage import retention
from minikafka.storage.errors import LogClosed
from minikafka.storage.log_append import LogAppends
from minikafka.storage.slice import empty_slice
from minikafka.storage.timestamp_lookup import TimestampCandidate
from minikafka.storage.types import AbortedTransaction, OffsetPosition, ReadResult, TimestampOffset
from minikafka.wire.batch import decompressed_bytes_max
from minikafka.wire.errors import ApiError, ErrorCode


class Log(LogAppends):
    """Made by `storage.recovery.load_log`. Appends are in LogAppends, state and watermarks in LogState; attributes are
    for reading only."""

    # -- reading

    def read(self, offset: int, bytes_max: int, *, end_offset: int, at_least_one: bool = True) -> ReadResult:
        """Batches from the one that holds `offset`, up to `bytes_max` bytes and below `end_offset`, from one segment.
        `at_least_one`: the first batch is returned whole even if larger. The slice is empty if there is nothing below
        `end_offset` yet. Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE)."""
        if self.failure is not None or not self.log_start_offset <= offset <= self.log_end_offset:
            self._refuse_offset(offset)
        if offset >= end_offset or offset == self.log_end_offset:
            return ReadResult(empty_slice(), self.offset_position(offset))
        try:
            index = bisect_right(self.bases, offset) - 1
            stop = None if end_offset >= self.log_end_offset else self.offset_position(end_offset)
            while index < len(self.segments):
                segment = self.segments[index]
                index += 1
                found = segment.translate(offset)
                if found is None:
                    continue
                position, first_size = found
                limit = segment.size
                if stop is not None and stop.segment_base_offset <= segment.base_offset:
                    limit = stop.file_position if stop.segment_base_offset == segment.base_offset else 0
                size = min(limit - position, max(bytes_max, first_size) if at_least_one else bytes_max)
                where = OffsetPosition(offset, segment.base_offset, position)
                if size <= 0:
                    return ReadResult(empty_slice(), where, bytes_max < first_size)
                return ReadResult(segment.slice(position, size), where, not at_least_one and bytes_max < first_size)
        except OSError as error:
            raise self.fail("read the log", error) from error
        return ReadResult(empty_slice(), self._end_position())

    def _refuse_offset(self, offset: int) -> None:
        if self.failure is not None:
            raise self.failure
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self.name}, but we only have log segments from "
            f"offset {self.log_start_offset} to {self.log_end_offset}.",
        )

    def offset_position(self, offset: int) -> OffsetPosition:
        """Segment and byte of an offset. Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        if offset == self.log_end_offset:
            return self._end_position()
        cached = self._position_cache
        if cached is not None and cached.offset == offset:
            return cached
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self._refuse_offset(offset)
        with self.disk("read the log"):
            for segment in self.segments[max(bisect_right(self.bases, offset) - 1, 0) :]:
                found = segment.translate(offset)
                if found is not None:
                    self._position_cache = OffsetPosition(offset, segment.base_offset, found[0])
                    return self._position_cache
        return self._end_position()

    def _end_position(self) -> OffsetPosition:
        return OffsetPosition(self.log_end_offset, self._active.base_offset, self._active.size)

    def upper_bound_offset(self, result: ReadResult) -> int:
        """An offset beyond every record of a read, near it: bound for `aborted_transactions`."""
        index = bisect_right(self.bases, result.position.segment_base_offset) - 1
        segment = self.segments[max(index, 0)]
        bound = segment.offset_index.offset_at_or_after(result.position.file_position + result.slice.size)
        if bound is not None:
            return bound
        return self.bases[index + 1] if index + 1 < len(self.bases) else self.log_end_offset

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that touch [start_offset, end_offset).

        An entry whose last stable offset lies behind its marker was written by an Apache Kafka follower that took in several transactions
        at once: the true one is the offset behind the marker.
        """
        found: list[AbortedTransaction] = []
        with self.disk("read the transaction index"):
            for segment in self.segments[max(bisect_right(self.bases, start_offset) - 1, 0) :]:
                for entry in segment.txn_index.entries:
                    if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                        found.append(entry)
                    if min(entry.last_stable_offset, entry.last_offset + 1) >= end_offset:
                        return found
        return found

    @property
    def decompressed_bytes_max(self) -> int:
        """What the records of one batch may take here."""
        return decompressed_bytes_max(self.config.max_message_bytes)

    def timestamp_candidate(self, timestamp: int, from_offset: int) -> TimestampCandidate | None:
        """The first batch at or after `from_offset` that may hold a record with a timestamp >= `timestamp`."""
        with self.disk("look up a timestamp"):
            for segment in self.segments[max(bisect_right(self.bases, from_offset) - 1, 0) :]:
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
        """The first record, by offset, with a timestamp >= `timestamp`. Raises CorruptRecord; as long as the batches are."""
        candidate = self.timestamp_candidate(timestamp, self.log_start_offset)
        while candidate is not None:
            found = candidate.find(self.decompressed_bytes_max)
            if found is not None:
                return found
            candidate = self.timestamp_candidate(timestamp, candidate.next_offset)
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None if there is none. Raises CorruptRecord."""
        candidate = self.max_timestamp_candidate()
        return None if candidate is None else candidate.largest(self.decompressed_bytes_max)

    # -- truncation and retention

    def truncate_to(self, offset: int, wall_ms: int = 0) -> bool:
        """Drop everything from `offset` on. False, with only the epochs cut, if the log ends there already
        (KAFKA-10706). `prepare_cut_sync` makes it durable, as the next append does."""
        if offset < 0:
            raise ValueError(f"truncation to offset {offset}")
        with self.change("truncate the log"):
            if offset >= self.log_end_offset:
                self.epochs.truncate_from_end(offset, sync=False)
                self.is_flush_wanted = True
                return False
            if offset < self.bases[0]:
                self.truncate_fully_and_start_at(offset, wall_ms)
                return True
            keep = bisect_right(self.bases, offset)
            self._drop(self.segments[keep:], wall_ms)
            self.segments[-1].truncate_to(offset, wall_ms)
            self.epochs.truncate_from_end(offset, sync=False)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._restart_at(offset, wall_ms)
        return True

    def delete_old_segments(self, wall_ms: int) -> int:
        """Retention: by log start, then size and time if the policy says so. Returns the number of segments. Files
        are renamed now and unlinked by `delete_files` when file.delete.delay.ms has passed."""
        with self.disk("delete old segments"):
            return retention.delete_old_segments(self, wall_ms)

    def delete_files(self, wall_ms: int) -> None:
        """Unlink renamed files whose delay has passed."""
        with self.disk("delete files"):
            for path in self.take_doomed(wall_ms):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(path)

    def take_doomed(self, wall_ms: int) -> list[str]:
        """Paths of renamed files whose delay has passed; the caller unlinks them."""
        # A clock that was set back must not keep files: nothing is due later than the delay from now.
        latest = wall_ms + self.config.file_delete_delay_ms
        due = [path for due_ms, path in self.doomed if due_ms <= wall_ms or due_ms > latest]
        self.doomed = [entry for entry in self.doomed if entry[1] not in due]
        return due

    # -- durability and the end

    def close(self) -> None:
        """Cleanly: snapshot of the producers, sync, indexes cut. After a failure files are just closed."""
        if self.failure is not None:
            self.close_files()
            return
        with self.disk("close the log"):
            self.producer_state.take_snapshot()
            self.sync_cut()
            self.flush()
            self.write_epochs()
            for segment in self.segments:
                segment.close()
        self.close_files()

    def close_files(self) -> None:
        """Without writing. The log is of no use any more."""
        if self.failure is None:
            self.failure = LogClosed(f"the log of {self.name} in {self.directory} is closed", path=self.directory)
        for segment in self.segments:
            with contextlib.suppress(OSError):
                segment.close_files()

    def delete(self) -> None:
        """Unlink every file and the directory."""
        with self.disk("delete the log"):
            self.close_files()
            for name in self.filesystem.list(self.directory):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(f"{self.directory}/{name}")
            self.filesystem.rmdir(self.directory)
