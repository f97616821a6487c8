"""The audit: plan, scan every segment once, compare the replicas, look closer where they differ. Same code under every engine."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from minikafka.spark import compare
from minikafka.spark.compare import Key, PartitionResult, ReplicaView
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.logformat import SegmentReader
from minikafka.spark.records import decode_records
from minikafka.spark.scan import Detail, SegmentSummary, detail, scan_segments
from minikafka.spark.sources import Plan, SegmentTask, make_plan, partition_tasks, split

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs pure functions over items somewhere. Results come in any order."""

    name: str
    parallelism: int

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`level`: "batches" (headers and CRC) or "records" (decode every record too). `digest`: see scan.batch_digests.

    `self_check`: one replica of everything is enough; its own checks decide. `fail_on`: verdicts that fail the audit besides
    DIVERGENT and CORRUPT.
    """

    topics: tuple[str, ...] = ()
    level: str = "batches"
    digest: str = "crc"
    split_bytes: int = 256 << 20
    findings_each_max: int = 20
    self_check: bool = False
    fail_on: tuple[str, ...] = ()


@dataclass(slots=True)
class AuditResult:
    plan: Plan
    partitions: list[PartitionResult]
    findings: FindingList
    options: AuditOptions
    engine: str
    started_ms: int
    scan_seconds: float = 0.0
    seconds: float = 0.0
    bytes_scanned: int = 0

    def count(self, verdict: str) -> int:
        return sum(1 for partition in self.partitions if partition.verdict == verdict)

    @property
    def batches_compared(self) -> int:
        return sum(partition.batches_compared for partition in self.partitions)

    @property
    def outcome(self) -> str:
        """PASS, FAIL or INCOMPLETE. Never PASS when nothing was compared (or, with self_check, when nothing was read)."""
        failing = {compare.DIVERGENT, compare.CORRUPT, *self.options.fail_on}
        if any(partition.verdict in failing for partition in self.partitions) or self.findings.total("error"):
            return "FAIL" if any(partition.verdict in failing for partition in self.partitions) or self._root_errors() else "INCOMPLETE"
        if any(partition.verdict in {compare.UNREADABLE, compare.SKIPPED} for partition in self.partitions):
            return "INCOMPLETE"
        looked_at = self.batches_compared
        if self.options.self_check:
            looked_at = sum(row["batches"] for partition in self.partitions for row in partition.replicas)
        return "PASS" if looked_at else "INCOMPLETE"

    def _root_errors(self) -> bool:
        return self.plan.findings.total("error") > 0

    @property
    def exit_code(self) -> int:
        """0 pass, 1 divergence or corruption, 3 incomplete (2 is for usage errors)."""
        return {"PASS": 0, "FAIL": 1, "INCOMPLETE": 3}[self.outcome]


def run_audit(
    paths: Iterable[str], engine: Engine, options: AuditOptions | None = None, progress: Callable[[int, int], None] | None = None
) -> AuditResult:
    """Audit the log directories at or below `paths`. `progress(bytes done, bytes planned)` is called as results come in.

    Raises SourceError when a path holds no log directory.
    """
    options = options or AuditOptions()
    started_ms, start = time.time_ns() // 1_000_000, time.perf_counter()
    plan = make_plan(paths, options.topics, options.findings_each_max)
    tasks = (task for copies in plan.replicas.values() for task in partition_tasks(copies, options.level, options.digest))
    split_bytes = max(1 << 20, min(options.split_bytes, plan.bytes // max(1, 2 * engine.parallelism) + 1))
    summaries: dict[tuple[str, int, str, str], list[SegmentSummary]] = {}
    done = 0
    for scanned in engine.map(scan_segments, list(split(tasks, split_bytes))):
        for summary in scanned:
            task = summary.task
            summaries.setdefault((task.topic, task.partition, task.broker, task.path), []).append(summary)
            done += task.size
        if progress is not None:
            progress(done, plan.bytes)
    scan_seconds = time.perf_counter() - start
    partitions = _judge_all(plan, summaries, engine)
    findings = FindingList(max(1000, options.findings_each_max))
    findings.extend(plan.findings)
    for partition in partitions:
        findings.extend(partition.findings)
    return AuditResult(plan, partitions, findings, options, engine.name, started_ms, scan_seconds, time.perf_counter() - start, done)


def _judge_all(plan: Plan, summaries: dict[tuple[str, int, str, str], list[SegmentSummary]], engine: Engine) -> list[PartitionResult]:
    results, harder = [], []
    for (topic, partition), copies in plan.replicas.items():
        views = []
        for replica in copies:
            found = summaries.pop((topic, partition, replica.broker, replica.path), [])
            views.append(compare.view(replica, sorted(found, key=lambda summary: summary.task.base_offset)))
        if compare.needs_detail(views):
            harder.append(views)
        else:
            results.append(judge_partition(views))
    results += list(engine.map(judge_partition, harder))
    return sorted(results, key=lambda result: (result.topic, result.partition))


def judge_partition(views: list[ReplicaView]) -> PartitionResult:
    """compare.judge with the files at hand; what a worker runs for a partition whose digests differ."""
    return compare.judge(views, read_detail, compare_surviving)


def _places(view: ReplicaView, key: Key) -> tuple[list[SegmentTask], list[int]]:
    places = [(summary.task, summary.cells[key].position) for summary in view.summaries if key in summary.cells]
    return [task for task, _ in places], [position for _, position in places]


def read_detail(view: ReplicaView, key: Key, low: int, high: int) -> Detail:
    found = detail(*_places(view, key), low, high)
    found.broker = view.broker
    return found


def compare_surviving(one: ReplicaView, other: ReplicaView, key: Key, low: int, high: int) -> Finding | None:
    """Records at the same offset must be the same on both, whatever each broker's cleaner removed."""
    left, right = surviving(one, key, low, high), surviving(other, key, low, high)
    for offset in sorted(left.keys() & right.keys()):
        if left[offset] != right[offset]:
            replica = one.replica
            text = f"at offset {offset} brokers {one.broker} and {other.broker} kept different records in the cleaned part of the log"
            return Finding("replica-differs", text, replica.topic, replica.partition, (one.broker, other.broker), offset)
    return None


def surviving(view: ReplicaView, key: Key, low: int, high: int) -> dict[int, bytes]:
    """{offset: digest of timestamp, key, value and headers} of the records in [low, high)."""
    found: dict[int, bytes] = {}
    for task, position in zip(*_places(view, key), strict=True):
        descriptor = os.open(os.path.join(task.path, f"{task.base_offset:020d}.log"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            for batches in SegmentReader(descriptor, task.size, position):
                chosen = np.flatnonzero((batches.base_offset < high) & (batches.last_offset >= low))
                records, _ = decode_records(batches, chosen)
                for index in np.flatnonzero((records.offset >= low) & (records.offset < high)).tolist():
                    content: Any = (int(records.timestamp[index]), records.key(index), records.value(index), records.headers(index))
                    found[int(records.offset[index])] = hashlib.blake2b(repr(content).encode(), digest_size=16).digest()
                if int(batches.base_offset[-1]) >= high:
                    break
        finally:
            os.close(descriptor)
    return found
