"""`pytest -m mutants`: every broken rule is caught, by the simulator within a bounded number of seeds or by a test of a core."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.sim.mutants import MUTANTS, Mutant, applied, hunt, hunt_with_tests

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.mutants
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_it_is_caught(mutant: Mutant) -> None:
    caught = hunt_with_tests(mutant, ROOT) if mutant.tests else hunt(mutant)
    assert caught is not None, f"nothing notices that {mutant.breaks}"


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 50


def test_the_target_of_each_mutant_exists() -> None:
    for mutant in MUTANTS.values():
        with applied(mutant):
            pass
