"""Faults of the controllers among themselves: records that one of them alone has, an epoch that nobody voted for. Partitions of which the
controller knows nothing."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers.log_clusters import Batch, MetadataLog, lines, uuid_text
from helpers.log_fault_bases import LOG_ENDS, OWN_SNAPSHOTS, TOPIC, own_snapshot_values
from helpers.log_fault_verbs import Place, places, seal
from helpers.log_oracle import CONTROL, Stored, parse, records

METADATA, UNKNOWN_TOPIC = "__cluster_metadata-0", bytes(range(32, 48))


def metadata_proposal(place: Place, what: str) -> None:
    """One controller alone holds a record more: that a single replica is in sync, that the topic is compacted, that it is removed."""
    log = MetadataLog()
    if what == "in sync":
        log.change(TOPIC, isr=(place.broker,))
    elif what == "compacted":
        log.config("t", "cleanup.policy", "compact")
    else:
        log.remove(TOPIC)
    for path in _logs(place):
        held = parse(path.read_bytes())[0]
        more = Batch(held[-1].last + 1, [(0, None, log.values[0])], held[-1].epoch, held[-1].max_time)
        path.write_bytes(path.read_bytes() + more.encode())


def metadata_epoch(place: Place, count: int) -> None:
    """One controller's newest records are of a later epoch, of which only its own quorum state tells."""
    states = [json.loads(file.read_text()) for file in place.root.parent.glob(f"*/{METADATA}/quorum-state")]
    later = 1 + max([1, *(state["leaderEpoch"] for state in states)])
    for path in _logs(place):
        batches = [bytearray(batch.raw) for batch in parse(path.read_bytes())[0]]
        for batch in batches[-count:]:
            struct.pack_into(">i", batch, 12, later)
        path.write_bytes(b"".join(batches))
        begin = int.from_bytes(batches[-min(count, len(batches))][:8], "big")
        kept = (path.parent / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        (path.parent / "leader-epoch-checkpoint").write_text(lines([*kept, f"{later} {begin}"]))
        state = json.loads((path.parent / "quorum-state").read_text())
        (path.parent / "quorum-state").write_text(json.dumps(state | {"leaderId": place.broker, "leaderEpoch": later}))


def snapshot_said(place: Place, what: str) -> None:
    """A controller's snapshots have another value of a setting, or another leader, than the log that leads up to them."""
    for path in (file for root in places(place.root.parent, place.broker) for file in (root / METADATA).glob("*.checkpoint")):
        held = [bytearray(batch.raw) for batch in parse(path.read_bytes())[0]]
        for batch in held:
            for _, _, value in list(records(parse(bytes(batch))[0][0])):
                at = bytes(batch).find(value)
                if what == "setting" and value[:2] == b"\1\4":
                    batch[at + len(value) - 2] ^= 1
                elif what == "leader" and value[:2] == b"\1\3":
                    struct.pack_into(">i", batch, at + 23 + 2 * (1 + 4 * value[23] - 4) + 2, 3)
            seal(batch)
        path.write_bytes(b"".join(held))


def stray(place: Place, how: str) -> None:
    """A copy of the partition under a number that its topic does not have, or as a topic that never was."""
    copy = place.root / ("t-7" if how == "number" else "u-0")
    if copy.exists():
        return
    shutil.copytree(place.path, copy)
    if how == "topic":
        (copy / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(UNKNOWN_TOPIC)}\n")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        rows = (place.root / name).read_text().splitlines()[2:] if (place.root / name).is_file() else []
        mine = [row.split()[2] for row in rows if row.split()[:2] == place.key]
        (place.root / name).write_text(lines([*rows, *(f"{copy.name.replace('-', ' ')} {offset}" for offset in mine)]))


def _logs(place: Place) -> list[Path]:
    found = [file for root in places(place.root.parent, place.broker) for file in sorted((root / METADATA).glob("*.log"))]
    return [file for file in found if parse(file.read_bytes())[0]]


CONTROLLERS: dict[str, Callable[..., None]] = {verb.__name__: verb for verb in (metadata_proposal, metadata_epoch, snapshot_said, stray)}


def arguments_of_controllers(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for one of the verbs above."""
    return {
        "metadata_proposal": (chance.choice(["in sync", "in sync", "compacted", "removed"]),),
        "metadata_epoch": (1 + chance.randrange(3),),
        "snapshot_said": (chance.choice(["setting", "leader"]),),
        "stray": (chance.choice(["number", "topic"]),),
    }.get(verb, ())


# ---- the oracle ------------------------------------------------------------------------------------------------------------------


def by_elections(directories: dict[int, list[Path]], voters: tuple[int, ...]) -> Iterator[str]:
    """A leader of the quorum writes after a majority of the voters voted for it, and who votes writes the epoch down."""
    written: dict[int, int] = {}
    known: dict[int, int] = {}
    for broker, paths in directories.items():
        for path in (path / METADATA for path in paths if (path / METADATA).is_dir()):
            written[broker] = max([-1, *(batch.epoch for file in path.glob("*.log") for batch in parse(file.read_bytes())[0])])
            try:
                known[broker] = json.loads((path / "quorum-state").read_text())["leaderEpoch"]
            except (OSError, ValueError):
                known[broker] = written[broker]
    for broker, epoch in written.items():
        heard = sum(max(known[one], written[one]) >= epoch for one in known if one in voters)
        if set(voters) <= known.keys() and heard < len(voters) // 2 + 1:
            yield f"controller {broker} has records of epoch {epoch}, for which no majority voted"


def by_creation(directories: dict[int, list[Path]]) -> Iterator[str]:
    """A log of a partition that the controllers' records never made: they are not the records of this cluster."""
    logs = [file for paths in directories.values() for path in paths for file in (path / METADATA).glob("*.log")]
    known = b"".join(file.read_bytes() for file in logs)
    for path in (path for paths in directories.values() for path in paths) if known else ():
        for name in ("t-7", "u-0"):
            if (path / name).is_dir() and any(int(file.stem) == 0 for file in logs):
                yield f"{path.name} has {name}, which never was"


def by_own_snapshots(directories: dict[int, list[Path]], base: str) -> Iterator[str]:
    """Where the log before a snapshot is gone, nothing but what is left of it and the other controllers' logs tell what it must hold."""
    for broker, paths in directories.items() if base in {OWN_SNAPSHOTS, LOG_ENDS} else ():
        found = [file for path in paths for file in (path / METADATA).glob("*.checkpoint")]
        if not found and any((path / METADATA).is_dir() for path in paths):
            yield f"controller {broker} has lost what lay before its log"
        for file in found:
            held = _contents(parse(file.read_bytes())[0])
            if held != sorted(own_snapshot_values(int(file.name[:20]))):
                yield f"controller {broker} starts with other metadata"


def _contents(batches: list[Stored]) -> list[bytes]:
    return sorted(value for batch in batches if not batch.attributes & CONTROL for _, _, value in records(batch))
