"""Which engine a command runs on: the options of `load` and `audit` for Spark, and what happens where Spark cannot run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

_OPTIONS = (
    click.option("--engine", type=click.Choice(["auto", "local", "spark"]), default="auto", show_default=True,
                 help="auto: Spark when --master is given or under spark-submit, else processes of this machine."),
    click.option("--master", default=None, help="Spark master: local[*], spark://host:7077, yarn, k8s://..."),
    click.option("--conf", "confs", multiple=True, metavar="NAME=VALUE", help="A property of Spark (repeatable)."),
    click.option("--packages", default="", metavar="COORDINATES",
                 help="Maven coordinates of JARs that Spark fetches, separated by commas (spark.jars.packages)."),
    click.option("--processes", type=click.IntRange(0), default=0, help="Processes of the local engine [default: one a core]."),
)  # fmt: skip


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`engine`, `master`, `confs`, `packages`, `processes`: the fields of EngineWanted."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def name_and_value(texts: tuple[str, ...], what: str) -> dict[str, str]:
    """`NAME=VALUE` each; a value may have commas, as lists of Spark do. Raises click.BadParameter."""
    pairs = [text.partition("=") for text in texts]
    for name, found, _ in pairs:
        if not found or not name.strip():
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint=what)
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class EngineWanted:
    """What was asked for on the command line of `command`."""

    command: str
    engine: str
    master: str | None
    confs: tuple[str, ...]
    packages: str
    processes: int

    def start(self, only_spark: bool = False) -> Any:
        """The engine. The local one replaces Spark, with one line that says so, only where this machine's Spark was meant, nothing but a
        master `local[...]` was said about it, and it has not to read what only Spark reads. Otherwise leaves with status 3 when the
        cluster cannot be reached, 2 when Spark cannot be started."""
        from minikafka.spark.engine_local import LocalEngine
        from minikafka.spark.engine_spark import SparkEngine, under_spark_submit
        from minikafka.spark.spark_master import MasterUnreachable, SparkUnavailable

        named = bool(self.master or self.confs or self.packages)
        if self.engine == "local" and named:
            self._fail("--master, --conf and --packages are for Spark, not for --engine local", 2)
        if self.engine == "local" or (self.engine == "auto" and not named and not under_spark_submit()):
            return LocalEngine(self.processes)
        settings = self._settings()
        try:
            return SparkEngine(master=self.master or settings.pop("spark.master", None), settings=settings)
        except SparkUnavailable as error:
            if only_spark or self.confs or self.packages or not (self.master or "local").startswith("local") or under_spark_submit():
                self._fail(str(error), 3 if isinstance(error, MasterUnreachable) else 2)
            click.echo(f"minikafka {self.command}: {error}; going on with the local engine, which does the same", err=True)
        return LocalEngine(self.processes)

    def _settings(self) -> dict[str, str]:
        settings = name_and_value(self.confs, "--conf")
        if self.packages:
            settings["spark.jars.packages"] = ",".join(filter(None, (settings.get("spark.jars.packages"), self.packages)))
        return settings

    def _fail(self, text: str, status: int) -> None:
        click.echo(f"minikafka {self.command}: {text}", err=True)
        sys.exit(status)
