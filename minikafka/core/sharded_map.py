"""A mapping that is cheap to copy and then change a little: what the copies share is split by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
SHARDS = 1024


class ShardedMap(MutableMapping[Key, Value]):
    """Copy on write: after `copy`, change only the copy. Iterates by shard, and in a shard in the order in which keys were added: for the
    same calls in the same order."""

    __slots__ = ("_count", "_number_of", "_owned", "_shards")

    def __init__(self, number_of: Callable[[Key], int]) -> None:
        """`number_of` gives a number by which keys are spread, the same in every process."""
        self._number_of = number_of
        self._shards: list[dict[Key, Value]] = [{}] * SHARDS
        self._owned: set[int] = set()
        self._count = 0

    def copy(self) -> ShardedMap[Key, Value]:
        """Another map with the same contents."""
        copied: ShardedMap[Key, Value] = ShardedMap(self._number_of)
        copied._shards, copied._count = list(self._shards), self._count
        return copied

    def _shard(self, key: Key) -> dict[Key, Value]:
        return self._shards[self._number_of(key) % SHARDS]

    def _own(self, key: Key) -> dict[Key, Value]:
        number = self._number_of(key) % SHARDS
        if number not in self._owned:
            self._owned.add(number)
            self._shards[number] = dict(self._shards[number])
        return self._shards[number]

    def __getitem__(self, key: Key) -> Value:
        return self._shard(key)[key]

    def __contains__(self, key: object) -> bool:
        return key in self._shard(key)  # type: ignore[arg-type]

    def __setitem__(self, key: Key, value: Value) -> None:
        shard = self._own(key)
        self._count += key not in shard
        shard[key] = value

    def __delitem__(self, key: Key) -> None:
        del self._own(key)[key]
        self._count -= 1

    def __iter__(self) -> Iterator[Key]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._count
