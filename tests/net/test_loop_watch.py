"""The watch over the event loop: a long turn is measured, named and logged, and not logged too often."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from helpers.own_clock import replace_sleep

from minikafka.net import loop_watch
from minikafka.net.loop_watch import ASKED_S, INTERVAL_S, REST_S, STALL_S, UNKNOWN, LoopWatch, Turn

HOLD = """
import time
def hold(seconds):
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass
"""
scope: dict[str, Any] = {}
exec(compile(HOLD, "/x/minikafka/test_loop_watch.py", "exec"), scope)
#: Takes that much processor time of this thread; to the watch it is a function of minikafka.
hold: Callable[[float], None] = scope["hold"]



@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_long_turn_is_measured_named_and_logged(
    factory: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watch, "WARNING_INTERVAL_S", 3600.0)

    async def stalled() -> LoopWatch:
        watch = LoopWatch(asyncio.get_running_loop())
        watch.start()
        await asyncio.sleep(0.05)
        watch.forget()
        for _ in range(3):
            hold(0.25 + 2 * REST_S)  # a turn counts from the look that found it
            before = watch.stalls
            while watch.stalls == before:
                await asyncio.sleep(0.01)
        watch.stop()
        return watch

    def is_logged() -> bool:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "minikafka.loop"), asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]
            watch = runner.run(stalled())
        assert watch.longest.wall_s > 0.25
        assert watch.stalls >= 3 and watch.stalled_s > 3 * 0.25
        assert len(caplog.records) == 1
        return watch.longest.cpu_s > 0.25 and watch.longest.what.endswith("test_loop_watch.hold") and "test_loop_watch.hold" in caplog.text

    # On a machine without a free core another turn may be the longest, or the first.
    assert any(is_logged() for _ in range(3))


@pytest.mark.parametrize(
    ("sampled", "cpu_s", "expected"),
    [
        ("dispatch.handle", 0.4, "the event loop was blocked for 500 ms (400 ms of CPU) by dispatch.handle"),
        (None, 0.4, "the event loop was blocked for 500 ms (400 ms of CPU)"),
        (None, 0.002, "the event loop was blocked for 500 ms (2 ms of CPU), because the process got no processor time"),
    ],
)
async def test_a_turn_without_a_sample_says_what_is_certain(
    sampled: str | None, cpu_s: float, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LoopWatch(asyncio.get_running_loop())
    watch._sampled = sampled
    with caplog.at_level(logging.WARNING, "minikafka.loop"):
        watch._log_stall(0.0, 0.5, cpu_s)
    assert caplog.messages == [expected]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_turn_that_waits_for_a_disk_is_counted_in_a_loop_at_rest_too(factory: object) -> None:
    """It uses no processor time."""

    async def seen() -> LoopWatch:
        watch = LoopWatch(asyncio.get_running_loop())
        watch.start()
        time.sleep(0.1)
        await asyncio.sleep(0.3)
        watch.forget()
        before = watch.stalls
        time.sleep(ASKED_S + 2 * STALL_S)
        while watch.stalls == before:
            await asyncio.sleep(0.01)
        watch.stop()
        return watch

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]
        watch = runner.run(seen())
    assert watch.longest.wall_s > STALL_S and watch.longest.cpu_s < watch.longest.wall_s / 2


async def test_a_loop_at_rest_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at less often, and woken up hardly ever."""
    watch = LoopWatch(asyncio.get_running_loop())
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        watch._has_ended = len(pauses) > 3

    replace_sleep(monkeypatch, loop_watch, sleep)
    monkeypatch.setattr(watch, "_look", lambda *_, **__: None)
    watch._watch(lambda: 0.0)
    assert pauses == [INTERVAL_S, REST_S, REST_S, REST_S]
    pauses.clear()
    watch._has_ended = False
    watch._turn = (0.0, 0.0)
    watch._watch(lambda: 0.0)
    assert pauses == [INTERVAL_S] * 4


async def test_a_loop_at_rest_is_asked_seldom() -> None:
    woken: list[object] = []
    watch = LoopWatch(SimpleNamespace(call_soon_threadsafe=woken.append))  # type: ignore[arg-type]
    now_s = 1000.0
    for look in range(100):
        watch._look(now_s, now_s, 0.0, is_at_rest=True)
        watch._turn = None
        assert len(woken) == 1 + look // 5
        now_s += REST_S


async def test_a_late_look_at_a_waiting_loop_names_nothing() -> None:
    """Nothing ran: the process got no processor time, or a function kept other threads from running."""
    watch = LoopWatch(asyncio.get_running_loop())
    now_s = watch._asked_s = time.monotonic()
    watch._look(now_s - INTERVAL_S / 2, now_s, time.thread_time(), is_at_rest=True)
    assert watch._turn is None
    watch._look(now_s - 2 * STALL_S, now_s, time.thread_time(), is_at_rest=True)
    await asyncio.sleep(0)
    assert watch.stalls == 1 and watch.longest.wall_s > STALL_S and watch.longest.what == UNKNOWN


def test_the_watch_of_a_thread_that_has_ended_ends() -> None:
    watches: list[LoopWatch] = []

    async def begin() -> None:
        watches.append(LoopWatch(asyncio.get_running_loop()))
        watches[0].start()

    thread = threading.Thread(target=lambda: asyncio.run(begin()))
    thread.start()
    thread.join()
    assert watches[0]._thread is not None
    watches[0]._thread.join(10)
    assert not watches[0]._thread.is_alive()


def test_without_a_clock_of_one_thread_that_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    assert loop_watch._cpu_clock() is time.process_time


async def test_old_turns_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = LoopWatch(asyncio.get_running_loop())
    watch._longest = [Turn(), Turn(STALL_S)]
    monkeypatch.setattr(loop_watch, "WINDOW_S", 0.05)
    watch.start()
    while watch.longest.wall_s == STALL_S:
        await asyncio.sleep(0.01)
    watch.stop()


async def test_the_thread_ends_with_the_watch() -> None:
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    assert watch._thread is not None
    watch.stop()
    await asyncio.get_running_loop().run_in_executor(None, watch._thread.join, 10)
    assert watch._thread not in threading.enumerate()


async def test_a_watch_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class FailingWatch(LoopWatch):
        def _look(self, *_: object, **__: object) -> None:
            raise RuntimeError("a bug")

    watch = FailingWatch(asyncio.get_running_loop())
    watch.start()
    assert watch._thread is not None
    await asyncio.to_thread(watch._thread.join, 30)
    assert [line.message for line in caplog.records] == ["turns of the event loop are no longer measured"]
