"""Deliberately broken rules, each of which the simulator (or, where it would take too long, a test of a core) has to notice.

A mutant replaces one function while it is applied. `hunt` plays seeds until an invariant breaks; a mutant that survives is a hole in the
simulator. `minikafka sim --mutants` prints the table of README.md; `pytest -m mutants` demands that every one is caught.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from minikafka.sim.mutations import MUTATIONS
from minikafka.sim.runner import run_drawn
from minikafka.sim.swarm import draw

SEEDS_MAX = 80


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule. `patches`: (module:Class.attribute, original -> replacement); `tests`: what catches it when the simulator is too
    slow; `profile`, `options`, `duration_s`: where to look for it."""

    name: str
    breaks: str
    patches: tuple[tuple[str, Callable[[Any], Any]], ...]
    profile: str = "mixed"
    options: tuple[tuple[str, Any], ...] = ()
    duration_s: float | None = 8.0
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caught:
    """How a mutant was caught: the rule that broke, and the number of seeds it took (0: by tests)."""

    rule: str
    seeds: int
    text: str


MUTANTS: dict[str, Mutant] = {entry["name"]: Mutant(**entry) for entry in MUTATIONS}


def _find(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The rule is broken within the context."""
    with ExitStack() as stack:
        for target, make in mutant.patches:
            owner, name = _find(target)
            raw = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
            original = raw.fget if isinstance(raw, property) else raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
            made = make(original)
            wrapped = property(made) if isinstance(raw, property) else staticmethod(made) if isinstance(raw, staticmethod) else made
            setattr(owner, name, wrapped)
            stack.callback(setattr, owner, name, raw)
        yield


def hunt(mutant: Mutant, *, seeds_max: int = SEEDS_MAX) -> Caught | None:
    """Play seeds with the rule broken until an invariant breaks; None if none does."""
    for number in range(seeds_max):
        options, faults = draw(number, profile=mutant.profile, duration_s=mutant.duration_s)
        for name, value in mutant.options:
            if name in ("properties", "topic"):
                getattr(options, name).update(value)
            else:
                setattr(options, name, value)
        with applied(mutant):
            outcome = run_drawn(options, faults)
        if outcome.violation is not None:
            # What breaks without the mutant too says nothing about it.
            if run_drawn(options, faults).violation is not None:
                continue
            return Caught(outcome.violation.rule, number + 1, str(outcome.violation).splitlines()[0])
    return None
