"""The Spark options of `load` and `audit`, and the choice of engine, including the fallback when Spark cannot start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

_OPTIONS = (
    click.option("--engine", type=click.Choice(["auto", "local", "spark"]), default="auto", show_default=True,
                 help="auto: Spark if --master is given or under spark-submit, else local processes."),
    click.option("--master", default=None, help="Spark master: local[*], spark://host:7077, yarn, k8s://..."),
    click.option("--conf", "confs", multiple=True, metavar="NAME=VALUE", help="A Spark property (repeatable)."),
    click.option("--packages", default="", metavar="COORDINATES",
                 help="Comma-separated Maven coordinates of JARs for Spark to fetch (spark.jars.packages)."),
    click.option("--processes", type=click.IntRange(0, 1024), default=0, help="Processes of the local engine [default: one per core]."),
)  # fmt: skip


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `engine`, `master`, `confs`, `packages` and `processes`, which are fields of EngineOptions."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def name_and_value(texts: tuple[str, ...], what: str) -> dict[str, str]:
    """Parse `NAME=VALUE` options. A value may contain commas, as Spark's lists do. Raises click.BadParameter."""
    pairs = [text.partition("=") for text in texts]
    for name, found, _ in pairs:
        if not found or not name.strip():
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint=what)
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine options of `command`."""

    command: str
    engine: str
    master: str | None
    confs: tuple[str, ...]
    packages: str
    processes: int

    def start(self, only_spark: bool = False) -> Any:
        """Start the engine.

        If Spark cannot start, the local engine replaces it, with a line that says so, but only if the options name no more than a local
        master and nothing needs Spark (`only_spark`). Otherwise exits with status 3 if the Spark master cannot be reached, else 2."""
        from minikafka.spark.engine_local import LocalEngine
        from minikafka.spark.engine_spark import SparkEngine, under_spark_submit
        from minikafka.spark.spark_master import MasterUnreachable, SparkUnavailable

        named = bool(self.master or self.confs or self.packages)
        if self.engine == "local" and named:
            self._fail("--master, --conf and --packages need Spark and cannot be combined with --engine local", 2)
        if self.engine == "local" or (self.engine == "auto" and not named and not under_spark_submit()):
            return LocalEngine(self.processes)
        settings = self._settings()
        try:
            return SparkEngine(master=self.master or settings.pop("spark.master", None), settings=settings, java_computes=only_spark)
        except SparkUnavailable as error:
            if only_spark or self.confs or self.packages or not (self.master or "local").startswith("local") or under_spark_submit():
                self._fail(str(error), 3 if isinstance(error, MasterUnreachable) else 2)
            click.echo(f"minikafka {self.command}: {error}; using the local engine instead, which does the same", err=True)
        return LocalEngine(self.processes)

    def _settings(self) -> dict[str, str]:
        settings = name_and_value(self.confs, "--conf")
        if self.packages:
            settings["spark.jars.packages"] = ",".join(filter(None, (settings.get("spark.jars.packages"), self.packages)))
        return settings

    def _fail(self, text: str, status: int) -> None:
        click.echo(f"minikafka {self.command}: {text}", err=True)
        sys.exit(status)
