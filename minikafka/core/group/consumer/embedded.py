"""The embedded consumer protocol in requests of classic members (org.apache.kafka.clients.consumer.internals.ConsumerProtocol)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from minikafka.core.group.consumer.member import Assignment
from minikafka.core.group.consumer.topics import Topics
from minikafka.wire.errors import WireError
from minikafka.wire.records.client_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_VERSION = struct.Struct(">h")


def version_of(data: bytes) -> int:
    """The version of a subscription or assignment. Raises WireError."""
    if len(data) < _VERSION.size:
        raise WireError("the embedded consumer protocol has no version")
    version = int(_VERSION.unpack_from(data)[0])
    if version < 0:
        raise WireError(f"the embedded consumer protocol has the version {version}")
    return version


def subscription_of(data: bytes) -> ConsumerProtocolSubscription:
    """A member's subscription and owned partitions. Raises WireError."""
    version = min(version_of(data), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode(version, data, _VERSION.size)


def assignment_of(data: bytes) -> ConsumerProtocolAssignment:
    """A member's assignment; no bytes mean no partitions. Raises WireError."""
    if not data:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    version = min(version_of(data), ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.decode(version, data, _VERSION.size)


def assignment_bytes(subscription: bytes, partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> bytes:
    """An assignment in the version of the member's subscription, without deleted topics. Raises WireError."""
    version = min(version_of(subscription), ConsumerProtocolAssignment.MAX_VERSION)
    found = [(topics.by_id(topic_id), topic_id) for topic_id in sorted(partitions)]
    entry = ConsumerProtocolAssignment.TopicPartition
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            entry(topic=topic.name, partitions=sorted(partitions[topic_id])) for topic, topic_id in found if topic is not None
        ]
    )
    return _VERSION.pack(version) + assignment.encode(version)


def by_topic_id(
    partitions: Iterable[ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition], topics: Topics
) -> Assignment:
    """Partitions by the ids of their topics, without topics that do not exist."""
    found: dict[bytes, frozenset[int]] = {}
    for entry in partitions:
        topic = topics.by_name(entry.topic)
        if topic is not None:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(entry.partitions)
    return found
