"""The watch over the event loop: a long turn is measured, named and logged, and not logged too often."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
import uvloop

from minikafka.net import loop_watch
from minikafka.net.loop_watch import STALL_S, LoopWatch, Turn


def hold(seconds: float) -> None:
    """Take that much processor time of this thread."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


hold.__globals__["__name__"] = "minikafka.tests.test_loop_watch"


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
            hold(0.3)
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
