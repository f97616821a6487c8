"""The watch over the event loop: a long turn is measured, named and told, and not told too often."""

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
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


hold.__globals__["__name__"] = "minikafka.tests.test_loop_watch"


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_long_turn_is_measured_named_and_logged(factory: object, caplog: pytest.LogCaptureFixture) -> None:
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
        assert watch.longest.wall_s > 0.25 and watch.longest.cpu_s > 0.01
        assert watch.stalls >= 3 and watch.stalled_s > 3 * 0.25
        assert len(caplog.records) == 1
        return watch.longest.what.endswith("test_loop_watch.hold") and "test_loop_watch.hold" in caplog.text

    # On a machine without a free core another turn may be the longest, or the first.
    assert any(is_logged() for _ in range(3))


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
