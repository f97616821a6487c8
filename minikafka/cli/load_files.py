"""`minikafka load --to-files` writes a table as the directories of a new cluster. `minikafka verify-files` checks them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from minikafka.cli.common import emit_one, output_option, parse_pairs
from minikafka.counted import counted

if TYPE_CHECKING:
    from minikafka.cli.load_source import Source
    from minikafka.spark.cluster_files import ClusterOptions
    from minikafka.spark.to_files import FilesReport

#: Options of `load` that need brokers.
ONLY_BROKERS = {"bootstrap": "--bootstrap-server", "job": "--job-id", "bytes_per_second": "--throttle"}


def files_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for writing files to `load`."""
    for option in reversed(
        (
            click.option("--to-files", metavar="DIR", type=click.Path(), help="Write a new cluster holding the topic to DIR; no brokers."),
            click.option(
                "--node",
                "nodes",
                multiple=True,
                metavar="NODE",
                help="With --to-files: a node as ID@HOST:PORT[:CONTROLLER_PORT], or its server.properties (repeatable).",
            ),
            click.option(
                "--nodes",
                "node_count",
                type=click.IntRange(1, 1000),
                default=3,
                show_default=True,
                help="With --to-files, without --node: number of nodes on localhost, starting at port 9092.",
            ),
            click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="With --to-files: a property of the topic."),
            click.option("--cluster-id", default="", help="With --to-files: id of the cluster, 22 characters [default: random]."),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """The command-line options for writing files."""

    directory: str | None
    nodes: tuple[str, ...]
    node_count: int
    replication_factor: int
    configs: tuple[str, ...]
    cluster_id: str

    def run(self, source: Source, start_engine: Callable[[], Any], output: str) -> None:
        """Write the files and print a report. On failure prints one line and exits with status 1 or 2."""
        from minikafka.spark.cluster_files import ClusterOptions
        from minikafka.spark.cluster_segments import FilesFailed
        from minikafka.spark.load import run_load
        from minikafka.spark.load_frame import load_dataframe
        from minikafka.spark.tables import TableError
        from minikafka.spark.to_files import instructions, plan_load

        if self.directory is None:
            _fail("--node, --config and --cluster-id need --to-files DIR; a running cluster has its own", 2)
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
                rows, batches = counted(done.rows, "row"), counted(done.batches, "batch", "batches")
                click.echo(f"Dry run, nothing written: {rows} in {batches} for {counted(done.partitions, 'partition')}")
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
                _fail(f"{shown} needs a running cluster, but --to-files writes a new one", 2)

    def _write(self, source: Source, cluster: ClusterOptions, driver: Any, progress: Progress | None) -> FilesReport:
        from minikafka.spark.to_files import dataframe_to_files, load_to_files

        if source.is_for_spark:
            return dataframe_to_files(source.frame(driver), source.options, cluster, progress)
        return load_to_files(source.table, source.options, cluster, driver, progress)


class Progress:
    """A progress line, updated in place: the stage, its share, its remaining time."""

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

    written = [
        f"{counted(report.partitions, 'partition')} x {counted(report.replication_factor, 'replica')}",
        counted(report.segments, "segment"),
        counted(report.files, "file"),
    ]
    return (
        f"Wrote {counted(report.rows, 'row')} ({human_bytes(report.bytes)} in {counted(report.batches, 'batch', 'batches')}) "
        f"as {report.topic}, {', '.join(written)}, in {report.seconds:.2f} s ({counted(round(report.rows_per_second), 'row')}/s); "
        "rows read and records written agree"
    )


def _fail(text: str, status: int) -> NoReturn:
    click.echo(f"minikafka load: {text}", err=True)
    sys.exit(status)


@click.command("verify-files")
@click.argument("directory", type=click.Path())
@click.option("--processes", type=click.IntRange(0), default=0, help="Number of reading processes [default: one per core].")
@output_option
def verify_files(directory: str, processes: int, output: str) -> None:
    """Compare DIRECTORY, written by `load --to-files`, with its manifest: the size and CRC-32C of every file, missing and extra files.

    Use it before a broker opens the files, for example after copying them. Once brokers have started, `minikafka audit` checks whether
    the replicas agree.

    Exit status: 0 all files are as written, 1 some files differ, 2 there is no manifest.
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
        click.echo(f"{directory} is unchanged: {counted(found.files, 'file')} ({human_bytes(found.bytes)}, {counted(found.rows, 'row')})")
    else:
        for problem in found.problems:
            click.echo(problem)
        if found.count > len(found.problems):
            click.echo(f"... and {found.count - len(found.problems):,} more")
        if found.used_by:
            used = ", ".join(sorted(set(found.used_by)))
            click.echo(f"{used}: the node has been started, so its files have changed; `minikafka audit` checks whether the replicas agree")
    sys.exit(0 if found.is_good else 1)
