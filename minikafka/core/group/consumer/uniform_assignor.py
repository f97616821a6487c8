"""The assignor `uniform`: partition counts differ by at most one, and members keep their partitions as far as possible.

Rules: org.apache.kafka.coordinator.group.assignor.UniformAssignor of Apache Kafka 4.4, which ignores racks.
"""

from __future__ import annotations

import heapq

from minikafka.core.group.consumer.assignor import GroupSpec, Pace, target_owners
from minikafka.core.group.consumer.member import Assignment
from minikafka.steps import Steps

#: Most rounds over all topics that move partitions from members with more to members with fewer.
ROUNDS_MAX = 16
Partition = tuple[bytes, int]


def assign_uniform(spec: GroupSpec) -> Steps[dict[str, Assignment]]:
    """Choose the algorithm by whether all members subscribe to the same topics."""
    if not spec.partition_counts:
        return {member_id: {} for member_id in spec.members}
    return (yield from (_assign_homogeneous(spec) if spec.is_homogeneous else _assign_heterogeneous(spec)))


# -- all members have the same topics ------------------------------------------------------------------------------------


def _assign_homogeneous(spec: GroupSpec) -> Steps[dict[str, Assignment]]:
    owners, pace = (yield from target_owners(spec)), Pace()
    unassigned: list[Partition] = []
    for topic_id in sorted(spec.partition_counts):
        owned = owners[topic_id]
        for partition in range(spec.partition_counts[topic_id]):
            if partition not in owned:
                unassigned.append((topic_id, partition))
            if pace.is_due():
                yield
    quota, extra = divmod(sum(spec.partition_counts.values()), len(spec.members))
    kept: dict[str, list[Partition]] = {}
    members_with_room: list[tuple[str, int]] = []
    for number, (member_id, member) in enumerate(spec.members.items()):
        held = _held(spec, owners, member_id, member.assignment)
        has_extra = extra > 0
        room = quota + has_extra
        kept[member_id], given_up = held[:room], held[room:]
        unassigned += given_up
        room -= len(kept[member_id])
        if room and has_extra and len(spec.members) - number > extra:
            # A member that already has one more may keep it.
            room, has_extra = room - 1, False
        extra -= has_extra
        if room:
            members_with_room.append((member_id, room))
        if pace.is_due(1 + len(held)):
            yield
    rest = iter(unassigned)
    for member_id, room in members_with_room:
        kept[member_id] += [partition for _, partition in zip(range(room), rest, strict=False)]
        if pace.is_due(1 + room):
            yield
    return (yield from _assignments(kept))


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


def _assignments(partitions: dict[str, list[Partition]]) -> Steps[dict[str, Assignment]]:
    found, pace = {}, Pace()
    for member_id, held in partitions.items():
        found[member_id] = _assignment(held)
        if pace.is_due(1 + len(held)):
            yield
    return found


# -- members have different topics ---------------------------------------------------------------------------------------


def _assign_heterogeneous(spec: GroupSpec) -> Steps[dict[str, Assignment]]:
    subscribers, pace = {topic_id: list[str]() for topic_id in spec.partition_counts}, Pace()
    for member_id, member in spec.members.items():
        for topic_id in sorted(member.topic_ids):
            subscribers[topic_id].append(member_id)
            if pace.is_due():
                yield
    owners = yield from target_owners(spec)
    for topic_id, owned in owners.items():
        count = spec.partition_counts[topic_id]
        owners[topic_id] = {partition: owner for partition, owner in owned.items() if partition < count}
        if pace.is_due(1 + len(owned)):
            yield
    return (yield from _Balance(spec, subscribers, owners).assign())


class _Balance:
    """Assigns free partitions to the members with the fewest, then moves partitions, topic by topic, from members with the most to members
    with the fewest."""

    def __init__(self, spec: GroupSpec, subscribers: dict[bytes, list[str]], owners: dict[bytes, dict[int, str]]) -> None:
        self._spec = spec
        self._places = {member_id: place for place, member_id in enumerate(spec.members)}
        self._subscribers = subscribers
        self._owners = owners
        self._sizes = dict.fromkeys(spec.members, 0)
        self._pace = Pace()
        #: Topics with the most partitions per subscriber come first.
        self._topic_ids = sorted(spec.partition_counts, key=self._urgency)

    def _urgency(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -self._spec.partition_counts[topic_id] / subscribers, subscribers, topic_id

    def assign(self) -> Steps[dict[str, Assignment]]:
        """The targets."""
        for owned in self._owners.values():
            for member_id in owned.values():
                self._sizes[member_id] += 1
            if self._pace.is_due(1 + len(owned)):
                yield
        for topic_id in self._topic_ids:
            yield from self._give_out(topic_id)
        shared = [topic_id for topic_id in self._topic_ids if len(self._subscribers[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in shared:
                moved += yield from self._balance(topic_id)
            if not moved:
                break
        partitions: dict[str, list[Partition]] = {member_id: [] for member_id in self._spec.members}
        for topic_id in sorted(self._owners):
            for partition in sorted(self._owners[topic_id]):
                partitions[self._owners[topic_id][partition]].append((topic_id, partition))
                if self._pace.is_due():
                    yield
        return (yield from _assignments(partitions))

    def _give_out(self, topic_id: bytes) -> Steps[None]:
        least = [(self._sizes[member_id], self._places[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapq.heapify(least)
        owned = self._owners[topic_id]
        if self._pace.is_due(len(least)):
            yield
        for partition in range(self._spec.partition_counts[topic_id]):
            if partition not in owned:
                size, place, member_id = least[0]
                owned[partition] = member_id
                self._sizes[member_id] = size + 1
                heapq.heapreplace(least, (size + 1, place, member_id))
            if self._pace.is_due():
                yield

    def _balance(self, topic_id: bytes) -> Steps[int]:
        """Balance one topic. The result is the number of partitions that moved to another member."""
        places, sizes = self._places, self._sizes
        held: dict[str, list[int]] = {member_id: [] for member_id in self._subscribers[topic_id]}
        for partition, member_id in sorted(self._owners[topic_id].items()):
            held[member_id].append(partition)
            if self._pace.is_due():
                yield
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
            if self._pace.is_due():
                yield
        if self._pace.is_due(len(least)):
            yield
        return moved
