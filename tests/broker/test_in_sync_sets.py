"""The periodic look at the in-sync sets of the partitions that this broker leads."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

from helpers.replica_world import SilentEvents

from minikafka.broker.partitions.in_sync_sets import InSyncSets
from minikafka.broker.partitions.partition import LeaderRules, Partition
from minikafka.broker.supervise import Supervisor
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.sim.disk import Disk, DiskView
from minikafka.steps import STEP_ITEMS, at_once
from minikafka.storage.config import LogConfig
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import build_batch
from minikafka.wire.record import Record

LAG_MS = 1000


class Moves(SilentEvents):
    """Counts moves of high watermarks."""

    moves = 0

    def high_watermark_moved(self, partition: Partition) -> None:
        self.moves += 1


async def test_a_silent_replica_holds_the_high_watermark_no_longer_than_its_lag_time() -> None:
    """Broker 3 is not in sync and was caught up when it fell silent. Broker 2 is gone, too. No fetch comes that could let it go on."""
    events, clock = Moves(), SimpleNamespace(now_ms=lambda: now_ms)
    now_ms = 10_000
    disk = DiskView(Disk())
    disk.mkdir("/data/t-0")
    rules = LeaderRules(broker_id=1, lag_ms_max=LAG_MS, is_eligible=lambda *_: True)
    partition = Partition(events, rules, "t", bytes(16), 0, load_log(disk, "/data/t-0", "t", 0, LogConfig(), wall_ms=0))
    partition.make_leader(PartitionRegistration((1, 2, 3), (1,), 1, 4, 4), 1, now_ms)
    leader = partition.leading()
    leader.fetched(3, 0, 0, 1, now_ms)
    partition.append(memoryview(build_batch([Record(0, 1, None, b"x")])), -1, 0, now_ms)
    environment: Any = SimpleNamespace(clock=clock, supervisor=Supervisor(asyncio.get_running_loop()), shares=None)
    sets = InSyncSets(1, lambda: 1, environment, SimpleNamespace(), events, LAG_MS)  # type: ignore[arg-type]
    now_ms += LAG_MS
    at_once(sets.shrinking([partition]))
    assert (partition.high_watermark, events.moves) == (0, 0)
    now_ms += 1
    at_once(sets.shrinking([partition]))
    assert (partition.high_watermark, leader.high_watermark, events.moves) == (1, 1, 1)


class Leader:
    """Notes in which turn it is looked at."""

    high_watermark = log_end_offset = 0

    def __init__(self, looks: list[int], turn: list[int]) -> None:
        self._looks, self._turn = looks, turn

    def shrinkage(self, now_ms: int) -> None:
        self._looks.append(self._turn[0])


async def test_very_many_in_sync_sets_are_looked_at_some_in_a_turn() -> None:
    """9,000 took some 30 ms. Each step of 64 takes a third of a share here."""
    looks, turn, passed = list[int](), [0], itertools.count()
    shares = TurnShares(lambda: next(passed) * SHARE_S / 3)
    environment: Any = SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: 0), supervisor=Supervisor(asyncio.get_running_loop()), shares=shares
    )  # fmt: skip
    sets = InSyncSets(1, lambda: 1, environment, SimpleNamespace(), SilentEvents(), LAG_MS)  # type: ignore[arg-type]
    partitions: list[Any] = [SimpleNamespace(leader=Leader(looks, turn)) for _ in range(9_000)]
    sets.look(partitions)
    sets.look(partitions)
    while sets._looking is not None and not sets._looking.done():
        turn[0] += 1
        await asyncio.sleep(0)
    assert len(looks) == 9_000 and max(Counter(looks).values()) <= 4 * STEP_ITEMS, "once, and four steps in a turn"
    sets.look(partitions)
    await asyncio.sleep(0)
    await sets.stop()
    assert len(looks) < 10_000, "a broker that stops does not wait for the rest"
