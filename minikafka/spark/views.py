"""A replica as it was found: the plan and what its segments' scans say together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from minikafka.counted import counted
from minikafka.spark import checks
from minikafka.spark.coverage import Account
from minikafka.spark.findings import Finding
from minikafka.spark.metadata_log import METADATA_TOPIC
from minikafka.spark.producers import ProducerFacts, is_of_group_coordinator
from minikafka.spark.replay import Replay, Replayer, ReplayOptions, SegmentFacts, replay
from minikafka.spark.scan import HELD_CHECKS, Cell, SegmentSummary, scan_segment
from minikafka.spark.sources import COMPACT, UNBOUNDED, UNKNOWN, Replica, SegmentTask

Key = tuple[int, int]


@dataclass(slots=True)
class ReplicaView:
    """A replica as it was found. `claim_to`: below this offset it answers for all that is committed (see coverage.py). `cleaned_to`: below
    this offset a cleaner may have removed records. `unread`: [first, end) of offsets of which it is unknown what it holds."""

    replica: Replica
    summaries: list[SegmentSummary]
    cells: dict[Key, Cell] = field(default_factory=dict)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    end_offset: int = 0
    log_start: int = 0
    claim_to: int = 0
    cleaned_to: int = 0
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    #: Committed transactions that begin where a cleaner was.
    committed: list[tuple[int, int, int]] = field(default_factory=list)
    #: Transactions without an end: {producer id: (first offset, timestamp)}.
    opened: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: How each producer's last transaction ended, if none is open (replay.Replay).
    ended: list[tuple[int, int, int, int]] = field(default_factory=list)

    unread: list[tuple[int, int]] = field(default_factory=list)

    @property
    def broker(self) -> str:
        return self.replica.broker

    @property
    def batches(self) -> int:
        return sum(summary.batches for summary in self.summaries)

    @property
    def records(self) -> int:
        return sum(summary.records for summary in self.summaries)

    @property
    def compacted(self) -> bool:
        """Whether a cleaner may have removed anything."""
        return self.cleaned_to > self.log_start

    def is_unread(self, offset: int) -> bool:
        """Whether it is unknown what it holds at this offset."""
        return any(first <= offset < end for first, end in self.unread)

    def claims(self, low: int, high: int) -> bool:
        """Whether it answers for all of [low, high)."""
        return self.log_start <= low and high <= self.claim_to

    @property
    def account(self) -> Account:
        """An account with nothing in it yet."""
        return Account(self.broker, (self.log_start, min(self.claim_to, self.end_offset)), self.cleaned_to)


def view(replica: Replica, summaries: list[SegmentSummary], replayed: Replay | None = None) -> ReplicaView:
    """Put the segments of one replica together; adds the findings that need more than one segment. `replayed`: what became of its
    producers and transactions, where that was found out apart (replay_apart)."""
    result = ReplicaView(replica, summaries, log_start=replica.log_start, claim_to=replica.high_watermark)
    _all_segments(replica, summaries)
    present = [summary for summary in summaries if not summary.vanished]
    vanished = [summary for summary in summaries if summary.vanished]
    if vanished:
        result.log_start = max([result.log_start, *(summary.task.next_base for summary in vanished)])
        gone = counted(len(vanished), "segment was", "segments were")
        text = f"{gone} deleted while the log was being read; it is judged from offset {result.log_start}"
        _add(replica, Finding("replica-reread", text, offset=result.log_start))
    if summaries and summaries[-1].vanished:
        # Its newest segment is gone too: whatever was read before says nothing of the replica as it is now.
        result.log_start = result.end_offset = result.claim_to = summaries[-1].task.base_offset
        replica.high_watermark = result.log_start
        return result
    unexplained = any(summary.compacted for summary in present)
    result.cleaned_to = UNBOUNDED if unexplained else replica.cleaned_to
    if unexplained:
        text = "batches lack records, and the controller does not say whether the topic was ever compacted"
        _add(replica, Finding("not-compared", text + ": gaps, sequences and transactions were not checked"))
    for limit in sorted({limit for summary in present for limit in summary.limits}):
        _add(replica, Finding("not-compared", f"a segment has more {limit} than the audit keeps, so they were not checked"))
    for summary in present:
        replica.findings.extend(summary.findings)
        if summary.unread_from >= 0:
            result.unread.append((summary.unread_from, summary.task.next_base if summary.task.next_base >= 0 else UNBOUNDED))
        for key, cell in summary.cells.items():
            result.cells[key] = _merged(result.cells.get(key), cell)
        for run in summary.runs:
            if result.runs and result.runs[-1][0] == run[0]:
                result.runs[-1] = (run[0], result.runs[-1][1], run[2])
            else:
                result.runs.append(run)
    held = [] if unexplained else [gap for summary in present for gap in summary.gaps]
    held += _across_segments(result, present)
    held += _replay(result, present, replayed)
    _add_held(replica, held)
    result.end_offset = _end_of(present) if present else result.log_start
    _own_checks(result, any(summary.stopped not in {"", "torn"} for summary in present))
    return result


def _all_segments(replica: Replica, summaries: list[SegmentSummary]) -> None:
    """Each planned segment was scanned, once."""
    planned, scanned = [one.base_offset for one in replica.segments], [one.task.base_offset for one in summaries]
    if planned != scanned:
        text = f"segments {planned} were planned, but only {scanned} were scanned"
        _add(replica, Finding("not-compared", text if len(text) < 500 else f"of {counted(len(planned), 'planned segment')} "
            f"{len(scanned)} were scanned"))


def _merged(merged: Cell | None, cell: Cell) -> Cell:
    if merged is None:
        return replace(cell)
    merged.digest = (merged.digest + cell.digest) & 0xFFFFFFFFFFFFFFFF
    merged.batches += cell.batches
    merged.records += cell.records
    merged.bytes += cell.bytes
    merged.offsets += cell.offsets
    merged.first, merged.end = min(merged.first, cell.first), max(merged.end, cell.end)
    return merged


def _end_of(present: list[SegmentSummary]) -> int:
    """Where a log ends. Of a stretch of offsets over the wire in which nothing is, it is not known that the log reaches that far."""
    held = [one for one in present if not one.task.follows or one.batches or one.taken_up > one.task.base_offset]
    return max(one.end_offset for one in held) if held and present[-1].task.place is not None else present[-1].end_offset


def _add_held(replica: Replica, held: list[Finding]) -> None:
    """Add findings that a cleaner would explain, none of which is in the active segment. If offsets are missing and nobody knows whether
    the topic was ever compacted, they and the producers' missing sequences are no proof, and no error either."""
    is_unknown = replica.policy == UNKNOWN and any(finding.check == "offset-gap" for finding in held)
    for finding in held:
        if is_unknown and finding.check in HELD_CHECKS:
            text = f"{finding.message}, and the controller does not say whether the topic was ever compacted"
            finding = replace(finding, check="not-compared", level="", message=text)
        _add(replica, finding)


def _across_segments(result: ReplicaView, present: list[SegmentSummary]) -> list[Finding]:
    """What does not fit between segments. Returns the gaps, which a cleaner would explain."""
    replica, reach = result.replica, 0
    gaps: list[Finding] = []
    for before, after in pairwise(present):
        start, readable = max(after.task.base_offset, after.taken_up), before.stopped == ""
        reach = max(reach, before.end_offset) if after.task.follows else before.end_offset
        if readable and reach < start and start > result.cleaned_to:
            text = f"segment {before.task.base_offset} ends before {reach}, the next begins at {start}: "
            text += f"offsets {reach}..{start - 1} are missing"
            if replica.policy == COMPACT:
                text += ", above what the cleaners' checkpoints explain"
            gaps.append(Finding("not-compared" if replica.policy == COMPACT else "offset-gap", text, offset=reach))
        if after.task.follows and after.batches and after.first_offset < reach:
            text = f"broker {replica.broker} sent different batches at offset {after.first_offset} than a moment earlier"
            _add(replica, Finding("not-compared", text, offset=after.first_offset, details={"moved": True}))
        if before.runs and after.runs and after.runs[0][0] < before.runs[-1][0]:
            text = f"segment {start} begins with leader epoch {after.runs[0][0]} after epoch {before.runs[-1][0]}"
            _add(replica, Finding("epoch-order", text, offset=start))
    return gaps


def _replay(result: ReplicaView, present: list[SegmentSummary], replayed: Replay | None) -> list[Finding]:
    """Producers and transactions over all segments; not behind a place where the log could not be read. Returns what was found."""
    replica = result.replica
    if not present or any(summary.stopped not in {"", "torn"} for summary in present):
        return []
    if replayed is None:
        replayed = replay([_facts(summary) for summary in present], _replay_options(replica, result.log_start, result.cleaned_to))
    result.aborted, result.committed, result.opened, result.ended = replayed.aborted, replayed.committed, replayed.open, replayed.ended
    for finding in replayed.findings:
        if finding.check == "producer-replay":
            finding.file = f"{replica.path}/{finding.offset:020d}.snapshot"
    return list(replayed.findings)


def _facts(summary: SegmentSummary) -> SegmentFacts:
    task, facts = summary.task, summary.producers
    name = f"{task.path}/{task.base_offset:020d}"
    return SegmentFacts(
        task.base_offset, summary.end_offset, facts.pieces, facts.events, facts.last_timestamp, summary.aborts, name, summary.snapshots,
        task.place is None and not task.is_made_anew,
    )  # fmt: skip


def _replay_options(replica: Replica, log_start: int, cleaned_to: int) -> ReplayOptions:
    return ReplayOptions(
        log_start, cleaned_to, replica.clean is not True, replica.transaction_timeout_ms, not is_of_group_coordinator(replica.path)
    )


def is_limited(summaries: list[SegmentSummary]) -> bool:
    """Whether there are more producers or transactions in a segment than a summary keeps, so that replay_apart has to find out."""
    return any(summary.producers.limited for summary in summaries)


def replay_apart(item: tuple[Replica, list[SegmentTask], int]) -> tuple[list[SegmentSummary], Replay]:
    """One replica's segments again, one after the other and without bounds: (summaries without what was replayed, the outcome).

    `item`: the replica, its tasks in order, and how far cleaners may have come. It needs the memory of the largest segment's transactions.
    """
    replica, tasks, cleaned_to = item
    replayer = Replayer(tasks[0].base_offset, _replay_options(replica, replica.log_start, cleaned_to))
    summaries = []
    for task in tasks:
        summary = scan_segment(task, is_bounded=False)
        if not summary.vanished:
            replayer.feed(_facts(summary))
        summary.producers, summary.snapshots, summary.aborts = ProducerFacts(), [], summary.aborts[:0]
        summaries.append(summary)
    return summaries, replayer.finish()


def _own_checks(result: ReplicaView, broken: bool) -> None:
    replica = result.replica
    if replica.epochs is not None and not broken:
        for finding in checks.epoch_checkpoint(
            replica.epochs, result.runs, _first_needed(result), result.end_offset, replica.clean is True, cleaned_below(result)
        ):
            finding.file = f"{replica.path}/leader-epoch-checkpoint"
            _add(replica, finding)
    high_watermark = replica.high_watermark if replica.has_high_watermark else None
    if replica_unreadable(result):
        return
    if replica.clean and replica.place is None and replica.topic != METADATA_TOPIC and not broken:
        for finding in checks.stop_snapshot(replica.snapshots, result.log_start, result.end_offset):
            _add(replica, finding)
    recovery_point = replica.recovery_point if replica.clean is not False else None  # of a killed broker see compare.py
    for finding in checks.bounds(high_watermark, recovery_point, replica.cleaner_point, result.log_start, result.end_offset):
        _add(replica, finding)


def _first_needed(result: ReplicaView) -> int:
    """The log start that the leader epochs show. A node cuts those of its metadata log at a snapshot, and the log later or never."""
    first = result.replica.epochs[0][1] if result.replica.epochs else 0
    is_in_snapshot = result.replica.topic == METADATA_TOPIC and first <= result.replica.snapshot_end
    return max(result.log_start, first) if is_in_snapshot else result.log_start


def replica_unreadable(one: ReplicaView) -> bool:
    """Whether a segment could not be read: where its log ends nobody knows then, so that nothing can be said to be missing."""
    broken = any(summary.stopped in {"unreadable", "failed"} and not summary.vanished for summary in one.summaries)
    return broken or len(one.summaries) < len(one.replica.segments)


def _add(replica: Replica, finding: Finding) -> None:
    finding.topic, finding.partition, finding.brokers = replica.topic, replica.partition, (replica.broker,)
    replica.findings.add(finding)


def zones_of(views: list[ReplicaView]) -> list[tuple[int, int, int]]:
    """(zone, low, high) for every zone in which some replica has batches."""
    cuts = next((summary.task.cuts for one in views for summary in one.summaries), ())
    numbers = sorted({key[0] for one in views for key in one.cells})
    return [(zone, cuts[zone - 1] if zone > 0 else 0, cuts[zone] if zone < len(cuts) else UNBOUNDED) for zone in numbers]


def cleaned_below(view: ReplicaView) -> int:
    """How far its own cleaner may have come, else, where nobody knows, everything but the active segment of a log that was cleaned."""
    return view.replica.cleaned or (view.replica.segments[-1].base_offset if view.cleaned_to == UNBOUNDED else 0)


def finding_of(
    check: str, text: str, views: list[ReplicaView], brokers: tuple[str, ...], offset: int = -1, cause: str = "", level: str = "",
    details: dict[str, Any] | None = None, position: int = -1,
) -> Finding:  # fmt: skip
    """A finding on the partition of these views."""
    replica = views[0].replica
    return Finding(check, text, replica.topic, replica.partition, brokers, offset, "", position, level, cause, details or {})


def names_of(brokers: Iterable[str]) -> str:
    """Brokers in a sentence."""
    names = sorted(brokers)
    return f"broker {names[0]}" if len(names) == 1 else "brokers " + ", ".join(names[:-1]) + " and " + names[-1]
