"""What brokers do when nobody asks them for anything, counted on virtual time: whatever is new and periodic shows here."""

from __future__ import annotations

import sys
from types import FrameType

from minikafka.sim.swarm import Options
from minikafka.sim.world import World

#: Until three nodes are in service and have settled, and then as long as is counted.
SETTLED_S, COUNTED_S = 20.0, 30.0
#: A second, of three nodes together: callbacks of their loops, and calls of Python functions.
CALLBACKS_MAX, CALLS_MAX = 38, 2400


def test_three_brokers_at_rest_do_next_to_nothing() -> None:
    world = World(Options(seed=1, shape="combined"), [])
    for node in world.nodes.values():
        node.format()
        node.boot()
    world.scheduler.run(SETTLED_S)
    assert all(node.is_running for node in world.nodes.values())
    callbacks, calls = world.scheduler.steps, 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        world.scheduler.run(SETTLED_S + COUNTED_S)
    finally:
        sys.setprofile(None)
    assert (world.scheduler.steps - callbacks) / COUNTED_S < CALLBACKS_MAX
    assert calls / COUNTED_S < CALLS_MAX
