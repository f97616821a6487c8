"""What assignors are given and what they hand back (org.apache.kafka.coordinator.group.api.assignor).

An assignor is a generator: it yields whenever a group's partitions or members have taken enough of a turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from minikafka.core.group.consumer.member import Assignment

Result = TypeVar("Result")
#: Work in steps, and what it comes to.
Steps = Generator[None, None, Result]
#: Partitions, members or topics that are looked at in one step: about a millisecond.
STEP_UNITS = 2_000


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: the topics that it wants and that exist, and what was its target until now."""

    topic_ids: frozenset[bytes]
    assignment: Assignment
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group: its members, in an order that the assignors heed, and the number of partitions of every topic that one of them wants.
    `is_homogeneous`: all want the same topics."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool = field(default=True)


#: Which partitions every member is to have.
Assignor = Callable[[GroupSpec], Steps[dict[str, Assignment]]]


class Pace:
    """Counts units of work: a step is over when enough of them are done."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, units: int = 1) -> bool:
        """Count some; whether the step is over."""
        self._done += units
        if self._done < STEP_UNITS:
            return False
        self._done = 0
        return True


def at_once(steps: Steps[Result]) -> Result:
    """All steps in one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def target_owners(spec: GroupSpec) -> Steps[dict[bytes, dict[int, str]]]:
    """Who has each partition by the targets until now, of the topics that are still wanted and partitions that still exist."""
    pace = Pace()
    owners: dict[bytes, dict[int, str]] = {topic_id: {} for topic_id in spec.partition_counts}
    for member_id, member in spec.members.items():
        for topic_id, partitions in member.assignment.items():
            if topic_id in member.topic_ids:
                owned = owners[topic_id]
                for partition in partitions:
                    owned[partition] = member_id
            if pace.is_due(1 + len(partitions)):
                yield
        if pace.is_due():
            yield
    return owners
