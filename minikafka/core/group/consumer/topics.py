"""The topics that consumer groups see, and the hash by which a group notices that a subscribed topic has changed."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Protocol

from minikafka.core.java_hash import text_order
from minikafka.core.xxh3 import xxh3_64

_MAGIC = b"\0"
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")


class Topic(Protocol):
    """A topic of the cluster."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def topic_id(self) -> bytes:
        """Its id."""

    @property
    def partition_count(self) -> int:
        """Number of partitions."""

    def racks(self, index: int) -> list[str]:
        """The racks of a partition's replicas; replicas on brokers without a rack are left out."""


class Topics(Protocol):
    """The topics of the cluster in this broker's current metadata."""

    @property
    def version(self) -> int:
        """The offset of the metadata log up to which the topics are current."""

    def by_name(self, name: str) -> Topic | None:
        """A topic, or None when there is none."""

    def by_id(self, topic_id: bytes) -> Topic | None:
        """A topic, or None when there is none."""

    def names(self) -> list[str]:
        """Names of all topics."""


class NoTopics:
    """A cluster without topics."""

    version = -1

    def by_name(self, name: str) -> Topic | None:
        """None."""
        return None

    def by_id(self, topic_id: bytes) -> Topic | None:
        """None."""
        return None

    def names(self) -> list[str]:
        """No names."""
        return []


class TopicHashes:
    """Hashes of topics, kept until a topic changes."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._hashes: dict[str, int] = {}

    def forget(self, names: Iterable[str]) -> None:
        """Drop the hashes of topics that have changed or were deleted."""
        for name in names:
            self._hashes.pop(name, None)

    def of(self, names: Iterable[str]) -> int:
        """One hash of all these topics that exist; 0 if none does."""
        hashes = []
        for name in sorted(names, key=text_order):
            topic = self._topics.by_name(name)
            if topic is None:
                continue
            if name not in self._hashes:
                self._hashes[name] = topic_hash(topic)
            hashes.append(_INT64.pack(self._hashes[name]))
        return xxh3_64(b"".join(hashes)) if hashes else 0


def topic_hash(topic: Topic) -> int:
    """The hash of a topic's id, name, partitions and racks, as Apache Kafka computes it."""
    parts = [_MAGIC, topic.topic_id[7::-1], topic.topic_id[:7:-1], _java_string(topic.name), _INT32.pack(topic.partition_count)]
    for index in range(topic.partition_count):
        parts.append(_INT32.pack(index))
        for rack in sorted(topic.racks(index), key=text_order):
            encoded = _java_string(rack)
            parts += [encoded[-4:], encoded]
    return xxh3_64(b"".join(parts))


def _java_string(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)
