"""Flushes that run in a thread while the log goes on: what they say is durable survives a power cut."""

from __future__ import annotations

import random

import pytest
from helpers.batches import T0, batch

from minikafka.sim.disk import Disk, DiskView
from minikafka.storage.config import LogConfig
from minikafka.storage.durability import FlushTask
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

DIRECTORY = "/data/t-0"
STEPS = 60


class Play:
    """One log, and flushes that were begun: each has run or not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        policy = frozenset({self.random.choice(("delete", "compact"))})
        self.config = LogConfig(segment_bytes=self.random.choice((150, 400, 4000)), segment_index_bytes=1200, cleanup_policy=policy)
        self.disk = Disk()
        DiskView(self.disk).mkdir(DIRECTORY)
        self.log = self.load(0, is_clean=True)
        self.begun: list[tuple[FlushTask, bool]] = []
        self.number = self.epoch = 0

    def load(self, recovery_point: int, *, is_clean: bool) -> Log:
        return load_log(
            DiskView(self.disk), DIRECTORY, "t", 0, self.config, wall_ms=T0, is_clean=is_clean, recovery_point=recovery_point
        )

    def step(self) -> None:
        kind = self.random.choice(("append", "append", "append", "lead", "truncate", "begin", "begin", "run", "finish"))
        getattr(self, kind)()

    def append(self) -> None:
        self.number += 1
        self.log.append_as_leader(memoryview(batch(b"%d" % self.number, timestamp=T0 + self.number)), self.epoch, T0)

    def lead(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.log.log_end_offset)

    def truncate(self) -> None:
        if self.random.random() < 0.3:
            self.log.truncate_to(self.random.randint(self.log.log_start_offset, self.log.log_end_offset))

    def begin(self) -> None:
        task = self.log.prepare_flush(self.random.choice((None, self.log.active_segment_base_offset)))
        if task is not None:
            self.begun.append((task, False))

    def run(self) -> None:
        for place, (task, has_run) in enumerate(self.begun):
            if not has_run:
                task.run()
                self.begun[place] = task, True
                return

    def finish(self) -> None:
        for place, (task, has_run) in enumerate(self.begun):
            if has_run:
                task.finish()
                del self.begun[place]
                return


def values(log: Log, end: int) -> list[bytes]:
    """The bytes of every batch below an offset."""
    found, offset = [], log.log_start_offset
    while offset < end:
        data = log.read(offset, 1, end_offset=log.log_end_offset).slice.read()
        found.append(bytes(data))
        offset = int.from_bytes(data[:8], "big") + 1
    return found


@pytest.mark.parametrize("seed", range(24))
def test_what_is_said_to_be_durable_survives_a_power_cut(seed: int) -> None:
    play = Play(seed)
    for _ in range(play.random.randint(5, STEPS)):
        play.step()
    point = play.log.recovery_point
    assert point <= play.log.log_end_offset
    before = values(play.log, point)
    play.disk.power_cut(play.random)
    again = play.load(point, is_clean=False)
    assert again.log_end_offset >= point and values(again, point) == before
