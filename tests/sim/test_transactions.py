"""Transactions of simulated clusters: what only they have shown."""

from __future__ import annotations

import random

import pytest

from minikafka.sim.runner import run_drawn
from minikafka.sim.swarm import Fault, Options


def test_a_transaction_is_not_held_up_by_a_fetch_that_let_it_begin() -> None:
    """A follower's fetch acknowledges the coordinator's record, and so lets a batch be appended behind the fetch's back, to a partition
    that it has looked at already: it must not wait for the next record there (simulator, seed 20000534)."""
    options = Options(
        seed=1, duration_s=4.0, producers=0, readers=0, group_members=0, transactors=2, pace_s=0.05,
        properties={"replica.fetch.wait.max.ms": "1000", "replica.lag.time.max.ms": "20000", "broker.heartbeat.interval.ms": "150"},
    )  # fmt: skip
    outcome = run_drawn(options, [])
    assert outcome.violation is None, outcome.story
    assert outcome.transactions["committed"] >= 15


@pytest.mark.parametrize("seed", [0, 10])
def test_followers_of_a_coordinator_may_stall_for_longer_than_it_waits(seed: int) -> None:
    """A marker, or a decision, that is replicated when nobody waits for it any more counts all the same. Told of by the request that wrote
    it, a group never heard of its marker, and the offset of a committed transaction was lost (both seeds)."""
    chance = random.Random(seed)
    options = Options(
        seed=seed, duration_s=4.0, producers=1, readers=0, group_members=0, transactors=4, transaction_timeout_ms=1000, pace_s=0.05,
        properties={
            "request.timeout.ms": "300", "offsets.commit.timeout.ms": "300", "replica.lag.time.max.ms": "20000",
            "broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        },
    )  # fmt: skip
    starts = [(0.3 + 0.6 * number + chance.random() * 0.3, 0.4 + chance.random() * 0.8) for number in range(6)]
    faults = [Fault(round(at_s, 3), "pause", "any", round(seconds, 3), chance.randrange(1 << 16)) for at_s, seconds in starts]
    outcome = run_drawn(options, faults)
    assert outcome.violation is None, outcome.story
    assert outcome.transactions["committed"] >= 10
