"""Looks for corruption in the files of the metadata log before they are opened, because recovery would cut it away.

A checksum covers a batch from its attributes on. The fields before it (base offset, length, leader epoch and magic) are checked against
their surroundings: the metadata log has no gaps, epochs never decrease, each begins with a control batch (LeaderChange), and none is later
than the epoch in quorum-state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from minikafka.storage.batch_scan import CRC_FROM, checked_batches
from minikafka.storage.filesystem import FileSystem
from minikafka.wire.batch import CONTROL_BIT, HEADER, LOG_OVERHEAD, OVERHEAD, RecordBatch
from minikafka.wire.batch_header import ATTRIBUTES, BASE_OFFSET, CRC, LAST_DELTA, LEADER_EPOCH, LENGTH, MAGIC
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import CorruptRecord

_MAGIC = 2
_MAGIC_AT = 16
_OFFSET_BYTES = 8
#: Length, attributes, timestamp, offset, key, value, headers.
_RECORD_BYTES_MIN = 7


class Rot(NamedTuple):
    """The first bytes that are not a valid batch: at `position` in the file `path`, where the batch of `offset` should begin.

    `is_certain`: a torn write does not look like this. Either a valid batch follows, or this batch is complete except for the fields that
    its checksum does not cover. A disk that wrote later unsynced pages before earlier ones may leave the same traces."""

    offset: int
    is_certain: bool
    path: str
    position: int


def find_rot(filesystem: FileSystem, directory: str, epoch_max: int | None = None) -> Rot | None:
    """Read every segment once; None if all are valid. `epoch_max`: the epoch in quorum-state, if known. Raises OSError."""
    found: Rot | None = None
    epoch: int | None = None
    for path in _segments(filesystem, directory):
        if not filesystem.size(path):
            continue
        if found is None:
            is_sound, last_epoch = _walk(filesystem, path, epoch, epoch_max)
            if is_sound:
                epoch = last_epoch
                continue
        view = memoryview(filesystem.read(path))
        if found is None:
            found, epoch = _find(view, path, epoch, epoch_max)
        elif _next_valid(view, 0, found.offset) is not None:
            found = found._replace(is_certain=True)
        if found is not None and found.is_certain:
            return found
    return found


def valid_batches(filesystem: FileSystem, directory: str) -> Iterator[RecordBatch]:
    """All batches with a valid checksum, before and after invalid ones. Use each one before asking for the next. Raises OSError."""
    for path in _segments(filesystem, directory):
        view = memoryview(filesystem.read(path))
        for position, size in _valid_pieces(view, _base_offset(path)):
            yield RecordBatch(memoryview(bytes(view[position : position + size])), 0)


def end_offset_max(filesystem: FileSystem, directory: str, rot: Rot, *, is_clean: bool) -> int | None:
    """These files, which are not yet cut at `rot`, never held this offset or a later one. None if that is unknown: after a clean stop they
    end with something other than a batch, so more may be missing. Raises OSError."""
    end, is_whole = rot.offset, True
    for path in _segments(filesystem, directory):
        if path < rot.path:
            continue
        view = memoryview(filesystem.read(path))
        end = max(end, _base_offset(path))
        done = rot.position if path == rot.path else 0
        for position, size in _valid_pieces(view, end, done):
            header = HEADER.unpack_from(view, position)
            # Nothing certain is known of invalid bytes before the batch, nor of its own base offset.
            end += (position - done) // _RECORD_BYTES_MIN + header[LAST_DELTA] + 1
            done = position + size
        is_whole = done == len(view)
        end += (len(view) - done) // _RECORD_BYTES_MIN
    return end if is_whole or not is_clean else None


def _valid_pieces(view: memoryview, after: int, position: int = 0) -> Iterator[tuple[int, int]]:
    """(position, size) of the valid batches of a segment from `position` on whose offsets are `after` or later."""
    while position < len(view):
        size = _valid_size(view, position)
        if size:
            yield position, size
            header = HEADER.unpack_from(view, position)
            position, after = position + size, max(after, header[BASE_OFFSET] + header[LAST_DELTA] + 1)
        else:
            behind = _next_valid(view, position + 1, after)
            if behind is None:
                return
            position = behind


def _segments(filesystem: FileSystem, directory: str) -> list[str]:
    if not filesystem.is_dir(directory):
        return []
    return [f"{directory}/{name}" for name in sorted(filesystem.list(directory)) if name.endswith(".log") and name[:-4].isdigit()]


def _base_offset(path: str) -> int:
    return int(path[path.rindex("/") + 1 : -len(".log")])


def _walk(filesystem: FileSystem, path: str, epoch: int | None, epoch_max: int | None) -> tuple[bool, int | None]:
    """Whether a segment holds only valid batches, and the epoch of the last one. Reads through one buffer; only a corrupt segment is read
    into memory as a whole."""
    file = filesystem.open(path, read_only=True)
    try:
        size, end, offset = file.size(), 0, _base_offset(path)
        for position, batch_size, header, _ in checked_batches(file, 0, size):
            is_next = header[BASE_OFFSET] == offset and header[MAGIC] == _MAGIC
            if not is_next or not _may_follow(header[LEADER_EPOCH], bool(header[ATTRIBUTES] & CONTROL_BIT), epoch, epoch_max):
                return False, epoch
            end, offset, epoch = position + batch_size, offset + header[LAST_DELTA] + 1, header[LEADER_EPOCH]
        return end == size, epoch
    except CorruptRecord:
        return False, epoch
    finally:
        file.close()


def _find(view: memoryview, path: str, epoch: int | None, epoch_max: int | None) -> tuple[Rot | None, int | None]:
    """The first corruption in a segment, and the epoch of the last batch before it."""
    position, offset = 0, _base_offset(path)
    while position < len(view):
        size = _valid_size(view, position)
        if not size:
            is_certain = _is_whole(view, position) or _next_valid(view, position + 1, offset) is not None
            return Rot(offset, is_certain, path, position), epoch
        header = HEADER.unpack_from(view, position)
        if header[BASE_OFFSET] != offset or not _may_follow(header[LEADER_EPOCH], bool(header[ATTRIBUTES] & CONTROL_BIT), epoch, epoch_max):
            return Rot(offset, True, path, position), epoch
        position, offset, epoch = position + size, offset + header[LAST_DELTA] + 1, header[LEADER_EPOCH]
    return None, epoch


def _may_follow(epoch: int, is_control: bool, before: int | None, epoch_max: int | None) -> bool:
    if epoch < 0 or (epoch_max is not None and epoch > epoch_max):
        return False
    return before is None or epoch == before or (epoch > before and is_control)


def _valid_size(view: memoryview, position: int) -> int:
    """The size of the batch at `position`, 0 if it is invalid."""
    if position + OVERHEAD > len(view):
        return 0
    header = HEADER.unpack_from(view, position)
    size: int = header[LENGTH] + LOG_OVERHEAD
    if size < OVERHEAD or position + size > len(view) or header[MAGIC] != _MAGIC:
        return 0
    return size if _is_checked(view, position, size) else 0


def _is_checked(view: memoryview, position: int, size: int) -> bool:
    return bool(crc32c(view[position + CRC_FROM : position + size]) == HEADER.unpack_from(view, position)[CRC])


def _is_whole(view: memoryview, position: int) -> bool:
    """Whether the bytes are a batch with a wrong magic, or the last batch with a wrong length."""
    left = len(view) - position
    if left < OVERHEAD:
        return False
    size = HEADER.unpack_from(view, position)[LENGTH] + LOG_OVERHEAD
    return (OVERHEAD <= size <= left and _is_checked(view, position, size)) or _is_checked(view, position, left)


def _next_valid(view: memoryview, position: int, offset: int) -> int | None:
    """The position of the next valid batch after `offset`, at or after `position`. A record takes more than one byte."""
    offset_max = offset + len(view)
    low, high = offset.to_bytes(_OFFSET_BYTES, "big"), offset_max.to_bytes(_OFFSET_BYTES, "big")
    same = next((i for i in range(_OFFSET_BYTES) if low[i] != high[i]), _OFFSET_BYTES)
    candidate = re.compile(b"(?s)(?=%b.{%d}%b)" % (re.escape(low[:same]), _MAGIC_AT - same, bytes([_MAGIC])))
    for match in candidate.finditer(view, position):
        at = match.start()
        if at + OVERHEAD <= len(view) and offset < HEADER.unpack_from(view, at)[BASE_OFFSET] <= offset_max and _valid_size(view, at):
            return at
    return None
