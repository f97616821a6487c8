"""The assignor `simple`: each partition goes to enough members that every member has at least one.

Rules: org.apache.kafka.coordinator.group.assignor.SimpleAssignor of Apache Kafka 4.3. Members keep what they have as far as that goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minikafka.core.group.consumer.member import Assignment

Partition = tuple[bytes, int]


def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]], partitions: Mapping[bytes, frozenset[int]], targets: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Compute the target of each member. `subscriptions`: topic ids of each member. `partitions`: those that can be assigned, by topic id.
    `targets`: the current targets."""
    assigned: dict[str, set[Partition]] = {member_id: set() for member_id in subscriptions}
    held = {member_id: {(topic_id, p) for topic_id in target for p in target[topic_id]} for member_id, target in targets.items()}
    if len(set(subscriptions.values())) == 1:
        topic_ids = next(iter(subscriptions.values()))
        everything = [(topic_id, p) for topic_id in sorted(topic_ids) for p in sorted(partitions.get(topic_id, ()))]
        _share_out(list(subscriptions), everything, held, assigned)
    else:
        for topic_id in sorted(frozenset[bytes]().union(*subscriptions.values())):
            members = [member_id for member_id, topic_ids in subscriptions.items() if topic_id in topic_ids]
            _share_out(members, [(topic_id, p) for p in sorted(partitions.get(topic_id, ()))], held, assigned)
    return {member_id: _assignment(found) for member_id, found in assigned.items()}


def _share_out(
    members: Sequence[str], partitions: Sequence[Partition], held: Mapping[str, set[Partition]], assigned: Mapping[str, set[Partition]]
) -> None:
    """Add to `assigned`: each partition goes to `sharing` members, and the members' counts differ by at most one."""
    if not members or not partitions:
        return
    sharing = -(-len(members) // len(partitions))
    total = sharing * len(partitions)
    owners: dict[Partition, set[str]] = {partition: set() for partition in partitions}
    room: dict[str, int] = {}
    for number, member_id in enumerate(members):
        room[member_id] = -(-total * (number + 1) // len(members)) + (-total * number // len(members))
        for partition in sorted(held.get(member_id, ())):
            if room[member_id] and partition in owners and len(owners[partition]) < sharing:
                owners[partition].add(member_id)
                assigned[member_id].add(partition)
                room[member_id] -= 1
    waiting = [member_id for member_id in members if room[member_id]]
    place = 0
    for partition in partitions:
        tried = 0
        while waiting and len(owners[partition]) < sharing and tried < len(waiting):
            place %= len(waiting)
            member_id = waiting[place]
            if member_id in owners[partition]:
                place, tried = place + 1, tried + 1
                continue
            owners[partition].add(member_id)
            assigned[member_id].add(partition)
            room[member_id] -= 1
            tried = 0
            if room[member_id]:
                place += 1
            else:
                del waiting[place]


def _assignment(partitions: set[Partition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
