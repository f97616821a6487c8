"""`minikafka demo`: start a cluster, load it, use it, break it, heal it and audit it."""

from __future__ import annotations

import importlib.util
import sys

import click

from minikafka.cli import first_sign

ROWS_DEFAULT = 50_000


@click.command("demo")
@click.option("--rows", default=ROWS_DEFAULT, show_default=True, help="Number of rows to bulk-load.")
@click.option(
    "--engine", type=click.Choice(["auto", "spark", "local"]), default="auto", show_default=True, help="Engine for the load and the audit."
)
@click.option("--keep", is_flag=True, help="Keep the brokers' directories.")
@click.option("--seed", default=None, type=int, help="Random seed for the table's contents.")
def demo(rows: int, engine: str, keep: bool, seed: int | None) -> None:
    """Start three brokers, bulk-load a table, kill leaders, and prove that no acknowledged record was lost."""
    if engine == "spark" and importlib.util.find_spec("pyarrow") is None:
        missing = "Spark needs pyarrow, which is not installed: pip install pyspark pyarrow pandas"
        click.echo(f"error: {missing}", err=True)
        sys.exit(2)
    # Print this before the slow imports.
    first_sign.end()
    click.echo("starting three brokers; the demo takes about 10 seconds on an idle machine ...", err=True)
    from minikafka.cli.demo_chapters import play
    from minikafka.cli.stop_signals import as_interruptions

    # Its processes and directories go whatever asks it to stop.
    with as_interruptions():
        sys.exit(0 if play(rows, engine, keep=keep, seed=seed) else 1)
