"""Faults around a partition: how its broker stopped and who it is, files with odd names, the metadata log and its snapshots."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c
from helpers.log_clusters import lines
from helpers.log_fault_bases import BROKERS
from helpers.log_fault_verbs import Place, places
from helpers.log_oracle import parse

METADATA = "__cluster_metadata-0"


def kill(place: Place) -> None:
    """The broker was started again and killed before it wrote anything."""
    for root in places(place.root.parent, place.broker):
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)


def lose_head(place: Place, count: int) -> None:
    """The oldest segments are gone, with all their files, and nothing else says so."""
    for file in place.segments()[:-1][:count]:
        for beside in list(place.path.glob(file.stem + ".*")):
            beside.unlink()


def pipe(place: Place, where: str) -> None:
    """A pipe in the place of a file: who opens it waits for ever."""
    for file in sorted([*place.root.glob(where), *place.path.glob(f"*{where}")])[:1]:
        file.unlink()
        os.mkfifo(file)


def extra_segment(place: Place, at: int, how: str) -> None:
    """A segment begins in the midst of another one: it is empty, or has what follows there."""
    log = place.log()
    if log is None or log.end - log.start < 3:
        return
    offset = log.start + 1 + (at * (log.end - log.start - 1) >> 16)
    file = place.path / f"{offset:020d}.log"
    if not file.exists():
        following = min([base for base, _, _ in log.segments if base > offset], default=1 << 62)
        held = [batch.raw for batch in log.batches if offset <= batch.base < following]
        file.write_bytes(b"" if how == "empty" else b"".join(held))


def odd_name(place: Place, at: int, name: str) -> None:
    """A file whose name a broker may take for a segment's: it looks at the end of the name, and for a number before the first dot."""
    log = place.log()
    if log is not None:
        offset = log.start + (at * max(1, log.end - log.start) >> 16)
        (place.path / name.replace("0N", f"{offset:020d}").replace("N", str(offset))).write_bytes(b"")


def line_twice(place: Place, checkpoint: str, at: int, where: str) -> None:
    """A checkpoint has a second line for the partition."""
    path, log = place.root / checkpoint, place.log()
    if path.is_file() and log is not None:
        rows, more = path.read_text().splitlines()[2:], " ".join([*place.key, str(at * max(1, log.end) >> 16)])
        path.write_text(lines([more, *rows] if where == "before" else [*rows, more]))


def owner(place: Place, how: str) -> None:
    """meta.properties is missing, names another cluster or another broker, or is of a version to come."""
    for root in places(place.root.parent, place.broker):
        if how == "gone":
            (root / "meta.properties").unlink(missing_ok=True)
        elif how == "old":
            _property(root, "node.id", "")
            _property(root, "broker.id", str(place.broker))
        elif how == "syntax":
            path = root / "meta.properties"
            path.write_text(path.read_text().replace("version=1", "!x=2\n version : 1").replace("node.id=", "node\\.id \\\n  \\u003"))
        else:
            _property(root, *{"cluster": ("cluster.id", "BBBBBBBBBBBBBBBBBBBBBA"), "node": ("node.id", "77"), "version": ("version", "2"),
                              "no cluster": ("cluster.id", ""), "no node": ("node.id", ""), "text": ("node.id", "one"),
                              "negative": ("node.id", f"-{place.broker}"), "space": ("node.id", f"{place.broker} "),
                              "long": ("node.id", str((1 << 32) + place.broker))}[how])  # fmt: skip


def directory_identity(place: Place, how: str) -> None:
    """directory.id of meta.properties is missing, another one, another broker's, reserved, or no UUID."""
    other = next(root for broker in BROKERS if broker != place.broker for root in places(place.root.parent, broker))
    theirs = dict(line.split("=", 1) for line in (other / "meta.properties").read_text().splitlines() if "=" in line)
    value = {"gone": "", "other": "ZZZZZZZZQACAAAAAAAAAEQ", "theirs": theirs.get("directory.id", ""), "reserved": "A" * 20 + "AQ",
             "short": "short", "text": "no base64 of 16 bytes"}[how]  # fmt: skip
    _property(place.root, "directory.id", value)


def _property(root: Path, name: str, value: str) -> None:
    """A line of meta.properties gets another value; "": it is missing."""
    path = root / "meta.properties"
    if path.exists():
        kept = [line for line in path.read_text().splitlines() if not line.startswith(name + "=")]
        path.write_text("\n".join([*kept, *([f"{name}={value}"] if value else [])]) + "\n")


def metadata(place: Place, at: int, how: str, byte: int, sealed: int) -> None:
    """One controller's metadata log differs: a bit of a batch, a batch less, bytes behind the last one."""
    for path in _metadata_logs(place, ".log"):
        batches = [bytearray(batch.raw) for batch in parse(path.read_bytes())[0]]
        if not batches:
            continue
        chosen = at * len(batches) >> 16
        if how == "bit":
            position = 21 + (byte * (len(batches[chosen]) - 21) >> 16)
            batches[chosen][position] ^= 1 << byte % 8
            if sealed:
                struct.pack_into(">I", batches[chosen], 17, crc32c(memoryview(batches[chosen])[21:]))
        elif how == "less":
            del batches[chosen]
        path.write_bytes(b"".join(batches) + (b"\1\2rubbish" * 9 if how == "rubbish" else b""))


def metadata_snapshot(place: Place, at: int, how: str, sealed: int) -> None:
    """One controller's snapshot of the metadata differs: a bit of a record, a record's batch or the voters less, or it is gone."""
    for path in _metadata_logs(place, ".checkpoint"):
        batches = [bytearray(batch.raw) for batch in parse(path.read_bytes())[0]]
        if how == "gone" or not batches:
            path.unlink()
            continue
        chosen = min(1, len(batches) - 1)
        if how == "bit":
            batches[chosen][61 + (at * (len(batches[chosen]) - 61) >> 16)] ^= 1 << at % 8
            if sealed:
                struct.pack_into(">I", batches[chosen], 17, crc32c(memoryview(batches[chosen])[21:]))
        elif how == "voters":
            batches = _without_voters(batches)
        else:
            del batches[chosen]
        path.write_bytes(b"".join(batches))


def _without_voters(batches: list[bytearray]) -> list[bytearray]:
    """The head without its second record. The others move up."""
    position, gone = 61, struct.unpack_from(">i", batches[0], 57)[0] - 1
    size, shift = 0, 0
    while True:
        byte = batches[0][position]
        size, shift, position = size | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            break
    del batches[0][position + (size >> 1) :]
    struct.pack_into(">i", batches[0], 8, len(batches[0]) - 12)
    struct.pack_into(">i", batches[0], 23, 0)
    struct.pack_into(">i", batches[0], 57, 1)
    struct.pack_into(">I", batches[0], 17, crc32c(memoryview(batches[0])[21:]))
    for batch in batches[1:]:
        struct.pack_into(">q", batch, 0, struct.unpack_from(">q", batch)[0] - gone)
    return batches


def _metadata_logs(place: Place, suffix: str) -> list[Path]:
    return [file for root in places(place.root.parent, place.broker) for file in sorted((root / METADATA).glob(f"*{suffix}"))]


AROUND: dict[str, Callable[..., None]] = {verb.__name__: verb for verb in (
    kill, lose_head, pipe, extra_segment, odd_name, line_twice, owner, directory_identity, metadata, metadata_snapshot,
)}  # fmt: skip
#: What differs on all controllers alike has another meaning, and no fault.
OF_ONE_BROKER = {"twin", "metadata", "metadata_snapshot", "metadata_proposal", "metadata_epoch"}


def arguments_around(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for one of the verbs above."""
    at, sealed = chance.randrange(1 << 16), chance.randrange(2)
    return {
        "lose_head": (1 + chance.randrange(2),),
        "pipe": (chance.choice(["replication-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties", "partition.metadata",
                                "leader-epoch-checkpoint", ".index", ".timeindex", ".txnindex", ".snapshot"]),),
        "extra_segment": (at, chance.choice(["empty", "copy"])),
        "odd_name": (at, chance.choice(["N.log", "x.log", ".log", "N.index", "x.timeindex", "x.snapshot", "N.txt", "x.log.bak",
                                         "0N.x.log", "0N.x.index", "99999999999999999999.log", "x.swap", "0N.log.bak", "0N.x.log.swap"])),
        "line_twice": (chance.choice(["replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]),
                       at, chance.choice(["before", "behind"])),
        "owner": (chance.choice(["gone", "cluster", "node", "version", "no cluster", "no node", "text", "negative", "space",
                                 "long", "old", "syntax"]),),
        "directory_identity": (chance.choice(["gone", "other", "theirs", "reserved", "short", "text"]),),
        "metadata": (at, chance.choice(["bit", "bit", "less", "rubbish"]), chance.randrange(1 << 16), sealed),
        "metadata_snapshot": (at, chance.choice(["bit", "bit", "less", "gone", "voters"]), sealed),
    }.get(verb, ())  # fmt: skip
