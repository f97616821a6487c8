"""Faults in the files beside a log: time indexes, snapshots of a clean shutdown, all high watermarks at once."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable

from crc32c import crc32c
from helpers.log_clusters import lines
from helpers.log_fault_verbs import Place

TIME_ENTRY_BYTES, SNAPSHOT_HEAD_BYTES, SNAPSHOT_ROW_BYTES = 12, 10, 46


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


def no_high_watermarks(place: Place) -> None:
    """The log directory has no checkpoint of high watermarks."""
    (place.root / "replication-offset-checkpoint").unlink(missing_ok=True)


def votes(place: Place, how: str) -> None:
    """The quorum state is missing, unreadable, too old or of an unknown node; or the metadata log is missing."""
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


def zeros_behind(place: Place, at: int, suffix: str, count: int) -> None:
    """An index was not trimmed to its entries."""
    files = sorted(place.path.glob(f"*{suffix}"))
    if files:
        file = files[at * len(files) >> 16]
        with file.open("ab") as opened:
            opened.truncate(file.stat().st_size + count * {".index": 8, ".timeindex": 12, ".txnindex": 34}[suffix])


def aborted_entry(place: Place, at: int, how: str, reach: int) -> None:
    """An entry of the transaction index covers more or less than its transaction, is there twice, or is in another's place."""
    files = sorted(place.path.glob("*.txnindex"))
    if not files:
        return
    file = files[at * len(files) >> 16]
    data = file.read_bytes()
    rows = [list(struct.unpack_from(">hqqqq", data, start)) for start in range(0, len(data), 34)]
    row = rows[at * 31 % (1 << 16) * len(rows) >> 16]
    if how == "first":
        row[2] += reach
    elif how == "order":
        rows.reverse()
    elif how == "twin":
        rows.insert(0, [row[0], row[1], row[2] + min(reach, -1), row[3], row[4]])
    else:
        rows.append([row[0], row[1], row[2], row[3] + 1, row[4] + 1])
    file.write_bytes(b"".join(struct.pack(">hqqqq", *one) for one in rows))


def cut_epochs(place: Place, at: int) -> None:
    """DeleteRecords ended inside a segment just before the kill: the epochs were truncated, the log start was not checkpointed."""
    file = place.path / "leader-epoch-checkpoint"
    entries = [tuple(map(int, line.split())) for line in file.read_text().splitlines()[2:]]
    log = place.log()
    if log is None or not entries:
        return
    start = log.start + (at * (min(log.end, log.high_watermark or 0) - log.start) >> 16)
    kept = [entry for entry in entries if entry[1] > start]
    older = [epoch for epoch, first in entries if first <= start]
    file.write_text(lines(f"{epoch} {first}" for epoch, first in [*((epoch, start) for epoch in older[-1:]), *kept]))


def power_failure(place: Place, at: int, suffix: str, left: int) -> None:
    """Nothing was flushed but the log itself: of an index of a closed segment only the beginning is on disk, or zeros are."""
    point = place.root / "recovery-point-offset-checkpoint"
    entries = [line.split() for line in point.read_text().splitlines()[2:]]
    point.write_text(lines(" ".join([*entry[:2], "0" if entry[:2] == place.key else entry[2]]) for entry in entries))
    files = [file.with_suffix(suffix) for file in place.segments()[:-1] if file.with_suffix(suffix).exists()]
    if files:
        file = files[at * len(files) >> 16]
        data = file.read_bytes()
        file.write_bytes(data[: left * len(data) >> 16] if left % 2 else bytes(len(data)))


def unknown_producer(place: Place, at: int, epoch: int, offset: int) -> None:
    """A snapshot knows a producer that never wrote, or whose last batch is gone."""
    files = [file for file in sorted(place.path.glob("*.snapshot")) if file.stat().st_size >= SNAPSHOT_HEAD_BYTES]
    if not files:
        return
    file = files[at * len(files) >> 16]
    sequence = 3 if offset >= 0 else -1
    rows = file.read_bytes()[SNAPSHOT_HEAD_BYTES:] + struct.pack(">qhiqiqiq", 4242, epoch, sequence, offset, 0, 1_700_000_000_000, -1, -1)
    body = struct.pack(">i", len(rows) // SNAPSHOT_ROW_BYTES) + rows
    file.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)


BESIDE: dict[str, Callable[..., None]] = {verb.__name__: verb for verb in (
    time_entries, no_snapshots, no_high_watermarks, votes, zeros_behind, aborted_entry, cut_epochs, power_failure, unknown_producer,
)}  # fmt: skip


def arguments_beside(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for one of the verbs above."""
    return {
        "time_entries": (chance.randrange(1 << 16), chance.choice(["last", "all", "other"])),
        "no_snapshots": (chance.choice(["last", "all"]),),
        "zeros_behind": (chance.randrange(1 << 16), chance.choice([".index", ".timeindex", ".txnindex"]), chance.choice([1, 3, 100])),
        "aborted_entry": (chance.randrange(1 << 16), chance.choice(["first", "order", "twin", "forged"]), chance.choice([-9, -4, -2, 1])),
        "unknown_producer": (chance.randrange(1 << 16), chance.choice([0, 7, 32_000]), chance.choice([-1, -1, 2])),
        "cut_epochs": (chance.randrange(1 << 16),),
        "power_failure": (chance.randrange(1 << 16), chance.choice([".index", ".timeindex"]), chance.randrange(1 << 16)),
        "votes": (chance.choice(["gone", "cut", "old", "stranger", "leader", "no log"]),),
    }.get(verb, ())
