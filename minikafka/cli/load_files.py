"""`minikafka load --to-files`: a table as the directories of a new cluster; `minikafka verify-files`: are they still what was written."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from minikafka.cli.common import emit_one, output_option, parse_pairs

if TYPE_CHECKING:
    from minikafka.cli.load_source import Source
    from minikafka.spark.cluster_files import ClusterOptions
    from minikafka.spark.to_files import FilesReport

#: Options of `load` that speak to brokers.
ONLY_BROKERS = {"bootstrap": "--bootstrap-server", "job": "--job-id", "bytes_per_second": "--throttle"}


def files_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `load` for writing files."""
    for option in reversed(
        (
            click.option("--to-files", metavar="DIR", type=click.Path(), help="Write a new cluster with the topic to DIR; no brokers."),
            click.option(
                "--node",
                "nodes",
                multiple=True,
                metavar="NODE",
                help="With --to-files: ID@HOST:PORT[:CONTROLLER_PORT], or the server.properties of a node; once for each.",
            ),
            click.option(
                "--nodes",
                "node_count",
                type=click.IntRange(1, 1000),
                default=3,
                show_default=True,
                help="With --to-files and without --node: this many nodes on localhost, from port 9092 on.",
            ),
            click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="With --to-files: a property of the topic."),
            click.option("--cluster-id", default="", help="With --to-files: id of the cluster, 22 characters [default: random]."),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class FilesWanted:
    """What was asked for on the command line."""

    directory: str | None
    nodes: tuple[str, ...]
    node_count: int
    replication_factor: int
    configs: tuple[str, ...]
    cluster_id: str

    def run(self, source: Source, start_engine: Callable[[], Any], output: str) -> None:
        """Write, report, leave with status 1 or 2 and one line when that fails."""
        from minikafka.spark.cluster_files import ClusterOptions
        from minikafka.spark.cluster_segments import FilesFailed
        from minikafka.spark.load import run_load
        from minikafka.spark.load_frame import load_dataframe
        from minikafka.spark.tables import TableError
        from minikafka.spark.to_files import instructions, plan_load

        if self.directory is None:
            _fail("--node, --config and --cluster-id are for --to-files DIR; a running cluster has its own", 2)
        self._refuse_others()
        cluster = ClusterOptions(
            self.directory, self.nodes, self.node_count, self.replication_factor, self.cluster_id, parse_pairs(self.configs, "--config")
        )
        driver, options = None, source.options
        try:
            plan_load(options, cluster)  # before an engine is started
            driver = start_engine()
            if options.dry_run:
                done = load_dataframe(source.frame(driver), options) if source.is_for_spark else run_load(source.table, options, driver)
                click.echo(f"Dry run, nothing written: {done.rows:,} rows in {done.batches:,} batches for {done.partitions} partitions")
                return
            report = self._write(source, cluster, driver, Progress() if sys.stderr.isatty() and output == "table" else None)
        except (TableError, ValueError) as error:
            _fail(str(error), 2)
        except FilesFailed as error:
            _fail(str(error), 2 if driver is None else 1)
        finally:
            if driver is not None:
                driver.close()
        for note in report.notes:
            click.echo(f"note: {note}", err=True)
        if output not in ("table", "wide"):
            emit_one({**asdict(report), "rows_per_second": round(report.rows_per_second)}, output)
            return
        click.echo(_line(report))
        for line in instructions(report):
            click.echo(line)

    def _refuse_others(self) -> None:
        context = click.get_current_context()
        for name, shown in ONLY_BROKERS.items():
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                _fail(f"{shown} is for a running cluster, --to-files writes a new one", 2)

    def _write(self, source: Source, cluster: ClusterOptions, driver: Any, progress: Progress | None) -> FilesReport:
        from minikafka.spark.to_files import dataframe_to_files, load_to_files

        if source.is_for_spark:
            return dataframe_to_files(source.frame(driver), source.options, cluster, progress)
        return load_to_files(source.table, source.options, cluster, driver, progress)


class Progress:
    """One line that is written over: the pass, its share, what is left of it."""

    def __init__(self) -> None:
        self.stage, self.begun = "", 0.0

    def __call__(self, stage: str, done: int, planned: int) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.begun = stage, now
        left = (now - self.begun) * (planned - done) / done if done else 0.0
        end = "\r" if done < planned else "\n"
        click.echo(f"  {stage}: {100 * done // max(planned, 1)} %, about {left:.0f} s left   {end}", nl=False, err=True)


def _line(report: FilesReport) -> str:
    from minikafka.spark.report import human_bytes

    return (
        f"Wrote {report.rows:,} rows ({human_bytes(report.bytes)} in {report.batches:,} batches) as {report.topic}, "
        f"{report.partitions} partitions x {report.replication_factor} replicas, {report.segments} segments, {report.files:,} files, "
        f"in {report.seconds:.2f} s ({report.rows_per_second:,.0f} rows/s); rows read and records written agree"
    )


def _fail(text: str, status: int) -> NoReturn:
    click.echo(f"minikafka load: {text}", err=True)
    sys.exit(status)


@click.command("verify-files")
@click.argument("directory", type=click.Path())
@click.option("--processes", type=click.IntRange(0), default=0, help="Processes that read [default: one a core].")
@output_option
def verify_files(directory: str, processes: int, output: str) -> None:
    """Compare DIRECTORY, written by `load --to-files`, with its manifest: every file's size and CRC-32C, none missing, none too many.

    It is for files that no broker has opened yet (after a copy, before a start); afterwards `minikafka audit` says whether the
    replicas agree.

    Exit status: 0 everything is as it was written, 1 something is not, 2 there is no manifest.
    """
    from minikafka.spark.cluster_manifest import ManifestError, check_directory
    from minikafka.spark.engine_local import LocalEngine
    from minikafka.spark.report import human_bytes

    engine = LocalEngine(processes)
    try:
        found = check_directory(os.path.abspath(directory), engine)
    except ManifestError as error:
        click.echo(f"minikafka verify-files: {error}", err=True)
        sys.exit(2)
    finally:
        engine.close()
    if output not in ("table", "wide"):
        emit_one({**asdict(found), "good": found.is_good}, output)
    elif found.is_good:
        click.echo(f"{directory}: {found.files:,} files ({human_bytes(found.bytes)}, {found.rows:,} rows) are as they were written")
    else:
        for problem in found.problems:
            click.echo(problem)
        if found.count > len(found.problems):
            click.echo(f"... and {found.count - len(found.problems):,} more")
        if found.used_by:
            used = ", ".join(sorted(set(found.used_by)))
            click.echo(f"{used}: started since, so files have changed; `minikafka audit` says whether the replicas agree")
    sys.exit(0 if found.is_good else 1)
