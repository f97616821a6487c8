"""A partition's directory as the data source needs it: where an offset or a time lies, by the indexes, and where the log ends.

Indexes are searched with `pread`, an entry at a time, so that neither a preallocated index nor a large segment is read. They are hints:
what they point at is looked at, and an index that is missing or wrong costs time, not records.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minikafka.spark.claims import METADATA_DIRECTORY, policy_of
from minikafka.spark.directories import read_small
from minikafka.spark.logformat import (
    BATCH_LENGTH_MIN,
    BATCH_OVERHEAD,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    OFFSET_ENTRY,
    TIME_ENTRY,
    FormatError,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
    parse_segment_name,
    parse_txn_index,
)
from minikafka.spark.metadata_log import read_image
from minikafka.spark.regular_files import open_regular
from minikafka.spark.startup import Files, at_start

Headers = np.ndarray[Any, Any]
#: Headers are looked for in pieces of this size; what lies in larger batches is not read.
PIECE_BYTES = 16 << 10
#: An active segment's index may point behind the end after a crash: so many entries are tried before the segment is walked from its start.
ENTRIES_TRIED_MAX = 64
#: A directory in which a cleaner puts replacements in place is listed so often.
LISTINGS_MAX = 5
PARTS = {"log", "index", "timeindex", "txnindex"}
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class Held:
    """One copy of a partition. `high_watermark` -1: no checkpoint tells it; `topic_id` "": no file tells it. `first_epoch`: where the first
    leader epoch of a broker that was stopped in order begins, if that lies before the log's start; -1 else. `is_unlisted`: such a
    broker's checkpoint of high watermarks leaves out a partition with records."""

    topic: str
    partition: int
    broker: str
    path: str
    bases: tuple[int, ...]
    log_start: int
    high_watermark: int
    topic_id: str
    first_epoch: int = -1
    is_unlisted: bool = False


def segment_bases(path: str) -> list[int]:
    """Base offsets of the segments in a partition's directory, in order, as the next start of its broker finds them (startup.py). Raises
    FileNotFoundError, OSError."""
    names = os.listdir(path)
    if any(name.endswith(".swap") for name in names):
        return sorted(base for base, part in _at_start(path) if part == "log")
    return sorted(found[0] for name in names if (found := parse_segment_name(name)) and found[1] == "log")


def segment_path(path: str, base: int, extension: str = "log") -> str:
    """The file of a segment; where a cleaner was interrupted that is its replacement, and may be a file that is not there."""
    name = os.path.join(path, f"{base:020d}.")
    plain = name + extension
    if extension not in PARTS or not (os.path.lexists(name + "log.swap") or os.path.lexists(plain + ".swap")):
        return plain
    return name + _at_start(path).get((base, extension), extension + ".swap")


def _at_start(path: str) -> Files:
    for _ in range(LISTINGS_MAX):
        with contextlib.suppress(FileNotFoundError):  # its broker was faster: the replacement has its name by now
            return at_start(os.listdir(path), lambda base: _end_of_swap(path, base))
    return at_start(os.listdir(path), lambda base: _end_of_swap(path, base))


def _end_of_swap(path: str, base: int) -> int:
    end = base
    with opened(os.path.join(path, f"{base:020d}.log.swap")) as (descriptor, size):
        for found, _ in headers(descriptor, size, 0):
            end = int(found["base_offset"][-1]) + int(found["last_delta"][-1]) + 1
    return end


def topic_id_of(path: str) -> str:
    """The topic id in a partition's directory; "" where none can be read."""
    try:
        with open_regular(os.path.join(path, "partition.metadata")) as file:
            return parse_partition_metadata(file.read(4096))
    except (OSError, FormatError):
        return ""


def epoch_before(path: str, start: int) -> int:
    """Where the first leader epoch begins, if that is before the log's `start`; -1 else, or where it cannot be read.

    A broker that deletes records cuts the epochs, too. Apache Kafka writes the epochs a moment later, which an orderly stop may prevent:
    then the files of the segments wait for their deletion under the name `.deleted`.
    """
    try:
        entries = parse_epoch_checkpoint(read_small(os.path.join(path, "leader-epoch-checkpoint")) or b"")
        waiting = [int(name[:20]) for name in os.listdir(path) if name.endswith(".log.deleted") and name[:20].isdigit()]
    except (OSError, FormatError):
        return -1
    first = entries[0][1] if entries else start
    return first if first < start and min(waiting, default=start) > first else -1


def is_cleaned(path: str, topic: str, partition: int) -> bool:
    """Whether the log cleaner may have worked on the partition: only then offsets may be missing between batches. It writes its checkpoint
    behind its work: of one that was interrupted before, its replacements tell, and the controller's record of the topic, where a copy of
    the metadata log lies beside."""
    place = os.path.dirname(path)
    with contextlib.suppress(OSError, FormatError), open_regular(os.path.join(place, CLEANER_CHECKPOINT)) as file:
        if (topic, partition) in parse_offset_checkpoint(file.read()):
            return True
    with contextlib.suppress(OSError, FormatError):
        if any(name.endswith(".log.swap") for name in os.listdir(path)):
            return True
        return policy_of(read_image(os.path.join(place, METADATA_DIRECTORY), ""), topic) == "compact"
    return False


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """(descriptor, size). Raises OSError."""
    with open_regular(path) as file:
        yield file.fileno(), os.fstat(file.fileno()).st_size


def _entry(descriptor: int, dtype: np.dtype[Any], number: int) -> tuple[int, int]:
    """Both kinds end with four bytes."""
    data = os.pread(descriptor, dtype.itemsize, number * dtype.itemsize)
    return int.from_bytes(data[:-4], "big", signed=True), int.from_bytes(data[-4:], "big", signed=True)


def _used(descriptor: int, size: int, dtype: np.dtype[Any]) -> int:
    """Entries of an index that are in use: those before the zeros of a preallocated file."""
    return bisect.bisect_left(range(size // dtype.itemsize), True, key=lambda number: _entry(descriptor, dtype, number) == (0, 0))


def position_of(path: str, base: int, offset: int) -> int:
    """A byte of a segment at or before the batch that holds `offset`, by the offset index; 0 without one that can be used."""
    try:
        with opened(segment_path(path, base, "index")) as (index, size):
            used = _used(index, size, OFFSET_ENTRY)
            number = bisect.bisect_right(range(used), offset - base, key=lambda one: _entry(index, OFFSET_ENTRY, one)[0]) - 1
            return _entry(index, OFFSET_ENTRY, number)[1] if number >= 0 else 0
    except FileNotFoundError:
        return 0


def offset_before(path: str, base: int, timestamp_ms: int) -> int:
    """An offset of the segment such that all before it are older than a point in time, by the time index."""
    try:
        with opened(segment_path(path, base, "timeindex")) as (index, size):
            used = _used(index, size, TIME_ENTRY)
            number = bisect.bisect_left(range(used), timestamp_ms, key=lambda one: _entry(index, TIME_ENTRY, one)[0]) - 1
            return base + _entry(index, TIME_ENTRY, number)[1] if number >= 0 else base
    except FileNotFoundError:
        return base


def newest_time(path: str, base: int) -> int | None:
    """The newest timestamp of a segment that is not appended to any more, by the last entry of its time index; None without any."""
    try:
        with opened(segment_path(path, base, "timeindex")) as (index, size):
            used = _used(index, size, TIME_ENTRY)
            return _entry(index, TIME_ENTRY, used - 1)[0] if used else None
    except FileNotFoundError:
        return None


def cuts(path: str, base: int, split_bytes: int) -> list[int]:
    """Offsets that cut a segment into stretches of about `split_bytes`, by its index. [] where it is smaller, or has none."""
    found: list[int] = []
    try:
        with opened(segment_path(path, base)) as (_, size), opened(segment_path(path, base, "index")) as (index, index_size):
            used = _used(index, index_size, OFFSET_ENTRY)
            for position in range(split_bytes, size - split_bytes // 2, split_bytes):
                number = bisect.bisect_left(range(used), position, key=lambda one: _entry(index, OFFSET_ENTRY, one)[1])
                if number < used:
                    found.append(base + _entry(index, OFFSET_ENTRY, number)[0] + 1)
    except FileNotFoundError:
        return []
    return sorted(set(found))


def headers(descriptor: int, size: int, position: int) -> Iterator[tuple[Headers, list[int]]]:
    """(headers, positions) of whole batches from `position` on, without their records. Ends where no whole batch follows."""
    while position + BATCH_OVERHEAD <= size:
        data = os.pread(descriptor, min(PIECE_BYTES, size - position), position)
        places: list[int] = []
        place = 0
        while place + BATCH_OVERHEAD <= len(data):
            length = int.from_bytes(data[place + 8 : place + 12], "big", signed=True)
            end = place + LOG_OVERHEAD + length
            if length < BATCH_LENGTH_MIN or data[place + 16] > MAGIC or position + end > size:
                size = 0
                break
            places.append(place)
            place = end
        if not places:
            return
        raw = b"".join(data[one : one + BATCH_OVERHEAD] for one in places)
        yield np.frombuffer(raw, HEADER), [position + one for one in places]
        position += place


def log_end(path: str, base: int) -> int:
    """One past the last offset of a segment, from its last index entry that holds and the batches behind it. Checksums are not looked at:
    whoever reads the records does that. Raises FileNotFoundError, OSError."""
    with opened(segment_path(path, base)) as (descriptor, size):
        for position in _last_positions(path, base):
            end = base
            for found, _ in headers(descriptor, size, position):
                if end == base and not _is_of(found[0], base):
                    break
                end = int(found["base_offset"][-1]) + int(found["last_delta"][-1]) + 1
            if end > base:
                return end
    return base


def _is_of(header: Any, base: int) -> bool:
    return int(header["magic"]) == MAGIC and base <= int(header["base_offset"]) < base + (1 << 31) and int(header["last_delta"]) >= 0


def _last_positions(path: str, base: int) -> Iterator[int]:
    """Positions of the last index entries, the last one first, and of the segment's beginning."""
    with contextlib.suppress(FileNotFoundError), opened(segment_path(path, base, "index")) as (index, size):
        used = _used(index, size, OFFSET_ENTRY)
        for number in range(used - 1, max(-1, used - 1 - ENTRIES_TRIED_MAX), -1):
            yield _entry(index, OFFSET_ENTRY, number)[1]
    yield 0


def aborted_transactions(path: str, begin: int, end: int) -> tuple[tuple[int, int, int], ...]:
    """(producer id, first offset, offset of the marker) of the aborted transactions in [begin, end), from the transaction indexes.
    Raises FormatError with the file."""
    bases = segment_bases(path)
    found: list[tuple[int, int, int]] = []
    for base in bases[max(0, bisect.bisect_right(bases, begin) - 1) :]:
        file_name = segment_path(path, base, "txnindex")
        try:
            with open_regular(file_name) as file:
                entries = parse_txn_index(file.read())
        except FileNotFoundError:
            continue
        except FormatError as error:
            raise FormatError(f"{file_name}: {error}") from error
        found += [(int(one["producer_id"]), int(one["first_offset"]), int(one["last_offset"])) for one in entries]
        if len(entries) and min(int(entries["stable_offset"][-1]), int(entries["last_offset"][-1]) + 1) >= end:
            # As TransactionIndex.collectAbortedTxns: all that follow began later. A follower of Apache Kafka may write a stable offset
            # behind the marker that passes over an open transaction of the same producer.
            break
    return tuple(one for one in found if one[1] < end and one[2] >= begin)
