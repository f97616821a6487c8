"""A grammar of faults: changes of files of replicas, drawn from a seed, judged by the oracle, and shrunk when the audit
errs.

A case is a base (log_fault_bases) and some steps (log_fault_verbs). A step is plain values, so that a case can be printed and played again.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from helpers.log_fault_around import AROUND, OF_ONE_BROKER, arguments_around
from helpers.log_fault_bases import BASES, BROKERS, LOG_ENDS, RARE
from helpers.log_fault_beside import BESIDE, arguments_beside
from helpers.log_fault_controllers import CONTROLLERS, arguments_of_controllers, by_creation, by_elections, by_own_snapshots
from helpers.log_fault_exchanges import EXCHANGES, arguments_exchanged
from helpers.log_fault_holders import GROUPS_BASE, HOLDERS, arguments_of_holders, is_of_coordinators
from helpers.log_fault_lives import LIVES, RIGHT, arguments_of_lives
from helpers.log_fault_mixed import MIXED
from helpers.log_fault_named import NAMES, arguments_of_names
from helpers.log_fault_named import RIGHT as RIGHT_NAMES
from helpers.log_fault_records import INSIDE, arguments_inside
from helpers.log_fault_values import SOUND, VALUES, arguments_of_values, by_values
from helpers.log_fault_verbs import FIELDS, VERBS, place_of
from helpers.log_fault_written import WRITTEN, by_written
from helpers.log_oracle import is_comparable, visible
from helpers.log_oracle_around import by_metadata, by_owners, properties_of
from helpers.log_oracle_beside import by_votes
from helpers.log_oracle_startup import futures, started


@dataclass(frozen=True, slots=True)
class Step:
    """`verb` names a function of log_fault_verbs; `arguments` are its numbers and words."""

    verb: str
    brokers: tuple[int, ...]
    arguments: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A base and what is done to it."""

    base: str
    steps: tuple[Step, ...]


ALL_VERBS = VERBS | BESIDE | AROUND | INSIDE | CONTROLLERS | EXCHANGES | HOLDERS | LIVES | NAMES | VALUES | WRITTEN
LEGAL_VERBS = (
    "repair_indexes", "foreign", "link", "roll", "retain", "side_file", "interrupt", "future", "cut_epochs", "power_failure", "kill",
    "metadata_proposal", "link_file", "two_holders", "group_life", "group_names", "metadata_value",
)  # fmt: skip
OF_GROUPS = HOLDERS | LIVES | NAMES
WITHOUT_TOPIC = {"no controller", *(f"Apache Kafka's {one.name}" for one in MIXED)}
HAS_TRANSACTIONS = {name for name in BASES if "transactions" in name or "txn" in name}
#: One of so many cases has a base that takes seconds.
RARE_CASES = 500


def is_legal(step: Step, base: str) -> bool:
    """Whether brokers or administrators do this in normal operation, so that the audit must not report it by itself."""
    if step.verb in {"repair_indexes", "foreign", "link", "roll", "kill"}:
        return True
    if step.verb in {"cut_epochs", "power_failure"}:
        return base == "crashed"
    if step.verb == "metadata_proposal":  # no majority has it, so that no broker ever acted on it
        return base not in WITHOUT_TOPIC and step.brokers[0] in BASES[base].role.complete and len(BASES[base].voters) > 1
    if step.verb == "interrupt":  # a start removes the index of aborted transactions of a log that alone is a replacement
        return step.arguments[1] != "log" or base not in HAS_TRANSACTIONS
    if step.verb == "future":
        return step.arguments[0] != "other"
    if step.verb == "retain":
        return base not in {"compacted", "eligible", "transactions", "group offsets with transactions", "Apache Kafka's txn-0"}
    if step.verb == "two_holders":
        return step.brokers == BROKERS and is_of_coordinators(*step.arguments[1:])  # type: ignore[arg-type]
    if step.verb == "metadata_value":
        return step.brokers == BROKERS and step.arguments[0] in SOUND and base not in WITHOUT_TOPIC
    if step.verb == "group_life":
        return step.brokers == BROKERS and step.arguments[2] in RIGHT
    if step.verb == "group_names":
        return step.brokers == BROKERS and step.arguments[1] in RIGHT_NAMES
    if step.verb == "link_file":
        return step.arguments[1] == "away"
    return step.verb == "side_file" and step.arguments[0] == ".index" and step.arguments[2] == "gone"


def are_legal(case: Case) -> bool:
    """Whether the steps are legal by themselves and together. Only the quorum's leader proposes; what two nodes hold, a majority has. Two
    lives of a group have their records among each other."""
    if any(sum(step.verb in verbs for step in case.steps) > 1 for verbs in (OF_GROUPS, VALUES)):
        return False
    proposals = [broker for step in case.steps if step.verb == "metadata_proposal" for broker in step.brokers]
    return len(proposals) < 2 and all(is_legal(step, case.base) for step in case.steps)


# ---- drawing, playing, shrinking -------------------------------------------------------------------------------------------------


def draw(seed: int) -> Case:
    """The case of a seed."""
    chance = random.Random(seed)
    base = chance.choice(sorted(BASES.keys() - RARE)) if chance.randrange(RARE_CASES) else chance.choice(sorted(RARE))
    only_legal = chance.random() < 0.25
    steps: list[Step] = []
    while not steps or chance.random() < (0.5 if only_legal else 0.3):
        verb = chance.choice(LEGAL_VERBS if only_legal else sorted(ALL_VERBS))
        brokers = chance.choice([(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), BROKERS, BROKERS])
        if verb in OF_ONE_BROKER:
            brokers = brokers[:1]
        own_base = GROUPS_BASE if verb in OF_GROUPS else LOG_ENDS if verb == "snapshot_said" else base
        if own_base != base:
            if steps:
                continue
            base = own_base
        if (verb in OF_GROUPS or verb == "snapshot_said") and chance.random() < 0.7:  # otherwise a comparison of the replicas finds them
            brokers = BROKERS
        step = Step(verb, brokers, _arguments(verb, chance, only_legal))
        if only_legal and not is_legal(step, base):
            continue
        steps.append(step)
        if verb == "pipe":  # whatever reads it would wait
            break
        if verb == "no_high_watermarks":
            steps[-1:] = [Step(verb, BROKERS), Step("lose_tail", brokers, _arguments("lose_tail", chance, False))]
        if not only_legal and chance.random() < 0.4:
            steps.append(Step(chance.choice(["repair_indexes", "repair_checkpoints", "epochs_from_log"]), brokers))
    return Case(base, tuple(steps))


def _arguments(verb: str, chance: random.Random, only_legal: bool) -> tuple[int | str, ...]:
    at, small = chance.randrange(1 << 16), chance.choice([-2, -1, 1, 2, 16, 32])
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
        "checkpoint_line": (checkpoint, chance.choice(["inside", "end", "beyond", "none", "empty", "cut", "directory"]), at),
        "identity": (chance.choice(["other", "short", "gone"]),),
        "interrupt": (at, chance.choice(["alone", "beside", "log"])),
        "replacement": (at, chance.choice(["other", "fewer", "none"]), chance.randrange(1 << 16)),
        "future": (chance.choice(["same", "short"] if only_legal else ["same", "short", "other", "other"]), at),
        "cleaner_line": (chance.choice([0, 10, 40, 1000]),),
        "foreign": (chance.choice([".deleted", ".cleaned", "future", "delete", "stray", "notes.txt"]),),
    }.get(verb) or next(filter(None, (arguments(verb, chance) for arguments in _OTHER_ARGUMENTS)), ())  # type: ignore[return-value]


_OTHER_ARGUMENTS = (
    arguments_beside, arguments_around, arguments_inside, arguments_of_controllers, arguments_exchanged, arguments_of_holders,
    arguments_of_lives, arguments_of_names, arguments_of_values,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """`visible`: the first difference that a reader or follower could see; `is_legal`: nothing but legal steps, which left every replica
    something to be compared with."""

    visible: tuple[str, ...]
    is_legal: bool

    def blames(self, exit_code: int) -> str:
        """Why the audit's exit status is wrong; "" if it is right."""
        if self.visible and exit_code == 0:
            return f"missed: {self.visible[0]}"
        if self.is_legal and not self.visible and exit_code != 0:
            return "false alarm"
        return ""


class Player:
    """Plays cases. A base is written once, when it is first needed, and copied for each."""

    def __init__(self, folder: str | None = None) -> None:
        self._holder = tempfile.TemporaryDirectory(dir=folder)
        self.root = Path(self._holder.name)

    def close(self) -> None:
        """Remove what it wrote."""
        self._holder.cleanup()

    def _base(self, name: str) -> Path:
        folder = self.root / f"base-{list(BASES).index(name)}"
        if not folder.exists():
            BASES[name].write(folder)
        return folder

    def play(self, case: Case, audit: Callable[[Path], int]) -> tuple[Judgement, int]:
        """(what the oracle says, the audit's exit status)."""
        with tempfile.TemporaryDirectory(dir=self.root) as directory:
            folder = Path(directory) / "cluster"
            shutil.copytree(self._base(case.base), folder, symlinks=True)
            for step in case.steps:
                for broker in step.brokers:
                    place = place_of(folder, broker, BASES[case.base].partition)
                    if place.path.is_dir() and place.segments():
                        # A step that an earlier one made impossible does what it can; the oracle judges what is there.
                        with contextlib.suppress(ValueError, IndexError, OSError):
                            ALL_VERBS[step.verb](place, *step.arguments)
            return judge(case, folder), audit(folder)


def is_removed(case: Case) -> bool:
    """Whether the only voter holds a record that removes the topic: it is committed, and what is left of the topic is nobody's replica."""
    removal, voters = ("metadata_proposal", ("removed",)), BASES[case.base].voters
    return any((step.verb, step.arguments) == removal and step.brokers == voters for step in case.steps)


def judge(case: Case, folder: Path) -> Judgement:
    """What the oracle says of the directories in a folder."""
    if is_removed(case):
        return Judgement((), False)
    directories: dict[int, list[Path]] = {}
    identities: dict[str, Path] = {}
    seen: list[str] = []
    name = BASES[case.base].partition
    found = [Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names]
    if pipe := next((path for path in found if path.is_fifo()), None):
        return Judgement((f"{pipe.name} keeps its broker waiting",), False)
    if loop := next((path for path in found if path.is_symlink() and not path.exists()), None):
        return Judgement((f"its broker cannot open {loop.name}",), False)
    for path in sorted(folder.iterdir()):
        properties = properties_of(path)
        node = properties.get("node.id", "")
        directories.setdefault(int(node if node.strip().isdigit() else path.name[1]), []).append(path)
        if (path / name).is_dir() and properties.get("directory.id", "") in identities:
            seen.append(f"{path.name} is a copy")
        identities[properties.get("directory.id", path.name)] = path
    with tempfile.TemporaryDirectory(dir=folder.parent) as holder:
        after = started(folder, Path(holder) / "started")
        then = {broker: [after / path.name for path in paths] for broker, paths in directories.items()}
        role, voters = BASES[case.base].role, BASES[case.base].voters
        differences = chain(
            seen, visible(then, name, role), futures(then, name, role), _identities(directories, name), by_votes(directories, voters),
            by_owners(directories), by_metadata(directories), by_elections(directories, voters), by_creation(directories),
            by_own_snapshots(directories, case.base), by_values(directories, voters), by_written(directories, name),
        )  # fmt: skip
        first = next(differences, None)
        is_legal_now = first is None and are_legal(case) and is_comparable(then, name)
    return Judgement(() if first is None else (first,), is_legal_now)


def _identities(directories: dict[int, list[Path]], name: str) -> Iterator[str]:
    contents = set()
    for paths in directories.values():
        for path in paths:
            if (path / name / "partition.metadata").exists():
                contents.add((path / name / "partition.metadata").read_text())
    if len(contents) > 1:
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
