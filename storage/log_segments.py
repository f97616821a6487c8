"""The segments of a log in order of their offsets, and the renamed files that wait to be unlinked."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from minikafka.storage.config import LogConfig
from minikafka.storage.log_disk import LogDisk
from minikafka.storage.producer_state import ProducerStateManager
from minikafka.storage.segment import CLEANED, INDEX_SUFFIXES, SWAP, Segment, segment_path
from minikafka.storage.types import OffsetPosition


class LogSegments(Sequence[Segment]):
    """A sequence of segments. Once a log is loaded there is at least one, and the last is ready for appends. Methods raise OSError."""

    __slots__ = (
        "_disk",
        "_producers",
        "active",
        "all",
        "bases",
        "cached_position",
        "config",
        "may_have_gaps",
        "scheduled_deletions",
        "size",
    )

    def __init__(self, disk: LogDisk, config: LogConfig, producers: ProducerStateManager, *, may_have_gaps: bool) -> None:
        self._disk = disk
        self._producers = producers
        self.config = config
        #: The segments themselves; only methods of this class change the list.
        self.all: list[Segment] = []
        #: Base offsets of the segments, ascending. A segment ends where the next one begins, or earlier.
        self.bases: list[int] = []
        #: The last segment, the only one that grows.
        self.active: Segment
        #: Bytes of all segments.
        self.size = 0
        #: Whether offsets may be missing between two segments, as after compaction. Never becomes false again.
        self.may_have_gaps = may_have_gaps
        #: The offset that was looked up last; None after any change of the list.
        self.cached_position: OffsetPosition | None = None
        #: (due in wall-clock milliseconds, path) of renamed files that are to be unlinked.
        self.scheduled_deletions: list[tuple[int, str]] = []

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self.all[index]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that may hold `offset`, and those after it."""
        return self.all[max(bisect_right(self.bases, offset) - 1, 0) :]

    def position_of(self, offset: int) -> OffsetPosition | None:
        """The position of the batch that holds `offset`, or of the next batch; None at the end. Raises ApiError(CORRUPT_MESSAGE)."""
        for segment in self.from_offset(offset):
            found = segment.translate(offset)
            if found is not None:
                position, _ = found
                self.cached_position = OffsetPosition(offset, segment.base_offset, position)
                return self.cached_position
        return None

    # -- changing

    def create(self, base_offset: int, wall_ms: int) -> Segment:
        """Create an empty segment, to be passed to `add` or `set`."""
        disk = self._disk
        return Segment.create(
            disk.filesystem, disk.directory, base_offset, self.config, wall_ms, open_files=disk.open_files, on_error=disk.on_error
        )

    def begin(self, wall_ms: int) -> Segment:
        """Create the first segment of a log whose directory is empty."""
        disk = self._disk
        segment = Segment(disk.filesystem, disk.directory, 0, self.config, open_files=disk.open_files, on_error=disk.on_error)
        segment.begin(self.config, wall_ms)
        return segment

    def open(self, base_offset: int, wall_ms: int, *, is_trusted: bool = True, is_own: bool = False) -> Segment:
        """Open a segment from its files; see `Segment.open`."""
        disk = self._disk
        return Segment.open(
            disk.filesystem, disk.directory, base_offset, self.config, wall_ms, is_trusted=is_trusted, is_own=is_own,
            open_files=disk.open_files, on_error=disk.on_error,
        )  # fmt: skip

    def set(self, segments: Iterable[Segment], log_end_offset: int) -> None:
        """Replace the list (loading and truncation). The last segment must be ready for appends."""
        self._set(list(segments))
        self.active = self.all[-1]
        self._disk.any_file = self.active.log_path
        self.active.forget_recent(log_end_offset)

    def add(self, segment: Segment) -> None:
        """Add a new active segment (roll)."""
        self.all.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment
        self._disk.any_file = segment.log_path

    def drop(self, segments: Sequence[Segment], wall_ms: int) -> None:
        """Remove segments from the log: rename their files and producer snapshots, and schedule them for deletion."""
        for segment in segments:
            self._schedule_deletion(segment, wall_ms, with_snapshot=True)
        gone = {segment.base_offset for segment in segments}
        self._set([segment for segment in self.all if segment.base_offset not in gone])

    def replace(self, old: Sequence[Segment], wall_ms: int) -> Segment:
        """Replace neighbouring inactive segments by the synced `.cleaned` files that have the first one's base offset (compaction). A crash
        in between leaves `.swap` files, which loading puts in place."""
        first = old[0].base_offset
        # The .log first: without it, a renamed index would be taken for one of the old segment.
        self._rename_parts(first, CLEANED, SWAP)
        for segment in old:
            self._schedule_deletion(segment, wall_ms, with_snapshot=segment is not old[0])
        self._rename_parts(first, SWAP, "")
        cleaned = self.open(first, wall_ms, is_own=True)
        start = self.bases.index(first)
        self._set([*self.all[:start], cleaned, *self.all[start + len(old) :]])
        return cleaned

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        for segment in self:
            segment.relocate(directory)
        self.scheduled_deletions = [(due_ms, f"{directory}/{path.rpartition('/')[2]}") for due_ms, path in self.scheduled_deletions]
        self._disk.any_file = None if self._disk.any_file is None else self.active.log_path

    def take_due_deletions(self, wall_ms: int) -> list[str]:
        """Remove and return the paths of renamed files whose delay has passed; the caller unlinks them."""
        # A file that is due later than the delay from now was scheduled before the clock was set back: it is due, too.
        latest = wall_ms + self.config.file_delete_delay_ms
        scheduled = self.scheduled_deletions
        self.scheduled_deletions = [(due_ms, path) for due_ms, path in scheduled if wall_ms < due_ms <= latest]
        return [path for due_ms, path in scheduled if not wall_ms < due_ms <= latest]

    def close_files(self) -> None:
        """Close the files without writing."""
        for segment in self.all:
            with contextlib.suppress(OSError):
                segment.close_files()

    def _set(self, segments: list[Segment]) -> None:
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.size = sum(segment.size for segment in segments)
        self.cached_position = None

    def _schedule_deletion(self, segment: Segment, wall_ms: int, *, with_snapshot: bool) -> None:
        due_ms = wall_ms + self.config.file_delete_delay_ms
        names = segment.mark_deleted()
        snapshot = self._producers.snapshots.mark_deleted(segment.base_offset) if with_snapshot else None
        self.scheduled_deletions.extend((due_ms, name) for name in (names if snapshot is None else [*names, snapshot]))

    def _rename_parts(self, base_offset: int, before: str, after: str) -> None:
        for suffix in (".log", *INDEX_SUFFIXES):
            path = segment_path(self._disk.directory, base_offset, suffix)
            with contextlib.suppress(FileNotFoundError):
                self._disk.filesystem.rename(path + before, path + after)
