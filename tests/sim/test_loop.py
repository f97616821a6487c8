"""Virtual time: order, timers, pauses and deaths; and ordinary asyncio on it."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.sim.loop import ProcessLoop, Scheduler


class Place:
    """A scheduler, processes on it, and what they said."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.said: list[tuple[float, str]] = []
        self.errors: list[dict] = []

    def loop(self, name: str = "a", rate: float = 1.0) -> ProcessLoop:
        return ProcessLoop(self.scheduler, name, rate=rate, on_error=lambda name, context: self.errors.append(context))

    def say(self, text: str) -> None:
        self.said.append((round(self.scheduler.now, 6), text))


def test_callbacks_run_in_the_order_of_time_and_number() -> None:
    place = Place()
    loop = place.loop()
    loop.call_later(0.2, place.say, "third")
    loop.call_later(0.1, place.say, "second")
    loop.call_later(0.2, place.say, "fourth")
    loop.call_soon(place.say, "first")
    place.scheduler.run(1.0)
    assert place.said == [(0.0, "first"), (0.1, "second"), (0.2, "third"), (0.2, "fourth")]
    assert place.scheduler.now == 1.0


def test_a_cancelled_timer_does_not_run() -> None:
    place = Place()
    handle = place.loop().call_later(0.1, place.say, "no")
    handle.cancel()
    place.scheduler.run(1.0)
    assert place.said == [] and handle.cancelled()


def test_asyncio_works_and_waits_no_real_time() -> None:
    place = Place()
    loop = place.loop()

    async def main() -> None:
        event = asyncio.Event()
        loop.call_later(3600, event.set)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(event.wait(), 1800)
        place.say("half an hour")
        await event.wait()
        place.say("an hour")
        await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
        place.say("and two seconds")

    loop.call_soon(lambda: loop.create_task(main()))
    place.scheduler.run(10_000.0)
    assert place.said == [(1800.0, "half an hour"), (3600.0, "an hour"), (3602.0, "and two seconds")]


def test_a_paused_process_catches_up_at_once() -> None:
    place = Place()
    loop, other = place.loop("a"), place.loop("b")
    for second in (1, 2, 3, 4):
        loop.call_later(second, place.say, f"a{second}")
        other.call_later(second, place.say, f"b{second}")
    other.call_later(0.5, loop.pause, 3.5)
    place.scheduler.run(5.0)
    assert [entry for entry in place.said if entry[1][0] == "a"] == [(3.5, "a1"), (3.5, "a2"), (3.5, "a3"), (4.0, "a4")]
    assert [entry for entry in place.said if entry[1][0] == "b"] == [(float(n), f"b{n}") for n in (1, 2, 3, 4)]


def test_a_dead_process_runs_nothing_more() -> None:
    place = Place()
    loop = place.loop()

    async def main() -> None:
        await asyncio.sleep(1)
        place.say("lives")
        await asyncio.sleep(1)
        place.say("is dead")

    loop.call_soon(lambda: loop.create_task(main()))
    place.loop("b").call_later(1.5, loop.kill)
    place.scheduler.run(5.0)
    assert place.said == [(1.0, "lives")]


def test_a_clock_that_runs_fast_lets_no_timer_come_early() -> None:
    place = Place()
    loop = place.loop(rate=1.1)
    seen = []
    for number in range(1, 50):
        due = number * 0.37
        loop.call_at(due, lambda due=due: seen.append(loop.time() - due))
    place.scheduler.run(100.0)
    assert len(seen) == 49 and all(0 <= late < 1e-4 for late in seen)
    assert place.scheduler.now == 100.0 and loop.time() == pytest.approx(110.0)


def test_exceptions_of_callbacks_are_reported() -> None:
    place = Place()
    place.loop().call_soon(lambda: 1 // 0)
    place.scheduler.run(1.0)
    assert isinstance(place.errors[0]["exception"], ZeroDivisionError)


def test_a_pause_that_ends_early_holds_nothing_back() -> None:
    scheduler = Scheduler()
    loop = ProcessLoop(scheduler, "p", on_error=lambda name, context: None)
    ran: list[float] = []
    loop.pause(10.0)
    loop.call_later(1.0, lambda: ran.append(scheduler.now))
    scheduler.run(2.0)
    assert ran == []
    loop.resume()
    scheduler.run(3.0)
    assert ran == [2.0]
    scheduler.run(20.0)
    assert ran == [2.0]
