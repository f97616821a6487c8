"""A pytest plugin that breaks one rule of the audit for a whole run: `MINIKAFKA_MUTANT=name pytest -p helpers.audit_mutant_plugin`."""

from __future__ import annotations

import os
from contextlib import ExitStack

from helpers.audit_mutations import MUTANTS

from minikafka.sim.mutants import MUTANT_VARIABLE, applied

_stack = ExitStack()


def pytest_configure() -> None:
    """Break the rule before any test is imported."""
    _stack.enter_context(applied(MUTANTS[os.environ[MUTANT_VARIABLE]]))


def pytest_unconfigure() -> None:
    """Mend it."""
    _stack.close()
