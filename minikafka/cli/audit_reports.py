"""Output of `minikafka audit`: tables on the terminal, one finding in detail, and a history of runs."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from minikafka.counted import counted
from minikafka.spark.textfile import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EXIT_USAGE = 2
FINDINGS_SHOWN_MAX = 20
#: Between the columns of a table, and around a verdict's text.
COLUMN_GAP = 3
COLUMNS_OF_FILES = 200
COLOURS = {"MATCH": "green", "DIVERGENT": "red", "CORRUPT": "red"}


def fail(text: str, status: int = EXIT_USAGE) -> NoReturn:
    """Print a one-line error and exit."""
    click.echo(f"minikafka audit: {text}", err=True)
    sys.exit(status)


def takes_explain(arguments: list[str]) -> bool:
    """Whether these are a report and a finding."""
    return len(arguments) == 2 and re.fullmatch(r"[Ff]\d+", arguments[1]) is not None and not os.path.isdir(arguments[1])


def takes_trend(arguments: list[str]) -> bool:
    """Whether this is a directory of reports."""
    from minikafka.spark import trend

    return len(arguments) == 1 and os.path.isdir(arguments[0]) and bool(trend.read(arguments[0]))


def explain_finding(arguments: tuple[str, ...], output: str) -> NoReturn:
    """`minikafka audit explain REPORT FINDING`."""
    from minikafka.spark.explain import explain, find

    if len(arguments) != 2:
        fail("usage: minikafka audit explain REPORT FINDING, for example: audit explain report/ F1")
    report = read_report(arguments[0])
    finding = find(report, arguments[1])
    if finding is None:
        ids = [one["id"] for one in report["findings"]]
        fail(f"the report has no finding {arguments[1]} ({'it has no findings' if not ids else f'it has {ids[0]} to {ids[-1]}'})")
    click.echo(printable("\n".join(explain(report, finding)), kept="\n\t"))
    sys.exit(0)


def show_trend(arguments: tuple[str, ...], output: str) -> NoReturn:
    """`minikafka audit trend DIR`."""
    from minikafka.cli.common import emit
    from minikafka.spark import trend

    if len(arguments) != 1:
        fail("usage: minikafka audit trend DIR, where DIR is the directory given to --report or its parent")
    try:
        runs = trend.read(arguments[0])
    except OSError as error:
        fail(f"{arguments[0]}: {error.strerror}")
    if not runs:
        fail(f"{arguments[0]} holds no audit report ({trend.RUNS})")
    emit(trend.rows(runs), output, ("started", "outcome", "partitions", "batches_compared", "bytes_compared", "seconds", "changes"))
    sys.exit(0)


def read_report(path: str) -> dict[str, Any]:
    """The report in a file or directory. Exits with a one-line error if there is none."""
    from minikafka.spark import report as reporting

    try:
        return reporting.read(path)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def show_tables(report: dict[str, Any]) -> None:
    """Print the partitions (if any has problems, only those) and the findings."""
    from rich.console import Console

    console = Console(soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = COLUMNS_OF_FILES
    show_partitions(report, console)
    shown = report["findings"][:FINDINGS_SHOWN_MAX]
    for finding in shown:
        _show_finding(finding, console)
    hidden = sum(row["count"] for row in report["finding_counts"]) - len(shown)
    if hidden > 0:
        console.print(f"  and {counted(hidden, 'more finding')} (--report DIR and -o json show all that are kept)", highlight=False)


def show_partitions(report: dict[str, Any], console: Console) -> None:
    """Print the partitions that differ, or all if none does."""
    odd = [one for one in report["partitions"] if one["verdict"] not in {"MATCH", "EMPTY"}]
    shown = odd or report["partitions"][:FINDINGS_SHOWN_MAX]
    if shown:
        console.print(_partition_table([_cells(one) for one in shown], console.width))
    if len(shown) < len(report["partitions"]):
        console.print(f"  and {counted(len(report['partitions']) - len(shown), 'more partition')}", highlight=False)


def _cells(partition: dict[str, Any]) -> dict[str, str]:
    return {
        "partition": printable(f"{partition['topic']}-{partition['partition']}"),
        "verdict": partition["verdict"],
        "brokers": " ".join(partition["brokers"]),
        "fence": f"{partition['fence_from']}..{partition['fence_to']}",
        "batches": f"{partition['batches_compared']:,}",
        "records": f"{partition['records_compared']:,}",
    }


def _partition_table(rows: list[dict[str, str]], characters_max: int) -> Table:
    """Without the columns for which a narrow terminal has no room. The partition and its verdict are always complete."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    for name in ("fence", "batches", "records", "brokers"):
        if sum(widths.values()) + COLUMN_GAP * len(widths) > characters_max:
            del widths[name]
    table = Table(box=box.SIMPLE_HEAD, title=None, pad_edge=False)
    for name in widths:
        table.add_column(name, justify="right" if name in {"batches", "records"} else "left", overflow="fold", no_wrap=name == "verdict")
    for row in rows:
        colour = COLOURS.get(row["verdict"], "yellow")
        table.add_row(*(f"[{colour}]{row[name]}[/]" if name == "verdict" else escape(row[name]) for name in widths))
    return table


def _show_finding(finding: dict[str, Any], console: Console) -> None:
    from rich.markup import escape

    from minikafka.spark import report as reporting

    colour = {"error": "red", "warning": "yellow"}.get(finding["level"], "dim")
    brokers = f" broker {', '.join(finding['brokers'])}" if finding["brokers"] else ""
    where = escape(reporting.where(finding) + brokers)
    console.print(f"[{colour}]{finding['level'].upper()}[/] [bold]{finding['check']}[/] {where}", highlight=False)
    console.print(f"  {escape(finding['message'])}", highlight=False)
    if finding["level"] != "note":
        console.print(f"  [dim]{escape(finding['meaning'])}[/]", highlight=False)
    if finding["level"] != "note" and finding["file"]:
        console.print(f"  [dim]{escape(printable(finding['file']))}[/]", highlight=False, soft_wrap=True)
    if finding["cause"]:
        console.print(f"  likely: {escape(finding['cause'])}", highlight=False)
