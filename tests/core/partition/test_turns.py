"""Requests in line: who shares a key with another does not pass it, whoever shares none does not wait."""

from __future__ import annotations

import random

from minikafka.core.partition.turns import Turn, Turns


def test_the_order_of_the_keys_does_not_matter() -> None:
    turns, begun = Turns(), []

    def begin(turn: Turn) -> bool:
        begun.append(turn.number)
        return True

    first = turns.enter(["a", "b", "c"])
    for keys in ("cab", "bca", "abc"):
        assert turns.are_taken(keys)
        turns.enter(keys, begin)
    turns.leave(first)
    assert begun == [2, 3, 4] and not turns


def test_a_waiting_request_holds_back_all_its_queues() -> None:
    turns, begun = Turns(), []

    def begin(turn: Turn) -> bool:
        begun.append(turn.number)
        return turn.number != 2

    first = turns.enter(["a"])
    second = turns.enter(["a", "b"], begin)
    assert turns.are_taken(["b"]) and not turns.are_taken(["c"])
    turns.enter(["b"], begin)
    turns.leave(first)
    assert begun == [2], "the third shares b with the second, which is still at it"
    turns.leave(second)
    assert begun == [2, 3] and not turns


def test_a_long_line_is_served_without_recursion_and_in_order() -> None:
    chance, turns, begun = random.Random(7), Turns(), []

    def begin(turn: Turn) -> bool:
        begun.append(turn)
        return True

    first = turns.enter(range(5))
    waiting = [turns.enter(chance.sample(range(5), chance.randint(1, 5)), begin) for _ in range(3000)]
    turns.leave(first)
    assert sorted(turn.number for turn in begun) == [turn.number for turn in waiting] and not turns
    for key in range(5):
        assert [turn.number for turn in begun if key in turn.keys] == [turn.number for turn in waiting if key in turn.keys]
