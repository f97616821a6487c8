"""A share leader refuses an acknowledgement with NOT_LEADER_OR_FOLLOWER only if nothing of it is stored: its records are delivered again.
In these seeds a leader or its share coordinator moves while an acknowledgement is being stored."""

from __future__ import annotations

import pytest
from helpers.coverage_pause import without_coverage

from minikafka.core.share.partition import SharePartition
from minikafka.sim.runner import run_seed
from minikafka.wire.errors import ErrorCode

pytestmark = pytest.mark.timeout(120)
#: The leader moves, the coordinator moves.
SEEDS = (28_600_576, 28_600_444)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_refused_is_delivered_again(seed: int) -> None:
    with without_coverage():
        outcome = run_seed(seed)
    assert outcome.violation is None, outcome.story


def test_the_rule_sees_a_leader_that_refuses_what_is_being_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SharePartition.fence

    def fence(partition: SharePartition, code: ErrorCode) -> None:
        original(partition, code)
        partition.abandon(code)

    monkeypatch.setattr(SharePartition, "fence", fence)
    with without_coverage():
        outcome = run_seed(SEEDS[0])
    assert outcome.violation is not None and outcome.violation.rule == "S28"
