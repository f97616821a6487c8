"""Parked operations: woken in order, expired in time, forgotten when done. And the deadlines underneath."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from minikafka.core.purgatory import EXPIRED_AT_ONCE, Purgatory
from minikafka.core.timers import TimerQueue
from minikafka.steps import at_once


def unexpected(operation: object, error: Exception) -> None:
    raise error


class Operation:
    def __init__(self, story: list[str], name: str, needs: int = 1) -> None:
        self.story, self.name, self.needs = story, name, needs
        self.is_done = False

    def try_complete(self, key: Hashable = None) -> bool:
        self.needs -= 1
        if self.needs <= 0:
            self.is_done = True
            self.story.append(f"{self.name} done")
        return self.is_done

    def expire(self) -> None:
        self.is_done = True
        self.story.append(f"{self.name} expired")


def test_operations_are_woken_in_the_order_in_which_they_were_parked() -> None:
    story: list[str] = []
    purgatory = Purgatory(unexpected)
    for name, needs in (("a", 1), ("b", 2), ("c", 1)):
        purgatory.park(Operation(story, name, needs), ["p"], 100)
    assert purgatory.wake("p") == 2
    assert purgatory.wake("p") == 1
    assert purgatory.wake("p") == 0
    assert story == ["a done", "c done", "b done"]


def test_an_operation_waits_for_several_keys_and_completes_once() -> None:
    story: list[str] = []
    purgatory = Purgatory(unexpected)
    purgatory.park(Operation(story, "x"), ["p", "q"], 100)
    assert purgatory.wake("q") == 1
    assert purgatory.wake("p") == 0
    purgatory.on_deadline(1000)
    assert story == ["x done"]
    assert len(purgatory) == 0


def test_an_operation_that_is_not_woken_expires_at_its_deadline() -> None:
    story: list[str] = []
    purgatory = Purgatory(unexpected)
    purgatory.park(Operation(story, "late", 9), ["p"], 50)
    purgatory.park(Operation(story, "soon", 9), ["p"], 20)
    assert purgatory.next_deadline() == 20
    purgatory.on_deadline(19)
    assert story == []
    purgatory.on_deadline(50)
    assert story == ["soon expired", "late expired"]
    assert purgatory.next_deadline() is None


def test_an_operation_that_is_parked_while_waking_is_kept() -> None:
    purgatory = Purgatory(unexpected)
    story: list[str] = []
    second = Operation(story, "second")

    class First(Operation):
        def try_complete(self, key: Hashable = None) -> bool:
            purgatory.park(second, ["p"], 100)
            return super().try_complete(key)

    purgatory.park(First(story, "first"), ["p"], 100)
    assert purgatory.wake("p") == 1
    assert "p" in purgatory.watched
    assert purgatory.wake("p") == 1
    assert story == ["first done", "second done"]


def test_done_operations_do_not_pile_up() -> None:
    purgatory = Purgatory(unexpected)
    story: list[str] = []
    for number in range(20_000):
        purgatory.park(Operation(story, str(number)), ["p"], 30_000)
        purgatory.wake("p")
    assert len(purgatory._operations) < 5000


def test_stopping_completes_everything() -> None:
    story: list[str] = []
    purgatory = Purgatory(unexpected)
    purgatory.park(Operation(story, "a", 9), ["p"], 100)
    at_once(purgatory.expire_all())
    assert story == ["a expired"]
    assert purgatory.wake("p") == 0


def test_timers_come_out_by_deadline_then_by_order_and_can_be_moved() -> None:
    timers: TimerQueue[str] = TimerQueue()
    for name, due in (("b", 5), ("a", 5), ("c", 1), ("d", 3)):
        timers.schedule(name, due)
    timers.schedule("c", 9)
    timers.cancel("d")
    assert timers.next_deadline() == 5
    assert list(timers.expired(8)) == ["b", "a"]
    assert list(timers.expired(9)) == ["c"]
    for _ in range(10_000):
        timers.schedule("x", 7)
    assert len(timers._heap) < 200, "a deadline that is moved for ever takes no more room"


class Broken(Operation):
    """Raises when it is its turn."""

    def try_complete(self, key: Hashable = None) -> bool:
        raise KeyError(self.name)

    def expire(self) -> None:
        raise KeyError(self.name)


def test_one_that_raises_drops_no_other() -> None:
    story: list[str] = []
    failures: list[str] = []
    purgatory = Purgatory(lambda operation, error: failures.append(repr(error)))
    for name, needs in (("a", 1), ("b", 2), ("c", 1)):
        purgatory.park(Operation(story, name, needs), ["p"], 100)
        purgatory.park(Broken(story, f"broken {name}"), ["p"], 100)
    assert purgatory.wake("p") == 2 and story == ["a done", "c done"]
    assert failures == ["KeyError('broken a')", "KeyError('broken b')", "KeyError('broken c')"]
    assert purgatory.wake("p") == 1 and len(failures) == 3, "what is done is not called again"
    for deadline_ms in (1, 2):
        purgatory.park(Broken(story, f"late {deadline_ms}"), ["q"], deadline_ms)
        purgatory.park(Operation(story, f"due {deadline_ms}", 9), ["q"], deadline_ms)
    purgatory.on_deadline(1)
    at_once(purgatory.expire_all())
    assert story[-2:] == ["due 1 expired", "due 2 expired"] and len(failures) == 5 and len(purgatory) == 0


def test_very_many_operations_are_woken_and_expired_some_at_a_time_in_order() -> None:
    """5,000 fetches that waited for one record took 80 ms of everybody's time."""
    story: list[str] = []
    rest: list[object] = []
    many, in_a_share = 100, 30

    def begin() -> Callable[[], bool]:
        before = len(story)
        return lambda: len(story) - before >= in_a_share

    purgatory = Purgatory(unexpected, lambda _, key: rest.append(key), begin)
    for number in range(many):
        purgatory.park(Operation(story, f"{number}"), ["p"], 100)
    counts = [purgatory.wake("p")]
    purgatory.park(Operation(story, "late"), ["p"], 100)
    while rest:
        counts.append(purgatory.wake(rest.pop()))
    assert counts == [30, 30, 30, 11]
    assert story == [*(f"{number} done" for number in range(many)), "late done"] and "p" not in purgatory.watched
    story.clear()
    for number in range(many):
        purgatory.park(Operation(story, f"{number}"), ["q"], 200)
    while purgatory.next_deadline() == 200:
        before = len(story)
        purgatory.on_deadline(200)
        assert len(story) - before in (in_a_share, many % in_a_share)
    assert story == [f"{number} expired" for number in range(many)] and purgatory.next_deadline() is None


def test_a_bounded_number_of_operations_expires_at_a_time() -> None:
    story: list[str] = []
    purgatory = Purgatory(unexpected)
    for number in range(3 * EXPIRED_AT_ONCE):
        purgatory.park(Operation(story, f"{number}"), ["q"], 200)
    for part in (1, 2, 3):
        assert purgatory.next_deadline() == 200
        purgatory.on_deadline(200)
        assert len(story) == part * EXPIRED_AT_ONCE
    assert story == [f"{number} expired" for number in range(3 * EXPIRED_AT_ONCE)] and purgatory.next_deadline() is None
