"""The slice of seeds that every run of the tests plays: 100 as they are drawn, 20 of mixed faults. More: `minikafka sim --hours 8`."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from helpers.coverage_pause import without_coverage

from minikafka.sim.runner import run_seed

pytestmark = pytest.mark.timeout(180)
SEEDS_PER_TEST = 10
LOAD_S = 4.0


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """A seed ends with a full collection of garbage, which walks through all that other tests have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _uncounted() -> Iterator[None]:
    """The nearer tests have counted these lines."""
    with without_coverage():
        yield


@pytest.mark.parametrize("first", range(10_000, 10_100, SEEDS_PER_TEST))
def test_seeds_as_they_are_drawn(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_seed(seed, duration_s=LOAD_S)
        assert outcome.violation is None, outcome.story
        assert outcome.steps > 1000


@pytest.mark.parametrize("first", range(20_000, 20_020, SEEDS_PER_TEST))
def test_seeds_of_mixed_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_seed(seed, profile="mixed", duration_s=LOAD_S)
        assert outcome.violation is None, outcome.story
