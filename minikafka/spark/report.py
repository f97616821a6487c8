"""The audit's report: report.json (versioned), HTML, Parquet, JUnit, Markdown, Prometheus text. All from one dictionary."""

from __future__ import annotations

import datetime
import json
import os
import platform
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from minikafka.counted import counted
from minikafka.spark import compare, trend
from minikafka.spark.audit import AuditResult
from minikafka.spark.findings import CHECKS
from minikafka.spark.report_html import html
from minikafka.spark.textfile import exposition, printable, write_text

SCHEMA = "minikafka.audit.report/1"
_STATES = {
    "replica-lagging": "lagging", "replica-tail": "pending", "unreadable": "skipped", "not-compared": "skipped",
    "replica-missing": "missing",
}  # fmt: skip
_LEVELS = ("error", "warning", "note")
FENCE_RULE = (
    "per partition: from the largest log start to the smallest high watermark; "
    "replicas with higher high watermarks are compared with each other up to those"
)


def build(result: AuditResult, arguments: list[str] | None = None) -> dict[str, Any]:
    """The report as plain values; keys are only ever added within one schema version."""
    directories = result.plan.directories
    return {
        "schema": SCHEMA,
        "run": {
            "tool": "minikafka audit",
            "version": _version(),
            "arguments": arguments or [],
            "host": platform.node(),
            "engine": result.engine,
            "started": _instant(result.started_ms),
            "seconds": round(result.seconds, 3),
            "scan_seconds": round(result.scan_seconds, 3),
            "level": result.options.level,
            "digest": result.options.digest,
        },
        "cluster": {
            "id": next((directory.cluster_id for directory in directories if directory.cluster_id), ""),
            "brokers": sorted({directory.broker for directory in directories}),
            "log_directories": [{"broker": one.broker, "path": one.path, "clean_shutdown": one.clean} for one in directories],
        },
        "fence": {
            "instant": _instant(result.plan.instant_ms),
            "rule": FENCE_RULE,
        },
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "summary": _summary(result),
        "partitions": [_partition(one) for one in result.partitions],
        "findings": [
            {"id": f"F{number}", **finding.as_dict()}
            for number, finding in enumerate(sorted(result.findings.kept, key=lambda finding: _LEVELS.index(finding.level)), 1)
        ],
        "finding_counts": [
            {"check": check, "level": level, "count": count} for (check, level), count in sorted(result.findings.counts.items())
        ],
        "checks": [{"id": check.id, "level": check.level, "meaning": check.meaning} for check in CHECKS.values()],
    }


def _summary(result: AuditResult) -> dict[str, Any]:
    counts = {verdict.lower(): result.count(verdict) for verdict in compare.VERDICTS}
    return {
        "partitions": len(result.partitions),
        "replicas": sum(len(one.brokers) for one in result.partitions),
        "batches_compared": result.batches_compared,
        "records_compared": sum(one.records_compared for one in result.partitions),
        "bytes_compared": sum(one.bytes_compared for one in result.partitions),
        "bytes_scanned": result.bytes_scanned,
        "skipped_directories": result.plan.skipped,
        **counts,
        "errors": result.findings.total("error"),
        "warnings": result.findings.total("warning"),
        "notes": result.findings.total("note"),
    }


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("minikafka")
    except metadata.PackageNotFoundError:
        return "source"


def _partition(one: compare.PartitionResult) -> dict[str, Any]:
    return {
        "topic": one.topic, "partition": one.partition, "verdict": one.verdict, "brokers": list(one.brokers), "fence_from": one.fence_from,
        "fence_to": one.fence_to, "batches_compared": one.batches_compared, "records_compared": one.records_compared,
        "batches_equal_above": one.batches_equal_above,
        "bytes_compared": one.bytes_compared, "replicas": one.replicas, "replica_states": replica_states(one),
        "first_divergent_offset": min((found.offset for found in one.findings.kept if found.check == "replica-differs"), default=None),
        "assigned": one.assigned, "accounts": {account.broker: account.as_dict() for account in one.accounts},
    }  # fmt: skip


def replica_states(one: compare.PartitionResult) -> dict[str, str]:
    """{broker: match, lagging, pending, single, empty, skipped, missing, corrupt, divergent or lost}: what to think of each replica."""
    usual = {compare.SINGLE: "single", compare.EMPTY: "empty", compare.SKIPPED: "skipped", compare.UNREADABLE: "skipped",
             compare.INCOMPLETE: "skipped"}
    states = {row["broker"]: usual.get(one.verdict, "match") for row in one.replicas}
    order = ["lagging", "pending", "skipped", "missing", "divergent", "corrupt", "lost"]
    for found in one.findings.kept:
        state = _STATES.get(found.check)
        if found.level == "error" and state is None:
            lost, differs = found.check in compare.LOSS_CHECKS, found.check in compare.DIVERGENCE_CHECKS
            state = "lost" if lost else "divergent" if differs else "corrupt"
        for broker in found.brokers if state else ():
            if state and (states.get(broker) not in order or order.index(state) > order.index(states[broker])):
                states[broker] = state
    return dict(sorted(states.items()))


def _instant(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def one_line(report: dict[str, Any]) -> str:
    """The last line on the terminal and the first thing a script reads."""
    summary = report["summary"]
    size = human_bytes(summary["bytes_compared"])
    return (
        f"AUDIT {report['outcome']} cluster={report['cluster']['id'] or '?'} partitions={summary['partitions']} "
        f"replicas={summary['replicas']} batches={summary['batches_compared']:,} "
        f"records={summary['records_compared']:,} bytes={size} compared "
        f"[fence {report['fence']['instant']}] lagging={summary['lagging']} divergent={summary['divergent']} corrupt={summary['corrupt']} "
        f"skipped={summary['skipped'] + summary['unreadable'] + summary['incomplete']} in {report['run']['seconds']:.1f}s"
    )


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f}{unit}" if unit == "B" else f"{count:.1f}{unit}"
        count /= 1024
    raise AssertionError


#: Findings that make an audit INCOMPLETE without a partition that is.
REASONS = {"unreadable", "acked-unchecked"} | compare.INCOMPLETE_CHECKS


def why_incomplete(report: dict[str, Any]) -> str:
    """One sentence when the outcome is INCOMPLETE."""
    summary = report["summary"]
    if summary["unreadable"] or summary["skipped"]:
        unread = counted(summary["unreadable"], "partition")
        return f"{unread} could not be read, {summary['skipped']} with nothing in common below the high watermarks"
    if summary["partitions"] == 0:
        return "no partition was found"
    if summary["partitions"] == summary["incomplete"] == summary["replicas"] or (summary["single"] == summary["replicas"]):
        return "only one replica of each partition was given, so nothing was compared (--self-check accepts each replica's own checks)"
    if summary["incomplete"]:
        why = next((one["message"] for one in report["findings"] if one["check"] in compare.INCOMPLETE_CHECKS), "")
        partitions = counted(summary["incomplete"], "partition was", "partitions were")
        return f"{partitions} not compared completely; the first reason: {why}"
    unread = next((one["message"] for one in report["findings"] if one["check"] in REASONS), "")
    return unread or "nothing was compared: the partitions are empty or nothing in them is committed"


def where(finding: dict[str, Any]) -> str:
    place = printable(f"{finding['topic']}-{finding['partition']}") if finding["topic"] else "log directory"
    if finding["offset"] >= 0:
        place += f" @ {finding['offset']}"
    if finding["position"] >= 0:
        place += f", byte {finding['position']}"
    return place


def markdown(report: dict[str, Any]) -> str:
    """A summary for a pull request or a step summary."""
    lines = [f"# {one_line(report)}", "", "| partition | verdict | brokers | compared | fence |", "|---|---|---|---|---|"]
    for one in report["partitions"]:
        compared = f"{counted(one['batches_compared'], 'batch', 'batches')}, {counted(one['records_compared'], 'record')}"
        lines.append(
            f"| {one['topic']}-{one['partition']} | {one['verdict']} | {', '.join(one['brokers'])} | {compared} "
            f"| [{one['fence_from']}, {one['fence_to']}) |"
        )
    lines += ["", "## Findings", ""] if report["findings"] else ["", "No findings.", ""]
    for finding in report["findings"]:
        brokers = f" broker {', '.join(finding['brokers'])}" if finding["brokers"] else ""
        lines.append(
            f"- **{finding['id']} {finding['level']} {finding['check']}** {where(finding)}{brokers}: "
            f"{finding['message']}. {finding['meaning']}"
        )
        if finding["cause"]:
            lines.append(f"  - likely: {finding['cause']}")
    return "\n".join(lines) + "\n"


def junit(report: dict[str, Any]) -> str:
    """One test a partition, for a CI server; findings of no partition are a test of their own."""
    cases = []
    failing = {"LOST", "CORRUPT", "DIVERGENT", "MISSING"}
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        found.setdefault((finding["topic"], finding["partition"]), []).append(finding)
    for one in report["partitions"]:
        mine = [finding for finding in found.pop((one["topic"], one["partition"]), []) if finding["level"] == "error"]
        text = "\n".join(f"{finding['id']} {finding['check']} {where(finding)}: {finding['message']}" for finding in mine)
        body = ""
        if one["verdict"] in failing:
            body = f"<failure type={quoteattr(one['verdict'])} message={quoteattr(text.splitlines()[0] if text else one['verdict'])}>"
            body += f"{escape(text)}</failure>"
        elif one["verdict"] in {"UNREADABLE", "SKIPPED", "INCOMPLETE"}:
            body = f"<skipped message={quoteattr(one['verdict'])}/>"
        name = f"{one['topic']}-{one['partition']}"
        cases.append(f"<testcase classname={quoteattr('audit.' + one['topic'])} name={quoteattr(name)}>{body}</testcase>")
    rest = [finding for findings in found.values() for finding in findings if finding["level"] == "error"]
    text = escape("\n".join(finding["message"] for finding in rest))
    cases.append(f'<testcase classname="audit" name="cluster">{f"<failure>{text}</failure>" if rest else ""}</testcase>')
    failures = sum(case.count("<failure") for case in cases)
    head = f'<testsuite name="minikafka audit" tests="{len(cases)}" failures="{failures}" time="{report["run"]["seconds"]}">'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n' + "\n".join(cases) + "\n</testsuite>\n"


def prometheus(report: dict[str, Any]) -> str:
    """For node_exporter's textfile collector: the last run."""
    summary, run = report["summary"], report["run"]
    finished = datetime.datetime.fromisoformat(run["started"]).timestamp() + run["seconds"]
    results = {result: sum(summary[verdict.lower()] for verdict in verdicts) for result, verdicts in _RESULTS.items()}
    return exposition("minikafka_audit", [
        ("last_run_timestamp_seconds", "Time when the last audit ended.", {(): finished}),
        ("exit_code", "Exit status of the last audit: 0 passed, 1 replicas differ or are damaged, 3 "
                      "incomplete.", {(): report["exit_code"]}),
        ("partitions", "Partitions by verdict of the last audit.", {(("result", name),): count for name, count in results.items()}),
        ("verdicts", "Partitions by verdict.", {(("verdict", verdict),): summary[verdict.lower()] for verdict in compare.VERDICTS}),
        ("replicas", "Replicas read.", {(): summary["replicas"]}),
        ("batches_compared", "Record batches compared.", {(): summary["batches_compared"]}),
        ("records_compared", "Records in the batches compared.", {(): summary["records_compared"]}),
        ("bytes_compared", "Bytes in the batches compared.", {(): summary["bytes_compared"]}),
        ("errors", "Findings that are errors.", {(): summary["errors"]}),
        ("warnings", "Findings that are warnings.", {(): summary["warnings"]}),
        ("seconds", "How long the last audit took.", {(): run["seconds"]}),
    ])  # fmt: skip


_RESULTS = {
    "match": (compare.MATCH, compare.LAGGING, compare.TRUNCATION_PENDING, compare.EMPTY),
    "mismatch": (compare.DIVERGENT, compare.CORRUPT, compare.LOST, compare.MISSING),
    "incomplete": (compare.UNREADABLE, compare.SKIPPED, compare.SINGLE, compare.INCOMPLETE),
}


def read(path: str) -> dict[str, Any]:
    """A report.json, or the one in a report's directory. Raises ValueError for another file or schema, OSError."""
    if os.path.isdir(path):
        path = os.path.join(path, "report.json")
    with open(path, encoding="utf-8") as file:
        try:
            report = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not JSON") from error
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ValueError(f"{path}: not a report of schema {SCHEMA}")
    return report


def write(report: dict[str, Any], directory: str) -> list[str]:
    """Write report.json, report.html, summary.md, junit.xml, metrics.prom and, where pyarrow is installed, findings.parquet and
    partitions.parquet, and add a line to runs.jsonl. Returns the paths.

    Raises OSError when the directory cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    runs = trend.append(directory, trend.run_of(report))
    texts = {
        "report.json": json.dumps(report, indent=1) + "\n", "report.html": html(report, runs), "summary.md": markdown(report),
        "junit.xml": junit(report), "metrics.prom": prometheus(report),
    }  # fmt: skip
    for name, text in texts.items():
        write_text(os.path.join(directory, name), text)
    return [os.path.join(directory, name) for name in texts] + _write_parquet(report, directory)


def _write_parquet(report: dict[str, Any], directory: str) -> list[str]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return []
    run = report["run"]["started"]
    text, number, texts = pa.string(), pa.int64(), pa.list_(pa.string())
    findings = pa.schema(
        [
            ("run", text),
            ("id", text),
            ("check", text),
            ("level", text),
            ("topic", text),
            ("partition", number),
            ("brokers", texts),
            ("offset", number),
            ("file", text),
            ("position", number),
            ("message", text),
            ("meaning", text),
            ("cause", text),
            ("details", text),
        ]
    )
    partitions = pa.schema(
        [
            ("run", text),
            ("topic", text),
            ("partition", number),
            ("verdict", text),
            ("brokers", texts),
            ("fence_from", number),
            ("fence_to", number),
            ("batches_compared", number),
            ("records_compared", number),
            ("bytes_compared", number),
            ("replicas", text),
        ]
    )
    paths = []
    for name, schema, nested in (("findings", findings, "details"), ("partitions", partitions, "replicas")):
        rows = [_columns({**row, "run": run, nested: json.dumps(row[nested])}) for row in report[name]]
        paths.append(os.path.join(directory, f"{name}.parquet"))
        # pyarrow would read a name such as `host:reports` as a URI.
        with open(paths[-1], "wb") as file:
            parquet.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return paths


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row for Parquet, whose text is UTF-8."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
