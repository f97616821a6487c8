"""`pytest -m mutants tests/spark/test_audit_mutants.py`: every broken rule of the audit is noticed by the nearest tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.audit_mutations import MUTANTS

from minikafka.sim.mutants import MUTANT_VARIABLE, Mutant

ROOT = Path(__file__).parent.parent.parent


def failed_test(mutant: Mutant) -> str | None:
    """The first of the mutant's tests that fails with the rule broken; None when all pass."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    environment = {**os.environ, MUTANT_VARIABLE: mutant.name, "PYTHONPATH": path}
    plugins = ["-p", "helpers.audit_mutant_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n", "0", *plugins, *mutant.tests]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode in {0, 1}, run.stdout + run.stderr
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED ")]
    return failed[0] if failed else None


@pytest.mark.mutants
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_it_is_caught(mutant: Mutant) -> None:
    assert failed_test(mutant) is not None, f"nothing notices that {mutant.breaks}"


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 40
