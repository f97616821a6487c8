"""Partitions, tasks and members that a group's records name and that there are not, or that two have: what a coordinator never writes, and
what it does that looks alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence

from helpers.log_clusters import unsigned
from helpers.log_fault_groups import group_record, text
from helpers.log_fault_holders import replaced_last, with_free_batches
from helpers.log_fault_verbs import Place

GROUP = "named"
#: The topic t, which has one partition, and one of which nobody knows.
TOPIC, UNKNOWN, VERSION = bytes(range(16)), bytes(range(100, 116)), struct.pack(">h", 0)
CURRENT = VERSION + struct.pack(">ii", 5, 4)
Listed = tuple[bytes, Iterable[int]]
Row = tuple[bytes, bytes | None]


def _key(kind: int, member: str = "") -> bytes:
    return struct.pack(">h", kind) + text(GROUP) + (text(member) if member else b"")


def _of(kind: int, member: str = "") -> Row:
    return _key(kind, member), group_record(kind, GROUP, 5)[1]


def _string(value: str) -> bytes:
    return unsigned(len(value) + 1) + value.encode()


def _places(*named: Listed) -> bytes:
    each = ((name, list(numbers)) for name, numbers in named)
    rows = [name + unsigned(len(numbers) + 1) + b"".join(struct.pack(">i", one) for one in numbers) + b"\0" for name, numbers in each]
    return unsigned(len(rows) + 1) + b"".join(rows)


def _target(kind: int, member: str, *named: Listed) -> Row:
    return _key(kind, member), VERSION + _places(*named) + (b"\1\1" if kind == 21 else b"") + b"\0"


def _held(kind: int, *named: Listed) -> Row:
    state, lists = {8: (0, 2), 14: (0, 1), 22: (1, 6)}[kind]
    return _key(kind, "a"), CURRENT + bytes([state]) + _places(*named) + b"\1" * (lists - 1) + b"\0"


def _static(kind: int, member: str, instance: str) -> Row:
    value = _of(kind, member)[1]
    return _key(kind, member), value[:2] + _string(instance) + value[3:]  # type: ignore[index]


def _topology(*names: str) -> Row:
    rows = [_string(name) + b"\2" + _string("t") + b"\1" * 5 + b"\0" for name in names]
    return _key(23), VERSION + struct.pack(">i", 5) + unsigned(len(rows) + 1) + b"".join(rows) + b"\0"


def _states(*named: Listed) -> Row:
    """Of a share group: partitions that are to get a state."""
    rows = [topic + _string("t") + _places((b"", numbers))[1:] for topic, numbers in named]
    return _key(15), VERSION + unsigned(len(rows) + 1) + b"".join(rows) + b"\1\1\0"


CONSUMERS, SHARERS, STREAMERS = ([_of(group), _of(member, "a"), _of(member, "b")] for group, member in ((3, 5), (11, 10), (17, 19)))
FIRST, THIRD, S, U = (TOPIC, [0]), (TOPIC, [0, 2]), (b"\2s", [0]), (b"\2u", [0])
RIGHT: dict[str, Sequence[Row]] = {
    "a partition": [*CONSUMERS, _target(7, "a", FIRST), _held(8, FIRST)],
    "of a deleted topic": [*CONSUMERS, _target(7, "a", (UNKNOWN, [9]))],
    "shared": [*SHARERS, _target(13, "a", FIRST), _target(13, "b", FIRST), _states(FIRST), _held(14, FIRST), _of(12)],
    "one after the other": [_of(3), _static(5, "a", "i"), (_key(5, "a"), None), _static(5, "b", "i")],
    "two static members": [_of(3), _static(5, "a", "i"), _static(5, "b", "j")],
    "written in part": [*CONSUMERS, _target(7, "a", FIRST), _of(6), _target(7, "b", FIRST)],
    "exchanged": [*CONSUMERS, _target(7, "a", FIRST), _of(6), _target(7, "b", FIRST), _target(7, "a"), _of(6)],
    "tasks": [*STREAMERS, _topology("s", "u"), _target(21, "a", S), _target(21, "b", U), _of(20), _held(22, S)],
    "before its topology": [*STREAMERS, _target(21, "a", U), _topology("s")],
}  # fmt: skip
WRONG: dict[str, Sequence[Row]] = {
    "to have what is not": [*CONSUMERS, _target(7, "a", THIRD)], "has what is not": [*CONSUMERS, _held(8, THIRD)],
    "to share what is not": [*SHARERS, _target(13, "a", THIRD)], "shares what is not": [*SHARERS, _held(14, THIRD)],
    "a state of what is not": [*SHARERS, _states(THIRD)], "had what is not": [*CONSUMERS, _target(7, "a", THIRD), _target(7, "a", FIRST)],
    "static twice": [_of(3), _static(5, "a", "i"), _static(5, "b", "i")],
    "static twice, streams": [_of(17), _static(19, "a", "i"), _static(19, "b", "i")],
    "to have what another is to have": [*CONSUMERS, _target(7, "a", FIRST), _target(7, "b", FIRST), _of(6)],
    "to run what another is to run": [*STREAMERS, _target(21, "a", S), _target(21, "b", S), _of(20)],
    "of no subtopology": [*STREAMERS, _topology("s"), _target(21, "a", U)], "runs what is not": [*STREAMERS, _topology("s"), _held(22, U)],
    "a task that is not": [*STREAMERS, _topology("s"), _target(21, "a", (b"\2s", [1]))],
}  # fmt: skip


def group_names(place: Place, at: int, how: str) -> None:
    """Records of some batches become those of a group."""
    rows = {**RIGHT, **WRONG}[how]

    def change(batches: list[bytearray]) -> None:
        for batch, row in zip(batches, rows, strict=True):
            replaced_last(batch, *row)

    with_free_batches(place, at, len(rows), change)


NAMES: dict[str, Callable[..., None]] = {"group_names": group_names}


def arguments_of_names(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for the verb above."""
    return (chance.randrange(1 << 16), chance.choice([*RIGHT, *WRONG])) if verb in NAMES else ()
