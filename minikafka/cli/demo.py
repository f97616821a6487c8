"""`minikafka demo`: a cluster is started, loaded, used, broken, healed and audited, before your eyes."""

from __future__ import annotations

import importlib.util
import sys

import click

ROWS_DEFAULT = 50_000


@click.command("demo")
@click.option("--rows", default=ROWS_DEFAULT, show_default=True, help="Rows of the table that is bulk-loaded.")
@click.option("--engine", type=click.Choice(["auto", "spark", "local"]), default="auto", show_default=True, help="Runs load and audit.")
@click.option("--keep", is_flag=True, help="Leave the brokers' directories behind.")
@click.option("--seed", default=None, type=int, help="Seed of the table's contents.")
def demo(rows: int, engine: str, keep: bool, seed: int | None) -> None:
    """Three brokers, a bulk load, a killed leader, and a proof that nothing acknowledged was lost."""
    if importlib.util.find_spec("pyarrow") is None:
        missing = "the demo loads a table with pyarrow, which is not installed: pip install pyarrow pandas, and pyspark for Spark"
        click.echo(f"error: {missing}", err=True)
        sys.exit(2)
    # Said before anything slow is imported.
    click.echo("starting three brokers; the demo takes about 20 seconds on an idle machine ...", err=True)
    from minikafka.cli.demo_chapters import play

    sys.exit(0 if play(rows, engine, keep=keep, seed=seed) else 1)
