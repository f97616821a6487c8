"""What groups' records name, by Kafka's rules: partitions that there are, tasks of the group's topology, one member of a name, one of two
members for a partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

Record = tuple[int, bytes, bytes]
Place = tuple[bytes, int]
#: Where lists of partitions or tasks begin in a value, and how many there are. Of a target a member is to have the first alone.
LISTS = {7: (2, 1), 8: (11, 2), 13: (2, 1), 14: (11, 1), 21: (2, 3), 22: (11, 6)}
STREAMS, STATES, TOPOLOGY = {21, 22}, 15, 23
#: Kinds of members and of the epoch of all targets, by those of targets.
MEMBER, ASSIGNED = {7: 5, 21: 19}, {7: 6, 21: 20}


def by_names(found: Iterable[Record], path: Path, is_whole: bool) -> Iterator[str]:
    """`found`: (kind, key, value, empty if there is none), in their order. `path`: of the partition. `is_whole`: no cleaner took records
    that later ones replaced."""
    rows = list(found)
    is_stopped = all((one / ".kafka_cleanshutdown").exists() for one in path.parent.parent.iterdir())
    sizes = _sizes(path.parent) if is_stopped else {}
    newest: dict[bytes, tuple[int, int, bytes]] = {}
    for at, (kind, key, value) in enumerate(rows):
        newest.pop(key, None)
        if value:
            newest[key] = at, kind, value
        for topic, number in _named(kind, value) if value and kind not in STREAMS else ():
            if number >= sizes.get(topic, 1 << 31):
                yield f"a group names partition {number} of a topic that has {sizes[topic]}"
    if is_whole:
        yield from _static_twice(newest)
        yield from _for_two(newest)
        yield from _without_topology(newest, bool(sizes))


def _static_twice(newest: dict[bytes, tuple[int, int, bytes]]) -> Iterator[str]:
    known: dict[tuple[int, bytes, bytes], bytes] = {}
    for key, (_, kind, value) in sorted(newest.items()):
        if kind in MEMBER.values() and value[2]:
            instance = value[3 : 2 + value[2]]
            if known.setdefault((kind, _group(key), instance), key) != key:
                yield f"group {_group(key)!r} has two static members {instance!r}"


def _for_two(newest: dict[bytes, tuple[int, int, bytes]]) -> Iterator[str]:
    known: dict[tuple[int, bytes, Place], bytes] = {}
    for key, (at, kind, value) in sorted(newest.items()):
        if kind not in MEMBER:
            continue
        group = key[2 : 4 + len(_group(key))]
        is_member = bytes([0, MEMBER[kind]]) + key[2:] in newest
        if not is_member or newest.get(bytes([0, ASSIGNED[kind]]) + group, (-1,))[0] < at:
            continue
        for place in _lists(kind, value)[0]:
            if known.setdefault((kind, group, place), key) != key:
                yield f"two members of group {group!r} are to have {place}"


def _without_topology(newest: dict[bytes, tuple[int, int, bytes]], is_counted: bool) -> Iterator[str]:
    """The topologies here read the topic t alone, which has one partition."""
    for key, (at, kind, value) in sorted(newest.items()):
        since, _, topology = newest.get(b"\0\x17" + key[2 : 4 + len(_group(key))], (1 << 31, 0, b""))
        ids = _subtopologies(topology) if topology else []
        for name, number in _named(kind, value) if kind in STREAMS else ():
            if name not in ids and at > since:
                yield f"a member runs {name!r}, and its group has {ids}"
            elif name in ids and number > 0 and is_counted:
                yield f"a member runs task {number} of a topic with one partition"


def _group(key: bytes) -> bytes:
    return key[4 : 4 + int.from_bytes(key[2:4], "big")]


def _sizes(root: Path) -> dict[bytes, int]:
    """{topic id: number of partitions}, by the controller's records."""
    from helpers.log_oracle import parse, records  # it imports this module

    found: dict[bytes, int] = {}
    for file in (root / "__cluster_metadata-0").glob("*.log"):
        for batch in parse(file.read_bytes())[0]:
            for _, _, value in records(batch):
                if value[:2] == b"\1\3":
                    found[value[7:23]] = max(found.get(value[7:23], 0), int.from_bytes(value[3:7], "big") + 1)
    return found


def _named(kind: int, value: bytes) -> Iterator[Place]:
    if kind in LISTS:
        yield from (place for listed in _lists(kind, value) for place in listed)
    elif kind == STATES:
        data = BytesIO(value[2:])
        for _ in range(_count(data)):
            topic = data.read(16)
            _text(data)
            yield from ((topic, number) for number in _numbers(data))
            data.read(1)


def _lists(kind: int, value: bytes) -> list[list[Place]]:
    begin, count = LISTS[kind]
    data, found = BytesIO(value[begin:]), []
    for _ in range(count):
        found.append([])
        for _ in range(_count(data)):
            name = _text(data) if kind in STREAMS else data.read(16)
            found[-1] += [(name, number) for number in _numbers(data)]
            for _ in range(_unsigned(data)):
                _unsigned(data)
                data.read(_unsigned(data))
    return found


def _subtopologies(value: bytes) -> list[bytes]:
    data, found = BytesIO(value[6:]), []
    for _ in range(_count(data)):
        found.append(_text(data))
        for _ in range(_count(data)):
            _text(data)
        data.read(6)
    return found


def _numbers(data: BytesIO) -> list[int]:
    return [int.from_bytes(data.read(4), "big") for _ in range(_count(data))]


def _text(data: BytesIO) -> bytes:
    return data.read(_count(data))


def _count(data: BytesIO) -> int:
    return min(_unsigned(data) - 1, len(data.getbuffer()))


def _unsigned(data: BytesIO) -> int:
    value = shift = 0
    while (byte := data.read(1)) and byte[0] & 0x80:
        value, shift = value | (byte[0] & 0x7F) << shift, shift + 7
    return value | (byte[0] if byte else 0) << shift
