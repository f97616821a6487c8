"""Reads logs from the simulated disks, with a reader that shares no code with the broker's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from minikafka.sim.disk import Disk, Inode

#: Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, two timestamps, producer, epoch, sequence, count.
_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH_FROM = 12
_MAGIC = 2
_CONTROL_BIT = 0x20
_TRANSACTIONAL_BIT = 0x10
_CHECKED_FROM = 21
_BASE = itemgetter(0)


class Batch(NamedTuple):
    """One batch: its place, and all that identifies its bytes. `base` and `last` are its first and last offset, `last` inclusive;
    `position` and `end` are positions in the file, `end` exclusive."""

    base: int
    last: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    sequence: int
    attributes: int
    position: int
    end: int

    @property
    def key(self) -> tuple[int, int, int, int]:
        """The fields that must be equal on every replica."""
        return (self.base, self.last, self.epoch, self.crc)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)


class Truth:
    """The committed batches of one log."""

    __slots__ = ("bases", "batches", "contents", "sequences", "sums")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        #: For each batch the sum of its digest and those of all batches before it.
        self.sums: list[int] = []
        #: (producer id, producer epoch) -> last sequence number.
        self.sequences: dict[tuple[int, int], int] = {}
        #: Of a compacted log: offset -> key, the CRC of key and value, and whether it counts at once, without a transaction.
        self.contents: dict[int, tuple[bytes, int, bool]] = {}

    @property
    def end(self) -> int:
        """The offset after the last committed record."""
        return self.batches[-1].last + 1 if self.batches else 0

    def append(self, batch: Batch) -> None:
        """Add the next committed batch."""
        self.batches.append(batch)
        self.bases.append(batch.base)
        self.sums.append((self.sums[-1] if self.sums else 0) + hash(batch.key))

    def at(self, offset: int) -> Batch | None:
        """The batch that holds `offset`."""
        position = bisect_right(self.bases, offset) - 1
        return self.batches[position] if position >= 0 and self.batches[position].last >= offset else None


def batches_of(inode: Inode) -> list[Batch]:
    """The batches of a segment file. Parses only the bytes written since the last call."""
    data, parsed, sums = inode.data, inode.parsed, inode.sums
    if parsed and parsed[-1].end == inode.parsed_end == len(data):
        return parsed
    while parsed and parsed[-1].end > inode.parsed_end:
        parsed.pop()
        sums.pop()
    position = parsed[-1].end if parsed else 0
    while position + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, position)
        base, length, epoch, magic, crc, attributes, delta, _, _, producer_id, producer_epoch, sequence, _ = fields
        end = position + _LENGTH_FROM + length
        if magic != _MAGIC or length < _HEADER.size - _LENGTH_FROM or end > len(data):
            break
        parsed.append(Batch(base, base + delta, epoch, crc, producer_id, producer_epoch, sequence, attributes, position, end))
        sums.append((sums[-1] if sums else 0) + hash((base, base + delta, epoch, crc)))
        position = end
    inode.parsed_end = position
    return parsed


def segments_of(disk: Disk, directory: str) -> list[tuple[int, Inode]]:
    """(base offset, file) of each segment, in order."""
    found = disk.segments.get(directory)
    if found is None:
        names = disk.files.get(directory, {})
        found = disk.segments[directory] = sorted((int(name[:-4]), inode) for name, inode in names.items() if name.endswith(".log"))
    return found


def log_of(disk: Disk, directory: str) -> list[Batch]:
    """Every batch of a log, in order of the files."""
    found: list[Batch] = []
    for _, inode in segments_of(disk, directory):
        found.extend(batches_of(inode))
    return found


def first_difference(disk: Disk, directory: str, truth: Truth, start_offset: int) -> Batch | None:
    """The first committed batch from `start_offset` on that a log does not have; None if it has all. Batches are looked at one by one only
    if the sums of their digests differ, which do not depend on how a log is divided into segments."""
    first = bisect_left(truth.bases, start_offset)
    held = 0
    for _, inode in segments_of(disk, directory):
        found = batches_of(inode)
        skipped, count = bisect_left(found, start_offset, key=_BASE), bisect_left(found, truth.end, key=_BASE)
        if count > skipped:
            held += inode.sums[count - 1] - (inode.sums[skipped - 1] if skipped else 0)
    if held == truth.sums[-1] - (truth.sums[first - 1] if first else 0):
        return None
    keys = {batch.key for batch in log_of(disk, directory)}
    return next((batch for batch in truth.batches[first:] if batch.key not in keys), truth.batches[-1])


def corrupt_batches(disk: Disk, directory: str) -> list[int]:
    """Base offsets of the batches whose bytes do not match their CRC, or whose unchecked first fields have changed."""
    found = []
    for _, inode in segments_of(disk, directory):
        view = memoryview(inode.data)
        found += [b.base for b in batches_of(inode) if not _is_as_written(view, b)]
        view.release()
    return found


def _is_as_written(view: memoryview, batch: Batch) -> bool:
    begins = (batch.base, batch.end - batch.position - _LENGTH_FROM, batch.epoch, _MAGIC, batch.crc)
    return _HEADER.unpack_from(view, batch.position)[:5] == begins and crc32c(view[batch.position + _CHECKED_FROM : batch.end]) == batch.crc


def from_offset(disk: Disk, directory: str, offset: int) -> list[Batch]:
    """The batches that end at or after `offset`, which is mostly near the end."""
    found: list[Batch] = []
    for base, inode in reversed(segments_of(disk, directory)):
        for batch in reversed(batches_of(inode)):
            if batch.last < offset:
                break
            found.append(batch)
        if base <= offset:
            break
    found.reverse()
    return found


def batch_at(disk: Disk, directory: str, offset: int) -> Batch | None:
    """The batch that holds `offset`."""
    for base, inode in reversed(segments_of(disk, directory)):
        if base > offset:
            continue
        found = batches_of(inode)
        if found and found[-1].base <= offset:
            position = len(found)
        else:
            position = bisect_right(found, offset, key=_BASE)
        if position and found[position - 1].last >= offset:
            return found[position - 1]
        return None
    return None


def inode_of(disk: Disk, directory: str, batch: Batch) -> Inode:
    """The file that contains a batch of the log."""
    segments = segments_of(disk, directory)
    return segments[bisect_right(segments, batch.base, key=_BASE) - 1][1]


def is_durable(disk: Disk, directory: str, offset: int) -> bool:
    """Whether the batch that holds `offset` would survive a power cut."""
    for base, inode in reversed(segments_of(disk, directory)):
        if base > offset:
            continue
        for batch in batches_of(inode):
            if batch.base <= offset <= batch.last:
                return all(position >= batch.end for position, _, _, _ in inode.undo)
        return False
    return False


def durable_log(disk: Disk, directory: str) -> list[Batch]:
    """The batches that would certainly survive a power cut."""
    found: list[Batch] = []
    names = disk.durable.get(directory, {}) if directory in disk.unsynced else disk.files.get(directory, {})
    kept = {id(inode) for inode in names.values()}
    for _, inode in segments_of(disk, directory):
        if id(inode) not in kept:
            return found
        synced = min((position for position, _, _, _ in inode.undo), default=len(inode.data))
        for batch in batches_of(inode):
            if batch.end > synced:
                return found
            found.append(batch)
    return found
