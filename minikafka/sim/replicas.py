"""Reads logs from the simulated disks, with a reader that shares no code with the broker's."""

from __future__ import annotations

from bisect import bisect_right
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


def batches_of(inode: Inode) -> list[Batch]:
    """The batches of a segment file. Parses only the bytes written since the last call."""
    data, parsed = inode.data, inode.parsed
    if parsed and parsed[-1].end == inode.parsed_end == len(data):
        return parsed
    while parsed and parsed[-1].end > inode.parsed_end:
        parsed.pop()
    position = parsed[-1].end if parsed else 0
    while position + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, position)
        base, length, epoch, magic, crc, attributes, delta, _, _, producer_id, producer_epoch, sequence, _ = fields
        end = position + _LENGTH_FROM + length
        if magic != _MAGIC or length < _HEADER.size - _LENGTH_FROM or end > len(data):
            break
        parsed.append(Batch(base, base + delta, epoch, crc, producer_id, producer_epoch, sequence, attributes, position, end))
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
    for _, inode in segments_of(disk, directory):
        synced = min((position for position, _, _, _ in inode.undo), default=len(inode.data))
        for batch in batches_of(inode):
            if batch.end > synced:
                return found
            found.append(batch)
    return found
