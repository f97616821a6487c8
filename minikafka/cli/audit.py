"""`minikafka audit`: prove that replicas agree, from their log directories."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from minikafka.spark.audit import AuditResult

EXIT_USAGE = 2
FINDINGS_SHOWN_MAX = 20


@click.command("audit")
@click.argument("log_dirs", nargs=-1, required=True, type=click.Path())
@click.option("--topic", "topics", multiple=True, help="Audit only this topic (repeatable).")
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="auto: Spark when --master is given, else processes of this machine.",
)
@click.option("--master", default=None, help="Spark master URL, for example local[*] or spark://host:7077.")
@click.option(
    "--level", type=click.Choice(["batches", "records"]), default="batches", show_default=True, help="records: decode every record as well."
)
@click.option(
    "--digest",
    type=click.Choice(["crc", "blake2b"]),
    default="crc",
    show_default=True,
    help="What replicas are compared by; blake2b is slower and leaves nothing to a 32-bit checksum.",
)
@click.option("--processes", type=click.IntRange(0), default=0, help="Processes of the local engine [default: one a core].")
@click.option("--split-bytes", type=click.IntRange(1 << 20), default=256 << 20, show_default=True, help="Log bytes a task.")
@click.option("--self-check", is_flag=True, help="One replica of each partition is enough: its own checks decide.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(["lagging", "truncation_pending", "single", "empty", "warnings"]),
    help="Let these verdicts fail the audit too.",
)
@click.option("--acked", multiple=True, type=click.Path(), help="JSON lines of acknowledged records: each must be there (repeatable).")
@click.option(
    "--transaction-timeout-ms",
    type=click.IntRange(1),
    default=900_000,
    show_default=True,
    help="The cluster's transaction.max.timeout.ms; a transaction open for twice as long is reported.",
)
@click.option(
    "--report",
    "report_dir",
    type=click.Path(file_okay=False),
    default=None,
    help="Directory for report.json, summary.md and Parquet tables.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True)
@click.option("--quiet", is_flag=True, help="Only the verdict line.")
def audit(
    log_dirs: tuple[str, ...],
    topics: tuple[str, ...],
    engine: str,
    master: str | None,
    level: str,
    digest: str,
    processes: int,
    split_bytes: int,
    self_check: bool,
    fail_on: tuple[str, ...],
    acked: tuple[str, ...],
    transaction_timeout_ms: int,
    report_dir: str | None,
    output: str,
    quiet: bool,
) -> None:
    """Compare the replicas in LOG_DIRS (brokers' log.dirs, or folders of them) and check each against itself.

    Reads Apache Kafka's and minikafka's directories, of stopped, crashed or running brokers. Exit status: 0 everything compared
    is equal and sound, 1 divergence or corruption, 2 usage, 3 incomplete (something could not be compared).
    """
    from minikafka.spark import report as reporting
    from minikafka.spark.audit import AuditOptions, run_audit
    from minikafka.spark.ledger import LedgerError
    from minikafka.spark.sources import SourceError

    options = AuditOptions(
        topics=topics, level=level, digest=digest, split_bytes=split_bytes, self_check=self_check, acked=acked,
        transaction_timeout_ms=transaction_timeout_ms, fail_on=tuple(verdict.upper() for verdict in fail_on),
    )  # fmt: skip
    driver = _engine(engine, master, processes)
    try:
        result: AuditResult = run_audit(log_dirs, driver, options, _progress if sys.stderr.isatty() and not quiet else None)
    except (SourceError, LedgerError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'a log directory'}: {error.strerror}")
    except Exception as error:
        if type(error).__name__ != "Py4JJavaError":
            raise
        _fail(f"a Spark task failed: {_last_line(error)}")
    finally:
        driver.close()
    report = reporting.build(result, sys.argv[1:])
    _show(report, output, quiet)
    if report_dir is not None:
        try:
            paths = reporting.write(report, report_dir)
        except OSError as error:
            _fail(f"the report cannot be written to {report_dir}: {error.strerror}")
        if output == "table" and not quiet:
            click.echo("report: " + ", ".join(paths))
    sys.exit(report["exit_code"])


def _fail(text: str) -> Any:
    click.echo(f"minikafka audit: {text}", err=True)
    sys.exit(EXIT_USAGE)


def _last_line(error: Exception) -> str:
    """The Python exception's own line out of a Java stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
    return lines[-1] if lines else str(error).splitlines()[0]


def _engine(name: str, master: str | None, processes: int) -> Any:
    """Spark when asked for; without Java or PySpark the local engine, with one line that says so."""
    from minikafka.spark.engine_local import LocalEngine

    if name == "spark" or (name == "auto" and master):
        from minikafka.spark.engine_spark import SparkEngine, SparkUnavailable

        try:
            return SparkEngine(master=master)
        except SparkUnavailable as error:
            click.echo(f"minikafka audit: {error}; running the same checks with the local engine", err=True)
    return LocalEngine(processes)


def _progress(done: int, planned: int) -> None:
    from minikafka.spark.report import human_bytes

    end = "\r" if done < planned else "\n"
    click.echo(f"  scanned {human_bytes(done)} of {human_bytes(planned)} ({100 * done // max(planned, 1)} %)   {end}", nl=False, err=True)


def _show(report: dict[str, Any], output: str, quiet: bool) -> None:
    from minikafka.spark import report as reporting

    if output == "json":
        click.echo(json.dumps(report, indent=1))
        return
    if output == "jsonl":
        for finding in report["findings"]:
            click.echo(json.dumps(finding))
        click.echo(json.dumps({"outcome": report["outcome"], **report["summary"]}))
        return
    if not quiet:
        _show_tables(report)
    if report["outcome"] == "INCOMPLETE":
        click.echo(f"incomplete: {reporting.why_incomplete(report)}")
    click.echo(reporting.one_line(report))


def _show_tables(report: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from minikafka.spark import report as reporting

    console = Console(soft_wrap=False)
    odd = [one for one in report["partitions"] if one["verdict"] not in {"MATCH", "EMPTY"}]
    table = Table(box=box.SIMPLE_HEAD, title=None, pad_edge=False)
    for name in ("partition", "verdict", "brokers", "fence", "batches", "records"):
        table.add_column(name, justify="right" if name in {"batches", "records"} else "left")
    shown = odd or report["partitions"][:FINDINGS_SHOWN_MAX]
    for one in shown:
        colour = {"MATCH": "green", "DIVERGENT": "red", "CORRUPT": "red"}.get(one["verdict"], "yellow")
        table.add_row(
            escape(f"{one['topic']}-{one['partition']}"),
            f"[{colour}]{one['verdict']}[/]",
            escape(" ".join(one["brokers"])),
            f"{one['fence_from']}..{one['fence_to']}",
            f"{one['batches_compared']:,}",
            f"{one['records_compared']:,}",
        )
    if shown:
        console.print(table)
    if len(shown) < len(report["partitions"]):
        console.print(f"  and {len(report['partitions']) - len(shown)} partitions more", highlight=False)
    for finding in report["findings"][:FINDINGS_SHOWN_MAX]:
        colour = {"error": "red", "warning": "yellow"}.get(finding["level"], "dim")
        brokers = f" broker {', '.join(finding['brokers'])}" if finding["brokers"] else ""
        console.print(
            f"[{colour}]{finding['level'].upper()}[/] [bold]{finding['check']}[/] {escape(reporting.where(finding) + brokers)}",
            highlight=False,
        )
        console.print(f"  {escape(finding['message'])}", highlight=False)
        if finding["level"] != "note":
            console.print(f"  [dim]{escape(finding['meaning'])}[/]", highlight=False)
        if finding["cause"]:
            console.print(f"  likely: {escape(finding['cause'])}", highlight=False)
    hidden = sum(row["count"] for row in report["finding_counts"]) - min(len(report["findings"]), FINDINGS_SHOWN_MAX)
    if hidden > 0:
        console.print(f"  and {hidden} findings more (--report DIR or -o json show all that are kept)", highlight=False)
