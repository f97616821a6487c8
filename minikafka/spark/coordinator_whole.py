"""What the latest records of a coordinator's partition cannot say together: members of a group that was removed, epochs ahead of their
group's, two static members of one name, two members that are to hold one partition, tasks of no topology, changes of a share partition's
state without the state.

Only 40 bytes are kept of each record, as a coordinator may have millions, and they are held against each other in slices: equal hashes
say that names may be equal. Of very many records only those of some groups are kept at a time (`coordination.RECORDS_HELD_MAX`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from minikafka.spark.claims import GROUPS, SHARE_GROUPS
from minikafka.spark.coordinator_log import SHARE_SNAPSHOT, SHARE_UPDATE
from minikafka.spark.group_records import (
    CURRENT,
    EPOCHS,
    FAMILIES,
    MEMBERS,
    TARGETS,
    TOPOLOGY,
    TYPES,
    Held,
    Values,
    named_tasks,
    to_hold_alone,
)
from minikafka.spark.group_topologies import Topologies
from minikafka.spark.held_twice import Holdings
from minikafka.spark.metadata_fields import Fields

Rows = np.ndarray[Any, Any]
COLUMNS = ("owner", "role", "member", "epoch", "offset")
#: Groups and share partitions, what belongs to them, and tombstones of members and of the owners.
_OWNER, _MEMBER, _CURRENT, _TARGET, _PART, _LEFT, _REMOVED, _ASSIGNED = range(8)
_ROLES = {_OWNER: TYPES.keys(), _MEMBER: MEMBERS, _CURRENT: CURRENT, _TARGET: TARGETS, _ASSIGNED: EPOCHS - TYPES.keys()}
_NONE = -(1 << 63)
#: About so many records are held against each other at once.
RECORDS_A_SLICE = 100_000


class Whole:
    """The latest records of one partition, of which `suspects` says which contradict others."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._rows = array("q")
        self._names, self._targets, self.topologies = Holdings(), Holdings(), Topologies()

    def add(self, offset: int, key: bytes, value: bytes | None, found: Values | None = None) -> None:
        """Add the latest record of a key, which can be read. A tombstone has no value. `found`: the fields of a group's record."""
        kind = int.from_bytes(key[:2], "big")
        if self._topic == SHARE_GROUPS and kind in {SHARE_SNAPSHOT, SHARE_UPDATE}:
            role = _REMOVED if value is None else _OWNER if kind == SHARE_SNAPSHOT else _PART
            self._append(key[2:], role, b"", _NONE if value is None else Fields(value, 2).integer(4), offset)
        elif self._topic == GROUPS and kind in FAMILIES and (value is not None or kind in MEMBERS or kind in TYPES):
            fields, family = Fields(key, 2), FAMILIES[kind]
            group = fields.raw(fields.integer(2))
            member = fields.raw(fields.integer(2)) if kind in MEMBERS | CURRENT | TARGETS else b""
            role = next((role for role, kinds in _ROLES.items() if kind in kinds), _PART)
            role = role if value is not None else _LEFT if role == _MEMBER else _REMOVED
            epoch = Fields(value, 2).integer(4) if value is not None and kind in EPOCHS | CURRENT else _NONE
            self._append((group, family), role, (group, member, family), epoch, offset)
            if found is not None:
                self._add_fields(offset, kind, (group, family), found)

    def _add_fields(self, offset: int, kind: int, owner: tuple[bytes, int], found: Values) -> None:
        name = f"{owner[1]} {owner[0]!r}"
        if kind in MEMBERS and found.get("instance") is not None:
            self._names.add(offset, Held(name, "", [(found["instance"], 0)]))
        self._targets.add(offset, Held(name, "", list(to_hold_alone(kind, found))))
        if kind == TOPOLOGY:
            self.topologies.add(offset, hash(owner), found)
        for subtopology, number in named_tasks(kind, found):
            self.topologies.add_task(offset, hash(owner), subtopology, number)

    def _append(self, owner: object, role: int, member: object, epoch: int, offset: int) -> None:
        self._rows.extend((hash(owner), role, hash(member), epoch, offset))

    def forget(self) -> None:
        """Free what was kept."""
        self._rows = array("q")
        self._names, self._targets = Holdings(), Holdings()

    def suspects(self) -> dict[int, str]:
        """{offset of a record: what is wrong with it}.

        A group has no record of its own before its first epoch, so that its members may lack it, unless it was removed after they came. A
        coordinator that loads that ends (GroupMetadataManager.replay). A share partition has its state before any change.
        """
        if not self._rows:
            return {}
        table = np.frombuffer(self._rows, np.int64).reshape(-1, len(COLUMNS))
        found: dict[int, str] = {}
        for rows in _slices(table, "member"):
            found |= dict.fromkeys(_of_others(rows), "is of somebody who is no member")
        for rows in _slices(table, "owner"):
            found |= self._of_owners(rows)
        found |= dict.fromkeys(_later_ones(self._names), "is of a second member with one group.instance.id")
        twice = {offset for _, offset in _settled_targets(table, self._targets)}
        found |= dict.fromkeys(twice, "is to give a member what another member is to have")
        return found | dict.fromkeys(self.topologies.strange_tasks(), "gives a task of a subtopology that its group does not have")

    def _of_owners(self, rows: dict[str, Rows]) -> dict[int, str]:
        """What contradicts its group or share partition. `rows`: all of some owners."""
        owners, parts = _chosen(rows, rows["role"] == _OWNER), _chosen(rows, ~np.isin(rows["role"], (_OWNER, _LEFT, _REMOVED)))
        is_share = self._topic == SHARE_GROUPS
        at, is_there = _places(owners["owner"], parts["owner"])
        removed = _newest(rows, _REMOVED, "owner")
        lacking = [
            offset for name, offset in zip(parts["owner"][~is_there].tolist(), parts["offset"][~is_there].tolist(), strict=True)
            if (removed.get(name, -1) > offset) != is_share
        ]  # fmt: skip
        found = dict.fromkeys(lacking, "changes a state that does not exist" if is_share else "belongs to a group that was removed")
        if len(owners["owner"]):
            for row in np.flatnonzero(is_there & (parts["epoch"] > owners["epoch"][at])).tolist():
                epochs = f"is of epoch {parts['epoch'][row]}, and {'the state' if is_share else 'its group'} of {owners['epoch'][at[row]]}"
                found[int(parts["offset"][row])] = epochs
        return (_of_earlier_states(owners, parts, at, is_there) if is_share else _ahead(rows)) | found


def owner_in(topic: str, key: bytes) -> bytes:
    """The group, or the share partition, of a key whose kind is known. Raises FormatError."""
    if topic == SHARE_GROUPS:
        return key[2:]
    fields = Fields(key, 2)
    return fields.raw(fields.integer(2))


def _slices(table: Rows, name: str) -> Iterator[dict[str, Rows]]:
    """The rows in slices of about RECORDS_A_SLICE, all rows of one owner or of one member in the same."""
    count = 1 + len(table) // RECORDS_A_SLICE
    slice_of = (table[:, COLUMNS.index(name)] % count).astype(np.uint16)
    for number in range(count):
        rows = table[slice_of == number]
        yield {each: rows[:, at] for at, each in enumerate(COLUMNS)}


def _of_others(rows: dict[str, Rows]) -> list[int]:
    """Offsets of what those hold who are no members, and of what those are to hold who have left since: a coordinator that loads the
    end of a member and finds such a record before ends (GroupMetadataManager.replay). `rows`: all of some members."""
    members = np.sort(rows["member"][rows["role"] == _MEMBER])
    current, target = (_chosen(rows, rows["role"] == role) for role in (_CURRENT, _TARGET))
    gone = _newest(rows, _LEFT, "member")
    found: list[int] = current["offset"][~_places(members, current["member"])[1]].tolist()
    apart = ~_places(members, target["member"])[1]
    left = zip(target["member"][apart].tolist(), target["offset"][apart].tolist(), strict=True)
    return found + [offset for member, offset in left if gone.get(member, -1) > offset]


def _later_ones(names: Holdings) -> Iterator[int]:
    """Offsets of records of what stands in an earlier one, too: a static member that comes back replaces the one before in one batch."""
    first: dict[int, int] = {}
    for number, offset in sorted(names.suspects()):
        if first.setdefault(number, offset) != offset:
            yield offset


def _settled_targets(table: Rows, targets: Holdings) -> Iterator[tuple[int, int]]:
    """(hash, offset) of targets that another member has, too. An assignment may be written in several batches, the epoch of all behind
    them, and a member that left may have its target still."""
    suspects = targets.suspects()
    if not suspects:
        return
    offsets = np.fromiter({offset for _, offset in suspects}, np.int64)
    of_targets = table[np.isin(table[:, 4], offsets) & (table[:, 1] == _TARGET)]
    owner_of = {int(row[4]): (int(row[0]), int(row[2])) for row in of_targets}
    chosen = table[np.isin(table[:, 0], of_targets[:, 0])]
    members = set(chosen[chosen[:, 1] == _MEMBER][:, 2].tolist())
    assigned: dict[int, int] = {}
    for row in chosen[chosen[:, 1] == _ASSIGNED]:
        assigned[int(row[0])] = max(int(row[4]), assigned.get(int(row[0]), -1))
    first: dict[int, int] = {}
    for number, offset in sorted(suspects):
        owner, member = owner_of.get(offset, (0, 0))
        if member in members and offset < assigned.get(owner, -1) and first.setdefault(number, offset) != offset:
            yield number, offset


def _of_earlier_states(owners: dict[str, Rows], parts: dict[str, Rows], at: Rows, is_there: Rows) -> dict[int, str]:
    """Changes of a share partition's state that were written behind a later state."""
    if not len(owners["owner"]):
        return {}
    late = is_there & (parts["offset"] > owners["offset"][at]) & (parts["epoch"] < owners["epoch"][at])
    return {
        int(parts["offset"][row]): f"is of epoch {parts['epoch'][row]}, behind the state of epoch {owners['epoch'][at[row]]}"
        for row in np.flatnonzero(late).tolist()
    }  # fmt: skip


def _ahead(rows: dict[str, Rows]) -> dict[int, str]:
    """Members in a later epoch than that for which their group was last assigned: they get no epoch from anywhere else."""
    assigned, current = (_chosen(rows, rows["role"] == role) for role in (_ASSIGNED, _CURRENT))
    at, is_there = _places(assigned["owner"], current["owner"])
    if not len(assigned["owner"]):
        return {}
    return {
        int(current["offset"][row]): f"is of epoch {current['epoch'][row]}, and the assignment of {assigned['epoch'][at[row]]}"
        for row in np.flatnonzero(is_there & (current["epoch"] > assigned["epoch"][at])).tolist()
    }  # fmt: skip


def _newest(rows: dict[str, Rows], role: int, name: str) -> dict[int, int]:
    """{hash: offset of its last tombstone}."""
    gone = _chosen(rows, rows["role"] == role)
    pairs = sorted(zip(gone["offset"].tolist(), gone[name].tolist(), strict=True))
    return {value: offset for offset, value in pairs}


def _chosen(rows: dict[str, Rows], mask: Rows) -> dict[str, Rows]:
    """Some rows, in the order of their owners, the newest of an owner last."""
    some = {name: column[mask] for name, column in rows.items()}
    order = np.lexsort((some["offset"], some["owner"]))
    return {name: column[order] for name, column in some.items()}


def _places(ordered: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """(where the wanted values are in an ordered column, whether they are there)."""
    if not len(ordered):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return at, ordered[at] == wanted
