"""`minikafka load`: a Parquet, CSV or JSON-lines table into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, EXIT_UNREACHABLE, bootstrap_option, command_config_option
from minikafka.cli.load_files import FilesOptions, files_options
from minikafka.cli.load_source import Source
from minikafka.cli.spark_options import EngineOptions, name_and_value, spark_options
from minikafka.counted import counted

if TYPE_CHECKING:
    from minikafka.spark.load import LoadOptions, LoadReport

_COUNT = click.IntRange(0)


def _one_character(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Check that a separator is one character. `\\t` stands for a tab, since a shell passes it on unchanged."""
    value = value.replace("\\t", "\t")
    if len(value) > 1:
        raise click.BadParameter(f"{value!r} is longer than one character")
    return value


#: The parameters are named like the fields of LoadOptions.
_OPTIONS = (
    bootstrap_option,
    click.option("--topic", required=True, help="Topic to write to."),
    click.option("--key", default="", help="Column of the key. Rows without a key are spread over the partitions."),
    click.option("--value", default="", help="Column of the value [default: the row as JSON]."),
    click.option("--timestamp", default="", help="Column of the timestamp [default: now]."),
    click.option("--header", "headers", multiple=True, metavar="NAME=COLUMN", help="A record header from a column (repeatable)."),
    click.option("--partition", default="", help="Column of the partition [default: chosen by key]."),
    click.option("--partitioner", type=click.Choice(["murmur2", "crc32"]), default="murmur2", show_default=True,
                 help="Partition by key like Kafka's clients (murmur2) or like librdkafka (crc32)."),
    click.option("--partitions", type=_COUNT, default=0, help="Create the topic with this many partitions if it does not exist."),
    click.option("--replication-factor", type=int, default=-1, help="Replicas of a new topic [default: the broker's; --to-files: max. 3]."),
    click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True,
                 help="Codec of the record batches."),
    click.option("--batch-size", "batch_bytes", type=click.IntRange(1024), default=512 << 10, show_default=True,
                 help="Size of a record batch before compression, in bytes."),
    click.option("--format", default="", help="parquet, csv or jsonl; with --master also Spark's formats (orc, delta, avro, table)."),
    click.option("--read-option", "read_options", multiple=True, metavar="NAME=VALUE",
                 help="An option of Spark's reader for the format, such as versionAsOf for delta (repeatable)."),
    click.option("--delimiter", default="", callback=_one_character,
                 help="CSV separator; \\t is a tab [default: a comma, in .tsv files a tab]."),
    click.option("--unpacked-bytes-max", type=_COUNT, default=0, metavar="BYTES",
                 help="Maximum size of a compressed file once unpacked, in bytes [default: 250 times its size, at least 256 MiB]."),
    click.option("--split-bytes", type=click.IntRange(1 << 16), default=64 << 20, show_default=True, help="Table bytes per task."),
    click.option("--job-id", "job", default="",
                 help="Name of the load. Repeating a command with the same name resumes the load [default: random]."),
    click.option("--throttle", "bytes_per_second", type=_COUNT, default=0, metavar="BYTES",
                 help="Maximum bytes per second, over all tasks."),
    click.option("--dry-run", is_flag=True, help="Read, partition and encode, but do not send or write anything."),
)  # fmt: skip


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that become LoadOptions to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("load")
@click.argument("table", type=click.Path())
@command_config_option
@load_options
@spark_options
@files_options
@click.option("--audit", "audited", is_flag=True, help="Afterwards prove over the network that all replicas are equal.")
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False),
    help="Write progress and result to this file in Prometheus text format (minikafka_bulkload_*).",
)
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "jsonl", "yaml"]), default="table", show_default=True)
def load(
    table: str, engine: str, master: str | None, confs: tuple[str, ...], packages: str, processes: int, read_options: tuple[str, ...],
    to_files: str | None, nodes: tuple[str, ...], node_count: int, configs: tuple[str, ...], cluster_id: str, metrics_file: str | None,
    audited: bool, output: str, **chosen: Any,
) -> None:  # fmt: skip
    """Load TABLE (a file, a directory or a pattern) into a topic with acks=all, each row exactly once.

    --to-files DIR needs no broker. It writes a new cluster that holds the topic: one directory per node, with its server.properties and
    its replicas, ready for `minikafka start` or Apache Kafka. `minikafka verify-files DIR` checks the files.

    Exit status: 0 every row was acknowledged (or written), 1 some rows were not, 2 wrong usage or an unreadable table, 3 no broker or
    Spark master answers. With --audit also 1 if replicas differ, 3 if they could not be compared.
    """
    from minikafka.spark.report import one_line

    options = _load_options(chosen)
    source = Source(table, options, name_and_value(read_options, "--read-option"))
    engine_options = EngineOptions("load", engine, master, confs, packages, processes)

    def start_engine() -> Any:
        return engine_options.start(source.is_for_spark)

    if to_files is not None or nodes or configs or cluster_id:
        if metrics_file:
            _fail("--metrics-file works only for loads into a running cluster", 2)
        files = FilesOptions(to_files, nodes, node_count, options.replication_factor, configs, cluster_id)
        if audited:
            _fail("--audit needs running brokers; to compare the written replicas, run `minikafka audit` on the directories", 2)
        files.run(source, start_engine, output)
        return
    listeners: list[Any] = [Line()] if sys.stderr.isatty() and output == "table" else []
    if metrics_file:
        listeners.append(MetricsFile(metrics_file, options))
    report, verdict = _run(source, start_engine, listeners, audited and not options.dry_run)
    if output in ("table", "wide"):
        click.echo(_dry_line(report, options) if options.dry_run else _line(report))
        if verdict is not None:
            click.echo(one_line(verdict))
    else:
        from minikafka.cli.common import emit_one

        emit_one({**_as_dict(report), **({"audit": verdict["outcome"]} if verdict is not None else {})}, output)
    sys.exit(verdict["exit_code"] if verdict is not None else 0)


def _load_options(chosen: dict[str, Any]) -> LoadOptions:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        _fail("the load reads tables with pyarrow, which is not installed: pip install pyarrow pandas, and pyspark for Spark", 2)
    from minikafka.cli.connection import properties_in_use
    from minikafka.spark.load import LoadOptions
    from minikafka.spark.security import Security

    try:
        security = Security.from_properties(properties_in_use())
    except ValueError as error:
        _fail(str(error), 2)
    headers = tuple(_header(text) for text in chosen.pop("headers"))
    return LoadOptions(**chosen, headers=headers, security=security)


def _run(
    source: Source, start_engine: Callable[[], Any], listeners: list[Any], audited: bool
) -> tuple[LoadReport, dict[str, Any] | None]:  # fmt: skip
    """Load, and audit the topic if `audited`. On failure prints one line and exits with status 1, 2 or 3."""

    def progress(rows: int, share: float | None) -> None:
        for listener in listeners:
            listener.progress(rows, share)

    report, status, driver = None, EXIT_REFUSED, start_engine()
    try:
        report = _load(source, driver, progress if listeners else None)
        verdict = _audit(source.options, report.topic, driver) if audited else None
        status = verdict["exit_code"] if verdict is not None else 0
        return report, verdict
    except Exception as error:
        failure = _status_and_text(error, source)
        if failure is None:
            raise
        status, text = failure
        return _fail(text, status)  # type: ignore[no-any-return]
    finally:
        for listener in listeners:
            listener.end(report, status)
        driver.close()


def _load(source: Source, driver: Any, on_progress: Callable[[int, float | None], None] | None) -> LoadReport:
    from minikafka.spark.load import run_load
    from minikafka.spark.load_frame import load_dataframe

    if source.is_for_spark:
        return load_dataframe(source.frame(driver), source.options, on_progress)
    return run_load(source.table, source.options, driver, on_progress)


def _audit(options: LoadOptions, topic: str, driver: Any) -> dict[str, Any]:
    from minikafka.spark.audit import AuditOptions, run_audit
    from minikafka.spark.report import build

    about = AuditOptions(topics=(topic,), bootstrap=options.bootstrap, security=options.security, self_check=True)
    return build(run_audit([], driver, about))


def _status_and_text(error: Exception, source: Source) -> tuple[int, str] | None:
    """Exit status and message for an expected error; None for any other."""
    from minikafka.spark.fetch_client import BrokerError
    from minikafka.spark.load import LoadFailed
    from minikafka.spark.produce_client import ProduceFailed, Unreachable
    from minikafka.spark.tables import TableError

    if isinstance(error, (TableError, ValueError)):
        return 2, str(error)
    if isinstance(error, BrokerError):
        return EXIT_UNREACHABLE, f"the rows were loaded, but the audit failed: {error.text}"
    if isinstance(error, (LoadFailed, ProduceFailed)):
        return EXIT_UNREACHABLE if isinstance(error, Unreachable) else EXIT_REFUSED, str(error)
    if isinstance(error, OSError):
        return 2, f"{error.filename or source.table}: {error.strerror or error}"
    from minikafka.spark.engine_spark import is_unreachable, what_a_task_says

    said = what_a_task_says(error)
    return None if said is None else (EXIT_UNREACHABLE if is_unreachable(error) else EXIT_REFUSED, said)


def _fail(text: str, status: int) -> Any:
    click.echo(f"minikafka load: {text}", err=True)
    sys.exit(status)


class Line:
    """A progress line on the terminal, updated in place: rows, share, rate and remaining time."""

    def __init__(self) -> None:
        self.begun, self.shown = time.monotonic(), False

    def progress(self, rows: int, share: float | None) -> None:
        from minikafka.spark.load_progress import rate_and_rest

        rate, rest = rate_and_rest(rows, share, time.monotonic() - self.begun)
        text = f"  {counted(rows, 'row')}" + (f", {share:.0%} of the table" if share is not None else "")
        text += f", {counted(round(rate), 'row')}/s"
        text += f", about {rest:.0f} s left" if rest is not None else ""
        click.echo(f"{text:78s}\r", nl=False, err=True)
        self.shown = True

    def end(self, report: LoadReport | None, status: int) -> None:
        if self.shown:
            click.echo(err=True)


class MetricsFile:
    """A text file for node_exporter, rewritten at every step. The load continues if the file cannot be written."""

    def __init__(self, path: str, options: LoadOptions) -> None:
        self.path, self.options, self.begun = path, options, time.monotonic()
        self.rows, self.share, self.job = 0, 0.0, options.job
        self._write("running", -1)

    def progress(self, rows: int, share: float | None) -> None:
        self.rows, self.share = rows, share or 0.0
        self._write("running", -1)

    def end(self, report: LoadReport | None, status: int) -> None:
        if report is not None:
            self.rows, self.share, self.job = report.rows, 1.0, report.job
        self._write("done" if status == 0 else "failed", status, report.bytes if report is not None else 0)

    def _write(self, state: str, status: int, size: int = 0) -> None:
        from minikafka.spark.textfile import exposition, write_text

        labels = (("topic", self.options.topic), ("job", self.job))
        seconds = time.monotonic() - self.begun
        states: dict[tuple[tuple[str, str], ...], float] = {
            (*labels, ("state", one)): int(one == state) for one in ("running", "done", "failed")
        }
        text = exposition("minikafka_bulkload", [
            ("rows", "Rows of the table that the leaders have.", {labels: self.rows}),
            ("share", "Share of the table that is loaded, 0 to 1; 0 where its rows are not counted.", {labels: round(self.share, 4)}),
            ("bytes", "Bytes of record batches, when the load is done.", {labels: size}),
            ("seconds", "How long the load has run.", {labels: round(seconds, 3)}),
            ("rows_per_second", "Rows a second since the load began.", {labels: round(self.rows / max(seconds, 1e-3))}),
            ("exit_code", "Status of the load; -1 while it runs.", {labels: status}),
            ("state", "1 for the state that the load is in.", states),
            ("last_update_timestamp_seconds", "When these figures were taken.", {labels: time.time()}),
        ])  # fmt: skip
        try:
            write_text(self.path, text)
        except OSError as error:
            if state != "running" or self.rows == 0:
                click.echo(f"minikafka load: --metrics-file {self.path}: {error.strerror}", err=True)


def _header(text: str) -> tuple[str, str]:
    name, found, column = text.partition("=")
    if not found or not name or not column:
        _fail(f"--header {text}: expected NAME=COLUMN", 2)
    return name, column


def _as_dict(report: LoadReport) -> dict[str, Any]:
    names = ("topic", "rows", "acknowledged", "bytes", "batches", "retries", "partitions", "tasks", "engine")
    return {
        **{name: getattr(report, name) for name in names},
        "seconds": round(report.seconds, 3),
        "rows_per_second": round(report.rows_per_second),
        **{name: getattr(report, name) for name in ("job", "repeated", "reconciled", "already_done")},
        "offsets": {str(partition): list(bounds) for partition, bounds in report.offsets.items()},
    }


def _dry_line(report: LoadReport, options: LoadOptions) -> str:
    """No broker is asked, so nobody knows how many partitions an existing topic has."""
    said = f"Dry run, nothing sent: {_contents(report)} for {report.topic}, {counted(report.partitions, 'partition')}"
    return f"{said}{'' if options.partitions else ' assumed (--partitions)'}, in {_pace(report)}"


def _line(report: LoadReport) -> str:
    if report.already_done:
        return f"Job {report.job} is already done, with {counted(report.rows, 'row')} in {report.topic}; nothing was sent"
    line = f"Loaded {_contents(report)} into {report.topic}, {counted(report.partitions, 'partition')}, in {_pace(report)}"
    line += f"; acknowledged by all in-sync replicas: {report.acknowledged:,}"
    line += ", confirmed by the leaders" if report.reconciled else ""
    line += f" ({report.repeated:,} by an earlier run)" if report.repeated else ""
    return f"{line}; job {report.job}"


def _contents(report: LoadReport) -> str:
    from minikafka.spark.report import human_bytes

    return f"{counted(report.rows, 'row')} ({human_bytes(report.bytes)} in {counted(report.batches, 'batch', 'batches')})"


def _pace(report: LoadReport) -> str:
    return f"{report.seconds:.2f} s ({counted(round(report.rows_per_second), 'row')}/s)"
