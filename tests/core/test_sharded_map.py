"""A map of shards is a dict, and its copies are their own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.core.sharded_map import SHARDS, ShardedMap


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9) | st.none(), st.booleans())))
def test_as_a_dict(changes: list[tuple[int, int | None, bool]]) -> None:
    held, plain = ShardedMap[int, int](lambda key: key % 3), dict[int, int]()
    older: list[tuple[ShardedMap[int, int], dict[int, int]]] = []
    for key, value, is_copied in changes:
        if is_copied:
            older.append((held, dict(plain)))
            held = held.copy()
        if value is None:
            assert held.pop(key, None) == plain.pop(key, None)
        else:
            held[key] = plain[key] = value
    for one, wanted in [*older, (held, plain)]:
        assert dict(one) == wanted and len(one) == len(wanted) and one == wanted
        assert all((key in one) == (key in wanted) and one.get(key) == wanted.get(key) for key in range(5))


def test_a_change_copies_one_shard() -> None:
    held = ShardedMap[int, int](lambda key: key)
    held.update({number: number for number in range(10 * SHARDS)})
    copied = held.copy()
    copied[5] = -1
    assert sum(old is not new for old, new in zip(held._shards, copied._shards, strict=True)) == 1
    assert held[5] == 5 and copied[5] == -1
