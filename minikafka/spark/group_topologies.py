"""The topologies of streams groups, and the tasks that their members hold or are to hold.

A group gets its topology before any task, and keeps it: Apache Kafka 4.4 refuses updates. A subtopology has as many tasks as its largest
source topic has partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: (hash of the group, subtopology).
Subtopology = tuple[int, str]


@dataclass(slots=True)
class Topologies:
    """`_sources`: {subtopology: the topics that it reads; none if they are not known by name}; `_since`: {group: offset of its topology}.
    `_tasks`: {subtopology: (largest task, offset of a record that names it)}, `_latest`: {subtopology: offset of the last such record}."""

    _sources: dict[Subtopology, tuple[str, ...]] = field(default_factory=dict)
    _since: dict[int, int] = field(default_factory=dict)
    _tasks: dict[Subtopology, tuple[int, int]] = field(default_factory=dict)
    _latest: dict[Subtopology, int] = field(default_factory=dict)

    def add(self, offset: int, group: int, found: dict[str, Any]) -> None:
        """Add a group's topology."""
        self._since[group] = offset
        for one in found["subtopologies"]:
            names = (*one["sources"], *(topic["name"] for topic in one["repartitions"]))
            self._sources[group, one["id"]] = () if one["patterns"] else tuple(sorted(names))

    def add_task(self, offset: int, group: int, subtopology: str, number: int) -> None:
        """Add the largest task of a subtopology that a member's record names."""
        key = group, subtopology
        self._tasks[key] = max((number, offset), self._tasks.get(key, (-1, -1)))
        self._latest[key] = max(offset, self._latest.get(key, -1))

    def strange_tasks(self) -> Iterator[int]:
        """Offsets of records behind their group's topology that name a subtopology that it does not have."""
        for key, offset in self._latest.items():
            if key not in self._sources and offset > self._since.get(key[0], offset):
                yield offset

    def largest(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """{topics that are read together: (largest task, offset of a record that names it)}."""
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        for key, task in self._tasks.items():
            if topics := self._sources.get(key):
                found[topics] = max(task, found.get(topics, (-1, -1)))
        return found
