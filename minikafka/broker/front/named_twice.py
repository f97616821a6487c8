"""Handles entries that a request names more than once. Kafka decides on them together, so they must not end up in different parts.

For some APIs only the last entry of a name counts, at the position of the first, and gets one answer. Other APIs refuse duplicates; two
entries of a name in one part are enough for that. Rules: the maps and sets in KafkaApis of Apache Kafka 4.3, which hold each name once.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from typing import Any

from minikafka.wire.declaration import Struct

#: Entries examined in one step.
STEP_ENTRIES = 1024
_ASKED_ABOUT = ("group_id", "name", "topic", "topic_name", "topic_id", "resource_type", "resource_name")


def asked(entry: Any) -> tuple[Any, ...]:
    """What an entry with a nested list asks about, for example the topic of its partitions."""
    if not isinstance(entry, Struct):
        return (entry,)
    return tuple(getattr(entry, name) for name in _ASKED_ABOUT if hasattr(entry, name))


def name_of(entry: Any, names: tuple[str, ...]) -> Hashable:
    """The key of an entry: its fields `names`, or the entry itself if there are none."""
    return tuple(_hashable(getattr(entry, name)) for name in names) if names else entry


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list):
        return frozenset(tuple(getattr(part, field.name) for field in part.FIELDS) for part in value)
    named: Hashable = value
    return named


def with_values(owner: Any, name: str, values: list[Any]) -> Any:
    """A copy of `owner` with another list."""
    other = copy.copy(owner)
    setattr(other, name, values)
    return other


def last_of_each(request: Any, lists: tuple[str, ...], names: tuple[str, ...]) -> Iterator[None]:
    """Keep only the last entry of each name, in steps. `lists`: one list, or the outer and the inner one."""
    if len(lists) == 1:
        kept: dict[Hashable, Any] = {}
        for number, entry in enumerate(getattr(request, lists[0]), 1):
            kept[name_of(entry, names)] = entry
            if number % STEP_ENTRIES == 0:
                yield
        setattr(request, lists[0], list(kept.values()))
        yield from emptied(kept)
        return
    holders: dict[Hashable, tuple[Any, dict[Hashable, Any]]] = {}
    left = STEP_ENTRIES
    for holder in getattr(request, lists[0]):
        into = holders.setdefault(asked(holder), (holder, {}))[1]
        left -= 1
        if left <= 0:
            left = STEP_ENTRIES
            yield
        for entry in getattr(holder, lists[1]):
            into[name_of(entry, names)] = entry
            left -= 1
            if left <= 0:
                left = STEP_ENTRIES
                yield
    kept_holders: list[Any] = []
    for number, (holder, entries) in enumerate(holders.values(), 1):
        setattr(holder, lists[1], list(entries.values()))
        kept_holders.append(holder)
        if len(entries) >= STEP_ENTRIES:
            yield from emptied(entries)
        elif number % STEP_ENTRIES == 0:
            yield
    setattr(request, lists[0], kept_holders)
    yield from emptied(holders)


def two_of_each(request: Any, lists: tuple[str, ...], names: tuple[str, ...], names_max: int) -> Iterator[Any]:
    """Take entries that occur more than twice out of a request. Yields None after each step, and requests with two entries of each such
    name and at most `names_max` names."""
    seen: dict[Hashable, list[Any]] = {}
    for number, (holder, entry) in enumerate(_entries(request, lists), 1):
        seen.setdefault((holder and asked(holder), name_of(entry, names)), [holder]).append(entry)
        if number % STEP_ENTRIES == 0:
            yield None
    twice: dict[Hashable, list[Any]] = {}
    for number, (name, found) in enumerate(seen.items(), 1):
        if len(found) > 2:
            twice[name] = found
        if number % STEP_ENTRIES == 0:
            yield None
    yield from emptied(seen)
    if not twice:
        return
    yield from _without(request, lists, names, twice)
    taken: list[Any] = []
    for number, (holder, *entries) in enumerate(twice.values(), 1):
        taken += entries[:2] if holder is None else [with_values(holder, lists[1], entries[:2])]
        if number % names_max == 0 or number == len(twice):
            yield with_values(request, lists[0], taken)
            taken = []


def _without(request: Any, lists: tuple[str, ...], names: tuple[str, ...], twice: dict[Hashable, list[Any]]) -> Iterator[None]:
    """Take the entries of these names out of a request."""
    rest: list[Any] = []
    for holder in getattr(request, lists[0]) if len(lists) > 1 else [None]:
        about, owner, into = holder and asked(holder), holder or request, lists[-1]
        entries: list[Any] = []
        for number, entry in enumerate(getattr(owner, into), 1):
            if (about, name_of(entry, names)) not in twice:
                entries.append(entry)
            if number % STEP_ENTRIES == 0:
                yield None
        yield None
        if holder is None:
            rest = entries
        elif entries:
            rest.append(with_values(holder, into, entries))
    setattr(request, lists[0], rest)


def emptied(held: dict[Any, Any]) -> Iterator[None]:
    """Free what a dict holds, in steps."""
    while held:
        for _ in range(min(STEP_ENTRIES, len(held))):
            held.popitem()
        yield None


def _entries(request: Any, lists: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    """Each entry with the outer entry that holds it, or None."""
    for entry in getattr(request, lists[0]):
        if len(lists) == 1:
            yield None, entry
        else:
            for inner in getattr(entry, lists[1]):
                yield entry, inner
