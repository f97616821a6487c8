"""A leader that others have replaced and that does not know it must not act as one: it is in doubt before they have elected another."""

from __future__ import annotations

import pytest
from helpers.raft_simulator import World

SEEDS = 24


class Deposed(World):
    """A quorum without other faults, whose leader is cut off or stands still. `replaced`: steps in which a later leader had committed
    its first record and an earlier one led still; World.check judges them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.replaced = 0

    def depose(self, is_paused: bool) -> None:
        leader = self.leader()
        assert leader is not None
        if is_paused:
            leader.paused_until = self.now + 3500
        else:
            self.partition = [{leader.node_id}]

    def check_deposed(self, epoch: int) -> None:
        self.replaced += sum(node.core is not None and node.core.is_leader and node.core.epoch < epoch for node in self.nodes.values())
        super().check_deposed(epoch)


@pytest.mark.parametrize("is_paused", [False, True], ids=["cut", "paused"])
def test_a_leader_is_in_doubt_before_another_has_committed_anything(is_paused: bool) -> None:
    worlds = [Deposed(seed) for seed in range(SEEDS)]
    for world in worlds:
        if world.options.voters >= 3 and world.options.loss == 0:
            world.at(3000, world.depose, is_paused)
            world.run(7500)
    assert sum(world.replaced > 0 for world in worlds) >= 3
