"""Replicas against each other, and the verdict on a partition.

Zones: the offsets of all replicas' log starts, high watermarks and of the cleaned part cut the offset axis. A replica *claims* a
zone when it lies inside [its log start, its high watermark): it says that everything there is committed and that it holds it. All
replicas that claim a zone must hold the same bytes there. What lies above a replica's high watermark may differ and is only noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from minikafka.spark import checks
from minikafka.spark.claims import check_claim
from minikafka.spark.findings import ERROR, NOTE, Finding, FindingList
from minikafka.spark.producers import is_of_group_coordinator
from minikafka.spark.replay import SegmentFacts, replay
from minikafka.spark.scan import Cell, Detail, SegmentSummary
from minikafka.spark.sources import UNBOUNDED, Replica

MATCH, LAGGING, TRUNCATION_PENDING, DIVERGENT = "MATCH", "LAGGING", "TRUNCATION_PENDING", "DIVERGENT"
CORRUPT, UNREADABLE, SKIPPED, SINGLE, EMPTY = "CORRUPT", "UNREADABLE", "SKIPPED", "SINGLE", "EMPTY"
MISSING, LOST = "MISSING", "LOST"
VERDICTS = (LOST, CORRUPT, DIVERGENT, MISSING, UNREADABLE, SKIPPED, TRUNCATION_PENDING, LAGGING, SINGLE, EMPTY, MATCH)
DIVERGENCE_CHECKS = {"replica-differs", "epoch-fork", "topic-id", "committed-missing", "isr-claim", "epoch-unknown"}
LOSS_CHECKS = {"acked-missing", "acked-differs", "acked-conflict"}
DAMAGE_CHECKS = {"batch-crc", "batch-length", "batch-magic", "batch-header", "batch-records", "batch-timestamps", "segment-tail"}

Key = tuple[int, int]
Refine = Callable[["ReplicaView", Key, int, int], Detail]
Logical = Callable[["ReplicaView", "ReplicaView", Key, int, int], Finding | None]
Latest = Callable[["ReplicaView", "ReplicaView", int, int], Finding | None]


@dataclass(slots=True)
class ReplicaView:
    """A replica as it was found: the plan and what its segments' scans say together."""

    replica: Replica
    summaries: list[SegmentSummary]
    cells: dict[Key, Cell] = field(default_factory=dict)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    end_offset: int = 0
    readable_to: int = 0
    log_start: int = 0
    compacted: bool = False
    aborted: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def broker(self) -> str:
        return self.replica.broker

    @property
    def batches(self) -> int:
        return sum(summary.batches for summary in self.summaries)

    @property
    def records(self) -> int:
        return sum(summary.records for summary in self.summaries)

    def claims(self, low: int, high: int) -> bool:
        """Whether all of [low, high) is committed by this replica's own word."""
        return self.log_start <= low and high <= self.replica.high_watermark


@dataclass(slots=True)
class PartitionResult:
    """The verdict on one partition. The fence [fence_from, fence_to) is what every replica claims and has.

    `batches_equal_above` were found equal where not every replica claims them; they prove nothing committed.
    """

    topic: str
    partition: int
    verdict: str
    brokers: tuple[str, ...]
    fence_from: int
    fence_to: int
    batches_compared: int
    records_compared: int
    bytes_compared: int
    batches_equal_above: int
    replicas: list[dict[str, Any]]
    findings: FindingList
    assigned: dict[str, Any] | None = None


def view(replica: Replica, summaries: list[SegmentSummary]) -> ReplicaView:
    """Put the segments of one replica together; adds the findings that need more than one segment."""
    result = ReplicaView(replica, summaries, log_start=replica.log_start)
    present = [summary for summary in summaries if not summary.vanished]
    vanished = [summary for summary in summaries if summary.vanished]
    if vanished:
        result.log_start = max([result.log_start, *(summary.task.next_base for summary in vanished)])
        text = f"{len(vanished)} segments were deleted while the log was read; it is judged from offset {result.log_start}"
        _add(replica, Finding("replica-reread", text, offset=result.log_start))
    if summaries and summaries[-1].vanished:
        # Its newest segment is gone too: whatever was read before says nothing of the replica as it is now.
        result.log_start = result.end_offset = result.readable_to = summaries[-1].task.base_offset
        replica.high_watermark = result.log_start
        return result
    result.compacted = any(summary.compacted for summary in present) or replica.cleaned > replica.log_start
    for summary in present:
        replica.findings.extend(summary.findings)
        for gap in [] if result.compacted else summary.gaps:
            replica.findings.add(gap)
        for key, cell in summary.cells.items():
            result.cells[key] = _merged(result.cells.get(key), cell)
        for run in summary.runs:
            if result.runs and result.runs[-1][0] == run[0]:
                result.runs[-1] = (run[0], result.runs[-1][1], run[2])
            else:
                result.runs.append(run)
    _across_segments(result, present)
    _replay(result, present)
    result.end_offset = present[-1].end_offset if present else result.log_start
    stopped = [summary.end_offset for summary in present if summary.stopped in {"length", "more", "shrunk", "unreadable"}]
    result.readable_to = min([result.end_offset, *stopped])
    _own_checks(result, bool(stopped))
    return result


def _merged(known: Cell | None, cell: Cell) -> Cell:
    if known is None:
        return Cell(cell.digest, cell.batches, cell.records, cell.bytes, cell.position)
    known.digest = (known.digest + cell.digest) & 0xFFFFFFFFFFFFFFFF
    known.batches += cell.batches
    known.records += cell.records
    known.bytes += cell.bytes
    return known


def _across_segments(result: ReplicaView, present: list[SegmentSummary]) -> None:
    replica = result.replica
    for before, after in pairwise(present):
        start, readable = after.task.base_offset, before.stopped == ""
        if readable and before.end_offset < start and not result.compacted:
            text = f"segment {before.task.base_offset} ends before {before.end_offset}, the next begins at {start}: "
            text += f"offsets {before.end_offset}..{start - 1} are missing"
            _add(replica, Finding("offset-gap", text, offset=before.end_offset))
        if before.runs and after.runs and after.runs[0][0] < before.runs[-1][0]:
            text = f"segment {start} begins with leader epoch {after.runs[0][0]} after epoch {before.runs[-1][0]}"
            _add(replica, Finding("epoch-order", text, offset=start))


def _replay(result: ReplicaView, present: list[SegmentSummary]) -> None:
    """Producers and transactions over all segments; not behind a place where the log could not be read."""
    replica = result.replica
    if not present or any(summary.stopped not in {"", "torn"} for summary in present):
        return
    facts = [
        SegmentFacts(
            summary.task.base_offset, summary.end_offset, summary.producers.pieces, summary.producers.events,
            summary.producers.last_timestamp, summary.producers.limited, summary.aborts,
            f"{replica.path}/{summary.task.base_offset:020d}", summary.snapshots,
        )
        for summary in present
    ]  # fmt: skip
    outcome = replay(
        facts, result.log_start, result.compacted, replica.clean is not True, replica.transaction_timeout_ms,
        in_sequence=not is_of_group_coordinator(replica.path),
    )  # fmt: skip
    result.aborted = outcome.aborted
    for finding in outcome.findings:
        if finding.check == "producer-replay":
            finding.file = f"{replica.path}/{finding.offset:020d}.snapshot"
        _add(replica, finding)


def _own_checks(result: ReplicaView, broken: bool) -> None:
    replica = result.replica
    if replica.epochs is not None and not broken:
        for finding in checks.epoch_checkpoint(
            replica.epochs, result.runs, result.log_start, result.end_offset, replica.clean is True, cleaned_below(result)
        ):
            finding.file = f"{replica.path}/leader-epoch-checkpoint"
            _add(replica, finding)
    known = replica.high_watermark if replica.high_watermark_known else None
    if replica_unreadable(result):
        return
    for finding in checks.bounds(known, replica.recovery_point, replica.cleaned, result.log_start, result.end_offset):
        _add(replica, finding)


def replica_unreadable(one: ReplicaView) -> bool:
    """Whether a segment could not be read: where its log ends nobody knows then, so that nothing can be said to be missing."""
    return any(summary.stopped == "unreadable" and not summary.vanished for summary in one.summaries)


def _add(replica: Replica, finding: Finding) -> None:
    finding.topic, finding.partition, finding.brokers = replica.topic, replica.partition, (replica.broker,)
    replica.findings.add(finding)


def zones_of(views: list[ReplicaView]) -> list[tuple[int, int, int]]:
    """(zone, low, high) for every zone in which some replica has batches."""
    cuts = next((summary.task.cuts for one in views for summary in one.summaries), ())
    numbers = sorted({key[0] for one in views for key in one.cells})
    return [(zone, cuts[zone - 1] if zone > 0 else 0, cuts[zone] if zone < len(cuts) else UNBOUNDED) for zone in numbers]


def equal_cells(views: list[ReplicaView], key: Key) -> Cell | None:
    """The cell when all replicas have the same there, else None."""
    first = views[0].cells.get(key)
    if first is None:
        return None
    same = all(
        (other := one.cells.get(key)) is not None and (other.digest, other.batches) == (first.digest, first.batches) for one in views[1:]
    )
    return first if same else None


def needs_detail(views: list[ReplicaView]) -> bool:
    """Whether `judge` will want to read a file again: some cell differs between replicas."""
    return len(views) > 1 and any(equal_cells(views, key) is None for one in views for key in one.cells)


def judge(views: list[ReplicaView], refine: Refine, logical: Logical, latest: Latest) -> PartitionResult:
    """Compare the replicas of one partition and give the verdict.

    `refine(view, cell, low, high)` reads batch headers of a range again; `logical(one, other, cell, low, high)` compares
    surviving records, `latest(one, other, low, fence)` the latest record of every key.
    """
    topic, partition = views[0].replica.topic, views[0].replica.partition
    findings = FindingList(views[0].replica.findings.each_max)
    for one in views:
        findings.extend(one.replica.findings)
    compared, above = Cell(0, 0, 0, 0, 0), Cell(0, 0, 0, 0, 0)
    if len(views) > 1:
        _topic_ids(views, findings)
        _epoch_forks(views, findings)
        _Comparison(views, refine, logical, latest, findings, compared, above).run()
    _claim_findings(views, findings)
    brokers = tuple(one.broker for one in views)
    fence_from = max(one.log_start for one in views)
    fence_to = max(fence_from, min(min(one.replica.high_watermark, one.end_offset) for one in views))
    verdict = verdict_of(findings, len(views), all(one.batches == 0 for one in views), compared.batches + above.batches)
    rows = [_row(one) for one in views]
    return PartitionResult(
        topic,
        partition,
        verdict,
        brokers,
        fence_from,
        fence_to,
        compared.batches,
        compared.records,
        compared.bytes,
        above.batches,
        rows,
        findings,
        _assigned(views),
    )


def _assigned(views: list[ReplicaView]) -> dict[str, Any] | None:
    """What the controller says, for the report."""
    claim = next((one.replica.claim for one in views if one.replica.claim is not None), None)
    if claim is None:
        return None
    return {
        "replicas": list(claim.replicas), "isr": list(claim.isr), "elr": list(claim.elr), "leader": claim.leader,
        "leader_epoch": claim.leader_epoch,
    }  # fmt: skip


def _row(one: ReplicaView) -> dict[str, Any]:
    replica = one.replica
    known = replica.high_watermark_known
    return {
        "broker": one.broker,
        "path": replica.path,
        "log_start": one.log_start,
        "log_end": one.end_offset,
        "high_watermark": replica.high_watermark if known else None,
        "clean_shutdown": replica.clean,
        "segments": len(replica.segments),
        "batches": one.batches,
        "records": one.records,
        "bytes": sum(summary.bytes for summary in one.summaries),
        "topic_id": replica.topic_id,
        "epochs": [list(entry) for entry in replica.epochs or []],
        "last_epoch": one.runs[-1][0] if one.runs else None,
    }


def verdict_of(findings: FindingList, replicas: int, empty: bool, compared: int) -> str:
    """The class of a partition, from what was found and how much was compared."""
    errors = {check for check, level in findings.counts if level == ERROR}
    checks_seen = {check for check, _ in findings.counts}
    if errors & LOSS_CHECKS:
        return LOST
    if errors & DIVERGENCE_CHECKS and not errors & DAMAGE_CHECKS:
        return DIVERGENT
    if errors - {"unreadable", "replica-missing"}:
        return CORRUPT
    if errors:
        return MISSING if "replica-missing" in errors else UNREADABLE
    if empty:
        return EMPTY
    if replicas == 1:
        return SINGLE
    if "replica-tail" in checks_seen:
        return TRUNCATION_PENDING
    if compared == 0:
        return SKIPPED
    return LAGGING if "replica-lagging" in checks_seen else MATCH


def _claim_findings(views: list[ReplicaView], findings: FindingList) -> None:
    claim = next((one.replica.claim for one in views if one.replica.claim is not None), None)
    if claim is None:
        return
    rows = []
    for one in views:
        mark, end = one.replica.high_watermark if one.replica.high_watermark_known else -1, one.end_offset
        if one.replica.place is not None or replica_unreadable(one):
            mark, end = -1, UNBOUNDED  # on the wire a replica shows its log up to its own high watermark only, at a later instant
        rows.append((one.broker, one.replica.topic_id, end, mark, one.runs[-1][0] if one.runs else -1))
    known = set() if "topic-id" not in {check for check, _ in findings.counts} else {"topic-id"}
    for finding in check_claim(claim, rows):
        if finding.check not in known:
            finding.topic, finding.partition = views[0].replica.topic, views[0].replica.partition
            findings.add(finding)


def _topic_ids(views: list[ReplicaView], findings: FindingList) -> None:
    ids = Counter(one.replica.topic_id for one in views if one.replica.topic_id)
    if len(ids) > 1:
        usual = ids.most_common(1)[0][0]
        odd = [one for one in views if one.replica.topic_id not in {"", usual}]
        text = "; ".join(f"broker {one.broker} has {one.replica.topic_id}" for one in views if one.replica.topic_id)
        findings.add(
            _finding(
                "topic-id",
                text,
                views,
                tuple(one.broker for one in odd),
                cause=(
                    "the topic was deleted and created again while this broker was away, or the directory was copied from another cluster"
                ),
            )
        )


def cleaned_below(view: ReplicaView) -> int:
    """How far the cleaner may have come: its checkpoint, else everything but the active segment of a log that was cleaned."""
    return view.replica.cleaned or (view.replica.segments[-1].base_offset if view.compacted else 0)


def _epoch_forks(views: list[ReplicaView], findings: FindingList) -> None:
    """The same epoch must start at the same offset wherever a replica still has that start.

    A follower learns an epoch from the first batch of it that is left: where batches were compacted away, its start lies later.
    """
    cleaned = max(cleaned_below(one) for one in views)
    starts: dict[int, dict[int, list[str]]] = {}
    for one in views:
        for epoch, start in one.replica.epochs or []:
            if one.log_start < start:
                starts.setdefault(epoch, {}).setdefault(start, []).append(one.broker)
    for epoch, places in sorted(starts.items()):
        if len(places) > 1 and min(places) >= cleaned:
            text = "; ".join(f"{start} on {_names(brokers)}" for start, brokers in sorted(places.items()))
            fewest = min(places.values(), key=len)
            findings.add(_finding("epoch-fork", f"leader epoch {epoch} starts at {text}", views, tuple(fewest), offset=min(places)))


def _finding(check: str, text: str, views: list[ReplicaView], brokers: tuple[str, ...], offset: int = -1, cause: str = "", level: str = "",
             details: dict[str, Any] | None = None, position: int = -1) -> Finding:  # fmt: skip
    replica = views[0].replica
    return Finding(check, text, replica.topic, replica.partition, brokers, offset, "", position, level, cause, details or {})


def _names(brokers: Iterable[str]) -> str:
    names = sorted(brokers)
    return f"broker {names[0]}" if len(names) == 1 else "brokers " + ", ".join(names[:-1]) + " and " + names[-1]


class _Comparison:
    """Digests first; where they differ, the cell's batch headers are read again and the first difference is named.

    A replica that ended or differs leaves the comparison of the zone; the others go on.
    """

    def __init__(
        self, views: list[ReplicaView], refine: Refine, logical: Logical, latest: Latest, findings: FindingList, compared: Cell, above: Cell
    ) -> None:
        self.views, self.refine, self.logical, self.latest, self.findings = views, refine, logical, latest, findings
        self.differed_logically: dict[int, ReplicaView] = {}
        self.compared, self.above = compared, above
        self.shift = next(summary.task.cell_shift for one in views for summary in one.summaries)
        self.cleaned = max(one.replica.cleaned for one in views)
        if self.cleaned == 0 and any(one.compacted for one in views):
            self.cleaned = max(one.replica.segments[-1].base_offset for one in views)

    def run(self) -> None:
        for zone, low, high in zones_of(self.views):
            claiming = [one for one in self.views if one.claims(low, high)]
            others = [one for one in self.views if one not in claiming and one.end_offset > low and one.log_start <= low]
            if len(claiming) > 1:
                self._zone(zone, low, high, claiming, committed=True)
            if others:
                self._zone(zone, low, high, claiming[:1] + others, committed=False)
        self._latest_records()
        self._lagging()

    def _latest_records(self) -> None:
        """Where cleaners left different bytes, the latest record of every key must still be the same below both high watermarks."""
        first = self.views[0]
        for other in self.differed_logically.values():
            low = max(first.log_start, other.log_start)
            fence = min(first.replica.high_watermark, other.replica.high_watermark, first.end_offset, other.end_offset)
            found = self.latest(first, other, low, fence) if low < fence else None
            if found is not None:
                self.findings.add(found)

    def _zone(self, zone: int, low: int, high: int, views: list[ReplicaView], committed: bool) -> None:
        for number in sorted({key[1] for one in views for key in one.cells if key[0] == zone}):
            if len(views) < 2:
                return
            key = zone, number
            equal = equal_cells(views, key)
            if equal is not None:
                self._count(equal, committed)
                continue
            cell_low, cell_high = max(low, number << self.shift), min(high, (number + 1) << self.shift)
            gone = self._differs(key, cell_low, cell_high, views, committed)
            views = [one for one in views if one not in gone]

    def _count(self, cell: Cell, committed: bool) -> None:
        """What is equal above a high watermark counts apart: it says that nothing is wrong there, not that anything is safe."""
        total = self.compared if committed else self.above
        total.batches += cell.batches
        total.records += cell.records
        total.bytes += cell.bytes

    def _differs(self, key: Key, low: int, high: int, views: list[ReplicaView], committed: bool) -> list[ReplicaView]:
        """Look closer at one cell; returns the replicas that take no further part."""
        if low < self.cleaned:
            return self._differs_logically(key, low, high, views, committed)
        details = [self.refine(one, key, low, high) for one in views]
        row = first_difference(details)
        if row is None:
            return views if any(detail.more for detail in details) else []
        bases = [int(detail.header["base_offset"][row]) for detail in details if row < len(detail.digest)]
        offset = min(bases)
        ended = [one for number, one in enumerate(views) if row >= len(details[number].digest) and one.end_offset <= offset]
        going = [number for number, one in enumerate(views) if one not in ended]
        self._count(_before(details[going[0]], row), committed)
        if len({int(details[number].digest[row]) if row < len(details[number].digest) else None for number in going}) > 1:
            return ended + self._report([views[number] for number in going], [details[number] for number in going], row, offset, committed)
        return ended

    def _report(self, views: list[ReplicaView], details: list[Detail], row: int, offset: int, committed: bool) -> list[ReplicaView]:
        members: dict[int | None, list[int]] = {}
        for number, detail in enumerate(details):
            members.setdefault(int(detail.digest[row]) if row < len(detail.digest) else None, []).append(number)
        largest = max(members.values(), key=len)
        tie = sum(1 for numbers in members.values() if len(numbers) == len(largest)) > 1
        odd = [number for number in range(len(views)) if tie or number not in largest]
        sides = [_side(views[number], details[number], row) for number in range(len(views))]
        text = f"at offset {offset} " + "; ".join(f"broker {side['broker']} {_says(side)}" for side in sides)
        brokers = tuple(views[number].broker for number in odd)
        cause = likely_cause([sides[numbers[0]] for numbers in members.values()])
        check, level = ("replica-differs", ERROR) if committed else ("replica-tail", NOTE)
        position = next((sides[number]["position"] for number in odd if sides[number]["position"] is not None), -1)
        info = {"sides": sides, "majority": [] if tie else [views[number].broker for number in largest], **_last_common(views)}
        self.findings.add(_finding(check, text, views, brokers, offset, cause, level, info, position))
        return [views[number] for number in odd]

    def _differs_logically(self, key: Key, low: int, high: int, views: list[ReplicaView], committed: bool) -> list[ReplicaView]:
        """Cleaned parts are rewritten by each broker on its own: records that survive on both must be the same."""
        gone = []
        for other in views[1:]:
            self.differed_logically[id(other)] = other
            found = self.logical(views[0], other, key, low, high)
            if found is not None:
                found.level = ERROR if committed and found.check == "replica-differs" else NOTE
                self.findings.add(found)
                gone.append(other)
        if not gone and (cell := views[0].cells.get(key)) is not None:
            self._count(cell, committed)
        return gone

    def _lagging(self) -> None:
        longest = max(one.end_offset for one in self.views)
        for one in self.views:
            if one.end_offset < longest:
                text = f"{_names([one.broker])} ends at {one.end_offset}, the longest replica at {longest}"
                self.findings.add(_finding("replica-lagging", text, self.views, (one.broker,), one.end_offset))


def _last_common(views: list[ReplicaView]) -> dict[str, Any]:
    """The newest leader epoch that begins at the same offset on all of these replicas."""
    known = [{(epoch, start) for epoch, start in one.replica.epochs or []} for one in views]
    common = max(set.intersection(*known), default=None)
    return {"last_common_epoch": None if common is None else common[0]}


def first_difference(details: list[Detail]) -> int | None:
    """The first row where the sequences of batches part; None when they are equal as far as they were read."""
    shortest, longest = min(len(detail.digest) for detail in details), max(len(detail.digest) for detail in details)
    same = np.ones(shortest, bool)
    for detail in details[1:]:
        same &= detail.digest[:shortest] == details[0].digest[:shortest]
    different = np.flatnonzero(~same)
    if len(different):
        return int(different[0])
    return shortest if longest > shortest else None


def _before(detail: Detail, row: int) -> Cell:
    return Cell(0, row, int(np.maximum(detail.header["count"][:row].astype(np.int64), 0).sum()), int(detail.size[:row].sum()), 0)


def _side(one: ReplicaView, detail: Detail, row: int) -> dict[str, Any]:
    """What one replica holds as batch `row` of the range."""
    if row >= len(detail.digest):
        return {"broker": one.broker, "log_end": one.end_offset, "base_offset": None, "position": None, "crc_valid": True}
    header = detail.header[row]
    return {
        "broker": one.broker, "log_end": one.end_offset, "base_offset": int(header["base_offset"]),
        "last_offset": int(header["base_offset"]) + int(header["last_delta"]), "epoch": int(header["epoch"]), "crc": int(header["crc"]),
        "crc_valid": int(header["crc"]) == int(detail.crc[row]), "bytes": int(detail.size[row]), "records": int(header["count"]),
        "producer_id": int(header["producer_id"]), "base_sequence": int(header["base_sequence"]), "segment": int(detail.segment[row]),
        "position": int(detail.position[row]),
    }  # fmt: skip


def _says(side: dict[str, Any]) -> str:
    if side["base_offset"] is None:
        return f"has no batch there (its log ends at {side['log_end']})"
    crc = "" if side["crc_valid"] else ", CRC wrong"
    return f"has {side['base_offset']}..{side['last_offset']} of epoch {side['epoch']} ({side['bytes']} bytes at {side['position']}{crc})"


def likely_cause(sides: list[dict[str, Any]]) -> str:
    """The usual story behind a pattern of differences (one side per distinct content)."""
    held = [side for side in sides if side["base_offset"] is not None]
    if any(not side["crc_valid"] for side in held):
        return "bit rot or a torn write: one copy no longer has the bytes that its CRC was made for"
    epochs = {side["epoch"] for side in held}
    if len(held) < len(sides):
        return "one copy lacks the batch: it was lost after it had been acknowledged, or never copied"
    if len(epochs) > 1 and len({side["crc"] for side in held}) == 1:
        return "the same records with different leader epochs: a follower stamped or kept a wrong epoch (the CRC does not cover it)"
    if len(epochs) > 1:
        both = " and ".join(map(str, sorted(epochs)))
        return f"two leaders wrote these offsets in epochs {both}: a deposed leader's records were not cut off"
    if len({(side["base_offset"], side["last_offset"]) for side in held}) > 1:
        return "batches were lost, repeated or exchanged on one copy"
    return "the same epoch, valid CRCs and different bytes: a log was changed after replication, or two brokers led in one epoch"
