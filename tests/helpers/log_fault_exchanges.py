"""Directories and files in the wrong place: of another replica, another broker or another partition, copied, exchanged or linked to."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from helpers.log_fault_bases import BROKERS
from helpers.log_fault_verbs import Place, place_of


def _beside(place: Place, turn: int) -> Place:
    """The partition on another broker."""
    others = [broker for broker in BROKERS if broker != place.broker]
    return place_of(place.root.parent, others[turn % len(others)], place.name)


def _exchange(one: Path, other: Path) -> None:
    if one.exists() and other.exists() and one != other:
        aside = one.with_name("aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)


def copy_over(place: Place, turn: int) -> None:
    """A replica's directory is replaced by a copy of another broker's."""
    theirs = _beside(place, turn).path
    if theirs.is_dir():
        shutil.rmtree(place.path)
        shutil.copytree(theirs, place.path)


def exchange_replicas(place: Place, turn: int) -> None:
    """Two brokers' directories of the partition changed places."""
    _exchange(place.path, _beside(place, turn).path)


def exchange_files(place: Place, turn: int, name: str) -> None:
    """A file of two brokers' log directories changed places."""
    _exchange(place.root / name, _beside(place, turn).root / name)


def exchange_partitions(place: Place, turn: int) -> None:
    """The partition's directory and another one's in its log directory changed places."""
    others = sorted(path.parent for path in place.root.glob("*/partition.metadata") if path.parent != place.path)
    if others:
        _exchange(place.path, others[turn % len(others)])


def link_to_another(place: Place, turn: int, what: str) -> None:
    """The directory or a segment is a link, or a hard link, to another broker's."""
    theirs = _beside(place, turn)
    if what == "directory" and theirs.path.is_dir():
        shutil.rmtree(place.path)
        place.path.symlink_to(theirs.path)
        return
    for file in place.segments()[:1]:
        if (theirs.path / file.name).is_file():
            file.unlink()
            (os.link if what == "hard" else os.symlink)(theirs.path / file.name, file)


def link_file(place: Place, at: int, how: str) -> None:
    """A file of the partition lies elsewhere and is linked to, or links to itself."""
    files = sorted(file for file in place.path.iterdir() if file.is_file() and not file.is_symlink())
    file = files[at * len(files) >> 16]
    target = place.root.parent.parent / f"elsewhere-{place.broker}-{file.name}"
    if how == "loop":
        file.unlink()
        file.symlink_to(file.name)
    elif not target.exists():
        file.rename(target)
        file.symlink_to(target)


EXCHANGES: dict[str, Callable[..., None]] = {verb.__name__: verb for verb in (
    copy_over, exchange_replicas, exchange_files, exchange_partitions, link_to_another, link_file,
)}  # fmt: skip


def arguments_exchanged(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for one of the verbs above."""
    turn, at = chance.randrange(2), chance.randrange(1 << 16)
    return {
        "copy_over": (turn,),
        "exchange_replicas": (turn,),
        "exchange_files": (turn, chance.choice(["meta.properties", "replication-offset-checkpoint", "recovery-point-offset-checkpoint",
                                                "log-start-offset-checkpoint", "cleaner-offset-checkpoint", ".kafka_cleanshutdown",
                                                "__cluster_metadata-0"])),
        "exchange_partitions": (turn,),
        "link_to_another": (turn, chance.choice(["directory", "hard", "soft"])),
        "link_file": (at, chance.choice(["away", "loop"])),
    }.get(verb, ())  # fmt: skip
