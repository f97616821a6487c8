"""L9 excuses a high watermark that waits for a call to a slow disk, while the call lasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.sim.stalls import GRACE_MS, Stalls
from minikafka.sim.world import Violation

LAG_MS_MAX = 1000


class World:
    now = 0.0

    def violate(self, rule: str, text: str) -> None:
        raise Violation(rule, text)


def scene() -> tuple[World, Stalls, Any, Any]:
    """A leader whose followers have all of its log, and whose high watermark stays behind."""
    world = World()
    clock = SimpleNamespace(now_ms=lambda: int(world.now * 1000))
    node: Any = SimpleNamespace(
        node_id=1, node=SimpleNamespace(broker=object(), environment=SimpleNamespace(clock=clock)), is_paused=False,
        config=SimpleNamespace(replica_lag_time_max_ms=LAG_MS_MAX), disk=SimpleNamespace(is_short=False), long_call_ends_s=0.0,
    )  # fmt: skip
    isr = SimpleNamespace(committed=(1, 2), maximal=(1, 2))
    follower = SimpleNamespace(log_end_offset=5, last_caught_up_ms=0)
    leader = SimpleNamespace(isr=isr, min_isr=1, high_watermark=4, log_end_offset=5, followers={2: follower})
    partition: Any = SimpleNamespace(topic_id=bytes(16), index=0, leader=leader, leader_epoch=0)
    invariants: Any = SimpleNamespace(world=world, checked={"L9": 0})
    return world, Stalls(invariants), node, partition


def watch_until(world: World, stalls: Stalls, node: Any, partition: Any, end_s: float) -> None:
    while world.now < end_s:
        stalls.watch(node, partition)
        world.now += 0.1


def test_a_high_watermark_that_nothing_holds_back_is_a_violation() -> None:
    world, stalls, node, partition = scene()
    with pytest.raises(Violation, match="L9"):
        watch_until(world, stalls, node, partition, (LAG_MS_MAX + GRACE_MS) / 1000)


def test_a_sync_on_a_slow_disk_is_excused_while_it_lasts_and_not_after() -> None:
    world, stalls, node, partition = scene()
    node.long_call_ends_s = 20.0
    watch_until(world, stalls, node, partition, 20.0)
    with pytest.raises(Violation, match="L9"):
        watch_until(world, stalls, node, partition, 20.0 + (LAG_MS_MAX + GRACE_MS) / 1000)
