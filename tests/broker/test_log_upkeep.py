"""Periodic work on logs: retention gives others their turn, and one directory's failure does not keep it from the others."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.partitions.log_upkeep import FLUSHED_AT_ONCE, FLUSHES_BEFORE_CLOSE, MANY_LOGS, LogUpkeep
from minikafka.broker.supervise import Supervisor
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.sim.disk import Disk, DiskView
from minikafka.storage.due_work import STEP_LOGS
from minikafka.storage.errors import StorageError
from minikafka.storage.log_dir import LogDirectory


def upkeep_of(directories: list[Any], turn_clock_s: Callable[[], float] = lambda: 0.0) -> LogUpkeep:
    loop = asyncio.get_running_loop()
    clock = SimpleNamespace(wall_ms=lambda: 7, now_ms=lambda: 8)
    environment: Any = SimpleNamespace(
        clock=clock, supervisor=Supervisor(loop), monotonic_s=lambda: 0.0, shares=TurnShares(turn_clock_s)
    )  # fmt: skip
    config: Any = None
    return LogUpkeep(config, environment, directories)


class Directory:
    """`steps` steps of retention; -1: its disk fails."""

    is_offline = False

    def __init__(self, steps: int) -> None:
        self.steps, self.taken = steps, 0

    def retaining(self, wall_ms: int, now_ms: int) -> Any:
        if self.steps < 0:
            raise StorageError("cannot delete", path="/d")
        for _ in range(self.steps):
            self.taken += 1
            yield


async def test_retention_takes_one_step_in_a_turn_and_is_not_begun_twice() -> None:
    first, broken, last = Directory(5), Directory(-1), Directory(3)
    upkeep = upkeep_of([first, broken, last])
    upkeep._retain()
    upkeep._retain()
    seen = []
    while upkeep._retaining is not None and not upkeep._retaining.done():
        await asyncio.sleep(0)
        seen.append(first.taken + last.taken)
    assert all(after - before <= 1 for before, after in itertools.pairwise(seen)) and seen[-1] == 8
    upkeep._retain()
    await asyncio.sleep(0)
    upkeep.cancel()
    await upkeep.finish()
    assert first.taken < 10, "a broker that stops does not wait for the rest"


class FlushedLog:
    """Notes what becomes of its flush. `error`: what its sync raises."""

    def __init__(self, story: list[str], number: int, *, is_whole: bool = False, error: OSError | None = None) -> None:
        self.name, self.failure, self.active_segment_base_offset = f"t-{number}", None, 0
        self.durability: Any = self
        self.is_whole_flush_requested = self.should_sync_ahead = is_whole
        self._story, self._error = story, error

    def prepare_flush(self, up_to: int | None) -> Any:
        self._story.append(f"prepare {self.name}")
        return self

    def run(self) -> None:
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        self._story.append(f"finish {self.name}")

    def flush_failed(self, task: Any, error: OSError) -> StorageError:
        self._story.append(f"failed {self.name}")
        return StorageError(str(error), path="/d")


async def test_of_very_many_logs_some_are_flushed_in_one_go_and_those_first_whose_files_are_wanted() -> None:
    """10,000 logs on 4,096 descriptors: each flush waited for its thread, and writes were refused for minutes."""
    story: list[str] = []
    count, calls = MANY_LOGS + 5, 0
    logs: list[Any] = [FlushedLog(story, number, is_whole=number == count - 1) for number in range(count)]
    logs[3] = FlushedLog(story, 3, error=OSError(5, "rotten"))
    upkeep = upkeep_of([])

    async def run(function: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return function(*arguments)

    upkeep._environment.run_blocking = run
    await upkeep._run_flushes(list(logs))
    assert calls == -(-count // FLUSHED_AT_ONCE) and upkeep.flushes.count == count - 1
    assert story[0] == f"prepare t-{count - 1}" and "failed t-3" in story
    assert story.count("finish t-7") == 1 and sum(line.startswith("finish") for line in story) == count - 1
    calls = 0
    await upkeep._run_flushes(logs[:9])
    assert calls == 9, "few logs leave the thread to others in between"


class LookedAtLog:
    """Notes in which turn it is looked at. `is_due`: whether it is to be flushed."""

    def __init__(self, looks: list[int], turn: list[int], *, is_due: bool = False) -> None:
        self._looks, self._turn = looks, turn
        self.segments = SimpleNamespace(scheduled_deletions=[])
        self.durability = SimpleNamespace(stale_point=0, recovery_point=0, is_flush_requested=is_due, should_sync_ahead=False)

    @property
    def failure(self) -> None:
        self._looks.append(self._turn[0])


async def test_very_many_logs_are_looked_at_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at 9,000 took 25 to 50 ms, every second. Each step of 64 takes a third of a share here."""
    looks, turn, passed = list[int](), [0], itertools.count()
    directory = LogDirectory(DiskView(Disk()), "/data")
    logs: list[Any] = [LookedAtLog(looks, turn, is_due=number % 1000 == 0) for number in range(9_000)]
    directory.logs = {("t", number): log for number, log in enumerate(logs)}
    flushed: list[Any] = []

    async def flush(upkeep: LogUpkeep, due: list[Any]) -> None:
        flushed.extend(due)

    monkeypatch.setattr(LogUpkeep, "_run_flushes", flush)
    upkeep = upkeep_of([directory], lambda: next(passed) * SHARE_S / 3)
    upkeep._look()
    upkeep._look()
    while not all(look.done() for look in upkeep._looking.values()):
        turn[0] += 1
        await asyncio.sleep(0)
    await upkeep.finish()
    assert len(looks) == 9_000 and max(Counter(looks).values()) <= 4 * STEP_LOGS, "once, and four steps in a turn"
    assert flushed == logs[::1000]


async def test_a_broker_that_stops_begins_nothing_that_a_look_has_found() -> None:
    directory = LogDirectory(DiskView(Disk()), "/data")
    logs: list[Any] = [LookedAtLog([], [0], is_due=True) for _ in range(3 * STEP_LOGS)]
    directory.logs = {("t", number): log for number, log in enumerate(logs)}
    passed = itertools.count()
    upkeep = upkeep_of([directory], lambda: next(passed) * SHARE_S)
    upkeep._look()
    assert upkeep._looking
    upkeep.cancel()
    await upkeep.finish()
    assert upkeep._flushing is None


class StoppingLog(FlushedLog):
    """A log that is about to be closed."""

    recovery_point, log_end_offset = 0, 1


async def test_logs_are_flushed_several_at_a_time_before_they_are_closed() -> None:
    """Closing 6,000 logs one after the other took 75 s on a busy disk: four syncs each."""
    story: list[str] = []
    logs: list[Any] = [StoppingLog(story, number) for number in range(3 * FLUSHES_BEFORE_CLOSE * FLUSHED_AT_ONCE)]
    logs[5].recovery_point = 1
    logs[7] = StoppingLog(story, 7, error=OSError(5, "rotten"))
    directory = LogDirectory(DiskView(Disk()), "/data")
    directory.logs = {("t", number): log for number, log in enumerate(logs)}
    upkeep, running, most = upkeep_of([directory]), 0, 0

    async def run(function: Any, *arguments: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return function(*arguments)

    upkeep._environment.run_blocking = run
    upkeep.cancel()
    await upkeep.flush_all()
    assert most == FLUSHES_BEFORE_CLOSE
    assert "prepare t-5" not in story and "failed t-7" in story
    assert sum(line.startswith("finish") for line in story) == len(logs) - 2
