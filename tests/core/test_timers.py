"""Deadlines of very many keys: what is looked at, when, and how much at a time."""

from __future__ import annotations

from minikafka.core.timers import DeadlineQueue, TimerQueue


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
