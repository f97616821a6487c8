"""Runs Apache Kafka's own test classes against minikafka: `python tests/kafka_suite/run.py [CLASS-REGEX] [--methods REGEX]`."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from kafka_suite import harness, results  # noqa: E402


@click.command()
@click.argument("pattern", default=".")
@click.option("--methods", default="", help="Only methods that this regular expression finds.")
@click.option("--kind", type=click.Choice(harness.KINDS), default="minikafka", help="Whose brokers.")
@click.option("--test-timeout", "test_timeout_s", default=150, help="Seconds that a test may take.")
@click.option("--class-timeout", "class_timeout_s", default=1800, help="Seconds that a class may take.")
@click.option("--together", default=1, help="Classes that share a JVM, which takes seconds of a core to start and to warm.")
@click.option("--combined", is_flag=True, help="Variants with combined nodes, too.")
@click.option("--consumer-protocol/--no-consumer-protocol", default=True, help="Variants with the group protocol of KIP-848, too.")
@click.option("--node-libraries", type=click.Path(path_type=Path, exists=True), help="Jars of another version for --kind kafka.")
@click.option("--work", type=click.Path(path_type=Path), help="Keep outputs, properties and logs here (a new directory in /tmp).")
@click.option("--keep", is_flag=True, help="Put results into results.tsv, others' into baseline.tsv: the documentation's table has them.")
def main(pattern: str, work: Path | None, keep: bool, together: int, **options: Any) -> None:
    """Run the classes of classes.txt that PATTERN finds, one after the other. Exit status 1 when a test fails for which reasons.toml has
    no reason."""
    why = harness.missing()
    if why:
        raise click.ClickException(why)
    directory = Path(tempfile.mkdtemp(prefix="ks-", dir="/tmp")) if work is None else work
    directory.mkdir(parents=True, exist_ok=True)
    click.echo(f"outputs and logs: {directory}")
    found = []
    names = [name for name in harness.classes() if re.search(pattern, name)]
    for begin in range(0, len(names), together):
        new = _run(names[begin : begin + together], directory, harness.Options(**options))
        found += new
        if keep:
            results.merge(results.KEPT if options["kind"] == "minikafka" else results.BASELINE, new)
    click.echo("\n".join(["", *results.table(found, results.reasons())]))
    sys.exit(1 if results.unexplained(found, results.reasons()) else 0)


def _run(names: list[str], directory: Path, options: harness.Options) -> list[results.Result]:
    work = Path(tempfile.mkdtemp(prefix=f"{names[0].rpartition('.')[2]}-", dir=directory))
    lines = work / "results.tsv"
    status = harness.run_classes(names, lines, work, options)
    found = list(results.read(lines).values())
    for result in found:
        if result.state != "skip":
            click.echo(f"{result.state:9} {result.seconds:6.1f} {result.test} {result.note[:150]}")
    if status:
        click.echo(f"{' '.join(names)} ended with {status} (124: --class-timeout is over); what is not listed did not run", err=True)
    return found


if __name__ == "__main__":
    main()
