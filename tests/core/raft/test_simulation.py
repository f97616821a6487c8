"""Whole quorums in the simulator, a seed each."""

from __future__ import annotations

import pytest
from helpers.raft_simulator import World


@pytest.mark.parametrize("seed", range(60))
def test_seed(seed) -> None:
    World(seed).play(12_000)


def test_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> tuple:
        world = World(seed)
        world.play(8_000)
        return world.steps, world.leaders, [batch.key() for batch in world.committed]

    assert digest(7) == digest(7)
