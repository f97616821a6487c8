"""The changes that the grammar of faults makes to one broker's copy of a partition: batches, segments, small files, housekeeping.

Positions are fractions: batch `at` of n is batch at * n >> 16.
"""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c
from helpers.log_clusters import lines
from helpers.log_fault_bases import BROKERS
from helpers.log_oracle import Log, parse, read_log

FIELDS = {
    "base_offset": (0, 8), "length": (8, 4), "epoch": (12, 4), "magic": (16, 1), "crc": (17, 4), "attributes": (21, 2),
    "last_delta": (23, 4), "base_timestamp": (27, 8), "max_timestamp": (35, 8), "producer_id": (43, 8), "producer_epoch": (51, 2),
    "base_sequence": (53, 4), "count": (57, 4),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One broker's log directory with the partition of this name."""

    root: Path
    broker: int
    name: str = "t-0"

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def key(self) -> list[str]:
        """Its topic and its number, as a line of a checkpoint begins."""
        return self.name.rsplit("-", 1)

    def segments(self) -> list[Path]:
        return sorted(file for file in self.path.glob("*.log") if re.fullmatch("[0-9]{20}", file.stem))

    def log(self) -> Log | None:
        return read_log(self.root, self.broker, self.name)


def places(folder: Path, broker: int) -> list[Path]:
    """The log directories of a broker."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(f"b{broker}"))


def place_of(folder: Path, broker: int, name: str = "t-0") -> Place:
    """Where the broker has the partition."""
    found = [path for path in places(folder, broker) if (path / name).is_dir()]
    return Place(found[0] if found else places(folder, broker)[0], broker, name)


# ---- single batches --------------------------------------------------------------------------------------------------------------


def rewrite(place: Place, change: Callable[[list[bytearray]], list[bytearray]], at: int) -> None:
    """Change the batches of the segment in which batch `at` of the whole log lies; `change` gets them from that batch on."""
    held = [(file, [bytearray(batch.raw) for batch in parse(file.read_bytes())[0]]) for file in place.segments()]
    chosen = at * sum(len(batches) for _, batches in held) >> 16
    for file, batches in held:
        if chosen < len(batches):
            rest = parse(file.read_bytes())[1]
            file.write_bytes(b"".join([*batches[:chosen], *change(batches[chosen:])]) + rest)
            return
        chosen -= len(batches)


def seal(batch: bytearray) -> bytearray:
    """Make its checksum right."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def header(place: Place, at: int, name: str, delta: int, sealed: int) -> None:
    """A header field of one batch grows by `delta`."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        start, size = FIELDS[name]
        value = int.from_bytes(batches[0][start : start + size], "big") + delta
        batches[0][start : start + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
        return [seal(batches[0]) if sealed else batches[0], *batches[1:]]

    rewrite(place, change, at)


def payload(place: Place, at: int, byte: int, bit: int, sealed: int) -> None:
    """A bit of the records."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        position = 61 + (byte * (len(batches[0]) - 61) >> 16)
        batches[0][position] ^= 1 << bit
        return [seal(batches[0]) if sealed else batches[0], *batches[1:]]

    rewrite(place, change, at)


def drop(place: Place, at: int, count: int) -> None:
    """Remove batches."""
    rewrite(place, lambda batches: batches[count:], at)


def repeat(place: Place, at: int) -> None:
    """Repeat a batch."""
    rewrite(place, lambda batches: [batches[0], *batches], at)


def swap(place: Place, at: int) -> None:
    """Exchange two neighbouring batches."""
    rewrite(place, lambda batches: [*batches[1:2], batches[0], *batches[2:]], at)


def others(place: Place, at: int, count: int, epoch: int) -> None:
    """Other valid records at the same offsets; with `epoch` of another leader epoch that is also in the checkpoint."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        for batch in batches[:count]:
            batch[-2] ^= 0x15
            struct.pack_into(">i", batch, 12, struct.unpack_from(">i", batch, 12)[0] + epoch)
            seal(batch)
        return batches

    rewrite(place, change, at)
    if epoch:
        epochs_from_log(place)


def epochs_from_log(place: Place) -> None:
    """Correct the epoch checkpoint."""
    starts: dict[int, int] = {}
    log = place.log()
    for batch in log.batches if log else ():
        starts.setdefault(batch.epoch, batch.base)
    (place.path / "leader-epoch-checkpoint").write_text(lines(f"{epoch} {start}" for epoch, start in starts.items()))


# ---- whole logs ------------------------------------------------------------------------------------------------------------------


def lose_tail(place: Place, count: int) -> None:
    """Remove the newest batches."""
    file = place.segments()[-1]
    found, rest = parse(file.read_bytes())
    file.write_bytes(b"".join(batch.raw for batch in found[: max(0, len(found) - count)]) + rest)


def cut(place: Place, size: int) -> None:
    """The newest segment is shorter by some bytes."""
    file = place.segments()[-1]
    file.write_bytes(file.read_bytes()[: -max(1, size)])


def append(place: Place, kind: str, size: int) -> None:
    """Bytes behind the newest batch."""
    data = {"zeros": bytes(size), "rubbish": b"\1\2rubbish" * (1 + size // 9), "half": struct.pack(">qi", 0, 500 + size) + bytes(90)}[kind]
    file = place.segments()[-1]
    file.write_bytes(file.read_bytes() + data)


def remove_segment(place: Place, at: int, empty: int) -> None:
    """Remove a segment with all its files, or empty it."""
    file = place.segments()[at * len(place.segments()) >> 16]
    if empty:
        file.write_bytes(b"")
        return
    for beside in place.path.glob(file.stem + ".*"):
        if beside.suffix != ".snapshot":
            beside.unlink()


def rename_segment(place: Place, at: int, delta: int) -> None:
    """Rename a segment to another offset."""
    file = place.segments()[at * len(place.segments()) >> 16]
    for beside in list(place.path.glob(file.stem + ".*")):
        if beside.suffix != ".snapshot":
            beside.rename(beside.with_name(f"{max(0, int(file.stem) + delta):020d}{beside.suffix}"))


def exchange_segments(place: Place, at: int) -> None:
    """Two segments' contents are exchanged."""
    files = place.segments()
    one, other = files[at * len(files) >> 16], files[(at * len(files) >> 16) - 1]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def no_directory(place: Place, how: str) -> None:
    """The partition's directory is missing, waits for deletion, or is a dangling link."""
    if how == "delete":
        place.path.rename(place.root / f"{place.name}.{'0123456789abcdef' * 2}-delete")
        return
    shutil.rmtree(place.path)
    if how == "link":
        place.path.symlink_to("/nowhere/at/all")


def twin(place: Place, how: str) -> None:
    """The same log directory once more, as the same broker or by another one's name."""
    copy = place.root.with_name(f"{place.root.name}-copy" if how == "same" else f"b9{place.broker}")
    shutil.copytree(place.root, copy, symlinks=True)
    if how != "same":
        target = next(broker for broker in BROKERS if broker != place.broker)
        path = copy / "meta.properties"
        path.write_text(path.read_text().replace(f"node.id={place.broker}\n", f"node.id={target}\n"))
        for old in places(place.root.parent, target):
            shutil.rmtree(old)
        copy.rename(copy.with_name(f"b{target}"))


# ---- beside the log --------------------------------------------------------------------------------------------------------------


def entry(place: Place, suffix: str, at: int, field: int, delta: int) -> None:
    """A number of an index file's entry changes."""
    sizes = {".index": (8, ((0, 4), (4, 4))), ".timeindex": (12, ((0, 8), (8, 4))),
             ".txnindex": (34, ((0, 2), (2, 8), (10, 8), (18, 8), (26, 8)))}[suffix]  # fmt: skip
    files = [file for file in sorted(place.path.glob(f"*{suffix}")) if file.stat().st_size]
    if not files:
        return
    file = files[at * len(files) >> 16]
    data = bytearray(file.read_bytes())
    size, fields = sizes
    start, width = fields[field % len(fields)]
    start += (at * 31 % (1 << 16) * (len(data) // size) >> 16) * size
    value = int.from_bytes(data[start : start + width], "big") + delta
    data[start : start + width] = (value % (1 << 8 * width)).to_bytes(width, "big")
    file.write_bytes(data)


def side_file(place: Place, suffix: str, at: int, how: str) -> None:
    """An index or snapshot is gone, empty, cut, or half as long."""
    files = sorted(place.path.glob(f"*{suffix}"))
    if not files:
        return
    file = files[at * len(files) >> 16]
    data = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "cut": data[:-1], "padded": data + bytes(24)}[how])


def snapshot_field(place: Place, at: int, byte: int, delta: int) -> None:
    """A byte of the newest snapshot, with its CRC made right."""
    files = sorted(place.path.glob("*.snapshot"))
    if not files or files[-1].stat().st_size < 20:
        return
    data = bytearray(files[-1].read_bytes())
    rows = (len(data) - 10) // 46
    start = 10 + 46 * (at * rows >> 16) + byte % 46
    data[start] = (data[start] + delta) % 256
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[6:]))
    files[-1].write_bytes(data)


def epoch_line(place: Place, how: str, at: int, delta: int) -> None:
    """The epoch checkpoint has an entry too many, one less, or one that is off."""
    path = place.path / "leader-epoch-checkpoint"
    if not path.is_file():
        return
    rows = [tuple(map(int, line.split())) for line in path.read_text().splitlines()[2:]]
    log = place.log()
    if how == "more" and log is not None:
        start = log.start + (at * max(1, log.end - log.start) >> 16)
        rows = sorted([*rows, (max([epoch for epoch, first in rows if first <= start], default=0) + delta, start)], key=lambda row: row[1])
    elif how == "less" and rows:
        del rows[at * len(rows) >> 16]
    elif rows:
        chosen = at * len(rows) >> 16
        epoch, start = rows[chosen]
        rows[chosen] = (epoch + delta, start) if how == "epoch" else (epoch, max(0, start + delta))
    path.write_text(lines(f"{epoch} {start}" for epoch, start in rows))


def checkpoint_line(place: Place, name: str, how: str, at: int) -> None:
    """A checkpoint of the log directory has another value for the partition, or none, or is unreadable."""
    path = place.root / name
    log = place.log() if place.path.is_dir() else None
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-3] if path.is_file() else b"0")
    elif how == "directory":
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        rows = path.read_text().splitlines()[2:] if path.is_file() else []
        rows = [row for row in rows if row.split()[:2] != place.key]
        if how != "none" and log is not None:
            value = {"inside": at * max(1, log.end) >> 16, "end": log.end, "beyond": log.end + 1 + at % 50}[how]
            rows.append(" ".join([*place.key, str(value)]))
        path.write_text(lines(rows))


def identity(place: Place, how: str) -> None:
    """partition.metadata is of another topic, unreadable, or gone."""
    path = place.path / "partition.metadata"
    if how == "gone":
        path.unlink(missing_ok=True)
    elif path.exists():
        path.write_text("version: 0\ntopic_id: %s\n" % ("AAECAwQFBgcICQoLDA0OAA" if how == "other" else "short"))


# ---- what brokers and people do without harm -------------------------------------------------------------------------------------


def repair_indexes(place: Place) -> None:
    """Remove the files that a broker rebuilds."""
    for suffix in (".index", ".timeindex"):
        for file in place.path.glob(f"*{suffix}"):
            file.unlink()


def repair_checkpoints(place: Place) -> None:
    """Set the checkpoints to the log's end."""
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        rows = (place.root / name).read_text().splitlines() if (place.root / name).is_file() else []
        has_line = any(row.split()[:2] == place.key for row in rows)
        if has_line:
            checkpoint_line(place, name, "end", 0)


def foreign(place: Place, how: str) -> None:
    """Files that brokers leave beside the log: deleted, not finished, being moved, stray."""
    if how in {".deleted", ".cleaned"}:
        (place.path / f"{10**6:020d}.log{how}").write_bytes(b"left over")
    elif how in {"future", "delete", "stray"}:
        if place.path.is_dir():
            shutil.copytree(place.path, place.root / f"{place.name}.{'fedcba9876543210' * 2}-{how}", dirs_exist_ok=True)
    else:
        (place.path / how).write_text("nothing of Kafka's")


def interrupt(place: Place, at: int, how: str) -> None:
    """A cleaner was interrupted while it replaced a segment: its files are called `.swap` ("alone"), stand beside the old ones ("beside"),
    or only the log still has that name ("log")."""
    file = place.segments()[at * len(place.segments()) >> 16]
    for beside in [file] if how == "log" else sorted(place.path.glob(file.stem + ".*")):
        if beside.suffix not in {".snapshot", ".swap"}:
            swapped = beside.with_name(beside.name + ".swap")
            swapped.write_bytes(beside.read_bytes())
            if how != "beside":
                beside.unlink()


def replacement(place: Place, at: int, how: str, byte: int) -> None:
    """What an interrupted cleaner left is not what it read: other records, fewer, or none."""
    interrupt(place, at, "beside" if byte % 2 else "alone")
    for file in sorted(place.path.glob("*.log.swap"))[:1]:
        batches = [bytearray(batch.raw) for batch in parse(file.read_bytes())[0]]
        if not batches:
            continue
        if how == "other":
            batches[byte % len(batches)][-2] ^= 0x15
            seal(batches[byte % len(batches)])
        else:
            del batches[byte % len(batches) if how == "fewer" else 0 :]
        file.write_bytes(b"".join(batches))


def future(place: Place, how: str, at: int) -> None:
    """The partition is being moved to another log directory of its broker: the copy is whole, short, or not the same."""
    elsewhere = [path for path in places(place.root.parent, place.broker) if path != place.root]
    target = (elsewhere or [place.root])[0] / f"{place.name}.{'fedcba9876543210' * 2}-future"
    if not place.path.is_dir() or target.exists():
        return
    shutil.copytree(place.path, target)
    files = sorted(target.glob("*.log"))
    if how == "short":
        last = max(file.name[:20] for file in target.glob("*.log*"))  # it may be a replacement
        for beside in target.glob(last + ".*"):
            beside.unlink()
        for snapshot in target.glob("*.snapshot"):
            snapshot.unlink()
    elif how == "other":
        batches = [bytearray(batch.raw) for batch in parse(files[0].read_bytes())[0]]
        if not batches:
            return
        chosen = at * len(batches) >> 16
        batches[chosen][-2] ^= 0x15
        seal(batches[chosen])
        files[0].write_bytes(b"".join(batches))


def cleaner_line(place: Place, offset: int) -> None:
    """Write a cleaner checkpoint at this offset."""
    path = place.root / "cleaner-offset-checkpoint"
    path.write_text(lines([" ".join([*place.key, str(offset)])]))


def link(place: Place) -> None:
    """Move the partition's directory elsewhere and link to it."""
    target = place.root.parent.parent / f"elsewhere-{place.broker}"
    if place.path.is_dir() and not place.path.is_symlink() and not target.exists():
        place.path.rename(target)
        place.path.symlink_to(target)


def roll(place: Place) -> None:
    """A new, empty segment at the log's end."""
    log = place.log()
    rest = log.segments[-1][2] if log is not None else b"x"
    if log is not None and not rest and log.end > log.segments[-1][0]:
        (place.path / f"{log.end:020d}.log").write_bytes(b"")


def retain(place: Place) -> None:
    """Retention deletes the oldest segment: log start and epochs follow."""
    log = place.log()
    if log is None or len(log.segments) < 2 or log.log_start > log.segments[1][0]:
        return
    start = log.segments[1][0]
    for beside in list(place.path.glob(f"{log.segments[0][0]:020d}.*")):
        beside.unlink()
    path = place.path / "leader-epoch-checkpoint"
    rows = [tuple(map(int, row.split())) for row in path.read_text().splitlines()[2:]] if path.is_file() else []
    older, newer = [row for row in rows if row[1] <= start], [row for row in rows if row[1] > start]
    kept = ([(older[-1][0], start)] if older else []) + newer
    path.write_text(lines(f"{epoch} {first}" for epoch, first in kept))
    checkpoint_line(place, "log-start-offset-checkpoint", "none", 0)
    rows_of = (place.root / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    (place.root / "log-start-offset-checkpoint").write_text(lines([*rows_of, " ".join([*place.key, str(start)])]))


VERBS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        header, payload, drop, repeat, swap, others, lose_tail, cut, append, remove_segment, rename_segment, exchange_segments,
        no_directory, twin, entry, side_file, snapshot_field, epoch_line, checkpoint_line, identity,
        repair_indexes, repair_checkpoints, foreign, link, roll, interrupt, replacement, future, cleaner_line,
        retain, epochs_from_log,
    )
}  # fmt: skip
