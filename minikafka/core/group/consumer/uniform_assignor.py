"""The assignor `uniform`: everybody gets as many partitions as everybody else, give or take one, and keeps what it has as far as that goes.

Rules: org.apache.kafka.coordinator.group.assignor.UniformAssignor of Apache Kafka 4.3.
"""

from __future__ import annotations

import heapq

from minikafka.core.group.consumer.assignor import GroupSpec, target_owners
from minikafka.core.group.consumer.member import Assignment

#: Rounds over all topics in which partitions go from who has more to who has less.
ROUNDS_MAX = 16
Partition = tuple[bytes, int]


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    """Dispatches on whether all members want the same topics."""
    if not spec.partition_counts:
        return {member_id: {} for member_id in spec.members}
    return _assign_homogeneous(spec) if spec.is_homogeneous else _assign_heterogeneous(spec)


# -- all members want the same topics ------------------------------------------------------------------------------------


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    owners = target_owners(spec)
    unassigned = [
        (topic_id, partition)
        for topic_id in sorted(spec.partition_counts)
        for partition in range(spec.partition_counts[topic_id])
        if partition not in owners[topic_id]
    ]
    quota, extra = divmod(sum(spec.partition_counts.values()), len(spec.members))
    kept: dict[str, list[Partition]] = {}
    wanting: list[tuple[str, int]] = []
    for number, (member_id, member) in enumerate(spec.members.items()):
        held = _held(spec, owners, member_id, member.assignment)
        has_extra = extra > 0
        room = quota + has_extra
        kept[member_id], given_up = held[:room], held[room:]
        unassigned += given_up
        room -= len(kept[member_id])
        if room and has_extra and len(spec.members) - number > extra:
            # Somebody who has more already may keep it.
            room, has_extra = room - 1, False
        extra -= has_extra
        if room:
            wanting.append((member_id, room))
    rest = iter(unassigned)
    for member_id, room in wanting:
        kept[member_id] += [partition for _, partition in zip(range(room), rest, strict=False)]
    return {member_id: _assignment(partitions) for member_id, partitions in kept.items()}


def _held(spec: GroupSpec, owners: dict[bytes, dict[int, str]], member_id: str, assignment: Assignment) -> list[Partition]:
    return [
        (topic_id, partition)
        for topic_id in sorted(assignment)
        if topic_id in spec.partition_counts
        for partition in sorted(assignment[topic_id])
        if partition < spec.partition_counts[topic_id] and owners[topic_id].get(partition) == member_id
    ]


def _assignment(partitions: list[Partition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found)}


# -- they want different ones --------------------------------------------------------------------------------------------


def _assign_heterogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    return _Balance(spec).assign()


class _Balance:
    """Partitions that nobody has go to who has least; then they go, topic by topic, from who has most to who has least."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._places = {member_id: place for place, member_id in enumerate(spec.members)}
        self._subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in spec.partition_counts}
        for member_id, member in spec.members.items():
            for topic_id in sorted(member.topic_ids):
                self._subscribers[topic_id].append(member_id)
        self._owners = {
            topic_id: {partition: owner for partition, owner in owned.items() if partition < spec.partition_counts[topic_id]}
            for topic_id, owned in target_owners(spec).items()
        }
        self._sizes = dict.fromkeys(spec.members, 0)
        for owned in self._owners.values():
            for member_id in owned.values():
                self._sizes[member_id] += 1
        #: Topics with much for few come first.
        self._topic_ids = sorted(spec.partition_counts, key=self._urgency)

    def _urgency(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -self._spec.partition_counts[topic_id] / subscribers, subscribers, topic_id

    def assign(self) -> dict[str, Assignment]:
        """The targets."""
        for topic_id in self._topic_ids:
            self._give_out(topic_id)
        shared = [topic_id for topic_id in self._topic_ids if len(self._subscribers[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum([self._balance(topic_id) for topic_id in shared]):
                break
        partitions: dict[str, list[Partition]] = {member_id: [] for member_id in self._spec.members}
        for topic_id in sorted(self._owners):
            for partition in sorted(self._owners[topic_id]):
                partitions[self._owners[topic_id][partition]].append((topic_id, partition))
        return {member_id: _assignment(held) for member_id, held in partitions.items()}

    def _give_out(self, topic_id: bytes) -> None:
        least = [(self._sizes[member_id], self._places[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapq.heapify(least)
        owned = self._owners[topic_id]
        for partition in range(self._spec.partition_counts[topic_id]):
            if partition not in owned:
                size, place, member_id = least[0]
                owned[partition] = member_id
                self._sizes[member_id] = size + 1
                heapq.heapreplace(least, (size + 1, place, member_id))

    def _balance(self, topic_id: bytes) -> int:
        """Number of partitions of the topic that went to another member."""
        places, sizes = self._places, self._sizes
        held: dict[str, list[int]] = {member_id: [] for member_id in self._subscribers[topic_id]}
        for partition, member_id in sorted(self._owners[topic_id].items()):
            held[member_id].append(partition)
        least = [(sizes[member_id], places[member_id], member_id) for member_id in held]
        most = [(-sizes[member_id], -places[member_id], member_id) for member_id, partitions in held.items() if partitions]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            more, _, giver = most[0]
            less, _, taker = least[0]
            if -more != sizes[giver] or not held[giver]:
                heapq.heappop(most)
            elif less != sizes[taker]:
                heapq.heapreplace(least, (sizes[taker], places[taker], taker))
            elif -more - less <= 1:
                break
            else:
                self._owners[topic_id][held[giver].pop()] = taker
                sizes[giver], sizes[taker] = -more - 1, less + 1
                heapq.heapreplace(most, (more + 1, -places[giver], giver))
                heapq.heapreplace(least, (less + 1, places[taker], taker))
                moved += 1
        return moved
