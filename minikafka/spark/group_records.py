"""The audit's own reader of what groups' records other than offsets say: members, assignments, epochs, topologies.

The kinds and layouts are those of the group coordinator of Apache Kafka 4.4. A coordinator loads none of its groups if it cannot read a
value (CoordinatorLoaderImpl), and passes over kinds that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import Fields

Layout = dict[str, Any]
Values = dict[str, Any]
CLASSIC, CONSUMER_CURRENT, SHARE_CURRENT, STREAMS_CURRENT = 2, 8, 14, 22
#: The value of a classic group has fixed-width lengths before this version.
FLEXIBLE_CLASSIC = 4

# A field is a size in bytes, "string", "bytes" or "id", with "?" if it may be null, or a list of a layout or a field. `tags`: by number.
_OF_TOPIC: Layout = {"id": "id", "partitions": [4]}
_HELD: Layout = {**_OF_TOPIC, "tags": {0: ("epochs", [4])}}
_TASKS: Layout = {"id": "string", "partitions": [4]}
_HELD_TASKS: Layout = {**_TASKS, "tags": {0: ("epochs", [4])}}
_PAIR: Layout = {"key": "string", "value": "string"}
_NAMED: Layout = {"id": "id", "name": "string", "partitions": [4]}
_TOPIC: Layout = {"name": "string", "partitions": 4, "replicas": 2, "configs": [_PAIR]}
_OFFSET_BY_RACK: Layout = {"partition": 4, "racks": ["string"]}
_SUBTOPOLOGY: Layout = {
    "id": "string", "sources": ["string"], "patterns": ["string"], "changelogs": [_TOPIC], "sinks": ["string"], "repartitions": [_TOPIC],
    "together": [{"sources": [2], "patterns": [2], "repartitions": [2]}],
}  # fmt: skip
_CLASSIC_MEMBER: Layout = {"timeout": 4, "protocols": [{"name": "string", "metadata": "bytes"}]}
_TARGET_EPOCH: Layout = {"epoch": 4, "tags": {0: ("at", 8)}}
_CURRENT: Layout = {"epoch of the member": 4, "epoch before": 4, "state": 1}
LAYOUTS: dict[int, Layout] = {
    3: {"epoch": 4, "tags": {0: ("hash", 8)}},
    4: {"topics": [{"id": "id", "name": "string", "count": 4, "partitions by rack": [_OFFSET_BY_RACK]}]},
    5: {
        "instance": "string?", "rack": "string?", "client": "string", "host": "string", "topics": ["string"], "pattern": "string?",
        "timeout": 4, "assignor": "string?", "tags": {0: ("classic", (_CLASSIC_MEMBER,))},
    },
    6: _TARGET_EPOCH,
    7: {"target": [_OF_TOPIC]},
    CONSUMER_CURRENT: {**_CURRENT, "assigned": [_HELD], "pending": [_HELD]},
    10: {"rack": "string?", "client": "string", "host": "string", "topics": ["string"]},
    11: {"epoch": 4, "hash": 8},
    12: _TARGET_EPOCH,
    13: {"target": [_OF_TOPIC]},
    SHARE_CURRENT: {**_CURRENT, "assigned": [_OF_TOPIC]},
    15: {"initializing": [_NAMED], "initialized": [_NAMED], "deleting": [{"id": "id", "name": "string"}]},
    16: {"topics": ["string"], "version": 8, "at": 8},
    17: {
        "epoch": 4, "hash": 8,
        "tags": {0: ("validated", 4), 1: ("configs", [_PAIR]), 2: ("stored description", 4), 3: ("failed description", 4)},
    },
    19: {
        "instance": "string?", "rack": "string?", "client": "string", "host": "string", "timeout": 4, "topology": 4, "process": "string",
        "endpoint": ({"host": "string", "port": 2},), "client tags": [_PAIR],
    },
    20: _TARGET_EPOCH,
    21: {"active": [_TASKS], "standby": [_TASKS], "warmup": [_TASKS]},
    STREAMS_CURRENT: {
        **_CURRENT, "active": [_HELD_TASKS], "standby": [_HELD_TASKS], "warmup": [_HELD_TASKS], "active, pending": [_HELD_TASKS],
        "standby, pending": [_HELD_TASKS], "warmup, pending": [_HELD_TASKS],
    },
    23: {"epoch": 4, "subtopologies": [_SUBTOPOLOGY]},
}  # fmt: skip
#: The record that a group of each type has as long as it exists.
TYPES: dict[int, str] = {CLASSIC: "classic", 3: "consumer", 11: "share", 17: "streams"}
#: The kinds of the records of one group, by the kind of the record that it has as long as it exists.
FAMILIES: dict[int, int] = {
    kind: family for family, kinds in {3: (3, 5, 6, 7, 8), 11: (10, 11, 12, 13, 14), 17: (17, 19, 20, 21, 22, 23)}.items() for kind in kinds
}  # fmt: skip
#: Members, what they hold, what they are to hold, and kinds that begin with an epoch of the group.
MEMBERS, CURRENT, TARGETS = {5, 10, 19}, {CONSUMER_CURRENT, SHARE_CURRENT, STREAMS_CURRENT}, {7, 13, 21}
EPOCHS = {3, 6, 11, 12, 17, 20}
#: The epoch of a static member that is away for a time.
AWAY = -2
#: Kinds whose key names a member (or a pattern) behind the group.
NAMED_TWICE = {5, 7, CONSUMER_CURRENT, 10, 13, SHARE_CURRENT, 16, 19, 21, STREAMS_CURRENT}
#: Stable, with partitions to give up, with partitions that others have not given up.
STATES: dict[int, range] = {CONSUMER_CURRENT: range(3), SHARE_CURRENT: range(3), STREAMS_CURRENT: range(1, 4)}
#: Lists of what a member holds: nothing stands in one of them twice.
TOGETHER: dict[int, list[tuple[str, ...]]] = {
    7: [("target",)], 13: [("target",)], 15: [("initializing",), ("initialized",)], 21: [("active",), ("standby",), ("warmup",)],
    CONSUMER_CURRENT: [("assigned", "pending")], SHARE_CURRENT: [("assigned",)],
    STREAMS_CURRENT: [("active", "active, pending"), ("standby", "standby, pending"), ("warmup", "warmup, pending")],
}  # fmt: skip
#: Lists of what a member holds alone: standby and warm-up tasks are held by several.
ALONE: dict[int, tuple[str, str]] = {CONSUMER_CURRENT: ("assigned", "pending"), STREAMS_CURRENT: ("active", "active, pending")}
#: Lists of what a member is to hold alone.
TO_HOLD_ALONE: dict[int, tuple[str, ...]] = {7: ("target",), 21: ("active",)}
#: Lists of partitions that there are, and of tasks, of which subtopologies tell.
PARTITION_COUNTS, STATES_OF_SHARES, TOPOLOGY = 4, 15, 23
NAMING: dict[int, tuple[str, ...]] = {
    7: ("target",), CONSUMER_CURRENT: ("assigned", "pending"), 13: ("target",), SHARE_CURRENT: ("assigned",),
    STATES_OF_SHARES: ("initializing", "initialized"),
}  # fmt: skip
NAMING_TASKS: dict[int, tuple[str, ...]] = {
    21: ("active", "standby", "warmup"),
    STREAMS_CURRENT: ("active", "standby", "warmup", "active, pending", "standby, pending", "warmup, pending"),
}


@dataclass(frozen=True, slots=True)
class Held:
    """What a member of a group holds and no other member may hold: (topic id or subtopology, partition)."""

    group: str
    member: str
    places: list[tuple[str, int]]


def held_alone(key: bytes, value: bytes) -> Held | None:
    """What a record says that read_group_record has read; None for other kinds of records. Raises FormatError."""
    kind = kind_of(key)
    return held_of(key, _flexible(Fields(value, 2), LAYOUTS[kind])) if kind in ALONE else None


def held_of(key: bytes, found: Values) -> Held | None:
    """The same, of a record whose fields were read."""
    kind = kind_of(key)
    if kind not in ALONE:
        return None
    fields = Fields(key, 2)
    group, member = (fields.raw(fields.integer(2)).decode("utf-8", "replace") for _ in range(2))
    return Held(group, member, list(_places(found, ALONE[kind])))


def kind_of(key: bytes) -> int:
    """The kind of a record of a group, from its key."""
    return int.from_bytes(key[:2], "big")


def _places(found: Values, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    return ((one["id"], number) for name in names for one in found[name] for number in one["partitions"])


def named_partitions(kind: int, found: Values) -> Iterator[tuple[str, int]]:
    """(topic id, partition) of what a record of this kind says that there is."""
    if kind == PARTITION_COUNTS:
        yield from ((one["id"], one["count"] - 1) for one in found["topics"])
    yield from _places(found, NAMING.get(kind, ()))


def named_tasks(kind: int, found: Values) -> Iterator[tuple[str, int]]:
    """(subtopology, the largest number of its tasks) in a member's record of a streams group."""
    for name in NAMING_TASKS.get(kind, ()):
        yield from ((one["id"], max(one["partitions"], default=-1)) for one in found[name])


def to_hold_alone(kind: int, found: Values) -> Iterator[tuple[str, int]]:
    """(topic id or subtopology, partition) of what a member is to hold alone."""
    return _places(found, TO_HOLD_ALONE.get(kind, ()))


def read_group_record(key: bytes, value: bytes | None) -> Values | None:
    """Read a record of a group. None: it has no fields that count here. Raises FormatError if its coordinator could not read it, or would
    never have written it."""
    fields = Fields(key)
    kind = fields.integer(2)
    if kind < 0:
        raise FormatError(f"a key has the unknown kind {kind}")
    if kind != CLASSIC and kind not in LAYOUTS:
        return None
    for _ in range(2 if kind in NAMED_TWICE else 1):
        fields.raw(fields.integer(2))
    fields.finish()
    if value is None:
        return None
    fields = Fields(value)
    version = fields.integer(2)
    if kind == CLASSIC:
        _check_classic(fields, version)
        return None
    if version:
        raise FormatError(f"a group's record of kind {kind} has the unknown version {version}")
    found = _flexible(fields, LAYOUTS[kind])
    fields.finish()
    if kind in STATES and found["state"] not in STATES[kind]:
        raise FormatError(f"a member is in the unknown state {found['state']}")
    if found.get("epoch", 0) < 0:
        raise FormatError(f"a group is in epoch {found['epoch']}")
    for names in TOGETHER.get(kind, ()):
        _check_partitions([one for name in names for one in found[name]])
    if kind in STATES:
        _check_current(kind, found)
    return found


def _check_current(kind: int, found: Values) -> None:
    """What a member holds: it goes on to later epochs, from one to the next, gives up nothing once it is stable, and got nothing in a later
    epoch. A static member that comes back begins in epoch 0 with what it held."""
    epoch, before = found["epoch of the member"], found["epoch before"]
    if min(epoch, before) < AWAY:
        raise FormatError(f"a member is in epoch {epoch}, after epoch {before}")
    if before > epoch >= 0:
        raise FormatError(f"a member is in epoch {epoch}, after the later epoch {before}")
    lists = {name: rows for name, rows in found.items() if isinstance(rows, list)}
    if found["state"] == STATES[kind].start and any(rows for name, rows in lists.items() if "pending" in name):
        raise FormatError("a member is stable and has partitions to give up")
    newest = max((number for rows in lists.values() for one in rows for number in one.get("epochs") or ()), default=0)
    if newest > epoch > 0:
        raise FormatError(f"a member in epoch {epoch} holds a partition since epoch {newest}")


def _check_partitions(lists: list[Values]) -> None:
    counts: Counter[tuple[str, int]] = Counter()
    for one in lists:
        partitions, epochs = one["partitions"], one.get("epochs")
        if epochs is not None and len(epochs) != len(partitions):
            raise FormatError(f"{len(partitions)} assigned partitions have {len(epochs)} epochs")
        counts.update((one["id"], number) for number in partitions)
    wrong = next(((name, number) for (name, number), count in counts.items() if number < 0 or count > 1), None)
    if wrong is not None:
        raise FormatError(f"partition {wrong[1]} of {wrong[0]} stands in a list of partitions{' twice' if wrong[1] >= 0 else ''}")


def _check_classic(fields: Fields, version: int) -> None:
    """A classic group: its members, and who of them leads."""
    if not 0 <= version <= FLEXIBLE_CLASSIC:
        raise FormatError(f"a classic group has the unknown version {version}")
    is_flexible = version >= FLEXIBLE_CLASSIC
    text: Callable[[], str | None] = fields.nullable_string if is_flexible else lambda: _short_text(fields)
    of_type = text()
    generation, protocol = fields.integer(4), text()
    leader = text()
    fields.integer(8 if version >= 2 else 0)
    members: list[str | None] = []
    static: list[str | None] = []
    count = _count(fields) if is_flexible else fields.integer(4)
    if count < 0:
        raise FormatError("a classic group has null in place of its members")
    for _ in range(count):
        members.append(text())
        if version >= 3:
            static.append(text())
        text(), text(), fields.integer(8 if version >= 1 else 4)
        for _ in range(2):
            fields.raw(fields.varint() - 1 if is_flexible else fields.integer(4))
        if is_flexible:
            fields.tagged()
    if is_flexible:
        fields.tagged()
    fields.finish()
    if generation < 0:
        raise FormatError(f"a classic group is in generation {generation}")
    named = [one for one in static if one is not None]
    if len(set(members)) < len(members) or len(set(named)) < len(named):
        raise FormatError("a classic group has a member twice")
    if members and leader is not None and leader not in members:
        raise FormatError(f"a classic group is led by {leader}, who is no member")
    if members and (not of_type or protocol is None or leader is None or generation == 0 or "" in members):
        text_of = f"protocol {protocol} of type {of_type!r}, leader {leader}, generation {generation}"
        raise FormatError(f"a classic group has the members {members[:9]} with {text_of}")


def generation_of(value: bytes) -> int:
    """The generation of a classic group, whose value read_group_record has read."""
    fields = Fields(value)
    if fields.integer(2) >= FLEXIBLE_CLASSIC:
        fields.nullable_string()
    else:
        _short_text(fields)
    return fields.integer(4)


def _short_text(fields: Fields) -> str | None:
    size = fields.integer(2)
    return None if size == -1 else fields.raw(size).decode("utf-8", "replace")


def _count(fields: Fields) -> int:
    return fields.count(1)


def _flexible(fields: Fields, layout: Layout) -> Values:
    found: Values = {name: _value(fields, kind) for name, kind in layout.items() if name != "tags"}
    tagged = fields.tagged()
    for tag, (name, kind) in layout.get("tags", {}).items():
        if tag in tagged:
            found[name] = _tagged_value(tagged[tag], kind)
    return found


def _tagged_value(fields: Fields, kind: Any) -> Any:
    """A tagged list or structure is null if it begins with 0."""
    return None if isinstance(kind, list | tuple) and fields.data[:1] == b"\0" else _value(fields, kind)


def _value(fields: Fields, kind: Any) -> Any:
    if isinstance(kind, int):
        return fields.integer(kind)
    if isinstance(kind, tuple):  # a structure that may be null
        return _flexible(fields, kind[0]) if fields.integer(1) >= 0 else None
    if isinstance(kind, list):
        return list(_elements(fields, kind[0]))
    if kind == "id":
        return fields.uuid()
    if kind == "bytes":
        return fields.raw(fields.varint() - 1)
    return fields.nullable_string() if kind == "string?" else fields.string()


def _elements(fields: Fields, kind: Any) -> Iterator[Any]:
    for _ in range(_count(fields)):
        yield _flexible(fields, kind) if isinstance(kind, dict) else _value(fields, kind)
