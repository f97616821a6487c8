"""Looks for rot in the files of the metadata log before they are opened, for recovery would cut it away."""

from __future__ import annotations

from typing import NamedTuple

from storage.batch_scan import CRC_FROM
from storage.filesystem import FileSystem
from wire.batch import HEADER, LOG_OVERHEAD, OVERHEAD
from wire.crc import crc32c


class Rot(NamedTuple):
    """The first batch that is not what its checksum says. `is_followed`: a valid one comes right behind it, or in the next segment. A write
    that was torn from its front leaves no such thing; a disk that wrote later pages of what was not synced before earlier ones may."""

    offset: int
    is_followed: bool


def find_rot(filesystem: FileSystem, directory: str) -> Rot | None:
    """Reads every segment once. None for a log that is whole, but perhaps for a last batch of which a part is missing. Raises OSError."""
    if not filesystem.is_dir(directory):
        return None
    found: Rot | None = None
    for name in sorted(filesystem.list(directory)):
        if not (name.endswith(".log") and name[:-4].isdigit()):
            continue
        if found is not None and not filesystem.size(f"{directory}/{name}"):
            continue
        file = filesystem.open(f"{directory}/{name}", read_only=True)
        try:
            with file.map() as view:
                if found is None:
                    found = _find(view)
                elif _valid_size(view, 0) and HEADER.unpack_from(view, 0)[0] > found.offset:
                    found = Rot(found.offset, True)
        finally:
            file.close()
        if found is not None and found.is_followed:
            return found
    return found


def _find(view: memoryview) -> Rot | None:
    position = 0
    while position + OVERHEAD <= len(view):
        base_offset, length = HEADER.unpack_from(view, position)[:2]
        size = length + LOG_OVERHEAD
        if size < OVERHEAD or position + size > len(view):
            return None
        if not _valid_size(view, position):
            after = position + size
            is_followed = _valid_size(view, after) > 0 and HEADER.unpack_from(view, after)[0] > base_offset
            return Rot(base_offset, is_followed)
        position += size
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
