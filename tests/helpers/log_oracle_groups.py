"""What the consumers of a group make of their coordinator's records: no two of them read one partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from helpers.log_oracle_named import by_names
from helpers.log_oracle_records import CONTROL, decoded

if TYPE_CHECKING:
    from helpers.log_oracle import Log, Stored

TRANSACTIONAL = 0x10
#: The kinds of a group's record and of its members and what these hold: all three are of one type of group.
FAMILIES = {kind: family for family in ((3, 5, 8), (11, 10, 14), (17, 19, 22)) for kind in family}
#: The kinds of the epochs for which groups were last assigned, by those of the groups' records.
ASSIGNED = {6: 3, 12: 11, 20: 17}
#: ConsumerGroupCurrentMemberAssignment, StreamsGroupCurrentMemberAssignment.
CONSUMER, STREAMS = 8, 22
Member = tuple[int, bytes, bytes]
Assigned = list[tuple[bytes, int]]


def by_groups(log: Log, committed: int) -> Iterator[str]:
    """Members go on with what their newest records say, as soon as a coordinator has loaded them: who reads or runs something of which
    only one member at a time may take care does so beside another one."""
    if log.path is None or not log.path.name.startswith("__consumer_offsets-"):
        return
    chosen = [batch for batch in log.batches if log.start <= batch.last < committed and batch.is_sound]
    # A cleaner may have removed what later records replace, but not from the newest segment.
    is_whole = committed >= max(int(file.stem) for file in log.path.glob("*.log") if file.stem.isdigit())
    yield from (f"broker {log.broker}: {text}" for text in by_names(_records(chosen), log.path, is_whole))
    if is_whole:
        yield from (f"broker {log.broker}: {text}" for text in _lives(chosen))
    newest: dict[Member, Assigned] = {}
    for member, assigned in _assignments(chosen):
        newest[member] = assigned
    users: dict[tuple[int, bytes, bytes, int], bytes] = {}
    for (kind, group, name), assigned in sorted(newest.items()):
        for topic, number in assigned:
            other = users.setdefault((kind, group, topic, number), name)
            if other != name:
                yield f"broker {log.broker}: members {other!r} and {name!r} of group {group!r} both read partition {number}"


def _lives(batches: Iterable[Stored]) -> Iterator[str]:
    """A group's epoch grows until it is removed, which is when it has no members; members are in no later epoch than the group. Before its
    first epoch there is no record of it."""
    orphans: set[tuple[int, bytes, bytes]] = set()
    groups: dict[tuple[int, bytes], int] = {}
    members: set[tuple[int, bytes, bytes]] = set()
    holdings: dict[tuple[int, bytes, bytes], int] = {}
    assigned: dict[tuple[int, bytes], int] = {}
    for kind, key, value in _records(batches):
        if kind in ASSIGNED:
            group = key[4 : 4 + int.from_bytes(key[2:4], "big")]
            assigned[ASSIGNED[kind], group] = int.from_bytes(value[2:6], "big", signed=True) if value else 1 << 31
        if kind not in FAMILIES:
            continue
        family, rest = FAMILIES[kind], BytesIO(key[2:])
        group = rest.read(int.from_bytes(rest.read(2), "big"))
        member = family[0], group, rest.read(int.from_bytes(rest.read(2), "big"))
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        orphans.discard(member)
        if kind == family[0] and not value:
            groups.pop(member[:2], None)
            orphans |= {one for one in members | holdings.keys() if one[:2] == member[:2]}
        elif kind == family[0]:
            if epoch < groups.get(member[:2], epoch):
                yield f"the epoch of group {group!r} falls to {epoch}"
            groups[member[:2]] = epoch
        elif kind == family[1]:
            members.add(member) if value else members.discard(member)
        elif value:
            holdings[member] = epoch
        else:
            holdings.pop(member, None)
    for member in sorted(members | holdings.keys()):
        if member in orphans and member[:2] not in groups:
            yield f"group {member[1]!r} is no more, but has member {member[2]!r}"
        elif (member in holdings and member not in members) or holdings.get(member, 0) > groups.get(member[:2], 1 << 31):
            yield f"member {member[2]!r} of group {member[1]!r} holds something that nobody gave it"
        elif holdings.get(member, 0) > assigned.get(member[:2], 1 << 31):
            yield f"member {member[2]!r} of group {member[1]!r} holds something before it was assigned"


def _records(batches: Iterable[Stored]) -> Iterator[tuple[int, bytes, bytes]]:
    """(kind, key, value, empty if there is none) of the records outside of transactions."""
    for batch in batches:
        if batch.attributes & (CONTROL | TRANSACTIONAL):
            continue
        for record in decoded(batch) or ():
            body = BytesIO(record.body)
            key, value = (body.read(max(_zigzag(body), 0)) for _ in range(2))
            yield int.from_bytes(key[:2], "big"), key, value


def _assignments(batches: Iterable[Stored]) -> Iterator[tuple[Member, Assigned]]:
    for kind, key, value in _records(batches):
        if kind in {CONSUMER, STREAMS}:
            rest = BytesIO(key[2:])
            group, name = (rest.read(int.from_bytes(rest.read(2), "big")) for _ in range(2))
            yield (kind, group, name), _assigned(kind, value)


def _assigned(kind: int, value: bytes) -> Assigned:
    """Version, two epochs, state; then for consumers what they have and what they give up, for streams active, standby and warm-up tasks,
    and what of these is given up. A member that left has no value."""
    data = BytesIO(value[11:])
    lists = [list(_topics(data, kind == STREAMS)) for _ in range(2 if kind == CONSUMER else 6)] if value else []
    return [one for found in (lists if kind == CONSUMER else lists[0:4:3]) for one in found]


def _topics(data: BytesIO, is_named: bool) -> Iterator[tuple[bytes, int]]:
    for _ in range(_unsigned(data) - 1):
        topic = data.read(_unsigned(data) - 1 if is_named else 16)
        numbers = [int.from_bytes(data.read(4), "big") for _ in range(_unsigned(data) - 1)]
        for _ in range(_unsigned(data)):
            _unsigned(data)
            data.read(_unsigned(data))
        yield from ((topic, number) for number in numbers)


def _unsigned(data: BytesIO) -> int:
    value = shift = 0
    while (byte := data.read(1)) and byte[0] & 0x80:
        value, shift = value | (byte[0] & 0x7F) << shift, shift + 7
    return value | (byte[0] if byte else 0) << shift


def _zigzag(data: BytesIO) -> int:
    value = _unsigned(data)
    return (value >> 1) ^ -(value & 1)
