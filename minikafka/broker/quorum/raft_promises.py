"""Keeps a voter from voting after its disk lost part of the metadata log: a file says so until the voter has everything again.

A voter that reports an offset to the leader may thereby make a record committed. If it forgot the record and voted, it could help to elect
a leader that never had it. So it does not vote until a leader has given it as much again (core/raft/replica.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from minikafka.broker.quorum.raft_rot import Rot, end_offset_max, valid_batches
from minikafka.broker.quorum.snapshots import control_changes, parse_name, read_snapshot
from minikafka.core.raft.voters import VoterSet
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import FileSystem, write_atomically

PROMISES_LOST = "promises-lost"

_TEXT = """\
The metadata log is corrupt from offset {offset} on. This voter may have promised to keep what follows, so it truncates the log there and
does not vote until a leader has sent it everything; then it removes this file. If no leader can be elected without this voter,
remove this file: the voter then votes with what it has, and what only it had is lost.
{name}: {before}
"""
_BEFORE = "promised-before"
_BEFORE_LINE = re.compile(rf"^{_BEFORE}: (\d{{1,18}})$", re.MULTILINE)


class LostPromises(NamedTuple):
    """`before`: the voter has acknowledged no offset from here on; None if the files do not show it."""

    before: int | None


def lost_promises(filesystem: FileSystem, directory: str) -> LostPromises | None:
    """Whether, and why, the voter with this metadata log must not vote. Raises OSError."""
    path = f"{directory}/{PROMISES_LOST}"
    if not filesystem.exists(path):
        return None
    found = _BEFORE_LINE.search(filesystem.read(path).decode(errors="replace"))
    return LostPromises(int(found[1]) if found else None)


def note_lost(filesystem: FileSystem, directory: str, rot: Rot, *, is_clean: bool) -> None:
    """Record a loss durably before anything is cut. An earlier loss that is not repaired still counts. Raises OSError."""
    before, earlier = end_offset_max(filesystem, directory, rot, is_clean=is_clean), lost_promises(filesystem, directory)
    if earlier is not None and before is not None:
        before = None if earlier.before is None else max(before, earlier.before)
    text = _TEXT.format(offset=rot.offset, name=_BEFORE, before="unknown" if before is None else before)
    write_atomically(filesystem, f"{directory}/{PROMISES_LOST}", text.encode())


def note_regained(filesystem: FileSystem, directory: str) -> None:
    """Record durably that everything is back, before the voter acknowledges anything. Raises OSError."""
    if lost_promises(filesystem, directory) is not None:
        filesystem.unlink(f"{directory}/{PROMISES_LOST}")
        filesystem.fsync_dir(directory)


def latest_voters(filesystem: FileSystem, directory: str) -> VoterSet | None:
    """The newest voter set (KIP-853) in any snapshot or valid batch, even after corrupt ones; None: static voters. Raises OSError."""
    found: list[tuple[int, VoterSet | None]] = []
    for name in filesystem.list(directory):
        snapshot = parse_name(name)
        if snapshot is None:
            continue
        try:
            content = read_snapshot(filesystem, f"{directory}/{name}", with_records=False)
        except CorruptFile:
            continue
        if content.kraft_version > 0:
            found.append((snapshot.offset, content.voters))
    for batch in valid_batches(filesystem, directory):
        if batch.is_control:
            found.extend(control_changes(batch)[0])
    return max(found, key=lambda entry: entry[0])[1] if found else None
