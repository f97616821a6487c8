"""Input and result of assignors (org.apache.kafka.coordinator.group.api.assignor).

An assignor is a generator. It yields whenever it has used enough of one turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from minikafka.core.group.consumer.member import Assignment
from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps

#: Partitions, members or topics that are processed in one step: about a millisecond.
STEP_UNITS = 2_000


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: the existing topics that it subscribes to, and its current target."""

    topic_ids: frozenset[bytes]
    assignment: Assignment
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group: its members, in an order that affects the result, and the number of partitions of every subscribed topic.
    `is_homogeneous`: all members subscribe to the same topics."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool = field(default=True)


#: Computes the target of every member.
Assignor = Callable[[GroupSpec], Steps[dict[str, Assignment]]]


class Pace:
    """Counts units of work. A step is over after STEP_UNITS of them."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, units: int = 1) -> bool:
        """Count units of work. Returns whether the step is over."""
        self._done += units
        if self._done < STEP_UNITS:
            return False
        self._done = 0
        return True


def target_owners(spec: GroupSpec) -> Steps[dict[bytes, dict[int, str]]]:
    """The owner of each partition according to the current targets, for topics with subscribers and partitions that still exist."""
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
