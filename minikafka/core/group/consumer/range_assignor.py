"""The assignor `range`: it divides each topic into ranges. With topics of equal size a member gets the same range of each.

Rules: org.apache.kafka.coordinator.group.assignor.RangeAssignor of Apache Kafka 4.4, which ignores racks.
"""

from __future__ import annotations

from minikafka.core.group.consumer.assignor import GroupSpec, Pace
from minikafka.core.group.consumer.member import Assignment
from minikafka.steps import Steps


def assign_range(spec: GroupSpec) -> Steps[dict[str, Assignment]]:
    """Static members come first, by instance id, then the others by member id."""
    order, pace = sorted(spec.members, key=lambda member_id: _place(member_id, spec.members[member_id].instance_id)), Pace()
    targets: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic_id in sorted(spec.partition_counts):
        subscribers = [member_id for member_id in order if topic_id in spec.members[member_id].topic_ids]
        quota, extra = divmod(spec.partition_counts[topic_id], max(len(subscribers), 1))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + quota + (number < extra)
            if start < end:
                targets[member_id][topic_id] = frozenset(range(start, end))
            if pace.is_due(1 + end - start):
                yield
            start = end
        if pace.is_due(len(order)):
            yield
    return dict(targets)


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return instance_id is None, instance_id if instance_id is not None else member_id
