"""The leader of a share partition stores a long list of batches in several requests. In these seeds each request has one batch, and
leaders and share coordinators die between them. Whoever confirms an acknowledgement of which only a part is stored breaks rule S28."""

from __future__ import annotations

import pytest
from helpers.coverage_pause import without_coverage

from minikafka.broker.share import leader
from minikafka.core.share.partition import Write
from minikafka.sim.runner import run_seed

pytestmark = pytest.mark.timeout(120)
SEEDS = (28_400_015, 28_400_038, 28_400_042)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[list[Write]]:
    """The parts of each write that has several."""
    seen: list[list[Write]] = []
    original = Write.parts

    def noted(write: Write, batches_max: int) -> list[Write]:
        found = original(write, batches_max)
        if len(found) > 1:
            seen.append(found)
        return found

    monkeypatch.setattr(leader, "BATCHES_AT_ONCE", 1)
    monkeypatch.setattr(Write, "parts", noted)
    return seen


@pytest.mark.parametrize("seed", SEEDS)
def test_no_acknowledgement_is_confirmed_before_all_its_parts_are_stored(seed: int, parts: list[list[Write]]) -> None:
    with without_coverage():
        outcome = run_seed(seed, duration_s=4.0)
    assert outcome.violation is None, outcome.story
    assert parts, "no state was stored in parts"


def test_the_rule_sees_a_leader_that_stores_only_the_first_part(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Write.parts
    monkeypatch.setattr(leader, "BATCHES_AT_ONCE", 1)
    monkeypatch.setattr(Write, "parts", lambda write, batches_max: original(write, batches_max)[:1])
    with without_coverage():
        outcome = run_seed(SEEDS[0], duration_s=4.0)
    assert outcome.violation is not None and outcome.violation.rule == "S28"
