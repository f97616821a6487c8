"""A coordinator's shard that keeps failing, in virtual time: it is loaded again after longer and longer pauses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.coordinator_world import CoordinatorWorld, append_records, coordinator_log

from minikafka.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from minikafka.core.coordinator.reload import PAUSE_MS_MAX, PAUSE_MS_MIN
from minikafka.sim.loop import ProcessLoop, Scheduler
from minikafka.storage.log import Log
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.group_records import OffsetCommitKey, OffsetCommitValue


def offsets_log() -> Log:
    """The log of a group g that has committed offset 5 of t-0."""
    log = coordinator_log(OFFSETS_TOPIC)
    value = OffsetCommitValue(offset=5, leader_epoch=-1, metadata="", commit_timestamp=1)
    append_records(log, [(OffsetCommitKey(group="g", topic="t", partition=0), value, 3)])
    log.update_high_watermark(log.log_end_offset)
    return log


class FailingWork(CoordinatorWorld):
    """In virtual time: a shard's work fails the same way each time, every 10 ms. `failed_s`: when it did."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        super().__init__(offsets_log())
        self.is_broken = True
        self.failed_s: list[float] = []
        self.groups.every(10, "work that fails", self.work)
        self.lead()

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return round(self.scheduler.now * 1000)

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        assert now_ms == self.now_ms

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
