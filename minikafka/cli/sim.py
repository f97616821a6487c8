"""`minikafka sim`: run seeds of the deterministic cluster simulator."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minikafka.cli.numbers import FINITE
from minikafka.counted import counted

if TYPE_CHECKING:
    from minikafka.sim.world import Outcome

PROFILES = ("calm", "one", "crashes", "network", "disks", "rot", "mixed", "storm")


#: A long run that is killed loses the totals of at most this many seeds.
SAVE_EVERY_SEEDS = 100


@click.command("sim")
@click.option("--seed", type=int, help="Run one seed and print what happens.")
@click.option("--seeds", metavar="A..B", help="Run the seeds from A up to but not including B.")
@click.option("--hours", type=FINITE, help="Run seeds for this many hours of real time, starting with the first of --seeds, or 0.")
@click.option("--groups", is_flag=True, help="Run only the seeds that draw members of a consumer, share or streams group.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Number of processes.")
@click.option("--profile", type=click.Choice(PROFILES), help="Kinds of faults [default: drawn from each seed].")
@click.option("--duration", type=FINITE, help="Simulated seconds of load [default: drawn from each seed].")
@click.option(
    "--save",
    "save_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the totals to this JSON file, every 100 seeds and at the end.",
)
@click.option("--commit", help="Commit to list the totals under [default: the source tree's].")
@click.option("--no-shrink", is_flag=True, help="Do not reduce a violation to the faults that cause it.")
@click.option("--mutants", is_flag=True, help="Break one rule after another, and print which check catches it (needs a source tree).")
@click.option("-v", "--verbose", is_flag=True, help="Print a line for every seed; for a single seed, every event.")
def sim(
    seed: int | None,
    seeds: str | None,
    hours: float | None,
    groups: bool,
    jobs: int,
    profile: str | None,
    duration: float | None,
    save_path: Path | None,
    commit: str | None,
    no_shrink: bool,
    mutants: bool,
    verbose: bool,
) -> None:
    """Run whole brokers, network, disks, clients and faults in one thread, all determined by a seed.

    Exit status: 1 if an invariant is violated. Ctrl-C ends a long run, and prints the totals so far."""
    from minikafka.sim.runner import Totals, run_seeds, source_commit, with_groups

    if mutants:
        _mutants()
        return
    if seed is not None and (seeds is not None or hours is not None or groups):
        raise click.UsageError("--seed runs one seed: do not give --seeds, --hours or --groups")
    if save_path is not None and commit is None:
        # Read the commit now: the tree may change while seeds run.
        commit = source_commit()
    numbers = [seed] if seed is not None else _numbers(seeds, hours)
    totals, kept = Totals(), _SavedTotals(save_path, commit or "unknown")
    try:
        for outcome in run_seeds(with_groups(numbers) if groups else numbers, profile=profile, duration_s=duration, jobs=jobs, hours=hours):
            totals.add(outcome)
            kept.add(outcome)
            _show(outcome, in_full=verbose or seed is not None, is_shrunk=not no_shrink)
    finally:
        kept.save()
        for line in totals.lines():
            click.echo(line)
    sys.exit(1 if totals.failed else 0)


class _SavedTotals:
    """Totals, added to the --save file every SAVE_EVERY_SEEDS seeds. Each seed and each state counts once."""

    def __init__(self, path: Path | None, commit: str) -> None:
        from minikafka.sim.runner import Totals

        self._path, self._commit = path, commit
        self._unsaved = Totals()
        self._seen: set[int] = set()

    def add(self, outcome: Outcome) -> None:
        self._unsaved.add(outcome)
        if self._unsaved.seeds == SAVE_EVERY_SEEDS:
            self.save()

    def save(self) -> None:
        from minikafka.sim.runner import save

        if self._path is not None and self._unsaved.seeds:
            self._unsaved.states -= self._seen
            self._seen.update(self._unsaved.states)
            save(self._path, self._unsaved, self._commit)
            self._unsaved.clear()


def _show(outcome: Outcome, *, in_full: bool, is_shrunk: bool) -> None:
    """Print a line for a seed and, after a violation, the story and the faults that cause it."""
    from minikafka.sim.runner import run_drawn, shrink

    violation = outcome.violation
    if in_full or violation is not None:
        click.echo(
            f"seed {outcome.seed} ({outcome.options.profile}, {outcome.options.shape}): digest {outcome.digest},"
            f" {outcome.simulated_s:.1f} s in {outcome.real_s:.2f} s, {counted(outcome.acknowledged, 'record')} acknowledged"
            + (f"; {violation}" if violation is not None else "")
        )
    if violation is None:
        return
    click.echo(outcome.story)
    if is_shrunk:
        faults = shrink(outcome.options, outcome.faults, violation.rule)
        click.echo(f"\n{len(faults)} of {len(outcome.faults)} faults are enough to cause it:")
        for fault in faults:
            click.echo(f"  {fault!r}")
        click.echo("\nwith only these:\n" + run_drawn(outcome.options, faults).story)


def _mutants() -> None:
    from minikafka.sim.mutants import Caught, Mutant, table

    survivors: list[str] = []

    def report(mutant: Mutant, caught: Caught | None) -> None:
        click.echo(f"{mutant.name}: {'SURVIVES' if caught is None else caught.text}", err=True)
        if caught is None:
            survivors.append(mutant.name)

    for line in table(Path.cwd(), on_caught=report):
        click.echo(line)
    sys.exit(1 if survivors else 0)


def _numbers(seeds: str | None, hours: float | None) -> Iterable[int]:
    if seeds is None:
        if hours is None:
            raise click.UsageError("give --seed N, --seeds A..B or --hours H")
        return itertools.count()
    first, dots, last = seeds.partition("..")
    if not first.isdigit() or (dots and last and not last.isdigit()):
        raise click.UsageError(f"--seeds {seeds}: must be A..B")
    if hours is not None and not last:
        return itertools.count(int(first))
    if not last:
        raise click.UsageError(f"--seeds {seeds}: must be A..B")
    if int(last) <= int(first):
        raise click.UsageError(f"--seeds {seeds}: A..B runs the seeds from A up to but not including B, so B must be larger than A")
    return range(int(first), int(last))
