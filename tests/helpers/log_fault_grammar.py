"""A grammar of faults: what is done to which file of which replicas, drawn from a seed, judged by the oracle, and shrunk when the audit
errs.

A case is a base (log_fault_bases) and some steps. A step is plain values, so that a case can be printed and played again. Fractions say
where: batch `at` of n is batch at * n >> 16.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c
from helpers.log_clusters import lines
from helpers.log_fault_bases import BASES, BROKERS
from helpers.log_oracle import Log, is_comparable, parse, read_log, visible

FIELDS = {
    "base_offset": (0, 8), "length": (8, 4), "epoch": (12, 4), "magic": (16, 1), "crc": (17, 4), "attributes": (21, 2),
    "last_delta": (23, 4), "base_timestamp": (27, 8), "max_timestamp": (35, 8), "producer_id": (43, 8), "producer_epoch": (51, 2),
    "base_sequence": (53, 4), "count": (57, 4),
}  # fmt: skip
NAME = "t-0"


@dataclass(frozen=True, slots=True)
class Step:
    """`verb` names a function below; `arguments` are its numbers and words."""

    verb: str
    brokers: tuple[int, ...]
    arguments: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A base and what is done to it."""

    base: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One broker's log directory with the partition."""

    root: Path
    broker: int

    @property
    def path(self) -> Path:
        return self.root / NAME

    def segments(self) -> list[Path]:
        return sorted(file for file in self.path.glob("*.log"))

    def log(self) -> Log | None:
        return read_log(self.root, self.broker, NAME)


def places(folder: Path, broker: int) -> list[Path]:
    """The log directories of a broker."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(f"b{broker}"))


def place_of(folder: Path, broker: int) -> Place:
    """Where the broker has the partition."""
    found = [path for path in places(folder, broker) if (path / NAME).is_dir()]
    return Place(found[0] if found else places(folder, broker)[0], broker)


# ---- single batches --------------------------------------------------------------------------------------------------------------


def _rewrite(place: Place, change: Callable[[list[bytearray]], list[bytearray]], at: int) -> None:
    """Change the batches of the segment in which batch `at` of the whole log lies; `change` gets them from that batch on."""
    held = [(file, [bytearray(batch.raw) for batch in parse(file.read_bytes())[0]]) for file in place.segments()]
    chosen = at * sum(len(batches) for _, batches in held) >> 16
    for file, batches in held:
        if chosen < len(batches):
            rest = parse(file.read_bytes())[1]
            file.write_bytes(b"".join([*batches[:chosen], *change(batches[chosen:])]) + rest)
            return
        chosen -= len(batches)


def _seal(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def header(place: Place, at: int, name: str, delta: int, sealed: int) -> None:
    """A header field of one batch grows by `delta`."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        start, size = FIELDS[name]
        value = int.from_bytes(batches[0][start : start + size], "big") + delta
        batches[0][start : start + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
        return [_seal(batches[0]) if sealed else batches[0], *batches[1:]]

    _rewrite(place, change, at)


def payload(place: Place, at: int, byte: int, bit: int, sealed: int) -> None:
    """A bit of the records."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        position = 61 + (byte * (len(batches[0]) - 61) >> 16)
        batches[0][position] ^= 1 << bit
        return [_seal(batches[0]) if sealed else batches[0], *batches[1:]]

    _rewrite(place, change, at)


def drop(place: Place, at: int, count: int) -> None:
    """Batches are gone."""
    _rewrite(place, lambda batches: batches[count:], at)


def repeat(place: Place, at: int) -> None:
    """A batch is there twice."""
    _rewrite(place, lambda batches: [batches[0], *batches], at)


def swap(place: Place, at: int) -> None:
    """Two neighbours are exchanged."""
    _rewrite(place, lambda batches: [*batches[1:2], batches[0], *batches[2:]], at)


def others(place: Place, at: int, count: int, epoch: int) -> None:
    """Other records at the same offsets, sound by themselves; with `epoch` of another leader epoch, and the checkpoint knows it."""

    def change(batches: list[bytearray]) -> list[bytearray]:
        for batch in batches[:count]:
            batch[-2] ^= 0x15
            struct.pack_into(">i", batch, 12, struct.unpack_from(">i", batch, 12)[0] + epoch)
            _seal(batch)
        return batches

    _rewrite(place, change, at)
    if epoch:
        epochs_from_log(place)


def epochs_from_log(place: Place) -> None:
    """The checkpoint is made right again."""
    starts: dict[int, int] = {}
    log = place.log()
    for batch in log.batches if log else ():
        starts.setdefault(batch.epoch, batch.base)
    (place.path / "leader-epoch-checkpoint").write_text(lines(f"{epoch} {start}" for epoch, start in starts.items()))


# ---- whole logs ------------------------------------------------------------------------------------------------------------------


def lose_tail(place: Place, count: int) -> None:
    """The newest batches are gone."""
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
    """A segment is gone with all that belongs to it, or has no bytes."""
    file = place.segments()[at * len(place.segments()) >> 16]
    if empty:
        file.write_bytes(b"")
        return
    for beside in place.path.glob(file.stem + ".*"):
        if beside.suffix != ".snapshot":
            beside.unlink()


def rename_segment(place: Place, at: int, delta: int) -> None:
    """A segment is called by another offset."""
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
    """The partition's directory is gone, waits for its deletion, or is a link that leads nowhere."""
    if how == "delete":
        place.path.rename(place.root / f"{NAME}.{'0123456789abcdef' * 2}-delete")
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


def mark(place: Place, name: str, how: str, at: int) -> None:
    """A checkpoint of the log directory says something else of the partition, or nothing, or cannot be read."""
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
        rows = [row for row in rows if row.split()[:2] != NAME.rsplit("-", 1)]
        if how != "none" and log is not None:
            value = {"inside": at * max(1, log.end) >> 16, "end": log.end, "beyond": log.end + 1 + at % 50}[how]
            rows.append(f"{NAME.rsplit('-', 1)[0]} {NAME.rsplit('-', 1)[1]} {value}")
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
    """What a broker rebuilds is removed."""
    for suffix in (".index", ".timeindex"):
        for file in place.path.glob(f"*{suffix}"):
            file.unlink()


def repair_marks(place: Place) -> None:
    """The checkpoints follow the log's end."""
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        known = (place.root / name).is_file() and any(f"{NAME[0]} 0 " in row for row in (place.root / name).read_text().splitlines())
        if known:
            mark(place, name, "end", 0)


def foreign(place: Place, how: str) -> None:
    """Files that brokers leave beside the log: deleted, swapped, being moved, stray."""
    if how in {".deleted", ".swap", ".cleaned"}:
        (place.path / f"{10**6:020d}.log{how}").write_bytes(b"left over")
    elif how in {"future", "delete", "stray"}:
        if place.path.is_dir():
            shutil.copytree(place.path, place.root / f"{NAME}.{'fedcba9876543210' * 2}-{how}", dirs_exist_ok=True)
    else:
        (place.path / how).write_text("nothing of Kafka's")


def link(place: Place) -> None:
    """The partition's directory lies elsewhere, behind a link."""
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
    mark(place, "log-start-offset-checkpoint", "none", 0)
    rows_of = (place.root / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    (place.root / "log-start-offset-checkpoint").write_text(lines([*rows_of, f"t 0 {start}"]))


VERBS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        header, payload, drop, repeat, swap, others, lose_tail, cut, append, remove_segment, rename_segment, exchange_segments,
        no_directory, twin, entry, side_file, snapshot_field, epoch_line, mark, identity, repair_indexes, repair_marks, foreign, link, roll,
        retain, epochs_from_log,
    )
}  # fmt: skip


LEGAL_VERBS = ("repair_indexes", "foreign", "link", "roll", "retain", "side_file", "identity")


def is_legal(step: Step, base: str) -> bool:
    """Whether brokers or people do such a thing in good order, so that by itself it must not be blamed."""
    if step.verb in {"repair_indexes", "foreign", "link", "roll"}:
        return True
    if step.verb == "retain":
        return base not in {"compacted", "eligible", "transactions"}
    if step.verb == "side_file":
        return step.arguments[0] != ".txnindex" and step.arguments[2] == "gone"
    return step.verb == "identity" and step.arguments[0] == "gone"


# ---- drawing, playing, shrinking -------------------------------------------------------------------------------------------------


def draw(seed: int) -> Case:
    """The case of a seed."""
    chance = random.Random(seed)
    base = chance.choice(sorted(BASES))
    only_legal = chance.random() < 0.25
    steps: list[Step] = []
    while not steps or chance.random() < (0.5 if only_legal else 0.3):
        verb = chance.choice(LEGAL_VERBS if only_legal else sorted(VERBS))
        brokers = chance.choice([(1,), (2,), (3,), (1, 2), (2, 3), BROKERS])
        if verb == "twin":
            brokers = brokers[:1]
        step = Step(verb, brokers, _arguments(verb, chance, only_legal))
        if only_legal and not is_legal(step, base):
            continue
        steps.append(step)
        if not only_legal and chance.random() < 0.4:
            steps.append(Step(chance.choice(["repair_indexes", "repair_marks", "epochs_from_log"]), brokers))
    return Case(base, tuple(steps))


def _arguments(verb: str, chance: random.Random, only_legal: bool) -> tuple[int | str, ...]:
    at, small = chance.randrange(1 << 16), chance.choice([-2, -1, 1, 2, 16])
    suffix = chance.choice([".index", ".timeindex", ".txnindex", ".snapshot"])
    checkpoint = chance.choice(["replication-offset-checkpoint"] * 3 + [
        "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"])  # fmt: skip
    return {
        "header": (at, chance.choice(sorted(FIELDS)), small, chance.randrange(2)),
        "payload": (at, chance.randrange(1 << 16), chance.randrange(8), chance.randrange(2)),
        "drop": (at, 1 + chance.randrange(3)),
        "repeat": (at,),
        "swap": (at,),
        "others": (at, chance.choice([1, 3, 1000]), chance.choice([0, 0, 1])),
        "lose_tail": (1 + chance.randrange(6),),
        "cut": (1 + chance.randrange(200),),
        "append": (chance.choice(["zeros", "rubbish", "half"]), 1 + chance.randrange(300)),
        "remove_segment": (at, chance.randrange(2)),
        "rename_segment": (at, small),
        "exchange_segments": (at,),
        "no_directory": (chance.choice(["gone", "delete", "link"]),),
        "twin": (chance.choice(["same", "another"]),),
        "entry": (chance.choice([".index", ".timeindex", ".txnindex"]), at, chance.randrange(5), small),
        "side_file": (suffix, at, "gone" if only_legal else chance.choice(["gone", "empty", "cut", "padded"])),
        "snapshot_field": (at, chance.randrange(46), small),
        "epoch_line": (chance.choice(["more", "less", "epoch", "start"]), at, chance.choice([-1, 1, 2])),
        "mark": (checkpoint, chance.choice(["inside", "end", "beyond", "none", "empty", "cut", "directory"]), at),
        "identity": ("gone" if only_legal else chance.choice(["other", "short", "gone"]),),
        "foreign": (chance.choice([".deleted", ".swap", ".cleaned", "future", "delete", "stray", "notes.txt"]),),
    }.get(verb, ())  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`visible`: what a reader or follower could see; `is_legal`: nothing but legal steps, which left every replica something to be
    compared with."""

    visible: tuple[str, ...]
    is_legal: bool

    def blames(self, exit_code: int) -> str:
        """What is wrong with the audit's exit status; "" when it is right."""
        if self.visible and exit_code == 0:
            return f"missed: {self.visible[0]}"
        if self.is_legal and not self.visible and exit_code != 0:
            return "false alarm"
        return ""


class Player:
    """Plays cases. Bases are written once and copied for each."""

    def __init__(self, folder: str | None = None) -> None:
        self._holder = tempfile.TemporaryDirectory(dir=folder)
        self.root = Path(self._holder.name)
        for number, base in enumerate(BASES.values()):
            base.write(self.root / f"base-{number}")

    def close(self) -> None:
        """Remove what it wrote."""
        self._holder.cleanup()

    def play(self, case: Case, audit: Callable[[Path], int]) -> tuple[Judgement, int]:
        """(what the oracle says, the audit's exit status)."""
        with tempfile.TemporaryDirectory(dir=self.root) as directory:
            folder = Path(directory) / "cluster"
            shutil.copytree(self.root / f"base-{list(BASES).index(case.base)}", folder, symlinks=True)
            for step in case.steps:
                for broker in step.brokers:
                    place = place_of(folder, broker)
                    if place.path.is_dir() and place.segments():
                        # A step that an earlier one made impossible does what it can; the oracle judges what is there.
                        with contextlib.suppress(ValueError, IndexError, OSError):
                            VERBS[step.verb](place, *step.arguments)
            return judge(case, folder), audit(folder)


def judge(case: Case, folder: Path) -> Judgement:
    """What the oracle says of the directories in a folder."""
    directories: dict[int, list[Path]] = {}
    identities: dict[str, Path] = {}
    seen: list[str] = []
    for path in sorted(folder.iterdir()):
        properties = dict(line.split("=", 1) for line in (path / "meta.properties").read_text().splitlines())
        directories.setdefault(int(properties["node.id"]), []).append(path)
        if (path / NAME).is_dir() and properties["directory.id"] in identities:
            seen.append(f"{path.name} is a copy")
        identities[properties["directory.id"]] = path
    seen += list(visible(directories, NAME, BASES[case.base].role))
    seen += list(_identities(directories))
    legal = all(is_legal(step, case.base) for step in case.steps)
    return Judgement(tuple(seen), legal and is_comparable(directories, NAME))


def _identities(directories: dict[int, list[Path]]) -> Iterator[str]:
    told = set()
    for paths in directories.values():
        for path in paths:
            if (path / NAME / "partition.metadata").exists():
                told.add((path / NAME / "partition.metadata").read_text())
    if len(told) > 1:
        yield "the replicas are of different topics"


def shrink(case: Case, is_wrong: Callable[[Case], bool]) -> Case:
    """A smaller case that is wrong too: fewer steps, then fewer brokers."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(case):
            if smaller.steps and is_wrong(smaller):
                case, is_smaller = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for number, step in enumerate(case.steps):
        yield replace(case, steps=case.steps[:number] + case.steps[number + 1 :])
        for broker in step.brokers if len(step.brokers) > 1 else ():
            fewer = replace(step, brokers=tuple(one for one in step.brokers if one != broker))
            yield replace(case, steps=(*case.steps[:number], fewer, *case.steps[number + 1 :]))
