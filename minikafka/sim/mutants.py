"""Deliberately broken rules. The simulator has to notice each of them, or a test of a core if the simulator would take too long.

A mutant replaces one function while it is applied. `hunt` plays seeds until an invariant breaks; a mutant that survives reveals a gap in
the simulator. `minikafka sim --mutants` prints the table of README.md; `pytest -m mutants` requires that every mutant is caught.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minikafka.sim.arrival_mutations import ARRIVAL_MUTATIONS
from minikafka.sim.bounds_mutations import BOUNDS_MUTATIONS
from minikafka.sim.doubt_mutations import DOUBT_MUTATIONS
from minikafka.sim.eligible_mutations import ELIGIBLE_MUTATIONS
from minikafka.sim.follower_mutations import FOLLOWER_MUTATIONS
from minikafka.sim.group_mutations import GROUP_MUTATIONS
from minikafka.sim.handover_mutations import HANDOVER_MUTATIONS
from minikafka.sim.member_mutations import MEMBER_MUTATIONS
from minikafka.sim.mutations import MUTATIONS
from minikafka.sim.rot_mutations import ROT_MUTATIONS
from minikafka.sim.runner import run_drawn
from minikafka.sim.stall_mutations import STALL_MUTATIONS
from minikafka.sim.storage_mutations import STORAGE_MUTATIONS
from minikafka.sim.supervision_mutations import SUPERVISION_MUTATIONS
from minikafka.sim.swarm import draw
from minikafka.sim.transaction_mutations import TRANSACTION_MUTATIONS
from minikafka.sim.voter_mutations import VOTER_MUTATIONS
from minikafka.testing.wait import LoadAdjustedDeadline

SEEDS_MAX = 200
#: A test that waits this long for what the broken rule keeps from happening has failed. Both times count as far as there are cores.
TEST_TIMEOUT_S, TESTS_TIMEOUT_S = 20, 120
MUTANT_VARIABLE = "MINIKAFKA_MUTANT"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule. `patches`: (module:Class.attribute, original -> replacement); `tests`: tests that catch it if the simulator is too
    slow; `profile`, `options`, `duration_s`: the runs in which to look for it."""

    name: str
    breaks: str
    patches: tuple[tuple[str, Callable[[Any], Any]], ...]
    profile: str = "mixed"
    options: tuple[tuple[str, Any], ...] = ()
    duration_s: float | None = None
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caught:
    """How a mutant was caught: the rule that broke, and the number of seeds it took (0: by tests)."""

    rule: str
    seeds: int
    text: str


_ALL = (
    *MUTATIONS, *ROT_MUTATIONS, *TRANSACTION_MUTATIONS, *VOTER_MUTATIONS, *FOLLOWER_MUTATIONS, *HANDOVER_MUTATIONS, *ELIGIBLE_MUTATIONS,
    *SUPERVISION_MUTATIONS, *BOUNDS_MUTATIONS, *STORAGE_MUTATIONS, *GROUP_MUTATIONS, *MEMBER_MUTATIONS,
    *DOUBT_MUTATIONS, *ARRIVAL_MUTATIONS, *STALL_MUTATIONS,
)  # fmt: skip
MUTANTS: dict[str, Mutant] = {entry["name"]: Mutant(**entry) for entry in _ALL}


def _find(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """A context in which the rule is broken."""
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


def hunt_with_tests(mutant: Mutant, root: Path) -> Caught | None:
    """Run the mutant's tests with the rule broken; None if they pass."""
    environment = {**os.environ, MUTANT_VARIABLE: mutant.name, "PYTHONPATH": str(root)}
    plugins = ["-p", "minikafka.sim.mutant_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n", "0", f"--timeout={TEST_TIMEOUT_S}", *plugins, *mutant.tests]
    output, deadline = "", LoadAdjustedDeadline(TESTS_TIMEOUT_S)
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        while run.returncode is None:
            try:
                output = run.communicate(timeout=1)[0]
            except subprocess.TimeoutExpired:
                if deadline.is_over:
                    run.kill()
                    raise
    if run.returncode != 1:
        return None
    failed = [line.split(" - ")[0].removeprefix("FAILED ") for line in output.splitlines() if line.startswith("FAILED ")]
    return Caught("test", 0, failed[0] if failed else "a test failed")


def table(
    root: Path, *, rows: Mapping[str, str] | None = None, on_caught: Callable[[Mutant, Caught | None], None] = lambda mutant, caught: None
) -> list[str]:
    """The lines of the table in RESULTS.md. Mutants that have a row in `rows` are not hunted again."""
    lines = ["| mutant | what is broken | caught by | seeds |", "|---|---|---|---|"]
    for mutant in MUTANTS.values():
        if rows is not None and mutant.name in rows:
            lines.append(rows[mutant.name])
            continue
        try:
            caught = hunt_with_tests(mutant, root) if mutant.tests else hunt(mutant)
        except subprocess.TimeoutExpired:
            caught = Caught("time-out", 0, "")
        on_caught(mutant, caught)
        if caught is None:
            how, seeds = "**nothing**", "-"
        elif caught.rule == "time-out":
            how, seeds = "**no verdict in time**", "-"
        elif caught.rule == "test":
            how, seeds = f"`{caught.text.split('::')[-1]}`", "-"
        else:
            how, seeds = caught.rule, str(caught.seeds)
        lines.append(f"| {mutant.name} | {mutant.breaks} | {how} | {seeds} |")
    return lines


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
            # A violation that occurs without the mutant, too, does not count.
            if run_drawn(options, faults).violation is not None:
                continue
            return Caught(outcome.violation.rule, number + 1, str(outcome.violation).splitlines()[0])
    return None
