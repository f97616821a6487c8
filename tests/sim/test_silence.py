"""Connections that are dead without a word, in whole simulated clusters: what a time-out of a request must bring about."""

from __future__ import annotations

import pytest

from minikafka.sim.connection import GIVE_UP_S
from minikafka.sim.swarm import Fault, Options
from minikafka.sim.world import World

LOAD_S = 9.0


class Watched(World):
    """Looks at the brokers when the load is over and nothing has healed."""

    def _heal(self) -> None:
        lifecycles = [node.node.broker.lifecycle for node in self.brokers if node.node is not None and node.node.broker is not None]
        self.troubles = [lifecycle.trouble for lifecycle in lifecycles]
        super()._heal()


@pytest.mark.parametrize("kind", ["controller", "leader"])
@pytest.mark.parametrize("seed", range(3))
def test_silent_connections_are_replaced_before_a_kernel_notices(kind: str, seed: int) -> None:
    """One node loses every connection; the load goes on for three sessions, and for much less than a kernel needs."""
    assert LOAD_S < GIVE_UP_S / 2
    properties = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "controller.quorum.request.timeout.ms": "1000",
        "replica.socket.timeout.ms": "1000",
    }
    options = Options(seed=seed, shape="combined", duration_s=LOAD_S, properties=properties)
    world = Watched(options, [Fault(0.5, "silence", kind, 0.1, 1)])
    outcome = world.run()
    assert outcome.violation is None, outcome.story
    assert world.fabric.silences >= 2
    assert world.troubles == [None] * 3, "every broker heartbeats, and none is fenced"
