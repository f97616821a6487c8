"""Faults of what a broker keeps beside a log: time indexes, snapshots of an orderly stop, all high watermarks at once."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable

from helpers.log_fault_verbs import Place

TIME_ENTRY_BYTES = 12


def time_entries(place: Place, at: int, how: str) -> None:
    """The last entry of a time index is gone, or all are, or one of the others."""
    files = [file for file in sorted(place.path.glob("*.timeindex")) if file.stat().st_size]
    if not files:
        return
    file = files[at * len(files) >> 16]
    data = file.read_bytes()
    count = len(data) // TIME_ENTRY_BYTES
    if how == "last":
        file.write_bytes(data[:-TIME_ENTRY_BYTES])
    elif how == "all":
        file.write_bytes(b"")
    elif count > 1:
        start = (at * 31 % (1 << 16) * (count - 1) >> 16) * TIME_ENTRY_BYTES
        file.write_bytes(data[:start] + data[start + TIME_ENTRY_BYTES :])


def no_snapshots(place: Place, how: str) -> None:
    """The newest snapshot is gone, or all are."""
    files = sorted(place.path.glob("*.snapshot"))
    for file in files if how == "all" else files[-1:]:
        file.unlink()


def no_marks(place: Place) -> None:
    """The log directory has no checkpoint of high watermarks."""
    (place.root / "replication-offset-checkpoint").unlink(missing_ok=True)


def votes(place: Place, how: str) -> None:
    """What the broker remembers of its votes is gone, unreadable, too old, or of somebody unknown; or its metadata log is gone."""
    for root in place.root.parent.glob(f"b{place.broker}*"):
        path = root / "__cluster_metadata-0"
        if not path.is_dir():
            continue
        if how == "no log":
            shutil.rmtree(path)
        elif how == "gone":
            (path / "quorum-state").unlink(missing_ok=True)
        elif how == "cut":
            (path / "quorum-state").write_text((path / "quorum-state").read_text()[:-3])
        else:
            state = json.loads((path / "quorum-state").read_text())
            state |= {"old": {"leaderEpoch": 0}, "stranger": {"votedId": 77}, "leader": {"leaderId": 2}}[how]
            (path / "quorum-state").write_text(json.dumps(state))


BESIDE: dict[str, Callable[..., None]] = {verb.__name__: verb for verb in (time_entries, no_snapshots, no_marks, votes)}


def arguments_beside(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for one of the verbs above."""
    return {
        "time_entries": (chance.randrange(1 << 16), chance.choice(["last", "all", "other"])),
        "no_snapshots": (chance.choice(["last", "all"]),),
        "votes": (chance.choice(["gone", "cut", "old", "stranger", "leader", "no log"]),),
    }.get(verb, ())
