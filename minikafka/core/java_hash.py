"""Java's hashes, on which some of Kafka's choices depend: coordinator partitions, and the order of keys in hash tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from operator import mul
from typing import TypeVar

UINT32 = 0xFFFFFFFF
SIGN = 1 << 31
Key = TypeVar("Key", str, tuple[str, int])
TABLE_SIZE_MIN = 16


@lru_cache(maxsize=256)
def string_hash(text: str) -> int:
    """`String.hashCode` as an unsigned 32-bit number: 31-based over UTF-16 units."""
    units = memoryview(text.encode("utf-16-le" if sys.byteorder == "little" else "utf-16-be", "surrogatepass")).cast("H")
    powers = _POWERS if len(units) <= len(_POWERS) else _powers(len(units))
    total: int = sum(map(mul, units, powers[len(powers) - len(units) :]))
    return total & UINT32


def _powers(count: int) -> list[int]:
    """The first powers of 31, modulo 2 ** 32, the largest exponent first."""
    found = [1]
    while len(found) < count:
        found.append(31 * found[-1] & UINT32)
    return found[::-1]


#: Enough for most names.
_POWERS = _powers(256)


def partition_for_key(key: str, partitions: int) -> int:
    """The coordinator partition of a group, transactional id or share partition: the absolute value of the hash modulo `partitions`. As in
    Apache Kafka's Utils.abs, the absolute value of the smallest integer is 0; it is not a 31-bit mask."""
    hashed = string_hash(key)
    return (hashed if hashed < SIGN else -hashed % SIGN) % partitions


def indexes_in_table_order(topic_hash: int, indexes: list[int], keys: int) -> list[int]:
    """A topic's partitions in the order in which a `java.util.HashMap` of so many `TopicPartition` keys lists them. Those in the same
    bucket are sorted. `topic_hash`: the hash of the topic's name."""
    mask, base = _table_size(keys, TABLE_SIZE_MIN) - 1, 31 * 31 + topic_hash
    # Numbers that begin with the bucket are sorted in a third of the time of pairs. An index may be negative.
    hashed = [((base + 31 * index) & UINT32, index + SIGN) for index in indexes]
    placed = [((code ^ code >> 16) & mask) << 32 | index for code, index in hashed]
    placed.sort()
    return [(place & UINT32) - SIGN for place in placed]


def names_in_table_order(names: Iterable[str]) -> list[str]:
    """Strings in the order in which a `java.util.HashMap` lists them as keys. Keys in the same bucket keep the order of insertion."""
    return by_place((string_hash(name), name) for name in names)


def names_in_computed_order(names: Iterable[str], capacity: int) -> list[str]:
    """Distinct strings in the order in which a `java.util.HashMap` of initial `capacity` lists them after `computeIfAbsent` inserted them:
    it inserts a key before the others in its bucket, and resizes the table one key later."""
    listed = list(names)[::-1]
    size = _table_size(len(listed) - 1, 1 << (max(capacity, 1) - 1).bit_length())
    return _in_table([(string_hash(name), name) for name in listed], size)


def text_order(text: str) -> bytes:
    """A sort key that orders strings as `String.compareTo` does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def by_place(hashed: Iterable[tuple[int, Key]]) -> list[Key]:
    """Keys, given with their hashes, in the order of a `java.util.HashMap`. Keys in the same bucket keep the order of insertion."""
    pairs = list(hashed)
    return _in_table(pairs, _table_size(len(pairs), TABLE_SIZE_MIN))


def _table_size(keys: int, size: int) -> int:
    """The size of a `java.util.HashMap`, of initially `size` buckets, that holds so many keys."""
    while keys > size * 3 // 4:
        size *= 2
    return size


def _in_table(pairs: list[tuple[int, Key]], size: int) -> list[Key]:
    return [key for _, key in sorted(pairs, key=lambda pair: (pair[0] ^ pair[0] >> 16) & (size - 1))]
