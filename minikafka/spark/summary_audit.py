"""Compares the summaries of several machines, with the same plan and the same verdicts as if one machine saw all directories."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

from minikafka.spark import compare
from minikafka.spark.audit import FAILING, AuditOptions, AuditResult, completed
from minikafka.spark.compare import PartitionResult
from minikafka.spark.coordination import CoordinatorFacts, Seen, check_coordinators, cluster_of, seen_of
from minikafka.spark.difference import equal_cells
from minikafka.spark.findings import ERROR, WARNING, Finding, FindingList
from minikafka.spark.judging import judge_partition, nothing_of
from minikafka.spark.planning import plan_of
from minikafka.spark.rereading import NotAnsweredError, Rereading, places_of
from minikafka.spark.sources import UNBOUNDED, Plan, Replica, partition_tasks
from minikafka.spark.summaries import Summaries, scope_of
from minikafka.spark.summary_file import SummaryError
from minikafka.spark.views import ReplicaView, is_limited, names_of, view, zones_of

#: Number of differing cells per partition whose batches are requested at once.
CELLS_ASKED_MAX = 64


def compare_summaries(paths: Iterable[str], options: AuditOptions, questions: str = "") -> AuditResult:
    """Compare what scans of several machines have seen. What they do not tell makes its partition INCOMPLETE, and is written to the file
    `questions`, if one is named. `options.level`, `digest`, `topics` and so on are those of the scans. Raises SummaryError, OSError."""
    started_ms, start = time.time_ns() // 1_000_000, time.perf_counter()
    summaries = Summaries(paths)
    try:
        if not summaries.scans:
            raise SummaryError("only answers were given, without the summary of a scan")
        try:
            result = _compared(summaries, _with_options(summaries, options), started_ms)
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            raise SummaryError(f"a summary contradicts itself ({type(error).__name__}: {error}): scan again") from error
        if questions and summaries.questions:
            summaries.write_questions(questions)
    finally:
        summaries.close()
    result.seconds = time.perf_counter() - start
    return result


def _with_options(summaries: Summaries, options: AuditOptions) -> AuditOptions:
    said: dict[str, Any] = summaries.scans[0].reader.header["options"]
    partitions = tuple((topic, number) for topic, number in said["partitions"])
    return replace(
        options, topics=tuple(said["topics"]), partitions=partitions, level=said["level"], digest=said["digest"],
        compacted=tuple(said["compacted"]), transaction_timeout_ms=said["transaction_timeout_ms"],
    )  # fmt: skip


def _compared(summaries: Summaries, options: AuditOptions, started_ms: int) -> AuditResult:
    facts, running, instant_ms = summaries.facts()
    plan = plan_of(facts, scope_of(options), instant_ms)
    cluster = cluster_of(plan)
    results: list[PartitionResult] = []
    seen: dict[tuple[str, int], Seen] = {}
    read = 0
    for key, copies in plan.replicas.items():
        result, views = _partition(summaries, copies, options)
        results.append(result)
        if views:
            seen[key] = _read(summaries, seen_of(cluster, views))
            read += sum(summary.task.size for one in views for summary in one.summaries)
    results = completed(plan, results, options)
    check_coordinators(plan, results, seen)
    _unconfirmed(plan, results, running)
    findings = FindingList(max(1000, options.findings_each_max))
    findings.extend(plan.findings)
    for one in results:
        findings.extend(one.findings)
    return AuditResult(plan, results, findings, options, "summaries", started_ms, bytes_scanned=read)


def _partition(summaries: Summaries, copies: list[Replica], options: AuditOptions) -> tuple[PartitionResult, list[ReplicaView]]:
    """One partition's verdict, and the views of its replicas; no views if the summaries do not hold enough."""
    by_path: dict[str, list[Any]] = {}
    for task in partition_tasks(copies, options.level, options.digest):
        by_path.setdefault(task.path, []).append(task)
    views, open_ = [], ""
    for replica in copies:
        try:
            found, replayed = summaries.scanned(by_path[replica.path]), None
            if is_limited(found):
                cleaned_to = UNBOUNDED if any(one.compacted for one in found) else replica.cleaned_to
                found, replayed = summaries.replayed(replica, by_path[replica.path], cleaned_to)
            views.append(view(replica, found, replayed))
        except NotAnsweredError as error:
            open_ = str(error)
    if open_:
        result = nothing_of(copies[0].topic, copies[0].partition)
        result.findings.add(
            Finding("not-compared", open_, result.topic, result.partition, tuple(one.broker for one in copies)),
        )
        return result, []
    asked = len(summaries.questions)
    result = judge_partition(views, summaries)
    if len(summaries.questions) > asked:
        _ask_ahead(summaries, views)
    return result, views


def _ask_ahead(summaries: Summaries, views: list[ReplicaView]) -> None:
    """Request everything that the comparison will need at once, instead of one item per round."""
    bounds = {zone: (low, high) for zone, low, high in zones_of(views)}
    keys = sorted({key for one in views for key in one.cells if equal_cells(views, key) is None}) if len(views) > 1 else []
    cleaned = max((one.replica.segments[-1].base_offset if one.cleaned_to == UNBOUNDED else one.cleaned_to for one in views), default=0)
    behind = [key for key in keys if bounds[key[0]][0] >= cleaned][:CELLS_ASKED_MAX]
    below = [key for key in keys if bounds[key[0]][0] < cleaned][:CELLS_ASKED_MAX]
    for key in behind:
        for one in views:
            with contextlib.suppress(NotAnsweredError):
                summaries.detail(*places_of(one, key), key, None)
    shift = next((summary.task.cell_shift for one in views for summary in one.summaries), 0)
    for zone, number in below:
        with contextlib.suppress(NotAnsweredError):
            Rereading(summaries).compare_surviving(views, (zone, number), max(bounds[zone][0], number << shift))
    for one, other in combinations(views, 2) if below else ():
        low = max(one.log_start, other.log_start)
        with contextlib.suppress(NotAnsweredError):
            Rereading(summaries).compare_latest(one, other, low, low)


def _read(summaries: Summaries, seen: Seen) -> Seen:
    """With what the summaries hold of a coordinator's partition."""
    if seen.source is not None:
        try:
            facts = summaries.coordinator(seen.source)
        except NotAnsweredError as error:
            facts = CoordinatorFacts()
            facts.findings.add(Finding("not-compared", str(error), *seen.key, brokers=(seen.source.broker,)))
        seen.keep(facts)
    return seen


def _unconfirmed(plan: Plan, results: list[PartitionResult], running: set[str]) -> None:
    """A running broker's fault counts only if it is seen twice, but a summary sees it once. So it makes the partition INCOMPLETE."""
    brokers = {one.path: one.broker for one in plan.directories if one.path in running}
    for result in results:
        at_work = {broker for path, broker in brokers.items() if any(row["path"].startswith(path + "/") for row in result.replicas)}
        if not at_work or result.verdict not in FAILING:
            continue
        found = FindingList(result.findings.each_max)
        found.kept = [replace(one, level=WARNING) if one.level == ERROR else one for one in result.findings.kept]
        for (check, level), count in result.findings.counts.items():
            key = check, WARNING if level == ERROR else level
            found.counts[key] = found.counts.get(key, 0) + count
        text = f"{names_of(at_work)} ran during the scan, so what was found ({result.verdict}) may have been in flux: stop, or audit again"
        found.add(Finding("not-compared", text, result.topic, result.partition, tuple(sorted(at_work))))
        result.findings = found
        result.decide()
        result.verdict = compare.INCOMPLETE
