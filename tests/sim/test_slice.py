"""The slice of seeds that every run of the tests plays: 160 as they are drawn, 40 of mixed faults. More: `minikafka sim --hours 8`."""

from __future__ import annotations

from collections.abc import Iterator

import coverage
import pytest

from minikafka.sim.runner import run_seed

pytestmark = pytest.mark.timeout(180)
SEEDS_PER_TEST = 10
LOAD_S = 4.0


@pytest.fixture(autouse=True)
def _without_coverage() -> Iterator[None]:
    """Counting lines doubles a seed's time, and the nearer tests have counted them."""
    running = coverage.Coverage.current()
    if running is not None:
        running.stop()
    yield
    if running is not None:
        running.start()


@pytest.mark.parametrize("first", range(10_000, 10_160, SEEDS_PER_TEST))
def test_seeds_as_they_are_drawn(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_seed(seed, duration_s=LOAD_S)
        assert outcome.violation is None, outcome.story
        assert outcome.steps > 1000


@pytest.mark.parametrize("first", range(20_000, 20_040, SEEDS_PER_TEST))
def test_seeds_of_mixed_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_seed(seed, profile="mixed", duration_s=LOAD_S)
        assert outcome.violation is None, outcome.story
