"""Random lives of groups with members of both protocols, that stall, die, come back and lie about their epochs, beside a model that knows
nothing of the coordinator."""

from __future__ import annotations

import random

import pytest
from helpers.mixed_groups import MixedWorld
from helpers.mixed_lives import play

POLICIES = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")


@pytest.mark.parametrize("seed", range(30))
def test_a_partition_is_read_by_one_member_at_a_time_and_all_are_read_when_it_is_quiet(seed: int) -> None:
    chance = random.Random(seed)
    world = MixedWorld(chance.choice(POLICIES), interval_ms=chance.choice([0, 0, 1_000]), t=chance.randint(1, 7), u=chance.randint(1, 4))
    play(world, chance)
