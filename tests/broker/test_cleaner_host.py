"""The log cleaner's host: what it leaves alone."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.partitions import cleaner
from minikafka.broker.partitions.cleaner import LogCleaner


class SomeLog:
    def __init__(self) -> None:
        self.config = SimpleNamespace(is_compacted=True)
        self.failure = None


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it() -> None:
    """Objects that come later get the number of one that is gone: the log of a new topic was never compacted."""
    directory: Any = SimpleNamespace(is_offline=False, logs={("gone", 0): SomeLog()})
    settings: Any = SimpleNamespace(watch=lambda callback: None)
    cleaner = LogCleaner(settings, SimpleNamespace(), [directory], lambda *_: None)  # type: ignore[arg-type]
    cleaner._uncleanable.add(directory.logs["gone", 0])
    assert cleaner.uncleanable(directory) and not list(cleaner._compacted())
    del directory.logs["gone", 0]
    gc.collect()
    assert not cleaner._uncleanable, "a number may be given again, so the mark goes with its log"
    directory.logs["new", 0] = SomeLog()
    assert not cleaner.uncleanable(directory) and len(list(cleaner._compacted())) == 1


class Throttled:
    """A cleaner that has moved 1,000 bytes in 0.5 s, and its rate."""

    def __init__(self, rate: float) -> None:
        self.settings: Any = SimpleNamespace(watch=self._watch, log_cleaner_io_max_bytes_per_second=rate)
        self.environment: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 1500), loop=asyncio.get_running_loop())
        self.cleaner = LogCleaner(self.settings, self.environment, [], lambda *_: None)
        cleaning: Any = SimpleNamespace(bytes_read=600, bytes_written=400)
        self.task = asyncio.create_task(self.cleaner._throttle(cleaning, 1000))

    def _watch(self, changed: Any) -> None:
        self.changed = changed

    async def turns(self) -> bool:
        """Whether it has gone on after some turns of the loop."""
        for _ in range(5):
            await asyncio.sleep(0)
        return self.task.done()


@pytest.mark.parametrize("rate", [0.0, -0.0, 5e-324, 1.0, 1900.0])
async def test_compaction_waits_while_its_rate_is_exceeded_and_not_longer(rate: float) -> None:
    """A rate of 0 was divided by: every compacted log was left alone until the next start. The pause of a low rate outlived the rate, or
    ended with any changed property."""
    throttled = Throttled(rate)
    assert not await throttled.turns()
    throttled.changed()
    assert not await throttled.turns(), "another property has changed"
    throttled.settings.log_cleaner_io_max_bytes_per_second = 1e308
    throttled.changed()
    assert await throttled.turns()
    await throttled.task


@pytest.mark.parametrize("rate", [2000.0, 1e308, -5.0, float("nan"), float("inf")])
async def test_compaction_goes_on_below_its_rate_and_without_one(rate: float) -> None:
    throttled = Throttled(rate)
    assert await throttled.turns()
    await throttled.task


@pytest.mark.parametrize("rate", [0.0, 5e-324, 0.1])
async def test_a_pause_has_an_end_and_is_computed_again(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    pauses: list[float] = []

    async def sleep(_: LogCleaner, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            throttled.settings.log_cleaner_io_max_bytes_per_second = 0.5
        if len(pauses) == 4:
            throttled.settings.log_cleaner_io_max_bytes_per_second = 1e308

    monkeypatch.setattr(LogCleaner, "_sleep", sleep)
    throttled = Throttled(rate)
    await throttled.task
    assert pauses == [cleaner.PAUSE_S_MAX] * 3 + [1999.5]


async def test_a_throttled_cleaner_stops() -> None:
    throttled = Throttled(0.0)
    assert not await throttled.turns()
    await throttled.cleaner.stop()
    await throttled.task
