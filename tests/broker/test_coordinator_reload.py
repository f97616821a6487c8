"""A coordinator's shard that fails or cannot be loaded yet, in virtual time: it is loaded again after longer and longer pauses."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.coordinator_world import CoordinatorWorld, append_records, coordinator_log

from minikafka.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from minikafka.broker.coordinators.loader import STEP_BYTES
from minikafka.core.coordinator.reload import PAUSE_MS_MAX, PAUSE_MS_MIN
from minikafka.sim.loop import ProcessLoop, Scheduler
from minikafka.storage.errors import StorageError
from minikafka.storage.log import Log
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.group_records import OffsetCommitKey, OffsetCommitValue


def offsets_log(commits: int = 1) -> Log:
    """The log of a group g that has committed offset 5 of t-0, perhaps often."""
    log = coordinator_log(OFFSETS_TOPIC)
    value = OffsetCommitValue(offset=5, leader_epoch=-1, metadata="", commit_timestamp=1)
    for _ in range(commits):
        append_records(log, [(OffsetCommitKey(group="g", topic="t", partition=0), value, 3)])
    log.update_high_watermark(log.log_end_offset)
    return log


class VirtualWorld(CoordinatorWorld):
    """In virtual time."""

    def __init__(self, scheduler: Scheduler, log: Log) -> None:
        self.scheduler = scheduler
        super().__init__(log)

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return round(self.scheduler.now * 1000)

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        assert now_ms == self.now_ms


class FailingWork(VirtualWorld):
    """A shard's work fails the same way each time, every 10 ms. `failed_s`: when it did."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler, offsets_log())
        self.is_broken = True
        self.failed_s: list[float] = []
        self.groups.every(10, "work that fails", self.work)
        self.lead()

    def work(self, index: int, shard: Any) -> Iterator[None]:
        if self.is_broken:
            self.failed_s.append(self.scheduler.now)
            raise ZeroDivisionError
        yield


def test_a_shard_that_keeps_failing_is_loaded_again_after_longer_and_longer_pauses() -> None:
    scheduler = Scheduler()
    worlds: list[FailingWork] = []
    loop = ProcessLoop(scheduler, "broker", on_error=lambda name, context: pytest.fail(str(context)))
    loop.call_soon(lambda: worlds.append(FailingWork(scheduler)))
    scheduler.run(100.0)
    [world] = worlds
    pauses_ms = [1000 * (later - earlier) for earlier, later in itertools.pairwise(world.failed_s)]
    expected = [0, *(min(PAUSE_MS_MIN << number, PAUSE_MS_MAX) for number in range(len(pauses_ms) - 1))]
    assert pauses_ms == pytest.approx(expected, abs=20.0) and expected[-2:] == [25_600, PAUSE_MS_MAX]
    assert world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "clients ask this broker again"

    world.is_broken = False
    scheduler.run(200.0)
    assert world.refusal() is None and world.groups.shard("g")[1].offsets.get("g", "t", 0).offset == 5

    # Having worked for long, it is loaded again at once; and so it is in another epoch.
    for _ in range(2):
        world.is_broken = True
        scheduler.run(scheduler.now + 0.01)
        world.is_broken = False
        scheduler.run(scheduler.now + 0.001)
        assert world.refusal() is None
        loop.call_soon(world.lead)
        scheduler.run(scheduler.now + 0.001)


def test_a_shard_that_waits_to_be_loaded_again_is_not_if_the_leadership_ends() -> None:
    scheduler = Scheduler()
    worlds: list[FailingWork] = []
    loop = ProcessLoop(scheduler, "broker", on_error=lambda name, context: pytest.fail(str(context)))
    loop.call_soon(lambda: worlds.append(FailingWork(scheduler)))
    scheduler.run(1.0)
    [world] = worlds
    assert world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    loop.call_soon(lambda: world.lead(leader=False))
    failures = len(world.failed_s)
    scheduler.run(100.0)
    assert world.refusal() is ErrorCode.NOT_COORDINATOR and len(world.failed_s) == failures


def test_a_shard_whose_log_cannot_be_read_for_lack_of_descriptors_is_loaded_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler()
    worlds: list[VirtualWorld] = []
    loop = ProcessLoop(scheduler, "broker", on_error=lambda name, context: pytest.fail(str(context)))
    read, is_short = Log.read, True

    def read_if_possible(log: Log, *arguments: Any, **options: Any) -> Any:
        with log.disk("read"):
            if is_short:
                raise OSError(errno.EMFILE, "no descriptors are left")
            return read(log, *arguments, **options)

    monkeypatch.setattr(Log, "read", read_if_possible)

    def begin() -> None:
        worlds.append(VirtualWorld(scheduler, offsets_log()))
        worlds[0].lead()

    loop.call_soon(begin)
    scheduler.run(10.0)
    [world] = worlds
    assert world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "clients ask this broker again"
    is_short = False
    scheduler.run(10.0 + PAUSE_MS_MAX / 1000)
    assert world.refusal() is None and world.groups.shard("g")[1].offsets.get("g", "t", 0).offset == 5
    assert not world.supervisor.unexpected


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_shard_whose_log_is_replaced_while_it_is_loaded_is_loaded_from_the_other_one(is_moved: bool) -> None:
    """By a move between directories. If the log's disk fails, another broker loads it."""
    scheduler = Scheduler()
    worlds: list[VirtualWorld] = []
    loop = ProcessLoop(scheduler, "broker", on_error=lambda name, context: pytest.fail(str(context)))

    def begin() -> None:
        worlds.append(VirtualWorld(scheduler, offsets_log(STEP_BYTES // 64)))
        worlds[0].lead()

    def replace() -> None:
        assert worlds[0].refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        old = worlds[0].offsets.log
        if is_moved:
            worlds[0].offsets.log = offsets_log()
            old.close()
        else:
            old.take_offline(StorageError("the disk failed"))

    loop.call_soon(begin)
    loop.call_soon(lambda: loop.call_soon(replace))
    scheduler.run(1.0)
    assert worlds[0].refusal() is (None if is_moved else ErrorCode.NOT_COORDINATOR)
