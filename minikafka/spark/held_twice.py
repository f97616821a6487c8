"""Partitions and tasks that two members of a group hold at once, groups of two types at once, and producer ids of two transactional ids,
by the latest records of both: no
coordinator writes that, and one that loads it fails (ConsumerGroup.addPartitionEpochs, StreamsGroup.addTaskProcessId,
GroupMetadataManager.getOrMaybeCreatePersistedConsumerGroup)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from minikafka.spark.group_records import TYPES, Held

#: (hash of the group and of what is held, offset of the record).
Suspects = set[tuple[int, int]]


class Holdings:
    """Who holds what: 16 bytes for each, as a coordinator may have millions."""

    def __init__(self) -> None:
        self._hashes, self._offsets = array("q"), array("q")

    def add(self, offset: int, held: Held) -> None:
        """Add what the record at this offset says. It must be the latest of its member."""
        for place in held.places:
            self._hashes.append(hash((held.group, place)))
            self._offsets.append(offset)

    def suspects(self) -> Suspects:
        """What may be held twice: equal hashes say so."""
        if not self._hashes:
            return set()
        hashes, offsets = np.frombuffer(self._hashes, "q"), np.frombuffer(self._offsets, "q")
        _, numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        chosen = counts[numbers] > 1
        return set(zip(hashes[chosen].tolist(), offsets[chosen].tolist(), strict=True))


def held_twice(suspects: Suspects, again: Iterable[tuple[int, Held]]) -> Iterator[tuple[int, str]]:
    """(offset, what is wrong), from a second reading. A cleaner may have removed a newer record of a member between the moments at which
    the first reading passed by its two places. It removes the older one first, so the second reading does not see that one at its offset.
    """
    holders: dict[tuple[str, str, int], list[tuple[int, str]]] = {}
    for offset, held in again:
        for place in held.places:
            if (hash((held.group, place)), offset) in suspects:
                holders.setdefault((held.group, *place), []).append((offset, held.member))
    for (group, name, number), found in holders.items():
        for (_, first), (offset, second) in zip(sorted(found), sorted(found)[1:], strict=False):
            yield offset, f"members {first} and {second} of group {group} both hold partition {number} of {name}"


def of_two_types(suspects: Suspects, again: Iterable[tuple[int, Held]]) -> Iterator[tuple[int, str]]:
    """(offset, what is wrong), from a second reading; see held_twice."""
    types: dict[str, list[tuple[int, str]]] = {}
    for offset, held in again:
        if (hash((held.group, held.places[0])), offset) in suspects:
            types.setdefault(held.group, []).append((offset, held.member))
    for group, found in types.items():
        for (_, first), (offset, second) in zip(sorted(found), sorted(found)[1:], strict=False):
            yield offset, f"group {group} is a {first} group and a {second} group"


def of_two_ids(suspects: Suspects, again: Iterable[tuple[int, Held]]) -> Iterator[tuple[int, str]]:
    """(offset, what is wrong) of transactional ids with one producer id, from a second reading; see held_twice."""
    ids: dict[int, list[tuple[int, str]]] = {}
    for offset, held in again:
        if (hash((held.group, held.places[0])), offset) in suspects:
            ids.setdefault(held.places[0][1], []).append((offset, held.member))
    for producer, found in ids.items():
        for (_, first), (offset, second) in zip(sorted(found), sorted(found)[1:], strict=False):
            yield offset, f"the transactional ids {first} and {second} both have producer id {producer}"


def type_of(kind: int, group: str) -> Held | None:
    """What a record of this kind says of the type of its group; None for kinds that say nothing. In place of a member stands the type."""
    return Held(group, TYPES[kind], [("type", 0)]) if kind in TYPES else None
