"""Offset commits that are being written and are not committed yet.

A deletion of offsets has to know the commits on their way: a tombstone that follows such a commit in the log deletes it, too. Kafka's
coordinator sees them in its state, because it applies records when it writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Partition = tuple[str, int]


class WritesInProgress:
    """group -> (topic, partition) -> number of commits that are being written."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[Partition, int]] = {}

    def begin(self, group_id: str, partitions: Iterable[Partition]) -> Callable[[], None]:
        """Note a write. The caller calls what this returns once, when the outcome of the write is known."""
        written = list(partitions)
        of_group = self._groups.setdefault(group_id, {})
        for key in written:
            of_group[key] = of_group.get(key, 0) + 1

        def end() -> None:
            for key in written:
                of_group[key] -= 1
                if not of_group[key]:
                    del of_group[key]
            if not of_group:
                self._groups.pop(group_id, None)

        return end

    def concern(self, group_id: str, partition: Partition) -> bool:
        """Whether a commit for the partition is being written."""
        return partition in self._groups.get(group_id, ())

    def partitions(self, group_id: str) -> list[Partition]:
        """Partitions of a group for which commits are being written."""
        return list(self._groups.get(group_id, ()))

    def group_ids(self) -> list[str]:
        """Groups for which commits are being written."""
        return list(self._groups)
