"""`minikafka load`: a Parquet, CSV or JSON-lines table into a topic."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import command_config_option
from minikafka.cli.load_files import FilesWanted, files_options

if TYPE_CHECKING:
    from minikafka.spark.load import LoadOptions, LoadReport


@click.command("load")
@click.argument("table", type=click.Path())
@command_config_option
@click.option("--bootstrap-server", "bootstrap", default="localhost:9092", show_default=True, help="host:port[,host:port]")
@click.option("--topic", required=True)
@click.option("--key", default="", help="Column of the key; rows without a key go round the partitions.")
@click.option("--value", default="", help="Column of the value [default: the row as JSON].")
@click.option("--timestamp", default="", help="Column of the record's time [default: now].")
@click.option("--header", "headers", multiple=True, metavar="NAME=COLUMN", help="A record header from a column (repeatable).")
@click.option("--partition", "partition_column", default="", help="Column of the partition [default: by the key].")
@click.option("--partitioner", type=click.Choice(["murmur2", "crc32"]), default="murmur2", show_default=True, help="Kafka's, librdkafka's.")
@click.option("--partitions", type=click.IntRange(0), default=0, help="Create the topic with this many partitions when it is missing.")
@click.option("--replication-factor", type=int, default=-1, help="For --partitions [default: the broker's; with --to-files up to 3].")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True)
@click.option(
    "--batch-size",
    "batch_bytes",
    type=click.IntRange(1024),
    default=128 << 10,
    show_default=True,
    help="Bytes of a record batch before compression.",
)
@click.option("--format", "format_name", default=None, help="parquet, csv, jsonl; with --master also what Spark reads (orc, table).")
@click.option("--delimiter", default=",", show_default=True, help="Of CSV columns.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="auto: Spark when --master is given, else processes of this machine.",
)
@click.option("--master", default=None, help="Spark master URL.")
@click.option("--processes", type=click.IntRange(0), default=0, help="Processes of the local engine [default: one a core].")
@click.option("--split-bytes", type=click.IntRange(1 << 16), default=64 << 20, show_default=True, help="Table bytes a unit of work.")
@click.option("--job-id", default="", help="Name the load; the same command with the same name goes on where it stopped [default: random].")
@click.option("--throttle", type=click.IntRange(0), default=0, metavar="BYTES", help="At most so many bytes a second, all tasks together.")
@click.option("--dry-run", is_flag=True, help="Read, partition and encode, but send or write nothing.")
@files_options
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "jsonl", "yaml"]), default="table", show_default=True)
def load(
    table: str,
    bootstrap: str,
    topic: str,
    key: str,
    value: str,
    timestamp: str,
    headers: tuple[str, ...],
    partition_column: str,
    partitioner: str,
    partitions: int,
    replication_factor: int,
    compression: str,
    batch_bytes: int,
    format_name: str | None,
    delimiter: str,
    engine: str,
    master: str | None,
    processes: int,
    split_bytes: int,
    job_id: str,
    throttle: int,
    dry_run: bool,
    to_files: str | None,
    nodes: tuple[str, ...],
    node_count: int,
    configs: tuple[str, ...],
    cluster_id: str,
    output: str,
) -> None:
    """Load TABLE (a file, a directory or a pattern) into a topic with acks=all, each row exactly once.

    With --to-files no broker is needed: DIR becomes a new cluster that holds the topic, one directory a node with its server.properties
    and every replica, to be opened by `minikafka start` and by Apache Kafka. `minikafka verify-files DIR` checks it.

    Exit status: 0 every row was acknowledged (or written), 1 some were not, 2 usage or an unreadable table.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        _fail("the load reads tables with pyarrow, which is not installed: pip install 'minikafka[spark]'", 2)
    from minikafka.cli.connection import properties_in_use
    from minikafka.spark.load import LoadFailed, LoadOptions, run_load
    from minikafka.spark.produce_client import ProduceFailed
    from minikafka.spark.security import Security
    from minikafka.spark.tables import TableError

    try:
        security = Security.from_properties(properties_in_use())
    except ValueError as error:
        _fail(str(error), 2)
    options = LoadOptions(
        bootstrap,
        topic,
        key,
        value,
        timestamp,
        partitions,
        replication_factor,
        compression,
        batch_bytes,
        split_bytes,
        format_name or "",
        delimiter,
        dry_run,
        partition=partition_column,
        headers=tuple(_header(text) for text in headers),
        partitioner=partitioner,
        job=job_id,
        bytes_per_second=throttle,
        security=security,
    )
    if to_files is not None or nodes or configs or cluster_id:
        files = FilesWanted(to_files, nodes, node_count, replication_factor, configs, cluster_id)
        files.run(table, options, lambda: _engine(engine, master, processes), output)
        return
    driver = _engine(engine, master, processes)
    try:
        if format_name in {None, "parquet", "csv", "jsonl"}:
            report = run_load(table, options, driver, Progress() if sys.stderr.isatty() and output == "table" else None)
        else:
            report = _load_with_spark(table, options, driver)
    except (TableError, ValueError) as error:
        _fail(str(error), 2)
    except (LoadFailed, ProduceFailed) as error:
        _fail(str(error), 1)
    finally:
        driver.close()
    if output in ("table", "wide"):
        click.echo(_line(report, dry_run))
    else:
        from minikafka.cli.common import emit_one

        emit_one(_as_dict(report), output)


def _fail(text: str, status: int) -> Any:
    click.echo(f"minikafka load: {text}", err=True)
    sys.exit(status)


def _engine(name: str, master: str | None, processes: int) -> Any:
    from minikafka.spark.engine_local import LocalEngine

    if name == "spark" or (name == "auto" and master):
        from minikafka.spark.engine_spark import SparkEngine, SparkUnavailable

        try:
            return SparkEngine(master=master)
        except SparkUnavailable as error:
            click.echo(f"minikafka load: {error}; loading with the local engine", err=True)
    return LocalEngine(processes)


class Progress:
    """One line that is written over: rows, share, rate and what is left."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def __call__(self, rows: int, done: int, planned: int) -> None:
        passed = max(time.monotonic() - self.begun, 1e-3)
        left = passed * (planned - done) / done if done else 0.0
        end = "\r" if done < planned else "\n"
        text = f"  {rows:,} rows, {100 * done // max(planned, 1)} % of the table, {rows / passed:,.0f} rows/s, about {left:.0f} s left   "
        click.echo(text + end, nl=False, err=True)


def _load_with_spark(table: str, options: LoadOptions, driver: Any) -> LoadReport:
    """A format that only Spark reads; expressions instead of columns are allowed then."""
    if driver.name != "spark":
        _fail(f"--format {options.format} is read by Spark: give --master, for example --master 'local[*]'", 2)
    from minikafka.spark.load_frame import load_dataframe

    session = driver.session
    try:
        frame = session.table(table) if options.format == "table" else session.read.format(options.format).load(table)
    except Exception as error:
        _fail(f"{table}: Spark cannot read it as {options.format}: {str(error).splitlines()[0]}", 2)
    return load_dataframe(frame, options)


def _header(text: str) -> tuple[str, str]:
    name, found, column = text.partition("=")
    if not found or not name or not column:
        _fail(f"--header {text}: expected NAME=COLUMN", 2)
    return name, column


def _as_dict(report: LoadReport) -> dict[str, Any]:
    return {
        "topic": report.topic,
        "rows": report.rows,
        "acknowledged": report.acknowledged,
        "bytes": report.bytes,
        "batches": report.batches,
        "retries": report.retries,
        "partitions": report.partitions,
        "tasks": report.tasks,
        "engine": report.engine,
        "seconds": round(report.seconds, 3),
        "rows_per_second": round(report.rows_per_second),
        "job": report.job,
        "repeated": report.repeated,
        "reconciled": report.reconciled,
        "already_done": report.already_done,
        "offsets": {str(k): list(v) for k, v in report.offsets.items()},
    }


def _line(report: LoadReport, dry_run: bool) -> str:
    from minikafka.spark.report import human_bytes

    what = "Dry run, nothing sent:" if dry_run else "Loaded"
    line = f"{what} {report.rows:,} rows ({human_bytes(report.bytes)} in {report.batches:,} batches) into {report.topic}, "
    line += f"{report.partitions} partitions, in {report.seconds:.2f} s ({report.rows_per_second:,.0f} rows/s)"
    if report.already_done:
        return f"Job {report.job} is done already: {report.rows:,} rows are in {report.topic}; nothing was sent"
    if not dry_run:
        line += f"; acknowledged by all in-sync replicas: {report.acknowledged:,}"
        line += ", confirmed by the leaders" if report.reconciled else ""
        line += f" ({report.repeated:,} by an earlier run)" if report.repeated else ""
        line += f"; job {report.job}"
    return line
