"""Requests that the active controller lets wait: they must not hold up what keeps brokers alive."""

from __future__ import annotations

from minikafka.client.errors import ClientError
from minikafka.sim.swarm import Options
from minikafka.sim.world import World

WAIT_MS = 30_000
SESSION_MS = 3_000


class WithAVoterThatNeverComes(World):
    """When the load is over, an operator adds a voter whose replica does not exist, and waits as long as it may."""

    took_s = 0.0
    answer = ""

    def _heal(self) -> None:
        self._await(self._add_voter(), 2 * WAIT_MS / 1000, "AddRaftVoter has no answer")
        lifecycles = [node.node.broker.lifecycle for node in self.brokers if node.node is not None and node.node.broker is not None]
        self.unanswered = [lifecycle.unanswered for lifecycle in lifecycles]
        self.troubles = [lifecycle.trouble for lifecycle in lifecycles]
        self.epochs = [lifecycle.broker_epoch for lifecycle in lifecycles]
        super()._heal()

    async def _add_voter(self) -> None:
        lender = self.controllers[0]
        self.fenced: list[int] = []
        for node in self.brokers:
            assert node.node is not None
            node.node.metadata.subscribe(lambda delta, image: self.fenced.extend(b.broker_id for b in image.brokers.values() if b.fenced))
        # Its endpoint answers as a controller does, so that the leader waits for it to catch up.
        listener = ("CONTROLLER", lender.host, lender.config.advertised["CONTROLLER"].port)
        began_s = self.now
        async with self.workload.admin(WAIT_MS) as admin:
            try:
                await admin.add_controller(self.cluster_id, 99, b"nobody's replica", [listener])
            except (ClientError, TimeoutError) as error:
                self.answer = str(error)
        self.took_s = self.now - began_s


def test_a_forwarded_request_that_waits_does_not_fence_the_broker_that_forwards_it() -> None:
    """The controller answers a connection's requests in their order: heartbeats have a connection of their own."""
    properties = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}
    options = Options(seed=1, shape="combined", duration_s=1.0, is_dynamic=True, properties=properties)
    world = WithAVoterThatNeverComes(options, [])
    outcome = world.run()
    assert outcome.violation is None, outcome.story
    assert world.took_s > 3 * SESSION_MS / 1000, (world.took_s, world.answer)
    assert world.unanswered == [0, 0, 0] and world.troubles == [None] * 3 and not world.fenced
