"""`minikafka audit`: prove that replicas agree, from their log directories."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from minikafka.cli.common import BOOTSTRAP_VARIABLES, command_config_option
from minikafka.cli.spark_options import EngineWanted, spark_options

if TYPE_CHECKING:
    from minikafka.spark.audit import AuditResult

EXIT_USAGE, EXIT_INCOMPLETE = 2, 3
FINDINGS_SHOWN_MAX = 20


@click.command("audit")
@click.argument("log_dirs", nargs=-1, type=click.Path())
@click.option("--bootstrap-server", "-b", "bootstrap", default="", help="Audit this running cluster, over the wire.")
@command_config_option
@click.option("--rerun", default=None, type=click.Path(), help="A report: audit again only the partitions that it has findings on.")
@click.option("--topic", "topics", multiple=True, help="Audit only this topic (repeatable).")
@spark_options
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
@click.option("--split-bytes", type=click.IntRange(1 << 20), default=512 << 20, show_default=True, help="Log bytes a task.")
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
    help="Directory for report.json, report.html, summary.md, junit.xml, metrics.prom and Parquet tables.",
)
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "jsonl", "yaml"]), default="table", show_default=True)
@click.option("--quiet", is_flag=True, help="Only the verdict line.")
def audit(
    log_dirs: tuple[str, ...],
    bootstrap: str,
    rerun: str | None,
    topics: tuple[str, ...],
    level: str,
    digest: str,
    split_bytes: int,
    self_check: bool,
    fail_on: tuple[str, ...],
    acked: tuple[str, ...],
    transaction_timeout_ms: int,
    report_dir: str | None,
    output: str,
    quiet: bool,
    **engine: Any,
) -> None:
    """Compare the replicas in LOG_DIRS (brokers' log.dirs, or folders of them) and check each against itself.

    Reads Apache Kafka's and minikafka's directories, of stopped, crashed or running brokers; with --bootstrap-server also replicas over
    the wire. `minikafka audit explain REPORT F1` tells finding F1 of a report at length, `minikafka audit trend DIR` the runs whose
    reports were written to DIR or right below it. Exit status: 0 everything compared is equal
    and sound, 1 divergence or corruption, 2 usage, 3 incomplete (something could not be compared).
    """
    from minikafka.spark import report as reporting
    from minikafka.spark.audit import AuditOptions, run_audit
    from minikafka.spark.directories import SourceError
    from minikafka.spark.fetch_client import BrokerError
    from minikafka.spark.ledger import LedgerError

    if log_dirs[:1] == ("explain",):
        _explain(log_dirs[1:])
    if log_dirs[:1] == ("trend",):
        _trend(log_dirs[1:], output)
    partitions: tuple[tuple[str, int], ...] = ()
    if rerun is not None:
        log_dirs, bootstrap, partitions = _from_report(rerun, log_dirs, bootstrap)
    if not log_dirs and not bootstrap:
        bootstrap = next((os.environ[name] for name in BOOTSTRAP_VARIABLES if os.environ.get(name)), "")
    if not log_dirs and not bootstrap:
        _fail("give log directories, or --bootstrap-server of a running cluster")
    options = AuditOptions(
        topics=topics, level=level, digest=digest, split_bytes=split_bytes, self_check=self_check, acked=acked, partitions=partitions,
        bootstrap=bootstrap, security=_security(), transaction_timeout_ms=transaction_timeout_ms,
        fail_on=tuple(verdict.upper() for verdict in fail_on),
    )  # fmt: skip
    driver = EngineWanted("audit", **engine).start()
    try:
        result: AuditResult = run_audit(log_dirs, driver, options, _progress if sys.stderr.isatty() and not quiet else None)
    except BrokerError as error:
        _fail(error.text, EXIT_INCOMPLETE)
    except (SourceError, LedgerError, ValueError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'a log directory'}: {error.strerror}", EXIT_INCOMPLETE)
    except Exception as error:
        from minikafka.spark.engine_spark import what_a_task_says

        said = what_a_task_says(error)
        if said is None:
            raise
        _fail(said, EXIT_INCOMPLETE)
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


def _explain(arguments: tuple[str, ...]) -> NoReturn:
    """`minikafka audit explain REPORT FINDING`."""
    from minikafka.spark.explain import explain, find

    if len(arguments) != 2:
        _fail("usage: minikafka audit explain REPORT FINDING, for example: audit explain report/ F1")
    report = _read_report(arguments[0])
    finding = find(report, arguments[1])
    if finding is None:
        ids = [one["id"] for one in report["findings"]]
        _fail(f"the report has no finding {arguments[1]} ({'it has none' if not ids else f'it has {ids[0]} to {ids[-1]}'})")
    click.echo("\n".join(explain(report, finding)))
    sys.exit(0)


def _trend(arguments: tuple[str, ...], output: str) -> Any:
    """`minikafka audit trend DIR`."""
    from minikafka.cli.common import emit
    from minikafka.spark import trend

    if len(arguments) != 1:
        _fail("usage: minikafka audit trend DIR, the directory of --report or the one above it")
    try:
        runs = trend.read(arguments[0])
    except OSError as error:
        _fail(f"{arguments[0]}: {error.strerror}")
    if not runs:
        _fail(f"{arguments[0]} has no report of an audit ({trend.RUNS})")
    emit(trend.rows(runs), output, ("started", "outcome", "partitions", "batches_compared", "bytes_compared", "seconds", "changes"))
    sys.exit(0)


def _read_report(path: str) -> dict[str, Any]:
    from minikafka.spark import report as reporting

    try:
        return reporting.read(path)
    except ValueError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{path}: {error.strerror}")


def _from_report(path: str, log_dirs: tuple[str, ...], bootstrap: str) -> tuple[tuple[str, ...], str, tuple[tuple[str, int], ...]]:
    """Sources (those of the report unless others are given) and the partitions that have errors or warnings."""
    report = _read_report(path)
    found = {(one["topic"], one["partition"]) for one in report["findings"] if one["level"] != "note" and one["topic"]}
    if not found:
        _fail(f"{path} has no finding on a partition: there is nothing to audit again")
    if not log_dirs and not bootstrap:
        paths = [one["path"] for one in report["cluster"]["log_directories"]]
        log_dirs = tuple(one for one in paths if not one.startswith("kafka://"))
        bootstrap = ",".join(one.removeprefix("kafka://") for one in paths if one.startswith("kafka://") and "(down)" not in one)
    return log_dirs, bootstrap, tuple(sorted(found))


def _security() -> Any:
    from minikafka.cli.connection import properties_in_use
    from minikafka.spark.security import Security

    try:
        return Security.from_properties(properties_in_use())
    except ValueError as error:
        _fail(str(error))


def _fail(text: str, status: int = EXIT_USAGE) -> NoReturn:
    click.echo(f"minikafka audit: {text}", err=True)
    sys.exit(status)


def _progress(done: int, planned: int) -> None:
    from minikafka.spark.report import human_bytes

    end = "\r" if done < planned else "\n"
    click.echo(f"  scanned {human_bytes(done)} of {human_bytes(planned)} ({100 * done // max(planned, 1)} %)   {end}", nl=False, err=True)


def _show(report: dict[str, Any], output: str, quiet: bool) -> None:
    from minikafka.spark import report as reporting

    if output in ("json", "yaml"):
        from minikafka.cli.common import emit_one

        emit_one(report, output)
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
        if finding["level"] != "note" and finding["file"]:
            console.print(f"  [dim]{escape(finding['file'])}[/]", highlight=False, soft_wrap=True)
        if finding["cause"]:
            console.print(f"  likely: {escape(finding['cause'])}", highlight=False)
    hidden = sum(row["count"] for row in report["finding_counts"]) - min(len(report["findings"]), FINDINGS_SHOWN_MAX)
    if hidden > 0:
        console.print(f"  and {hidden} findings more (--report DIR or -o json show all that are kept)", highlight=False)
