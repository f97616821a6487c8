"""Lives of groups that end wrong: groups removed while they have members, epochs that fall or run ahead. What coordinators do beside that
looks alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from helpers.log_fault_groups import ASSIGNED, OF_HOLDERS, group_record, text
from helpers.log_fault_holders import replaced_last, with_free_batches
from helpers.log_fault_verbs import Place

#: What of the group "other", whose members are a, b and c in epoch 9: itself, a member, what one holds, for which epoch it
#: was last assigned. The member. The epoch, None: gone.
Steps = list[tuple[str, str, int | None]]
_ALL_LEAVE: Steps = [("member", name, None) for name in "abc"] + [("group", "", None)]
RIGHT: dict[str, Steps] = {
    "the epoch grows": [("group", "", 10)], "a member leaves": [("member", "c", None)], "all leave": _ALL_LEAVE,
    "all leave and one comes back": [*_ALL_LEAVE, ("member", "a", 1), ("group", "", 1), ("holding", "a", 1)],
    "a member holds": [("holding", "a", 9)], "a member is behind": [("group", "", 12), ("holding", "a", 9)],
    "the assignment is behind": [("assigned", "", 7), ("holding", "a", 7)], "assigned": [("assigned", "", 9), ("holding", "a", 9)],
    "leaves with what it held": [("holding", "a", 9), ("holding", "a", None), ("member", "a", None)],
}  # fmt: skip
WRONG: dict[str, Steps] = {
    "removed with members": [("group", "", None)], "removed with one": _ALL_LEAVE[1:], "the epoch falls": [("group", "", 3)],
    "a member is ahead": [("holding", "b", 12)], "of nobody": [("holding", "z", 9)],
    "ahead of the assignment": [("assigned", "", 7), ("holding", "a", 8)], "assigned again": [("holding", "a", 9), ("assigned", "", 8)],
    "removed, and held": [*_ALL_LEAVE, ("holding", "a", 9)],
    "leaves, and holds": [("holding", "a", 9), ("member", "a", None)],
}  # fmt: skip


def group_life(place: Place, at: int, kind: int, how: str) -> None:
    """Records of some batches become those of a group's life."""
    steps, (group, member) = {**RIGHT, **WRONG}[how], OF_HOLDERS[kind]

    def change(batches: list[bytearray]) -> None:
        for batch, (what, name, epoch) in zip(batches, steps, strict=True):
            of = {"group": group, "member": member, "holding": kind, "assigned": ASSIGNED[kind]}[what]
            key = struct.pack(">h", of) + text(f"other-{kind}") + (text(name) if name else b"")
            replaced_last(batch, key, None if epoch is None else group_record(of, "", epoch)[1])

    with_free_batches(place, at, len(steps), change)


LIVES: dict[str, Callable[..., None]] = {"group_life": group_life}


def arguments_of_lives(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for the verb above."""
    return (chance.randrange(1 << 16), chance.choice(list(OF_HOLDERS)), chance.choice([*RIGHT, *WRONG])) if verb in LIVES else ()
