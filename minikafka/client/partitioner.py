"""Chooses a record's partition: by Java's murmur2 of the key, or one partition at a time for records without a key (KIP-480)."""

from __future__ import annotations

import random

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of org.apache.kafka.common.utils.Utils.murmur2, unsigned."""
    length = len(data)
    value = _SEED ^ length
    for position in range(0, length - 3, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        word ^= word >> 24
        value = (value * _M & _MASK) ^ (word * _M & _MASK)
    tail = data[length & ~3 :]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, as the Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Keeps keyless records of a topic on one partition until its batch is sent."""

    def __init__(self, generator: random.Random | None = None) -> None:
        self._random = generator or random.Random()
        self._current: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, partitions: int) -> int:
        """The partition for a record."""
        if key is not None:
            return partition_for_key(key, partitions)
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = self._random.randrange(partitions)
        return current

    def batch_left(self, topic: str, partition: int) -> None:
        """The topic's current batch is complete: choose a new partition for the next record."""
        if self._current.get(topic) == partition:
            del self._current[topic]
