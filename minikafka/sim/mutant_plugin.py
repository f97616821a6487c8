"""A pytest plugin that breaks one rule for a whole run of tests: `MINIKAFKA_MUTANT=name pytest -p minikafka.sim.mutant_plugin`."""

from __future__ import annotations

import os
from contextlib import ExitStack

from minikafka.sim.mutants import MUTANT_VARIABLE, MUTANTS, applied

_stack = ExitStack()


def pytest_configure() -> None:
    """Break the rule before any test is imported."""
    _stack.enter_context(applied(MUTANTS[os.environ[MUTANT_VARIABLE]]))


def pytest_unconfigure() -> None:
    """Restore the rule."""
    _stack.close()
