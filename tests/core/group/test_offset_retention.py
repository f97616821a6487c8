"""How long an offset lives whose commit says so; and how much is looked at in a step to find those that have expired."""

from __future__ import annotations

import pytest
from core.group.test_shard import World

from minikafka.core.group.removal import STEP_OFFSETS
from minikafka.wire.errors import ErrorCode


@pytest.mark.parametrize("retention_ms", [500, -5, (1 << 63) - 1])
def test_a_retention_that_a_client_asks_for_counts_and_wraps_as_in_kafka(retention_ms: int) -> None:
    """OffsetMetadataManager.expireTimestampMs of Apache Kafka adds 64-bit numbers; the longest retention is over at once."""
    world = World(offsets_retention_ms=1 << 40)
    assert world.commit("c1", 7, version=2, retention_ms=retention_ms) is ErrorCode.NONE
    world.restart()
    assert world.shard.offsets.get("g", "t", 0) is not None
    lives_ms = max(retention_ms, 0) if retention_ms < 1 << 62 else 0
    if lives_ms:
        world.take_steps(world.shard.expire_offsets(world.now_ms + lives_ms - 1))
        world.settle()
        assert world.shard.offsets.get("g", "t", 0) is not None
    world.take_steps(world.shard.expire_offsets(world.now_ms + lives_ms))
    world.settle()
    assert world.shard.offsets.get("g", "t", 0) is None


def test_groups_without_offsets_are_looked_at_in_steps_too() -> None:
    """Only offsets counted: in one turn of the loop the subscriptions of the members of 50,000 groups were read."""
    world = World()
    leader, _, generation = world.stable_pair()
    group = world.shard.groups["g"]
    for number in range(STEP_OFFSETS):
        world.shard.groups[f"idle-{number}"] = group
    assert world.take_steps(world.shard.expire_offsets(world.now_ms)) >= 5, "one look for a group, and one for each member"
    assert world.heartbeat(leader, generation) is ErrorCode.NONE
