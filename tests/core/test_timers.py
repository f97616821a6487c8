"""Deadlines of very many keys: what is looked at, when, and how much at a time."""

from __future__ import annotations

import itertools
import random

import pytest

from minikafka.core.timers import EXPIRED_AT_ONCE, DeadlineQueue, TimerQueue


def test_a_key_is_taken_when_its_earliest_deadline_has_come() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    queue.note("a", 30)
    queue.note("b", 20)
    queue.note("a", 40)
    assert queue.next_deadline() == 20 and queue.take(19, 9) == []
    assert queue.take(30, 9) == ["b", "a"], "who takes it looks whether it has moved back"
    assert len(queue) == 0 and queue.next_deadline() is None


def test_a_deadline_that_moves_forward_is_kept() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    queue.note("a", 30)
    queue.note("a", 10)
    assert queue.take(10, 9) == ["a"]
    queue.note("a", 50)
    assert queue.take(49, 9) == [], "the entry of before says nothing"
    assert queue.take(50, 9) == ["a"]


def test_a_timer_postponed_a_million_times_costs_nothing() -> None:
    queue: DeadlineQueue[int] = DeadlineQueue()
    for now in range(1_000_000):
        queue.note(now % 10, 100 + now)
    assert len(queue._heap) == len(queue) == 10


def test_at_most_so_many_are_looked_at_and_those_that_are_due_first_come_first() -> None:
    queue: DeadlineQueue[int] = DeadlineQueue()
    for key in range(10_000):
        queue.note(key, 10_000 - key)
    assert queue.take(20_000, 1_000) == list(range(9_999, 8_999, -1)) and len(queue) == 9_000


def test_a_key_that_is_due_again_at_once_comes_out_of_the_next_call() -> None:
    queue: TimerQueue[str] = TimerQueue()
    queue.schedule("a", 10)
    queue.schedule("b", 10)
    seen = []
    for key in queue.expired(10):
        seen.append(key)
        queue.schedule(key, 10)
        assert len(seen) < 10, "a call ends"
    assert seen == ["a", "b"] and queue.next_deadline() == 10
    assert list(queue.expired(10)) == ["a", "b"] and len(queue) == 0


def test_timers_left_over_by_an_aborted_pass_are_still_due() -> None:
    queue: TimerQueue[str] = TimerQueue()
    for key in "abc":
        queue.schedule(key, 10)
    for _key in queue.expired(10):
        queue.cancel("b")
        break
    assert list(queue.expired(10)) == ["c"]


def test_a_deadline_that_is_postponed_again_and_again_takes_no_room() -> None:
    queue: TimerQueue[int] = TimerQueue()
    for now in range(10_000):
        queue.schedule(now % 10, 100 + now)
    assert len(queue._heap) == len(queue) == 10
    assert queue.next_deadline() == 100 + 9_990 and list(queue.expired(100 + 9_992)) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_timers_are_what_a_sorted_list_of_them_would_be(seed: int) -> None:
    chance, queue, model = random.Random(seed), TimerQueue[int](), {}
    now, orders = 0, itertools.count()

    def change() -> None:
        key = chance.randrange(12)
        if chance.random() < 0.15:
            queue.cancel(key)
            model.pop(key, None)
        else:
            due = now + chance.randrange(-3, 12)
            queue.schedule(key, due)
            model[key] = (due, next(orders))

    for _ in range(1_500):
        change()
        if chance.random() < 0.3:
            assert queue.next_deadline() == min((due for due, _ in model.values()), default=None)
        if chance.random() < 0.2:
            now += chance.randrange(6)
            waiting = sorted((entry, key) for key, entry in model.items() if entry[0] <= now)
            is_changed = chance.random() < 0.5
            for key in queue.expired(now):
                while waiting[0][0] != model.get(waiting[0][1]):
                    waiting.pop(0)
                assert key == waiting.pop(0)[1]
                del model[key]
                if is_changed:
                    change()
            assert not [entry for entry, key in waiting if entry == model.get(key)]
        assert len(queue) == len(model)


def test_the_deadlines_of_thousands_are_not_all_handled_at_once() -> None:
    queue: TimerQueue[int] = TimerQueue()
    for key in range(5 * EXPIRED_AT_ONCE):
        queue.schedule(key, key % 3)
    handled = []
    while queue.next_deadline() is not None:
        found = list(queue.expired(10))
        assert len(found) == EXPIRED_AT_ONCE
        handled += found
    assert handled == sorted(range(5 * EXPIRED_AT_ONCE), key=lambda key: (key % 3, key))
