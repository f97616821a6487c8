"""Plays many seeds, one after the other or in several processes; adds up totals, and shrinks the seeds that fail."""

from __future__ import annotations

import gc
import json
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from minikafka.counted import counted
from minikafka.orphans import end_with_parent, quiet_context
from minikafka.sim.swarm import Fault, Options, draw
from minikafka.sim.world import Outcome, World

SHRINK_RUNS_MAX = 200
#: Objects made before the youngest generation is collected: a world lives for a fraction of a second, and `run_drawn` collects it whole.
GARBAGE_THRESHOLD = 20_000


def run_seed(seed: int, *, profile: str | None = None, duration_s: float | None = None) -> Outcome:
    """Play one seed. `profile` and `duration_s` overrule what it draws."""
    return run_drawn(*draw(seed, profile=profile, duration_s=duration_s))


def run_drawn(options: Options, faults: list[Fault]) -> Outcome:
    """Play given options and faults."""
    with warnings.catch_warnings():
        # For coroutines of killed processes that had not begun.
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = World(options, list(faults)).run()
        # Worlds are full of cycles; between two of them nobody waits.
        gc.collect()
    return outcome


def shrink(options: Options, faults: list[Fault], rule: str, *, runs_max: int = SHRINK_RUNS_MAX) -> list[Fault]:
    """The faults needed to break `rule`: leaves out faults, in halves first, as long as the run still breaks it."""
    runs = 0

    def fails(candidate: list[Fault]) -> bool:
        nonlocal runs
        runs += 1
        violation = run_drawn(options, candidate).violation
        return violation is not None and violation.rule == rule

    size = max(len(faults) // 2, 1)
    while faults and runs < runs_max:
        start, shorter = 0, False
        while start < len(faults) and runs < runs_max:
            candidate = faults[:start] + faults[start + size :]
            if fails(candidate):
                faults, shorter = candidate, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(size // 2, 1)
    return faults


@dataclass(slots=True)
class Totals:
    """The totals of many seeds. `states`: hashes of the abstract states that occurred."""

    seeds: int = 0
    simulated_s: float = 0.0
    real_s: float = 0.0
    steps: int = 0
    frames: int = 0
    acknowledged: int = 0
    consumed: int = 0
    appended_together: int = 0
    #: Outcome -> transactions; "seeds" -> seeds that had transactions.
    transactions: Counter[str] = field(default_factory=Counter)
    #: Outcome -> acknowledgements of members of share groups.
    shared: Counter[str] = field(default_factory=Counter)
    #: Protocol of a group -> seeds that had members of it; "any" -> seeds that had members of at least one.
    groups: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    #: Rule -> how often something was compared with what it demands.
    checked: Counter[str] = field(default_factory=Counter)
    profiles: Counter[str] = field(default_factory=Counter)
    states: set[int] = field(default_factory=set)
    failed: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        self.seeds += 1
        self.simulated_s += outcome.simulated_s
        self.real_s += outcome.real_s
        self.steps += outcome.steps
        self.frames += outcome.frames
        self.acknowledged += outcome.acknowledged
        self.consumed += outcome.consumed
        self.appended_together += outcome.appended_together
        self.transactions += outcome.transactions
        self.transactions["seeds"] += bool(outcome.options.transactors)
        self.shared += outcome.shared
        protocols = outcome.options.group_protocols
        self.groups.update([*protocols, "any"] if protocols else [])
        self.injected += outcome.injected
        self.checked += outcome.checked
        self.profiles[outcome.options.profile] += 1
        self.states |= outcome.states
        if outcome.violation is not None:
            self.failed.append(outcome.seed)

    def clear(self) -> None:
        """Reset the totals."""
        self.__init__()  # type: ignore[misc]

    def as_json(self) -> dict[str, Any]:
        """The totals for a file; states as their number."""
        return {
            "seeds": self.seeds, "simulated_hours": round(self.simulated_s / 3600, 3), "real_s": round(self.real_s, 1),
            "events": self.steps, "frames": self.frames, "acknowledged_records": self.acknowledged, "consumed_records": self.consumed,
            "batches_appended_together": self.appended_together,
            "transactions": dict(sorted(self.transactions.items())), "shared": dict(sorted(self.shared.items())),
            "groups": dict(sorted(self.groups.items())),
            "faults": dict(sorted(self.injected.items())),
            "checked": dict(sorted(self.checked.items())),
            "profiles": dict(sorted(self.profiles.items())),
            "states": len(self.states), "failed_seeds": self.failed,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """The totals as readable lines."""
        speed = self.simulated_s / self.real_s if self.real_s else 0.0
        faults = ", ".join(f"{kind} {count}" for kind, count in self.injected.most_common()) or "none"
        return [
            f"{counted(self.seeds, 'seed')}, {self.simulated_s / 3600:.2f} simulated hours in {self.real_s:.0f} s"
            f" ({speed:.0f} times as fast)",
            f"{counted(self.steps, 'event')}, {counted(self.frames, 'frame')}, {counted(self.acknowledged, 'acknowledged record')},"
            f" {self.consumed:,} consumed, {counted(self.appended_together, 'batch', 'batches')} appended together,"
            f" {counted(len(self.states), 'distinct state')}",
            f"transactions: {', '.join(f'{name} {count}' for name, count in sorted(self.transactions.items())) or 'none'}",
            f"acknowledgements in share groups: {', '.join(f'{name} {count}' for name, count in sorted(self.shared.items())) or 'none'}",
            f"seeds with group members: {', '.join(f'{name} {count}' for name, count in sorted(self.groups.items())) or 'none'}",
            f"faults: {faults}",
            f"compared: {', '.join(f'{rule} {count}' for rule, count in sorted(self.checked.items(), key=_rule_order)) or 'nothing'}",
            f"violations: {len(self.failed)}" + (f" (seeds {', '.join(map(str, self.failed))})" if self.failed else ""),
        ]


def _rule_order(checked: tuple[str, int]) -> tuple[str, int]:
    return checked[0][0], int(checked[0][1:])


def source_commit() -> str:
    """The commit of this source tree, with a + if it has uncommitted changes; else the version of the installed package; else "unknown"."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        try:
            return metadata.version("minikafka")
        except metadata.PackageNotFoundError:
            return "unknown"
    return commit + "+" * bool(changed)


def save(path: Path, totals: Totals, commit: str) -> None:
    """Add the totals to those in the file: to the sum, and to the runs of this commit."""
    saved = json.loads(path.read_text()) if path.exists() else {}
    fresh = totals.as_json()
    runs: dict[str, Any] = saved.setdefault("runs", {})
    run = runs.setdefault(commit, {"seeds": 0, "simulated_hours": 0.0, "real_s": 0.0, "acknowledged_records": 0, "failed_seeds": []})
    for name in run:
        run[name] = run[name] + fresh[name] if name == "failed_seeds" else round(run[name] + fresh[name], 3)
    for name, value in fresh.items():
        if isinstance(value, dict):
            before = saved.get(name, {})
            saved[name] = {key: before.get(key, 0) + value.get(key, 0) for key in sorted({*before, *value})}
        elif isinstance(value, list):
            saved[name] = [*saved.get(name, []), *value]
        else:
            saved[name] = round(saved.get(name, 0) + value, 3)
    path.write_text(json.dumps(saved, indent=1) + "\n")


def _run_one(arguments: tuple[int, str | None, float | None]) -> Outcome:
    seed, profile, duration_s = arguments
    return run_seed(seed, profile=profile, duration_s=duration_s)


def with_groups(seeds: Iterable[int]) -> Iterator[int]:
    """Those of the seeds that draw members of a consumer, share or streams group."""
    return (seed for seed in seeds if draw(seed)[0].group_protocols)


def run_seeds(
    seeds: Iterable[int], *, profile: str | None = None, duration_s: float | None = None, jobs: int = 1, hours: float | None = None
) -> Iterator[Outcome]:
    """Outcomes in order of the seeds. Stops after `hours` of real time, if given."""
    began = time.monotonic()
    work = ((seed, profile, duration_s) for seed in seeds)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])

    def is_over() -> bool:
        return hours is not None and time.monotonic() - began > hours * 3600

    if jobs == 1:
        for arguments in work:
            yield _run_one(arguments)
            if is_over():
                return
        return
    with quiet_context(has_threads=False).Pool(jobs, end_with_parent) as pool:
        for outcome in pool.imap(_run_one, work):
            yield outcome
            if is_over():
                return
