"""Members of a group that hold one partition: what a coordinator never writes, and what it does that looks alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from helpers.log_clusters import unsigned, varint
from helpers.log_fault_groups import text
from helpers.log_fault_records import with_records
from helpers.log_fault_verbs import Place, repair_indexes, seal
from helpers.log_oracle import parse
from helpers.log_oracle_records import CODECS, CONTROL, Inner, decoded

TRANSACTIONAL = 0x10
GROUPS_BASE = "group offsets with transactions"
CONSUMER, SHARE, STREAMS = 8, 14, 22
#: A topic of which nobody knows any more: it may have had any number of partitions.
HELD = bytes(range(80, 96))
STATE = {CONSUMER: 0, SHARE: 0, STREAMS: 1}
#: The lists of a member's record: the number of all, the first that it holds alone, and that of what it is to give up.
LISTS = {CONSUMER: (2, 0, 1), SHARE: (1, 0, 0), STREAMS: (6, 0, 3)}
#: Member, epoch, what it holds ("p", "q"; "-" is to be given up; None: it has left), each a record.
Rows = Sequence[tuple[str, int, str | None]]
TWICE: dict[str, Rows] = {
    "both": [("a", 7, "p"), ("b", 7, "p")],
    "in a later epoch": [("a", 7, "p"), ("b", 8, "p")],
    "in an earlier epoch": [("a", 8, "p"), ("b", 7, "p")],
    "not given up yet": [("a", 7, "-p"), ("b", 7, "p")],
    "among others": [("a", 7, "qp"), ("b", 7, "r"), ("c", 7, "ps")],
    "taken back": [("a", 7, "p"), ("a", 8, ""), ("b", 8, "p"), ("a", 9, "p")],
    "back after leaving": [("a", 7, "p"), ("a", 7, None), ("b", 8, "p"), ("a", 9, "pq")],
}
ONCE: dict[str, Rows] = {
    "given up": [("a", 7, "p"), ("a", 8, ""), ("b", 8, "p")],
    "a part given up": [("a", 7, "pq"), ("a", 7, "q-p"), ("a", 8, "q"), ("b", 8, "p")],
    "left": [("a", 7, "p"), ("a", 7, None), ("b", 8, "p")],
    "given back": [("a", 7, "p"), ("a", 8, ""), ("b", 8, "p"), ("b", 9, ""), ("a", 9, "p")],
    "others": [("a", 7, "p"), ("b", 7, "q"), ("c", 7, "r")],
}
#: Only a coordinator that loads the records in order stumbles: in the end each member holds its own.
TOO_EARLY: dict[str, Rows] = {"too early": [("a", 7, "p"), ("b", 7, "p"), ("a", 8, "")]}


def two_holders(place: Place, at: int, kind: int, how: str, where: str) -> None:
    """Records of some batches become current assignments. `where`: in one group and list, in two groups or topics, or in lists of tasks
    that several members may hold."""
    rows = {**TWICE, **ONCE, **TOO_EARLY}[how]
    def change(batches: list[bytearray]) -> None:
        for batch, (member, epoch, holds) in zip(batches, rows, strict=True):
            apart = member == "b" and where in {"groups", "topics"}
            key = struct.pack(">h", kind) + text(f"{'other' if apart and where == 'groups' else 'one'}-{kind}") + text(member)
            value = None if holds is None else _assignment(kind, epoch, holds, apart and where == "topics", where == "together")
            replaced_last(batch, key, value)

    with_free_batches(place, at, len(rows), change)


def with_free_batches(place: Place, at: int, count: int, change: Callable[[list[bytearray]], None]) -> None:
    """Change some batches, in their order, that are neither compressed nor of transactions."""
    held = [(file, [bytearray(batch.raw) for batch in parse(file.read_bytes())[0]]) for file in place.segments()]
    free = [batch for _, batches in held for batch in batches[1:] if not batch[22] & (CODECS | CONTROL | TRANSACTIONAL) and batch[16] == 2]
    if len(free) < count:
        return
    chosen = _in_order(free, count, at)
    change(chosen)
    for file, batches in held:
        if any(batch is one for batch in batches for one in chosen):
            file.write_bytes(b"".join(batches) + parse(file.read_bytes())[1])
    repair_indexes(place)


def _in_order(free: list[bytearray], count: int, at: int) -> list[bytearray]:
    return [free[number] for number in sorted(random.Random(at).sample(range(len(free)), count))]


def _assignment(kind: int, epoch: int, holds: str, is_elsewhere: bool, is_together: bool) -> bytes:
    count, alone, leaving = LISTS[kind]
    lists: list[list[int]] = [[] for _ in range(count)]
    target = alone
    for letter in holds:
        if letter == "-":
            target = leaving
        else:
            lists[target + (1 if is_together and kind == STREAMS else 0)].append("pqrs".index(letter))
    name = (bytes([9]) * 16, b"\x02s")[kind == STREAMS] if is_elsewhere else (HELD, b"\x02t")[kind == STREAMS]
    encoded = b""
    for numbers in lists:
        one = name + unsigned(len(numbers) + 1) + b"".join(struct.pack(">i", number) for number in numbers) + b"\0"
        encoded += b"\x02" + one if numbers else b"\x01"
    return struct.pack(">hiib", 0, epoch, epoch - 1, STATE[kind] + ("-" in holds and kind != SHARE)) + encoded + b"\0"


def replaced_last(batch: bytearray, key: bytes, value: bytes | None) -> None:
    """The last record of the batch becomes this one, at the same offset and time."""
    found = decoded(parse(bytes(batch))[0][0])
    if found:
        body = varint(len(key)) + key + (varint(-1) if value is None else varint(len(value)) + value) + varint(0)
        batch[:] = seal(with_records(batch, [*found[:-1], Inner(0, found[-1].time_delta, found[-1].offset_delta, body)]))


def is_of_coordinators(kind: int, how: str, where: str) -> bool:
    """Whether a group coordinator writes these records."""
    is_for_several = kind == SHARE or (kind == STREAMS and where == "together")
    return how in ONCE or is_for_several or (where in {"groups", "topics"} and how != "among others")


HOLDERS: dict[str, Callable[..., None]] = {"two_holders": two_holders}


def arguments_of_holders(verb: str, chance: random.Random) -> tuple[int | str, ...]:
    """Drawn for the verb above."""
    if verb not in HOLDERS:
        return ()
    kind, how = chance.choice([CONSUMER, CONSUMER, STREAMS, STREAMS, SHARE]), chance.choice([*TWICE, *ONCE, *TOO_EARLY])
    return chance.randrange(1 << 16), kind, how, chance.choice(["one", "one", "one", "groups", "topics", "together"])
