"""`minikafka sim`: play seeds of the deterministic cluster simulator."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from minikafka.sim.world import Outcome

PROFILES = ("calm", "one", "crashes", "network", "disks", "rot", "mixed", "storm")


#: A long run that is broken off loses no more than this.
SAVE_EVERY_SEEDS = 100


@click.command("sim")
@click.option("--seed", type=int, help="Play one seed and print its story.")
@click.option("--seeds", metavar="A..B", help="Play the seeds from A up to but not including B.")
@click.option("--hours", type=float, help="Play seeds for this many hours of real time, from the first of --seeds on, or else from 0.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Number of processes.")
@click.option("--profile", type=click.Choice(PROFILES), help="Kinds of faults; without it each seed draws a profile.")
@click.option("--duration", type=float, help="Simulated seconds of load; without it each seed draws a number.")
@click.option(
    "--save",
    "save_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the totals to this JSON file, every 100 seeds and at the end.",
)
@click.option("--commit", help="Commit to list the totals under (default: that of the source tree).")
@click.option("--no-shrink", is_flag=True, help="Do not look for the faults that a violation needs.")
@click.option("--mutants", is_flag=True, help="Break one rule after another, and print which check notices it (in a source tree).")
@click.option("-v", "--verbose", is_flag=True, help="A line for every seed; for one seed its whole story.")
def sim(
    seed: int | None,
    seeds: str | None,
    hours: float | None,
    jobs: int,
    profile: str | None,
    duration: float | None,
    save_path: Path | None,
    commit: str | None,
    no_shrink: bool,
    mutants: bool,
    verbose: bool,
) -> None:
    """Whole brokers, network, disks, clients and faults in one thread, all drawn from a seed. Exit status 1 when an invariant breaks."""
    from minikafka.sim.runner import Totals, run_seeds, source_commit

    if mutants:
        _mutants()
        return
    if seed is not None and (seeds is not None or hours is not None):
        raise click.UsageError("--seed plays one seed: leave --seeds and --hours away")
    if save_path is not None and commit is None:
        # The tree may change while seeds are played.
        commit = source_commit()
    numbers = [seed] if seed is not None else _numbers(seeds, hours)
    totals, kept = Totals(), _Kept(save_path, commit or "unknown")
    for outcome in run_seeds(numbers, profile=profile, duration_s=duration, jobs=jobs, hours=hours):
        totals.add(outcome)
        kept.add(outcome)
        _tell(outcome, in_full=verbose or seed is not None, is_shrunk=not no_shrink)
    kept.save()
    for line in totals.lines():
        click.echo(line)
    sys.exit(1 if totals.failed else 0)


class _Kept:
    """Totals that go to the file of --save now and then, each seed and each state once."""

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


def _tell(outcome: Outcome, *, in_full: bool, is_shrunk: bool) -> None:
    """A line for a seed; of a violation the story, and the faults that it needs."""
    from minikafka.sim.runner import run_drawn, shrink

    violation = outcome.violation
    if in_full or violation is not None:
        click.echo(
            f"seed {outcome.seed} ({outcome.options.profile}, {outcome.options.shape}): digest {outcome.digest},"
            f" {outcome.simulated_s:.1f} s in {outcome.real_s:.2f} s, {outcome.acknowledged} records acknowledged"
            + (f"; {violation}" if violation is not None else "")
        )
    if violation is None:
        return
    click.echo(outcome.story)
    if is_shrunk:
        faults = shrink(outcome.options, outcome.faults, violation.rule)
        click.echo(f"\n{len(faults)} of {len(outcome.faults)} faults are needed:")
        for fault in faults:
            click.echo(f"  {fault!r}")
        click.echo("\nwith these alone:\n" + run_drawn(outcome.options, faults).story)


def _mutants() -> None:
    from minikafka.sim.mutants import Caught, Mutant, table

    survivors: list[str] = []

    def tell(mutant: Mutant, caught: Caught | None) -> None:
        click.echo(f"{mutant.name}: {'SURVIVES' if caught is None else caught.text}", err=True)
        if caught is None:
            survivors.append(mutant.name)

    for line in table(Path.cwd(), on_caught=tell):
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
        raise click.UsageError(f"--seeds {seeds}: A..B plays the seeds from A up to but not including B, so B must be larger than A")
    return range(int(first), int(last))
