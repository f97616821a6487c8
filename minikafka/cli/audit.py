"""`minikafka audit`: prove that replicas agree, from their log directories."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from minikafka.cli.audit_reports import explain_finding, fail, read_report, show_tables, show_trend, takes_explain, takes_trend
from minikafka.cli.common import BOOTSTRAP_VARIABLES, command_config_option
from minikafka.cli.spark_options import EngineOptions, spark_options
from minikafka.counted import counted

EXIT_INCOMPLETE = 3
#: Options that are passed to the audit unchanged. The remaining options choose the engine.
_SETTINGS = ("topics", "digest", "split_bytes", "self_check", "acked", "compacted", "transaction_timeout_ms", "wire_ledger")
#: Subcommands. A directory of that name is audited if what follows is not what the subcommand takes.
VERBS = {"explain": explain_finding, "trend": show_trend}
TAKES = {"explain": takes_explain, "trend": takes_trend}


@click.command("audit")
@click.argument("log_dirs", nargs=-1, type=click.Path())
@click.option("--bootstrap-server", "-b", "bootstrap", default="", help="Audit this running cluster, over the wire.")
@command_config_option
@click.option("--rerun", default=None, type=click.Path(), help="A report: audit only the partitions that have findings in it.")
@click.option("--scan", default=None, type=click.Path(), help="Write a summary of LOG_DIRS to this file, for --compare-summaries.")
@click.option("--compare-summaries", is_flag=True, help="LOG_DIRS are the summary files that --scan wrote on each broker's machine.")
@click.option(
    "--questions",
    default="",
    type=click.Path(),
    help="With --compare-summaries: write the open questions to this file. With --scan: answer the questions in this file.",
)
@click.option(
    "--ledger",
    "wire_ledger",
    default="",
    type=click.Path(dir_okay=False),
    help="With --bootstrap-server: record progress in this file, and resume from it after a failure. Deleted after the verdict.",
)
@click.option("--topic", "topics", multiple=True, help="Audit only this topic (repeatable).")
@spark_options
@click.option(
    "--level", type=click.Choice(["batches", "records"]), default="batches", show_default=True, help="records: also decode every record."
)
@click.option(
    "--deep", is_flag=True, help="The same as --level records: decode every record, and compare its offset and time with its batch."
)
@click.option(
    "--digest",
    type=click.Choice(["crc", "blake2b"]),
    default="crc",
    show_default=True,
    help="How replicas are compared. blake2b is slower, but does not rely on a 32-bit checksum.",
)
@click.option("--split-bytes", type=click.IntRange(1 << 20), default=512 << 20, show_default=True, help="Bytes of log per task.")
@click.option("--self-check", is_flag=True, help="Accept partitions with a single replica, and check each replica only against itself.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(["lagging", "truncation_pending", "single", "empty", "warnings"]),
    help="Fail the audit on these verdicts as well.",
)
@click.option(
    "--compacted", multiple=True, metavar="TOPIC", help="This topic is compacted. Needed if no metadata log says so (repeatable)."
)
@click.option(
    "--acked", multiple=True, type=click.Path(), help="JSON-lines file of acknowledged records, each of which must be present (repeatable)."
)
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
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "jsonl", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the result.",
)
@click.option("--quiet", is_flag=True, help="Print only the verdict.")
def audit(
    log_dirs: tuple[str, ...], bootstrap: str, rerun: str | None, scan: str | None, compare_summaries: bool, questions: str, level: str,
    deep: bool, fail_on: tuple[str, ...], report_dir: str | None, output: str, quiet: bool, **others: Any,
) -> None:  # fmt: skip
    """Compare the replicas in LOG_DIRS (brokers' log.dirs, or folders that contain them), and check that each is intact.

    Reads the directories of Apache Kafka and minikafka brokers, whether stopped, crashed or running. With --bootstrap-server it also
    reads replicas over the network. If no machine sees all directories, run --scan on each machine, then --compare-summaries on the
    files that the scans wrote.

    `minikafka audit explain REPORT F1` explains finding F1 of a report in detail. `minikafka audit trend DIR` lists the runs whose
    reports were written to DIR or directly below it. To audit a directory of that name, write ./explain or ./trend.

    Exit status: 0 all compared replicas are equal and intact, 1 divergence or corruption, 2 wrong usage, 3 incomplete (something could
    not be compared).
    """
    if log_dirs and log_dirs[0] in VERBS and _is_verb(log_dirs, compare_summaries):
        VERBS[log_dirs[0]](log_dirs[1:], output)
    partitions: tuple[tuple[str, int], ...] = ()
    if rerun is not None:
        log_dirs, bootstrap, partitions = _from_report(rerun, log_dirs, bootstrap)
    if not log_dirs and not bootstrap:
        bootstrap = next((os.environ[name] for name in BOOTSTRAP_VARIABLES if os.environ.get(name)), "")
    if not log_dirs and not bootstrap:
        fail("give log directories, or --bootstrap-server of a running cluster")
    if others["wire_ledger"] and not bootstrap:
        fail("--ledger needs --bootstrap-server")
    _check_apart(scan, compare_summaries, questions, bool(bootstrap or others["acked"] or not log_dirs))
    engine = {name: value for name, value in others.items() if name not in _SETTINGS}
    report = _audited(
        log_dirs, engine, _progress if sys.stderr.isatty() and not quiet else None, (scan, compare_summaries, questions),
        level="records" if deep else level, partitions=partitions, bootstrap=bootstrap, security=_security(),
        fail_on=tuple(verdict.upper() for verdict in fail_on), **{name: others[name] for name in _SETTINGS},
    )  # fmt: skip
    _show(report, output, quiet)
    if report_dir is not None:
        _write(report, report_dir, is_announced=output == "table" and not quiet)
    sys.exit(report["exit_code"])


def _is_verb(arguments: tuple[str, ...], compare_summaries: bool) -> bool:
    """Whether `explain` or `trend` is the verb where something of that name could be audited: only if what follows is what it takes."""
    word, *rest = arguments
    if not (os.path.isdir(word) or (compare_summaries and os.path.exists(word))):
        return True
    if not TAKES[word](rest):
        return False
    kind = "a directory" if os.path.isdir(word) else "a file"
    click.echo(f"minikafka audit: {word} is also {kind} here: to audit it, write ./{word}", err=True)
    return True


def _check_apart(scan: str | None, compare_summaries: bool, questions: str, has_others: bool) -> None:
    if (scan is not None and compare_summaries) or (questions and scan is None and not compare_summaries):
        fail("--scan and --compare-summaries cannot be combined, and --questions needs one of them")
    if (scan is not None or compare_summaries) and has_others:
        fail("--scan and --compare-summaries take files, not --bootstrap-server or --acked")


def _audited(
    log_dirs: tuple[str, ...], engine: dict[str, Any], progress: Callable[[int, int], None] | None,
    apart: tuple[str | None, bool, str], **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """The report. Exits with a one-line error if there is none. `apart`: the scan file, whether to compare summaries, the questions."""
    from minikafka.spark import report as reporting
    from minikafka.spark.audit import AuditOptions, run_audit
    from minikafka.spark.directories import SourceError
    from minikafka.spark.fetch_client import BrokerError
    from minikafka.spark.ledger import LedgerError

    options = AuditOptions(**settings)
    scan, compare_summaries, questions = apart
    if compare_summaries:
        return _compared(log_dirs, options, questions)
    driver = EngineOptions("audit", **engine).start()
    try:
        if scan is not None:
            _scan(log_dirs, driver, options, apart, progress)
        return reporting.build(run_audit(log_dirs, driver, options, progress), sys.argv[1:])
    except BrokerError as error:
        fail(error.text, EXIT_INCOMPLETE)
    except (SourceError, LedgerError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'a log directory'}: {error.strerror}", EXIT_INCOMPLETE)
    except Exception as error:
        from minikafka.spark.engine_spark import what_a_task_says

        said = what_a_task_says(error)
        if said is None:
            raise
        fail(said, EXIT_INCOMPLETE)
    finally:
        driver.close()


def _compared(files: tuple[str, ...], options: Any, questions: str) -> dict[str, Any]:
    from minikafka.spark import report as reporting
    from minikafka.spark.summary_audit import compare_summaries
    from minikafka.spark.summary_file import SummaryError

    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(questions)
        report = reporting.build(compare_summaries(files, options, questions), sys.argv[1:])
    except SummaryError as error:
        fail(str(error), EXIT_INCOMPLETE)
    except OSError as error:
        fail(f"{error.filename or 'a summary'}: {error.strerror}", EXIT_INCOMPLETE)
    if questions and os.path.exists(questions):
        text = f"the summaries leave questions open: on each machine run `minikafka audit --scan MORE --questions {questions} LOG_DIRS`, "
        click.echo(text + "then compare again with those files added", err=True)
    return report


def _scan(
    log_dirs: tuple[str, ...], driver: Any, options: Any, apart: tuple[str | None, bool, str], progress: Callable[[int, int], None] | None
) -> NoReturn:
    from minikafka.spark.summaries import write_scan
    from minikafka.spark.summary_file import SummaryError

    scan, _, questions = apart
    try:
        count = write_scan(log_dirs, driver, options, scan or "", questions, progress)
    except SummaryError as error:
        fail(str(error), EXIT_INCOMPLETE)
    done = f"{counted(count, 'question')} answered" if questions else f"{counted(count, 'segment')} read"
    click.echo(f"{scan}: {done}, {os.path.getsize(scan or ''):,} bytes")
    sys.exit(0)


def _write(report: dict[str, Any], directory: str, *, is_announced: bool) -> None:
    from minikafka.spark import report as reporting

    try:
        paths = reporting.write(report, directory)
    except OSError as error:
        fail(f"the report cannot be written to {directory}: {error.strerror}")
    if is_announced:
        click.echo("report: " + ", ".join(paths))


def _from_report(path: str, log_dirs: tuple[str, ...], bootstrap: str) -> tuple[tuple[str, ...], str, tuple[tuple[str, int], ...]]:
    """Sources (the report's, unless others are given) and the partitions with errors or warnings."""
    report = read_report(path)
    found = {(one["topic"], one["partition"]) for one in report["findings"] if one["level"] != "note" and one["topic"]}
    if not found:
        fail(f"{path} has no finding about a partition: nothing to audit again")
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
        fail(str(error))


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
        show_tables(report)
    if report["outcome"] == "INCOMPLETE":
        click.echo(f"incomplete: {reporting.why_incomplete(report)}")
    click.echo(reporting.one_line(report))
