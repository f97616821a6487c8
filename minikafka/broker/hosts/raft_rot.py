"""Looks for rot in the files of the metadata log before they are opened, for recovery would cut it away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from storage.batch_scan import CRC_FROM
from storage.filesystem import FileSystem
from wire.batch import HEADER, LOG_OVERHEAD, OVERHEAD, RecordBatch
from wire.crc import crc32c


class Rot(NamedTuple):
    """The first batch that is not what its checksum says, at `position` of the file `path`. `is_followed`: a valid one comes right behind
    it, or in the next segment. A write that was torn from its front leaves no such thing; a disk that wrote later pages of what was not
    synced before earlier ones may."""

    offset: int
    is_followed: bool
    path: str
    position: int


def find_rot(filesystem: FileSystem, directory: str) -> Rot | None:
    """Reads every segment once. None for a log that is whole, but perhaps for a last batch of which a part is missing. Raises OSError."""
    found: Rot | None = None
    for path in _segments(filesystem, directory):
        if found is not None and not filesystem.size(path):
            continue
        with _mapped(filesystem, path) as view:
            if found is None:
                found = _find(view, path)
            elif _valid_size(view, 0) and HEADER.unpack_from(view, 0)[0] > found.offset:
                found = found._replace(is_followed=True)
        if found is not None and found.is_followed:
            return found
    return found


def valid_batches(filesystem: FileSystem, directory: str) -> Iterator[RecordBatch]:
    """Every batch that is what its checksum says, before and behind others; each is to be used before the next. Raises OSError."""
    for path in _segments(filesystem, directory):
        with _mapped(filesystem, path) as view:
            for position, size in _lengths(view):
                if _valid_size(view, position):
                    yield RecordBatch(memoryview(bytes(view[position : position + size])), 0)


def _segments(filesystem: FileSystem, directory: str) -> list[str]:
    if not filesystem.is_dir(directory):
        return []
    return [f"{directory}/{name}" for name in sorted(filesystem.list(directory)) if name.endswith(".log") and name[:-4].isdigit()]


@contextmanager
def _mapped(filesystem: FileSystem, path: str) -> Iterator[memoryview]:
    file = filesystem.open(path, read_only=True)
    try:
        with file.map() as view:
            yield view
    finally:
        file.close()


def _lengths(view: memoryview) -> Iterator[tuple[int, int]]:
    """(position, bytes) of batches, by what their headers say, as long as that can be."""
    position = 0
    while position + OVERHEAD <= len(view):
        size = HEADER.unpack_from(view, position)[1] + LOG_OVERHEAD
        if size < OVERHEAD or position + size > len(view):
            return
        yield position, size
        position += size


def _find(view: memoryview, path: str) -> Rot | None:
    for position, size in _lengths(view):
        if not _valid_size(view, position):
            offset, after = HEADER.unpack_from(view, position)[0], position + size
            is_followed = _valid_size(view, after) > 0 and HEADER.unpack_from(view, after)[0] > offset
            return Rot(offset, is_followed, path, position)
    return None


def _valid_size(view: memoryview, position: int) -> int:
    """Bytes of the batch at `position`, 0 if there is no valid one."""
    if position + OVERHEAD > len(view):
        return 0
    header = HEADER.unpack_from(view, position)
    size: int = header[1] + LOG_OVERHEAD
    if size < OVERHEAD or position + size > len(view) or header[3] != 2:
        return 0
    return size if crc32c(view[position + CRC_FROM : position + size]) == header[4] else 0
