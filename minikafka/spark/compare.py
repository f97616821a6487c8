"""Replicas against each other, and the verdict on a partition.

Zones: the offsets of all replicas' log starts, high watermarks and of the cleaned part cut the offset axis. A replica *answers for* a
zone when it lies inside [its log start, its claim) (coverage.py): it says that everything there is committed and that it holds it. All
replicas that answer for a zone must hold the same bytes there. What lies above may differ where replication will cut it, and is noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minikafka.spark import unclean
from minikafka.spark.claims import check_claim
from minikafka.spark.coverage import Account
from minikafka.spark.difference import Comparison, Readers, equal_cells
from minikafka.spark.findings import ERROR, WARNING, FindingList
from minikafka.spark.metadata_log import METADATA_TOPIC
from minikafka.spark.sources import UNBOUNDED
from minikafka.spark.views import ReplicaView, cleaned_below, finding_of, names_of, replica_unreadable

MATCH, LAGGING, TRUNCATION_PENDING, DIVERGENT = "MATCH", "LAGGING", "TRUNCATION_PENDING", "DIVERGENT"
CORRUPT, UNREADABLE, SKIPPED, SINGLE, EMPTY = "CORRUPT", "UNREADABLE", "SKIPPED", "SINGLE", "EMPTY"
MISSING, LOST, INCOMPLETE = "MISSING", "LOST", "INCOMPLETE"
VERDICTS = (LOST, CORRUPT, DIVERGENT, MISSING, UNREADABLE, INCOMPLETE, SKIPPED, TRUNCATION_PENDING, LAGGING, SINGLE, EMPTY, MATCH)
DIVERGENCE_CHECKS = {"replica-differs", "prefix-missing", "epoch-fork", "topic-id", "committed-missing", "isr-claim", "epoch-unknown"}
LOSS_CHECKS = {"acked-missing", "acked-differs", "acked-conflict", "unclean-loss"}
INCOMPLETE_CHECKS = {"not-compared", "replica-missing"}
DAMAGE_CHECKS = {"batch-crc", "batch-length", "batch-magic", "batch-header", "batch-records", "batch-timestamps", "segment-tail"}


@dataclass(slots=True)
class PartitionResult:
    """The verdict on one partition. The fence [fence_from, fence_to) is what every replica claims and has.

    `batches_equal_above` were found equal where not every replica claims them; they prove nothing committed. `is_deleted`: what one replica
    still holds was deleted on the others, which are empty.
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
    accounts: list[Account] = field(default_factory=list)
    is_deleted: bool = False

    def decide(self) -> None:
        """Give the verdict again, after findings were added."""
        empty = self.is_deleted or all(row["batches"] == 0 for row in self.replicas)
        self.verdict = verdict_of(self.findings, len(self.replicas), empty, self.batches_compared + self.batches_equal_above)


def needs_detail(views: list[ReplicaView]) -> bool:
    """Whether `judge` will want to read a file again: some cell differs between replicas."""
    return len(views) > 1 and any(equal_cells(views, key) is None for one in views for key in one.cells)


def judge(views: list[ReplicaView], readers: Readers) -> PartitionResult:
    """Compare the replicas of one partition and give the verdict."""
    topic, partition = views[0].replica.topic, views[0].replica.partition
    findings = FindingList(views[0].replica.findings.each_max)
    for one in views:
        findings.extend(one.replica.findings)
    lost = _bounds(views, findings)
    compared = above = None
    accounts: list[Account] = []
    _lost_prefixes(views, findings)
    if len(views) > 1:
        _topic_ids(views, findings)
        _epoch_forks(views, findings)
        comparison = Comparison(views, readers, findings)
        accounts = comparison.run()
        compared, above = comparison.compared, comparison.above
    _claim_findings(views, findings, lost)
    if accounts and not findings.total(ERROR):
        _settle(views, accounts, findings)
    fence_from = max(one.log_start for one in views)
    fence_to = max(fence_from, min(min(one.claim_to, one.end_offset) for one in views))
    result = PartitionResult(
        topic, partition, EMPTY, tuple(one.broker for one in views), fence_from, fence_to, compared.batches if compared else 0,
        compared.records if compared else 0, compared.bytes if compared else 0, above.batches if above else 0,
        [_row(one) for one in views], findings, _assigned(views), accounts, any(_is_deleted(one, views) for one in views),
    )  # fmt: skip
    result.decide()
    return result


def _bounds(views: list[ReplicaView], findings: FindingList) -> dict[int, int]:
    """Set how far each replica answers; returns {index of a replica: offset} of those whose records from there on an unclean election lost.

    Any replica's high watermark is at most the true one, so who is in sync or eligible answers for all below the largest; but what an
    unclean election lost is nobody's any more. On the wire a replica shows its log up to its own high watermark only.
    """
    lost: dict[int, int] = {}
    for one, election, begin in unclean.losses(views):
        number = next(index for index, other in enumerate(views) if other is one)
        lost[number] = min(begin, lost.get(number, begin))
        findings.add(unclean.loss_finding(one, election, begin))
    marks = [
        min(one.replica.high_watermark, lost.get(number, UNBOUNDED)) for number, one in enumerate(views)
        if one.replica.high_watermark_known and not one.replica.mark_unread and not _grows(one)
    ]  # fmt: skip
    committed = max(marks, default=None)
    for number, one in enumerate(views):
        replica, gone = one.replica, bool(one.summaries) and one.summaries[-1].vanished
        in_sync = replica.claim is not None and replica.node in replica.claim.complete and replica.place is None
        if committed is not None and not gone and (in_sync or replica.mark_unread):
            one.claim_to = committed
        one.claim_to = min(one.claim_to, lost.get(number, UNBOUNDED))
    return lost


def _lost_prefixes(views: list[ReplicaView], findings: FindingList) -> None:
    """A cleaner never moves the start of a log: where a topic is only compacted DeleteRecords alone does, and replicas follow each other.

    A broker writes its log's start down unless a segment begins there. So where no replica has it in writing, and another one that must be
    complete still holds what lies before, records are lost; where none does, nobody can tell.
    """
    copies = [one.replica for one in views if one.replica.place is None and not one.replica.is_future]
    if not any(one.is_only_compacted is not False for one in copies):
        return
    explained = max([0, *(one.start_point for one in copies)])
    for one in copies:
        start = one.segments[0].base_offset
        if start <= explained:
            continue
        holders = [other for other in copies if other.segments[0].base_offset < start and other.size]
        complete = [other for other in holders if other.clean and (other.claim is None or other.node in other.claim.complete)]
        text = f"the log of broker {one.broker} begins at {start}; the topic is only compacted, and no log-start-offset-checkpoint says why"
        if complete and one.is_only_compacted:
            text += f", and {names_of(other.broker for other in complete)} holds what lies before"
            findings.add(finding_of("prefix-missing", text, views, (one.broker,), start))
        elif one.is_only_compacted or holders:
            text += ": nobody knows whether records were deleted or lost"
            findings.add(finding_of("not-compared", text, views, (one.broker,), start))


def _grows(one: ReplicaView) -> bool:
    """Whether it is a copy that nobody counts on yet."""
    return one.replica.is_future and one.replica.claim is None


def _settle(views: list[ReplicaView], accounts: list[Account], findings: FindingList) -> None:
    """Hold what was compared against what was due, where nothing worse is known of the partition."""
    for one, account in zip(views, accounts, strict=True):
        texts = list(account.shortfalls())
        is_held_too = account.beside.batches and "replica-tail" not in {check for check, _ in findings.counts}
        if account.alone.batches and not account.due.batches and not is_held_too and not _is_deleted(one, views):
            texts.append(f"no other replica answers for any offset of broker {one.broker} between {account.first} and {account.end}")
        for text in texts:
            findings.add(finding_of("not-compared", text, views, (one.broker,), account.bounds[0]))
    for text in _unfenced(views, {check for check, _ in findings.counts}):
        findings.add(finding_of("not-compared", text, views, tuple(one.broker for one in views)))


def _is_deleted(one: ReplicaView, views: list[ReplicaView]) -> bool:
    """Whether all that it holds was deleted, and it was not told yet: the others are empty, and begin at its end or behind, as one of them
    has in writing (the first leader epoch moves with the log start), or says itself."""
    others = [other for other in views if other is not one and not _grows(other)]
    if not others or any(other.log_start < one.end_offset or other.end_offset > other.log_start for other in others):
        return False
    return any(other.replica.place is not None or other.log_start in _written_starts(other) for other in others)


def _written_starts(one: ReplicaView) -> list[int]:
    """Where its log starts by its own files, not by the names of its segments."""
    return [one.replica.start_point, *(start for _, start in (one.replica.epochs or [])[:1])]


def _unfenced(views: list[ReplicaView], found: set[str]) -> Iterator[str]:
    """Behind the largest high watermark that is known, logs that differ prove nothing while one that may lead has no high watermark: a
    record that only some hold may be committed, and one that may lead may have lost it. The metadata log keeps none on disk."""
    if views[0].replica.topic == METADATA_TOPIC:
        return
    views = [one for one in views if not _grows(one)]
    leading = [one for one in views if one.replica.claim is None or one.replica.node in one.replica.claim.complete]
    known = max((one.replica.high_watermark for one in views if _has_mark(one)), default=-1)
    shortest, longest = min((one.end_offset for one in leading), default=0), max(one.end_offset for one in views)
    if all(map(_has_mark, leading)):
        return
    if "replica-tail" in found:
        yield "the replicas differ, and no high watermark says which of it is committed"
    elif shortest < longest and longest > known:
        yield f"logs end between {shortest} and {longest}, and no high watermark says which of it is committed"


def _has_mark(one: ReplicaView) -> bool:
    replica = one.replica
    return replica.high_watermark_known and replica.has_mark_line and not replica.mark_unread


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
        "is_future": replica.is_future,
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
        "answers_to": min(one.claim_to, one.end_offset),
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
    if any(check in INCOMPLETE_CHECKS and level == WARNING for check, level in findings.counts):
        return INCOMPLETE
    if empty:
        return EMPTY
    if replicas == 1:
        return SINGLE
    if "replica-tail" in checks_seen:
        return TRUNCATION_PENDING
    if compared == 0:
        return SKIPPED
    return LAGGING if "replica-lagging" in checks_seen else MATCH


def _claim_findings(views: list[ReplicaView], findings: FindingList, lost: dict[int, int]) -> None:
    claim = next((one.replica.claim for one in views if one.replica.claim is not None), None)
    if claim is None:
        return
    rows = []
    for number, one in enumerate(views):
        if _grows(one):
            continue
        mark, end = one.replica.high_watermark if one.replica.high_watermark_known else -1, one.end_offset
        if one.replica.place is not None or replica_unreadable(one):
            mark, end = -1, UNBOUNDED  # on the wire a replica shows its log up to its own high watermark only, at a later instant
        epoch = max([one.runs[-1][0] if one.runs else -1, *(entry[0] for entry in one.replica.epochs or [])])
        rows.append((one.replica.node, one.replica.topic_id, end, min(mark, lost.get(number, mark)), epoch))
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
            finding_of(
                "topic-id",
                text,
                views,
                tuple(one.broker for one in odd),
                cause=(
                    "the topic was deleted and created again while this broker was away, or the directory was copied from another cluster"
                ),
            )
        )


def _epoch_forks(views: list[ReplicaView], findings: FindingList) -> None:
    """The same epoch must start at the same offset wherever a replica still has that start.

    A follower learns an epoch from the first batch of it that is left: where batches were compacted away, its start lies later.
    """
    cleaned = max(cleaned_below(one) for one in views)
    starts: dict[int, dict[int, list[str]]] = {}
    for one in views:
        # The first epoch moves with the log start at once, which a killed broker may not have written down.
        entries = (one.replica.epochs or [])[0 if one.replica.clean is True else 1 :]
        for epoch, start in entries:
            if one.log_start < start:
                starts.setdefault(epoch, {}).setdefault(start, []).append(one.broker)
    for epoch, places in sorted(starts.items()):
        if len(places) > 1 and min(places) >= cleaned:
            text = "; ".join(f"{start} on {names_of(brokers)}" for start, brokers in sorted(places.items()))
            fewest = min(places.values(), key=len)
            findings.add(finding_of("epoch-fork", f"leader epoch {epoch} starts at {text}", views, tuple(fewest), offset=min(places)))
