"""What assignors are given and what they hand back (org.apache.kafka.coordinator.group.api.assignor)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from minikafka.core.group.consumer.member import Assignment


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
Assignor = Callable[[GroupSpec], dict[str, Assignment]]


def target_owners(spec: GroupSpec) -> dict[bytes, dict[int, str]]:
    """Who has each partition by the targets until now, of the topics that are still wanted and partitions that still exist."""
    owners: dict[bytes, dict[int, str]] = {topic_id: {} for topic_id in spec.partition_counts}
    for member_id, member in spec.members.items():
        for topic_id, partitions in member.assignment.items():
            if topic_id in member.topic_ids:
                owned = owners[topic_id]
                for partition in partitions:
                    owned[partition] = member_id
    return owners
