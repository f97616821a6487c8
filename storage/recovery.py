"""Loading a log from its directory (LogLoader): leftover files, segments, the longest valid prefix, epochs, producers.

Only a failing disk is fatal. Indexes, checkpoints and snapshots that are missing or wrong are rebuilt from the log, and the log is
truncated at the first invalid batch.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from itertools import pairwise

from minikafka.storage import lost_files, lost_marks
from minikafka.storage.batch_scan import batches
from minikafka.storage.checkpoint import INT64_MAX, PARTITION_METADATA, read_partition_metadata
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import CorruptFile, StorageError
from minikafka.storage.filesystem import TEMPORARY, FileSystem
from minikafka.storage.log import Log
from minikafka.storage.open_files import OpenFiles
from minikafka.storage.producer_replay import rebuild_producers
from minikafka.storage.segment import CLEANED, DELETED, INDEX_SUFFIXES, SWAP, Segment
from minikafka.wire.batch_header import BASE_OFFSET, LAST_DELTA, LEADER_EPOCH

_log = logging.getLogger(__name__)
_SWAPS = frozenset(part + SWAP for part in (".log", *INDEX_SUFFIXES))
_OFFSET_DIGITS = 20
_OFFSET_MAX = (1 << 63) - 1


def load_log(
    filesystem: FileSystem,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    wall_ms: int,
    is_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    may_have_gaps: bool = False,
    stopped: lost_files.StoppedSegments | None = None,
    on_failure: Callable[[StorageError], None] | None = None,
    jitter_ms: Callable[[int], int] | None = None,
    open_files: OpenFiles | None = None,
) -> Log:
    """Open the log in `directory`, which is created if missing. Raises StorageError if the disk fails.

    `is_clean`: the last shutdown was clean; if not, every segment from `recovery_point` on is read and checked. `log_start_offset` and
    `high_watermark` come from the checkpoints of the log directory. `may_have_gaps`: the log was compacted at some time, whatever its
    policy is now. `stopped`: what is known of a clean stop, if nothing has used the log since; else only a mark says whether the log lost
    segments. `open_files` is shared with the other logs of the directory.
    """
    log = Log(filesystem, directory, topic, partition, config, on_failure=on_failure, jitter_ms=jitter_ms, open_files=open_files)
    try:
        if filesystem.mkdir(directory) and log_start_offset == 0:
            _begin(log, may_have_gaps, wall_ms)
            return log
        _load(log, is_clean, recovery_point, log_start_offset, may_have_gaps, stopped, wall_ms)
    except OSError as error:
        for segment in log.segments:
            segment.close_files()
        raise log.fail("load the log", error) from error
    log.watermarks.high_watermark = log.log_start_offset
    log.update_high_watermark(log.log_start_offset if high_watermark is None else high_watermark)
    return log


def _begin(log: Log, may_have_gaps: bool, wall_ms: int) -> None:
    """Begin an empty log in a directory that was created just now."""
    log.is_new = True
    log.segments.may_have_gaps = log.segments.may_have_gaps or may_have_gaps
    log.segments.set([log.segments.begin(wall_ms)], 0)


def _load(
    log: Log,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    may_have_gaps: bool,
    stopped: lost_files.StoppedSegments | None,
    wall_ms: int,
) -> None:
    with contextlib.suppress(CorruptFile):
        log.topic_id = read_partition_metadata(log.filesystem, f"{log.directory}/{PARTITION_METADATA}") or bytes(16)
    bases = _clean_directory(log.filesystem, log.directory)
    unflushed_from = None if is_clean else recovery_point
    # Segments that recovery will read anyway are opened without checking their indexes.
    segments = [
        log.segments.open(base, wall_ms, is_trusted=not _is_unflushed(unflushed_from, after))
        for base, after in zip(bases, [*bases[1:], None], strict=False)
    ]
    log.watermarks.log_start_offset = max(log_start_offset, bases[0] if bases else 0)
    log.producer_state.snapshots.find()
    is_known = _read_epochs(log)
    epochs_before = log.epochs.entries
    log.segments.may_have_gaps = log.segments.may_have_gaps or may_have_gaps
    segments = _recover(log, segments, unflushed_from, wall_ms)
    if not is_known and any(segment.size for segment in segments):
        _rebuild_epochs(log, segments)
    _find_lost(log, segments, log_start_offset, stopped, epochs_before if is_known else [])
    _find_earlier_epochs(log, segments)
    log_end = segments[-1].next_offset() if segments else log.log_start_offset
    if segments and log_end < log.log_start_offset:
        # The checkpointed log start lies beyond the records that the crash left (KAFKA-10101).
        for segment in segments:
            _remove(log.filesystem, segment)
        segments = []
        log.epochs.clear()
        log.producer_state.truncate_fully_and_start_at(log.log_start_offset)
        log_end = log.log_start_offset
    if not segments:
        segments = [log.segments.create(log.log_start_offset, wall_ms)]
    else:
        segments[-1].activate()
    _settle_epochs(log, epochs_before, log_end)
    _load_producers(log, segments, log_end, is_clean, wall_ms)
    log.durability.is_flush_requested = log.durability.is_flush_requested or log.epochs.is_unsynced or log.epochs.is_dirty
    segments[-1].load_first_timestamp()  # the first append would wait for the disk
    log.segments.set(segments, log_end)
    log.watermarks.log_end_offset = log_end
    log.durability.recovery_point = log_end if is_clean else min(recovery_point, log_end)
    for segment in segments:
        segment.close_if_idle()


def _clean_directory(filesystem: FileSystem, directory: str) -> list[int]:
    """Remove leftovers and complete interrupted swaps. Returns the base offsets of the segments."""
    _remove_leftovers(filesystem, directory)
    _complete_swaps(filesystem, directory)
    names = filesystem.list(directory)
    found = {name: base for name in names if (base := _base_offset_of(name)) is not None}
    bases = {base for name, base in found.items() if _suffix_of(name) == ".log"}
    for name, base in found.items():
        if _suffix_of(name) in INDEX_SUFFIXES and base not in bases:
            _unlink_file(filesystem, f"{directory}/{name}")
    return sorted(bases)


def _remove_leftovers(filesystem: FileSystem, directory: str) -> None:
    """Remove leftover files (LogLoader.removeTempFilesAndCollectSwapFiles).

    Replacement segments are renamed to `.swap` from the last to the first. So a `.swap` file at or after a `.cleaned` file belongs to a
    replacement, such as the split of a segment, that was not completely renamed: it is removed too.
    """
    names = filesystem.list(directory)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    first_cleaned = min((base for base in map(_base_offset_of, cleaned) if base is not None), default=None)
    swaps = [(name, _base_offset_of(name)) for name in names if _suffix_of(name) in _SWAPS]
    invalid = [name for name, base in swaps if base is not None and first_cleaned is not None and base >= first_cleaned]
    # The `.cleaned` files, which show that the others are invalid, go last: another crash may happen in between.
    for name in [name for name in names if name.endswith((DELETED, TEMPORARY))] + invalid + cleaned:
        _unlink_file(filesystem, f"{directory}/{name}")


def _unlink_file(filesystem: FileSystem, path: str) -> None:
    """Remove a file that nothing needs. A directory is none of the log's, whatever its name."""
    if not filesystem.is_dir(path):
        filesystem.unlink(path)


def _complete_swaps(filesystem: FileSystem, directory: str) -> None:
    """Remove the segments between the base offset of the first `.swap` file and the end of the last, which were replaced; then rename the
    `.swap` files (LogLoader.load)."""
    names = filesystem.list(directory)
    ends: dict[int, int] = {}
    for name in names:
        base = _base_offset_of(name)
        if base is not None and _suffix_of(name) == f".log{SWAP}":
            ends[base] = _end_offset_of(filesystem, f"{directory}/{name}", base)
    low, high = min(ends, default=0), max(ends.values(), default=0)
    for name in names:
        base = _base_offset_of(name)
        if base is not None and _suffix_of(name) in (".log", *INDEX_SUFFIXES) and (low <= base < high or base in ends):
            filesystem.unlink(f"{directory}/{name}")
    for name in names:
        if _suffix_of(name) in _SWAPS and _base_offset_of(name) is not None:
            filesystem.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _base_offset_of(name: str) -> int | None:
    """The offset in a file's name. None if the name does not begin with twenty digits, as brokers write it: not a file of the log."""
    stem = name.partition(".")[0]
    if len(stem) != _OFFSET_DIGITS or not stem.isascii() or not stem.isdigit():
        return None
    return base if (base := int(stem)) <= _OFFSET_MAX else None


def _suffix_of(name: str) -> str:
    return name[_OFFSET_DIGITS:]


def _end_offset_of(filesystem: FileSystem, path: str, base_offset: int) -> int:
    file, end = filesystem.open(path, read_only=True), base_offset
    try:
        for _, _, header in batches(file, 0, file.size()):
            end = header[BASE_OFFSET] + header[LAST_DELTA] + 1
    finally:
        file.close()
    return end


def _is_unflushed(unflushed_from: int | None, after: int | None) -> bool:
    """Whether a segment may hold unflushed records. `after` is the base offset of the next segment, None for the last."""
    return unflushed_from is not None and (after is None or after > unflushed_from)


def _recover(
    log: Log, segments: list[Segment], unflushed_from: int | None, wall_ms: int
) -> list[Segment]:
    """Recover the segments; returns those that are left.

    In unflushed segments, everything after the first invalid batch is dropped, and everything after a gap between two segments: a power
    cut can leave one, while only compaction leaves allowed ones. A flushed segment whose index had to be rebuilt loses only its own end,
    as in Kafka.
    """
    for index, segment in enumerate(segments):
        after = segments[index + 1].base_offset if index + 1 < len(segments) else None
        is_unflushed = _is_unflushed(unflushed_from, after)
        if not is_unflushed and segment.is_indexed:
            continue
        log.producer_state.reset()
        rebuild_producers(log.producer_state, segments, log.log_start_offset, segment.base_offset, wall_ms)
        if not is_unflushed:
            _log.warning("%s: an index of segment %d is missing or wrong, rebuilding it", log.name, segment.base_offset)
        cut = segment.recover(log.producer_state, log.epochs, _end_before(segments, index), log.log_start_offset)
        if cut:
            _log.warning("%s: truncated %d bytes without a valid batch from %s", log.name, cut, segment.log_path)
        log.producer_state.save_snapshot()
        if index + 1 < len(segments):
            segment.become_inactive()
        has_gap = after is not None and not log.segments.may_have_gaps and segment.next_offset() < after
        # A segment that an earlier recovery removed may reappear after another power cut.
        is_overlapped = after is not None and segment.next_offset() > after
        if is_unflushed and (cut or has_gap or is_overlapped):
            for lost in segments[index + 1 :]:
                _remove(log.filesystem, lost)
            log.filesystem.fsync_dir(log.directory)
            return segments[: index + 1]
    return segments


def _end_before(segments: list[Segment], index: int) -> int:
    """Where the last batch before a segment ended. Compaction leaves gaps, and segments without a batch."""
    for segment in reversed(segments[:index]):
        if segment.size:
            return segment.next_offset()
    return segments[0].base_offset


def _load_producers(log: Log, segments: list[Segment], log_end: int, is_clean: bool, wall_ms: int) -> None:
    """Bring the producer state to the log end, from the snapshots on disk. Producers that expired meanwhile are dropped, as in Kafka, where
    recovery uses a separate manager."""
    producers = log.producer_state
    producers.snapshots.find()
    producers.snapshots.remove_strays([segment.base_offset for segment in segments])
    producers.reset()
    if is_clean and not producers.snapshots.offsets:
        for offset in (*(segment.base_offset for segment in segments[-2:]), log_end):
            producers.advance(offset)
            producers.save_snapshot()
        return
    rebuild_producers(producers, segments, log.log_start_offset, log_end, wall_ms)


def _read_epochs(log: Log) -> bool:
    """Read the file of the epochs. False if there are none in it, or if it is not valid: then they are rebuilt from the log."""
    try:
        log.epochs.load()
    except CorruptFile as error:
        _log.warning("%s: leader-epoch-checkpoint is not valid (%s), rebuilding it from the log", log.name, error)
        return False
    return bool(log.epochs.epochs)


def _settle_epochs(log: Log, before: list[tuple[int, int]], log_end: int) -> None:
    """Bring the epochs to the log's start and end, and write what has changed since `before`."""
    if log.epochs.entries != before:
        log.epochs.write()
    log.epochs.truncate_from_end(log_end)
    if log.epochs.is_stale:
        log.epochs.write(sync=False)
    log.epochs.truncate_from_start(log.log_start_offset)


def _find_lost(
    log: Log, segments: list[Segment], log_start_offset: int, stopped: lost_files.StoppedSegments | None, epochs: list[tuple[int, int]]
) -> None:
    """Find what the log lost while it was closed, and mark it. If the log was told to start behind that, a mark is void."""
    bases = [segment.base_offset for segment in segments]
    marked, new = lost_marks.read_mark(log.filesystem, log.directory), None
    if stopped is not None:
        known = stopped.of(log.name)
        ends = [] if known or log.segments.may_have_gaps else _ends_before_gaps(segments)
        new = lost_files.lost_before(bases, known, ends, epochs)
    if marked is None and new is None:
        return
    firsts, behind = zip(*(lost for lost in (marked, new) if lost is not None), strict=True)
    # A power cut in the truncation of a marked log may have taken more segments.
    lost = min(firsts), max((*behind, *bases[:1]))
    if log_start_offset < max(behind):
        log.watermarks.lost = lost
        if lost != marked:
            lost_marks.write_mark(log.filesystem, log.directory, lost)
    else:
        log.durability.has_old_mark = marked is not None


def _ends_before_gaps(segments: list[Segment]) -> list[int]:
    """Where each segment but the last ends; where the next begins if offsets are missing within the segment, too. Then its records come
    from a leader that compacted them before the topic's policy changed."""
    ends = []
    for segment, after in pairwise(segments):
        end, expected = segment.next_offset(), segment.base_offset
        if end < after.base_offset:
            for _, _, header in batches(segment.file, 0, segment.size):
                if header[BASE_OFFSET] > expected:
                    end = after.base_offset
                    break
                expected = header[BASE_OFFSET] + header[LAST_DELTA] + 1
        ends.append(end)
        segment.close_if_idle()
    return ends


def _find_earlier_epochs(log: Log, segments: list[Segment]) -> None:
    """Find the epochs of the records between the log's start and the first known epoch. The epochs are often written before the checkpoint
    with the start: a crash between the two brings back records that had been deleted, but not their epochs."""
    starts = log.epochs.entries
    if not segments or not starts or starts[0][1] <= log.log_start_offset:
        return
    first, end = starts[0], log.log_start_offset
    found: list[tuple[int, int]] = []
    for segment, after in zip(segments, [*(one.base_offset for one in segments[1:]), INT64_MAX], strict=True):
        if after <= log.log_start_offset or segment.base_offset >= first[1]:
            continue
        for _, _, header in batches(segment.file, 0, segment.size):
            if header[BASE_OFFSET] >= first[1] or header[LEADER_EPOCH] > first[0]:
                break
            last = header[BASE_OFFSET] + header[LAST_DELTA]
            if last >= log.log_start_offset:
                if header[LEADER_EPOCH] > (found[-1][0] if found else -1):
                    found.append((header[LEADER_EPOCH], max(min(end, header[BASE_OFFSET]), log.log_start_offset)))
                end = last + 1
        segment.close_if_idle()
    log.epochs.precede(found)


def _rebuild_epochs(log: Log, segments: list[Segment]) -> None:
    """Rebuild the epochs from the batches. Epochs without a batch are lost here; the leader still has them."""
    log.epochs.clear()
    end = segments[0].base_offset if segments else 0
    for segment in segments:
        for _, _, header in batches(segment.file, 0, segment.size):
            if header[LEADER_EPOCH] > log.epochs.latest:
                log.epochs.assign(header[LEADER_EPOCH], min(end, header[BASE_OFFSET]), write=False)
            end = header[BASE_OFFSET] + header[LAST_DELTA] + 1
        segment.close_if_idle()
    log.epochs.write()


def _remove(filesystem: FileSystem, segment: Segment) -> None:
    for name in segment.mark_deleted():
        with contextlib.suppress(FileNotFoundError):
            filesystem.unlink(name)
