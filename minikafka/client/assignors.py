"""Client-side assignment in a classic group, and the bytes of its protocol (ConsumerProtocolSubscription and -Assignment)."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from minikafka.wire.records.client_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription

VERSION = 1
Assignment = dict[str, list[int]]


def encode_subscription(topics: list[str]) -> bytes:
    """The subscription as bytes: a 16-bit version and the message."""
    return struct.pack(">h", VERSION) + ConsumerProtocolSubscription(topics=sorted(topics)).encode(VERSION)


def decode_subscription(data: bytes) -> list[str]:
    """The topics that a member subscribes to. Raises WireError."""
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode(version, data, 2).topics


def encode_assignment(assignment: Assignment) -> bytes:
    """The assignment as bytes: a 16-bit version and the message."""
    partitions = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=sorted(indexes)) for topic, indexes in sorted(assignment.items())
    ]
    return struct.pack(">h", VERSION) + ConsumerProtocolAssignment(assigned_partitions=partitions).encode(VERSION)


def decode_assignment(data: bytes) -> Assignment:
    """The partitions of a member; empty bytes mean no partitions. Raises WireError."""
    if not data:
        return {}
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    decoded = ConsumerProtocolAssignment.decode(version, data, 2)
    return {entry.topic: list(entry.partitions) for entry in decoded.assigned_partitions}


def assign_range(members: Mapping[str, list[str]], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    """Topic by topic, contiguous ranges; the first members get one more (org.apache.kafka.clients.consumer.RangeAssignor)."""
    result: dict[str, Assignment] = {member: {} for member in members}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        subscribers = sorted(member for member, topics in members.items() if topic in topics)
        count = partitions.get(topic, 0)
        share, extra = divmod(count, len(subscribers))
        start = 0
        for number, member in enumerate(subscribers):
            size = share + (1 if number < extra else 0)
            if size:
                result[member][topic] = list(range(start, start + size))
            start += size
    return result


def assign_round_robin(members: Mapping[str, list[str]], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    """All partitions in order, dealt in turn to the members that subscribe to their topic (RoundRobinAssignor)."""
    result: dict[str, Assignment] = {member: {} for member in members}
    order = sorted(members)
    turn = 0
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        for index in range(partitions.get(topic, 0)):
            while topic not in members[order[turn % len(order)]]:
                turn += 1
            result[order[turn % len(order)]].setdefault(topic, []).append(index)
            turn += 1
    return result


ASSIGNORS = {"range": assign_range, "roundrobin": assign_round_robin}
