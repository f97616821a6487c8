"""Judges one partition from the summaries of its segments: the input of a task, and its small result."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from minikafka.spark import compare
from minikafka.spark.access import open_log
from minikafka.spark.compare import PartitionResult
from minikafka.spark.coordination import Cluster, Seen, read_coordinator, seen_of
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.producers import ProducerFacts
from minikafka.spark.rereading import Disk, Files, NotAnsweredError, Rereading
from minikafka.spark.scan import SegmentSummary, scan_segment
from minikafka.spark.sources import UNBOUNDED, Replica, SegmentTask
from minikafka.spark.views import ReplicaView, is_limited, replay_apart, view

HEX_BATCH_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """A partition to judge. `keeps_views`: return its replicas too, because ledgers of acknowledged records need them."""

    copies: list[Replica]
    cluster: Cluster
    keeps_views: bool = False


@dataclass(slots=True)
class Judged:
    """The verdict, the facts that coordinators' logs are checked against, and how much was read."""

    result: PartitionResult
    seen: Seen
    bytes: int = 0
    views: list[ReplicaView] = field(default_factory=list)


def key_of(summary: SegmentSummary) -> tuple[str, int]:
    """The partition of a summary."""
    return summary.task.topic, summary.task.partition


def keys_of(tasks: list[SegmentTask]) -> list[tuple[str, int]]:
    """The partition of each summary that these tasks give. None if one of them reads from a broker: what that one does not answer is read
    again when all else has been read."""
    return [] if any(one.place is not None for one in tasks) else [(one.topic, one.partition) for one in tasks]


def judge(item: tuple[Job, list[SegmentSummary]]) -> Judged:
    """Judge a partition from the summaries of all segments of its replicas. Never raises, like judge_partition."""
    job, summaries = item
    copies = job.copies
    summaries = [_read_again(one) for one in summaries]
    try:
        views = [_view(replica, [one for one in summaries if one.task.path == replica.path]) for replica in copies]
    except Exception as error:
        result = nothing_of(copies[0].topic, copies[0].partition)
        text = f"the partition could not be assembled: {type(error).__name__}: {error}"
        brokers = tuple(one.broker for one in copies)
        result.findings.add(Finding("not-compared", text, result.topic, result.partition, brokers))
        result.decide()
        return Judged(result, Seen((result.topic, result.partition)))
    judged = Judged(judge_partition(views), seen_of(job.cluster, views), sum(one.task.size for one in summaries))
    if judged.seen.source is not None:
        judged.seen.keep(read_coordinator(judged.seen.source))
    if job.keeps_views:
        judged.views = views
        for one in views:
            one.cells = {}
            for summary in one.summaries:
                summary.cells, summary.producers, summary.aborts, summary.snapshots = {}, ProducerFacts(), summary.aborts[:0], []
    return judged


def _read_again(summary: SegmentSummary) -> SegmentSummary:
    """Reread a range whose broker went away during the first reading, now that all other ranges are read."""
    is_broken = summary.task.place is not None and summary.stopped == "unreadable"
    return scan_segment(summary.task) if is_broken else summary


def _view(replica: Replica, found: list[SegmentSummary]) -> ReplicaView:
    """The view of a replica. If it has more producers or transactions than summaries keep, it is reread from its beginning."""
    found.sort(key=lambda summary: summary.task.base_offset)
    if not is_limited(found):
        return view(replica, found)
    cleaned_to = UNBOUNDED if any(one.compacted for one in found) else replica.cleaned_to
    scanned, replayed = replay_apart((replica, [one.task for one in found], cleaned_to))
    return view(replica, scanned, replayed)


def nothing_of(topic: str, partition: int) -> PartitionResult:
    """An empty result."""
    return PartitionResult(topic, partition, compare.EMPTY, (), 0, 0, 0, 0, 0, 0, [], FindingList())


def judge_partition(views: list[ReplicaView], files: Files | None = None) -> PartitionResult:
    """Run compare.judge; a worker that has the files does this for a partition whose digests differ. Never raises: a failure makes the
    partition INCOMPLETE."""
    try:
        result = compare.judge(views, Rereading(files or Disk()).readers)
    except Exception as error:
        result = nothing_of(views[0].replica.topic, views[0].replica.partition)
        is_open = isinstance(error, NotAnsweredError)
        text = str(error) if is_open else f"the comparison failed: {type(error).__name__}: {error}"
        brokers = tuple(one.broker for one in views)
        result.findings.add(Finding("not-compared", text, result.topic, result.partition, brokers))
        for one in views:
            result.findings.extend(one.replica.findings)
        result.decide()
    for finding in result.findings.kept:
        if finding.check in {"replica-differs", "replica-tail"} and finding.details.get("sides"):
            finding.details["hex"] = _first_bytes(views, finding.details["sides"])
    return result


def _first_bytes(views: list[ReplicaView], sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bytes around the first difference of differing batches, from one replica for each distinct content."""
    by_broker = {one.broker: one for one in views}
    held: dict[bytes, str] = {}
    for side in sides:
        if side["position"] is None:
            continue
        task = next((one.task for one in by_broker[side["broker"]].summaries if one.task.base_offset == side["segment"]), None)
        if task is None:
            continue
        with contextlib.suppress(OSError), open_log(task, side["position"], side["base_offset"]) as reader:
            for batches in reader:
                held.setdefault(bytes(batches.whole(0)[:HEX_BATCH_BYTES_MAX]), side["broker"])
                break
    if len(held) < 2:
        return []
    contents = list(held)[:3]
    shortest = min(map(len, contents))
    first = next((index for index in range(shortest) if len({content[index] for content in contents}) > 1), shortest)
    start = max(0, first // 16 * 16 - 16)
    return [{"broker": held[content], "start": start, "bytes": content[start : start + 96].hex()} for content in contents]
