"""Transactions of simulated clusters: what only they have shown."""

from __future__ import annotations

from minikafka.sim.runner import run_drawn
from minikafka.sim.swarm import Options


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
