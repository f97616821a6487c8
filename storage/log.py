"""The log of one topic partition (Kafka's UnifiedLog): segments, epochs, producers, watermarks.

Single-threaded: all calls come from one event loop (or from one worker while the log is being loaded). What blocks
long - syncing - is split off as a FlushTask that may run elsewhere. Offsets are published after their bytes are
written; a failed write is cut off again and takes the log offline (`failure`).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right

from storage import retention
from storage.log_append import LogAppends
from storage.slice import empty_slice
from storage.types import AbortedTransaction, OffsetPosition, ReadResult, TimestampOffset
from wire.errors import ApiError, ErrorCode


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
        """Those that touch [start_offset, end_offset)."""
        found: list[AbortedTransaction] = []
        with self.disk("read the transaction index"):
            for segment in self.segments[max(bisect_right(self.bases, start_offset) - 1, 0) :]:
                for entry in segment.txn_index.entries:
                    if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                        found.append(entry)
                    if entry.last_stable_offset >= end_offset:
                        return found
        return found

    def lookup_offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record, by offset, with a timestamp >= `timestamp`."""
        with self.disk("look up a timestamp"):
            for segment in self.segments:
                if segment.largest_timestamp() >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return found
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (ListOffsets -3); None if there is none."""
        with self.disk("look up a timestamp"):
            best = max(self.segments, key=lambda segment: segment.max_timestamp)
            return best.max_timestamp_record()

    # -- truncation and retention

    def truncate_to(self, offset: int, wall_ms: int = 0) -> bool:
        """Drop everything from `offset` on. False, with only the epochs cut, if the log ends there already
        (KAFKA-10706)."""
        if offset < 0:
            raise ValueError(f"truncation to offset {offset}")
        with self.disk("truncate the log"):
            if offset >= self.log_end_offset:
                self.epochs.truncate_from_end(offset)
                return False
            if offset < self.bases[0]:
                self.truncate_fully_and_start_at(offset, wall_ms)
                return True
            keep = bisect_right(self.bases, offset)
            self._drop(self.segments[keep:], wall_ms)
            self.segments[-1].truncate_to(offset, wall_ms)
            self.epochs.truncate_from_end(offset)
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
        paths = []
        while self.doomed and self.doomed[0][0] <= wall_ms:
            paths.append(self.doomed.pop(0)[1])
        return paths

    # -- durability and the end

    def close(self) -> None:
        """Cleanly: snapshot of the producers, sync, indexes cut. After a failure files are just closed."""
        if self.failure is not None:
            self.close_files()
            return
        with self.disk("close the log"):
            self.producer_state.take_snapshot()
            self.flush()
            self.write_epochs()
            for segment in self.segments:
                segment.close()

    def close_files(self) -> None:
        """Without writing."""
        for segment in self.segments:
            with contextlib.suppress(OSError):
                segment.close_files()

    def delete(self) -> None:
        """Unlink every file and the directory."""
        self.close_files()
        with self.disk("delete the log"):
            for name in self.filesystem.list(self.directory):
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(f"{self.directory}/{name}")
            self.filesystem.rmdir(self.directory)
