"""Coordinators' logs against the logs that they speak of: committed offsets, transactions that did not end, and where each is kept.

Tasks read the coordinators' partitions, once each, from a replica that holds all that is committed, and return findings only. Plans list
the coordinators' partitions first (sources.make_plan): what a group had committed by then, the logs hold when they are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from minikafka.spark import unclean
from minikafka.spark.claims import COORDINATOR_TOPICS, GROUPS, TRANSACTIONS
from minikafka.spark.compare import PartitionResult
from minikafka.spark.coordinator_log import (
    STATES,
    UNDECIDED,
    CommittedOffset,
    TransactionState,
    committed_offset,
    group_of,
    home_of,
    latest_records,
    overdue,
    transaction_state,
)
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.logformat import FormatError
from minikafka.spark.sources import UNBOUNDED, Plan, SegmentTask
from minikafka.spark.views import ReplicaView, replica_unreadable

Key = tuple[str, int]
Mapped = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]
FINDINGS_A_TASK = 1000
PARTITIONS_A_TASK = 8


@dataclass(frozen=True, slots=True)
class LogEnd:
    """What is known of a log that groups may have read: where it ends, its newest leader epoch (-1 unknown), how it was cut."""

    offset: int
    leader_epoch: int
    cut_by: str = ""


@dataclass(slots=True)
class Known:
    """What the coordinators' records are held against. `topics`: {name: (id, partitions)}, None where no controller's record tells.
    `opened`: {producer id: (partition, offset) of its open transactions}, None while brokers may run. `sizes`: partitions of each
    coordinator's topic."""

    ends: dict[Key, LogEnd] = field(default_factory=dict)
    topics: dict[str, tuple[str, int]] | None = None
    opened: dict[int, list[tuple[Key, int]]] | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    each_max: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """One coordinator's partition: where it is read and up to which offset; `now_ms`: up to when its coordinator certainly ran."""

    key: Key
    broker: str
    path: str
    tasks: list[SegmentTask]
    end: int
    skipped: list[tuple[int, int, int]]
    records: int
    now_ms: int


Outcome = tuple[FindingList, set[int]]


def check_coordinators(plan: Plan, results: list[PartitionResult], views: dict[Key, list[ReplicaView]], mapped: Mapped) -> None:
    """Add what the coordinators' logs say to the results, and to the plan what is of no partition that was looked at."""
    found: dict[Key, ReplicaView] = {key: best for key, copies in views.items() if (best := _best(copies)) is not None}
    sources = [_source(plan, key, one) for key, one in sorted(found.items()) if key[0] in COORDINATOR_TOPICS and one.batches]
    if not any(key[0] in COORDINATOR_TOPICS for key in found):
        return
    known = _known(plan, views, found)
    by_key = {(one.topic, one.partition): one for one in results}
    heard: set[int] = set()
    items = [(sources[at : at + PARTITIONS_A_TASK], known) for at in range(0, len(sources), PARTITIONS_A_TASK)]
    touched: dict[Key, PartitionResult] = {}
    for findings, producers in mapped(read_coordinators, items):
        heard |= producers
        for finding in findings.kept:
            result = by_key.get((finding.topic, finding.partition))
            (plan if result is None else result).findings.add(finding)
            if result is not None:
                touched[finding.topic, finding.partition] = result
        _uncounted(plan, findings)
    if known.opened is not None and known.sizes.get(TRANSACTIONS) == sum(key[0] == TRANSACTIONS for key in found):
        for producer in sorted(known.opened.keys() - heard):
            for key, offset in known.opened[producer]:
                text = f"producer {producer}'s transaction is open since offset {offset}, and no transactional id is known to have it"
                by_key[key].findings.add(Finding("txn-open", text, *key, offset=offset))
                touched[key] = by_key[key]
    for result in touched.values():
        result.decide()


def _uncounted(plan: Plan, findings: FindingList) -> None:
    """What a task found beyond those that it kept is counted."""
    for (check, level), count in findings.counts.items():
        more = count - sum((one.check, one.level) == (check, level) for one in findings.kept)
        if more:
            plan.findings.counts[check, level] = plan.findings.counts.get((check, level), 0) + more


def _best(copies: list[ReplicaView]) -> ReplicaView | None:
    """The copy that answers for the most."""
    sound = [one for one in copies if one.summaries and not replica_unreadable(one) and not one.summaries[-1].vanished]
    own = [one for one in sound if not one.replica.is_future or one.replica.claim is not None]
    return max(own, key=lambda one: min(one.claim_to, one.end_offset), default=None)


def _source(plan: Plan, key: Key, one: ReplicaView) -> Source:
    claim = one.replica.claim
    end = min(one.claim_to, one.end_offset)
    now_ms = max((summary.producers.last_timestamp for summary in one.summaries), default=-1)
    if plan.image is not None and claim is not None and claim.leader != "-1":
        now_ms = max(now_ms, plan.image.last_ms)
    skipped = [*one.aborted, *((producer, first, UNBOUNDED) for producer, (first, _) in one.opened.items())]
    tasks = [summary.task for summary in one.summaries if not summary.vanished]
    return Source(key, one.broker, one.replica.path, tasks, end, skipped, one.records, now_ms)


def _known(plan: Plan, views: dict[Key, list[ReplicaView]], found: dict[Key, ReplicaView]) -> Known:
    known = Known(each_max=FINDINGS_A_TASK)
    for key, one in found.items():
        claim = one.replica.claim
        complete = [other for other in views[key] if claim is None or other.replica.node in claim.complete]
        if key[0] in COORDINATOR_TOPICS or not complete or any(map(replica_unreadable, complete)):
            continue
        epoch = claim.leader_epoch if claim is not None else max((entry[0] for entry in one.replica.epochs or []), default=-1)
        cuts = unclean.history(views[key])
        known.ends[key] = LogEnd(max(other.end_offset for other in views[key]), epoch, cuts[-1][1] if cuts else "")
    if plan.image is not None:
        claims = plan.image.claims()
        ids = plan.image.topic_ids()
        sizes: dict[str, int] = {}
        for topic, _ in claims:
            sizes[topic] = sizes.get(topic, 0) + 1
        known.topics = {topic: (ids[topic], count) for topic, count in sizes.items() if topic in ids}
        known.sizes = {topic: sizes[topic] for topic in COORDINATOR_TOPICS if topic in sizes}
    if all(directory.clean for directory in plan.directories) and known.sizes.get(TRANSACTIONS):
        known.opened = _opened(found)
    return known


def _opened(found: dict[Key, ReplicaView]) -> dict[int, list[tuple[Key, int]]]:
    opened: dict[int, list[tuple[Key, int]]] = {}
    for key, one in found.items():
        for producer, (offset, _) in one.opened.items():
            if offset < min(one.claim_to, one.end_offset):
                opened.setdefault(producer, []).append((key, offset))
    return opened


# ---- in tasks --------------------------------------------------------------------------------------------------------------------


def read_coordinators(item: tuple[list[Source], Known]) -> Outcome:
    """What some coordinators' partitions say: findings, and which of the producers with open transactions they know."""
    sources, known = item
    findings, heard = FindingList(known.each_max), set[int]()
    for source in sources:
        try:
            for finding in _read(source, known, heard):
                findings.add(finding)
        except OSError as error:
            text = f"what its coordinator keeps could not be read: {error.filename or source.path}: {error.strerror}"
            findings.add(Finding("not-compared", text, *source.key, brokers=(source.broker,), file=source.path))
    return findings, heard


def _read(source: Source, known: Known, heard: set[int]) -> Iterator[Finding]:
    held = latest_records(source.tasks, source.end, source.skipped, source.records)
    misplaced: set[str] = set()
    for offset, key, value in held:
        try:
            name = group_of(key)
            if source.key[0] == GROUPS:
                commit = committed_offset(key, value)
                yield from _commit_findings(commit, known) if commit is not None else ()
            else:
                state = transaction_state(key, value)
                yield from _state_findings(source, state, offset, known, heard) if state is not None else ()
        except FormatError as error:
            text = f"the record at offset {offset} cannot be read: {error}"
            yield Finding("coordinator-record", text, *source.key, brokers=(source.broker,), offset=offset, file=source.path)
            continue
        size = known.sizes.get(source.key[0], 0)
        if size and home_of(name, size) != source.key[1] and name not in misplaced:
            misplaced.add(name)
            kind = "group" if source.key[0] == GROUPS else "transactional id"
            text = f"{kind} {name} belongs to partition {home_of(name, size)} of {size}: its coordinator does not find it here"
            yield Finding("coordinator-place", text, *source.key, brokers=(source.broker,), offset=offset, file=source.path)


def _commit_findings(commit: CommittedOffset, known: Known) -> Iterator[Finding]:
    """A commit against the log that it speaks of. One of a topic that was deleted counts no more."""
    key, topic = (commit.topic, commit.partition), (known.topics or {}).get(commit.topic)
    if topic is not None and commit.topic_id and commit.topic_id != topic[0]:
        return
    said = f"group {commit.group} committed offset {commit.offset}"
    if topic is not None and commit.partition >= topic[1]:
        text = f"{said} of partition {commit.partition}, the topic has {topic[1]}"
        yield Finding("group-offset", text, *key, offset=commit.offset)
    end = known.ends.get(key)
    if end is None:
        return
    if commit.offset > end.offset:
        text = f"{said}, the log ends at {end.offset}"
        cause = f"records were lost by {end.cut_by}" if end.cut_by else "records that the group had read are lost, or the offset was set"
        yield Finding("group-offset", text, *key, offset=commit.offset, cause=cause)
    elif commit.leader_epoch > end.leader_epoch >= 0:
        text = f"{said} of leader epoch {commit.leader_epoch}, the newest one is {end.leader_epoch}"
        yield Finding("group-offset", text, *key, offset=commit.offset, cause="the partition's metadata was lost or rolled back")


def _state_findings(
    source: Source, state: TransactionState, offset: int, known: Known, heard: set[int]
) -> Iterator[Finding]:  # fmt: skip
    """A transaction by its coordinator against time, and against the logs in which its producer's is open."""
    place: dict[str, Any] = {"brokers": (source.broker,), "offset": offset, "file": source.path}
    for one, text in overdue([state], source.now_ms):
        yield Finding("txn-open", f"the transaction of {one.transactional_id} (producer {one.producer_id}) {text}", *source.key, **place)
    opened: Iterable[tuple[Key, int]] = (known.opened or {}).get(state.producer_id, ())
    if not opened:
        return
    heard.add(state.producer_id)
    for key, begin in opened if state.state not in UNDECIDED else ():
        text = f"producer {state.producer_id}'s transaction is open since offset {begin}, "
        text += f"but for the coordinator of {state.transactional_id} it is over ({STATES[state.state]}): it will never end"
        yield Finding("txn-open", text, *key, offset=begin)
