"""Periodic work on logs: retention gives others their turn, and one directory's failure does not keep it from the others."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

from minikafka.broker.partitions.log_upkeep import LogUpkeep
from minikafka.broker.supervise import Supervisor
from minikafka.storage.errors import StorageError


def upkeep_of(directories: list[Any]) -> LogUpkeep:
    loop = asyncio.get_running_loop()
    clock = SimpleNamespace(wall_ms=lambda: 7, now_ms=lambda: 8)
    environment: Any = SimpleNamespace(clock=clock, supervisor=Supervisor(loop), monotonic_s=lambda: 0.0)
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
