"""Work that is divided among turns of the loop: seeds go through it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from minikafka.broker.coordinators.transaction_markers import MarkerWriter
from minikafka.broker.partitions.fetcher import Fetcher
from minikafka.broker.partitions.produce_run import ProduceRun
from minikafka.broker.partitions.replica_manager import ReplicaManager
from minikafka.net.turn_share import SHARE_S
from minikafka.sim.swarm import Options, draw
from minikafka.sim.world import World

#: Where work goes on in a later turn.
CONTINUED = ((Fetcher, "_take_more"), (ProduceRun, "_produce_rest"), (MarkerWriter, "_next_turn"), (ReplicaManager, "_place_late"))


def test_work_goes_on_in_later_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    continued: Counter[str] = Counter()

    def counted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def work(self: Any) -> Any:
            continued[name] += bool(getattr(self, "_left", True))
            return original(self)

        monkeypatch.setattr(owner, name, work)

    for owner, name in CONTINUED:
        counted(owner, name)
    options = Options(seed=3, shape="combined", partitions=6, duration_s=1.0, transactors=2, committed_readers=1, gather_s=0.002)
    options.step_s = 4 * SHARE_S
    outcome = World(options, []).run()
    assert outcome.violation is None, outcome.story
    assert all(continued[name] for _, name in CONTINUED), continued


def test_some_seeds_divide_their_work() -> None:
    steps_s = {draw(seed)[0].step_s for seed in range(40)}
    assert 0.0 in steps_s and any(step_s > SHARE_S for step_s in steps_s)
