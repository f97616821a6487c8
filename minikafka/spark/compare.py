"""Compares the replicas of a partition and gives the verdict.

Zones: the log starts and high watermarks of all replicas, and the end of the cleaned part, divide the offsets into zones. A replica
*answers for* a zone that lies inside [its log start, its claim) (coverage.py): it claims that all records there are committed and that it
has them. All replicas that answer for a zone must hold the same bytes there. Above it, replicas may differ if replication will truncate
the difference, which is noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minikafka.spark import unclean
from minikafka.spark.checks import recovery_point_beyond
from minikafka.spark.claims import check_claim
from minikafka.spark.coverage import Account
from minikafka.spark.difference import Comparison, Readers, equal_cells
from minikafka.spark.findings import ERROR, NOTE, WARNING, FindingList
from minikafka.spark.metadata_log import METADATA_TOPIC
from minikafka.spark.sources import UNBOUNDED
from minikafka.spark.views import ReplicaView, cleaned_below, finding_of, names_of, replica_unreadable

MATCH, LAGGING, TRUNCATION_PENDING, DIVERGENT = "MATCH", "LAGGING", "TRUNCATION_PENDING", "DIVERGENT"
CORRUPT, UNREADABLE, SKIPPED, SINGLE, EMPTY = "CORRUPT", "UNREADABLE", "SKIPPED", "SINGLE", "EMPTY"
MISSING, LOST, INCOMPLETE = "MISSING", "LOST", "INCOMPLETE"
VERDICTS = (LOST, CORRUPT, DIVERGENT, MISSING, UNREADABLE, INCOMPLETE, SKIPPED, TRUNCATION_PENDING, LAGGING, SINGLE, EMPTY, MATCH)
DIVERGENCE_CHECKS = {"replica-differs", "prefix-missing", "epoch-fork", "topic-id", "committed-missing", "isr-claim", "epoch-unknown"}
LOSS_CHECKS = {"acked-missing", "acked-differs", "acked-conflict", "unclean-loss", "share-state"}
INCOMPLETE_CHECKS = {"not-compared", "replica-missing"}
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
DAMAGE_CHECKS = {"batch-crc", "batch-length", "batch-magic", "batch-header", "batch-records", "batch-timestamps", "segment-tail"}


@dataclass(slots=True)
class PartitionResult:
    """The verdict on one partition. The fence [fence_from, fence_to) is the range that every replica claims and has.

    `batches_equal_above`: batches that are equal, but not claimed by every replica, so they prove nothing about committed records.
    `is_deleted`: one replica still holds records that the others, which are empty, have deleted.
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
        """Update the verdict after findings were added."""
        empty = self.is_deleted or all(row["batches"] == 0 for row in self.replicas)
        self.verdict = verdict_of(self.findings, len(self.replicas), empty, self.batches_compared + self.batches_equal_above)


def needs_detail(views: list[ReplicaView]) -> bool:
    """Whether `judge` needs to reread files, because some cell differs between replicas."""
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
    _lost_beginnings(views, findings)
    _empty_beginnings(views, findings)
    _unexplained_starts(views, findings)
    _recovery_points(views, findings)
    _metadata_topic_ids(views, findings)
    if len(views) > 1:
        _topic_ids(views, findings)
        _epoch_forks(views, findings)
        _lost_aborts(views, findings)
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
    """Set how far each replica answers. Returns {index of a replica: offset}: an unclean election lost its records from that offset on.

    No replica's high watermark exceeds the true one. So a replica that is in sync or eligible answers for everything below the largest
    one, except for records that an unclean election lost. Over the network a replica shows its log only up to its own high watermark.
    """
    lost: dict[int, int] = {}
    for one, election, begin in unclean.losses(views):
        number = next(index for index, other in enumerate(views) if other is one)
        lost[number] = min(begin, lost.get(number, begin))
        findings.add(unclean.loss_finding(one, election, begin))
    high_watermarks = [
        min(one.replica.high_watermark, lost.get(number, UNBOUNDED)) for number, one in enumerate(views)
        if one.replica.has_high_watermark and not one.replica.high_watermark_unread and not _grows(one)
    ]  # fmt: skip
    committed = max(high_watermarks, default=None)
    for number, one in enumerate(views):
        replica, gone = one.replica, bool(one.summaries) and one.summaries[-1].vanished
        in_sync = replica.claim is not None and replica.node in replica.claim.complete and replica.place is None
        if committed is not None and not gone and (in_sync or replica.high_watermark_unread):
            one.claim_to = committed
        one.claim_to = min(one.claim_to, lost.get(number, UNBOUNDED))
    return lost


def _lost_prefixes(views: list[ReplicaView], findings: FindingList) -> None:
    """Report log starts that nothing explains. Cleaners never move a log start. If a topic is only compacted, only DeleteRecords does, and
    all replicas follow.

    A broker stores its log start in a checkpoint unless a segment begins there. So if no replica has stored it, and another replica that
    must be complete still holds earlier records, records are lost. If no replica holds them, the cause is unknown.
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
            text += f", and {names_of(other.broker for other in complete)} has the earlier records"
            findings.add(finding_of("prefix-missing", text, views, (one.broker,), start))
        elif one.is_only_compacted or holders:
            text += ": it is unclear whether records were deleted or lost"
            findings.add(finding_of("not-compared", text, views, (one.broker,), start))


def _lost_beginnings(views: list[ReplicaView], findings: FindingList) -> None:
    """Report logs of cleanly stopped brokers that begin behind their first leader epoch.

    A broker that raises its log start cuts its leader epochs to it, and an orderly stop leaves both on disk. A log that begins later has
    lost its first segments, unless a power failure took the cut epochs and an orderly stop followed.
    """
    for one in views:
        replica = one.replica
        if replica.clean is not True or replica.place is not None or replica.topic == METADATA_TOPIC or not replica.epochs:
            continue
        first = replica.epochs[0][1]
        if first < one.log_start:
            text = f"the log of broker {one.broker} begins at {one.log_start}, its first leader epoch at {first}: a broker that deletes "
            text += f"records moves both, so it is unknown whether offsets {first}..{one.log_start - 1} were deleted or lost"
            findings.add(finding_of("not-compared", text, views, (one.broker,), first))


def _empty_beginnings(views: list[ReplicaView], findings: FindingList) -> None:
    """Report empty logs that begin where others have records, while nothing says why.

    A broker that deletes records keeps its last leader epoch, at the new log start, or writes the log start down. One without either began
    anew where a leader's log started by then (LogManager.truncateFullyAndStartAt), so another replica must start there or later.
    """
    for one in views:
        if one.batches or one.log_start <= 0 or _grows(one) or replica_unreadable(one) or max(_written_starts(one)) >= one.log_start:
            continue
        others = [other for other in views if other is not one and not _grows(other)]
        known = max((start for other in others for start in (other.log_start, *_written_starts(other))), default=one.log_start)
        is_local = one.replica.place is None and one.replica.topic != METADATA_TOPIC and not one.replica.is_running
        if is_local and known < one.log_start and any(other.batches for other in others):
            text = f"the log of broker {one.broker} is empty and begins at {one.log_start}, and nothing says that it starts there: it is "
            text += "unknown whether the records before were deleted or lost"
            findings.add(finding_of("not-compared", text, views, (one.broker,), one.log_start))


def _unexplained_starts(views: list[ReplicaView], findings: FindingList) -> None:
    """A killed broker's first leader epoch counts as its log start (checks.epoch_checkpoint). But it may also have lost older epochs.

    A log start moves on all replicas, so another replica has to show one that is as large. Where there is no other one, its high watermark
    has to: no log starts above it. The files of a running broker say nothing about that, because it has the epochs in memory.
    """
    own = [one for one in views if not _grows(one)]
    for one in own:
        replica = one.replica
        if replica.clean is not False or replica.place is not None or replica.is_running or replica_unreadable(one):
            continue
        others = [other for other in own if other.replica.node != replica.node and replica.topic != METADATA_TOPIC]
        first = next((start for _, start in replica.epochs or [] if start <= one.end_offset), -1)
        known = max([one.log_start, *(start for other in others for start in (other.log_start, *_written_starts(other)))])
        if not others and replica.has_high_watermark and replica.is_high_watermark_listed:
            known = max(known, replica.high_watermark)
        if first > known and any(run[1] < first and run[2] >= one.log_start for run in one.runs):
            text = f"the first leader epoch of broker {one.broker} begins at {first}, its log at {one.log_start}, and nothing else says "
            text += f"that it starts there: it is unknown whether records below {first} were deleted or leader epochs were lost"
            findings.add(finding_of("not-compared", text, views, (one.broker,), one.log_start))


def _recovery_points(views: list[ReplicaView], findings: FindingList) -> None:
    """Report killed brokers' recovery points beyond the ends of their logs: what was once synced is gone.

    A follower that cuts its log writes its recovery point down afterwards. It cuts what a later leader did not have. So another replica
    must be as long without such a contradiction, and the controller must know of a later leader. What is committed is checked apart.
    """
    beyond = [one for one in views if one.replica.clean is False and (one.replica.recovery_point or 0) > one.end_offset]
    for one in beyond:
        replica = one.replica
        if replica_unreadable(one):
            continue
        others = [other for other in views if other not in beyond and other.replica.node != replica.node and not _grows(other)]
        claim, newest = replica.claim, one.runs[-1][0] if one.runs else -1
        is_cut = any(other.end_offset >= one.end_offset for other in others) and (claim is None or claim.leader_epoch > newest)
        found = recovery_point_beyond(replica.recovery_point or 0, one.end_offset)
        text = found.message + (": it was cut as a follower" if is_cut else "")
        level = NOTE if is_cut else ERROR
        findings.add(finding_of(found.check, text, views, (one.broker,), one.end_offset, level=level))


def _lost_aborts(views: list[ReplicaView], findings: FindingList) -> None:
    """Report transactions that one replica knows to be aborted, and of which another one has records and no marker: readers there take them
    for records of the next one. A cleaner keeps a marker as long as it meets any batch of the transaction."""
    for one in views:
        begun: dict[int, list[tuple[int, int]]] = {}
        for producer, first, marker in one.committed:
            begun.setdefault(producer, []).append((first, marker))
        told: set[int] = set()
        for other in views if begun else ():
            for producer, first, marker in other.aborted:
                held = [begin for begin, end in begun.get(producer, ()) if first <= begin < marker < end]
                if held and marker not in told:
                    told.add(marker)
                    text = f"broker {other.broker} has the end of the transaction of producer {producer} that was aborted at {marker}, "
                    text += f"broker {one.broker} has only its records from {held[0]} on"
                    findings.add(finding_of("replica-differs", text, views, (one.broker,), marker))


def _grows(one: ReplicaView) -> bool:
    """Whether it is an incomplete copy that the cluster does not rely on yet."""
    return one.replica.is_future and one.replica.claim is None


def _settle(views: list[ReplicaView], accounts: list[Account], findings: FindingList) -> None:
    """Report what was due but not compared, unless the partition already has worse findings."""
    for one, account in zip(views, accounts, strict=True):
        texts = list(account.shortfalls())
        is_held_too = account.beside.batches and "replica-tail" not in {check for check, _ in findings.counts}
        is_replaced = _is_deleted(one, views) or _is_in_snapshots(one, account.end, views)
        if account.alone.batches and not account.due.batches and not is_held_too and not is_replaced:
            texts.append(f"no other replica answers for any offset of broker {one.broker} between {account.first} and {account.end}")
        if not one.batches and account.bounds[0] < account.bounds[1] and any(summary.goes_on for summary in one.summaries):
            text = "removed all of it, and the log goes on: nothing of it could be compared"
            texts.append(f"broker {one.broker} answered for {account.bounds[0]}..{account.bounds[1]}, of which a cleaner has since {text}")
        may_catch_up = {"lags": True} if one.replica.place is not None or one.replica.is_running else None
        for text in texts:
            findings.add(finding_of("not-compared", text, views, (one.broker,), account.bounds[0], details=may_catch_up))
    for text in _unfenced(views, {check for check, _ in findings.counts}):
        findings.add(finding_of("not-compared", text, views, tuple(one.broker for one in views)))


def _is_deleted(one: ReplicaView, views: list[ReplicaView]) -> bool:
    """Whether everything it holds was deleted without its knowledge. That is so if the others are empty and begin at its end or later, and
    one of them has stored that log start (the first leader epoch moves with it) or reports it over the network."""
    others = [other for other in views if other is not one and not _grows(other)]
    if not others or any(other.log_start < one.end_offset or other.end_offset > other.log_start for other in others):
        return False
    return any(other.replica.place is not None or other.log_start in _written_starts(other) for other in others)


def _is_in_snapshots(one: ReplicaView, end: int, views: list[ReplicaView]) -> bool:
    """Whether another node has a snapshot in place of these records of the metadata log. Snapshots are checked against the logs."""
    others = [other for other in views if other is not one and one.replica.topic == METADATA_TOPIC]
    return any(end <= other.log_start <= other.replica.snapshot_end for other in others)


def _written_starts(one: ReplicaView) -> list[int]:
    """The log starts that its own files state, apart from segment names."""
    return [one.replica.start_point, *(start for _, start in (one.replica.epochs or [])[:1])]


def _unfenced(views: list[ReplicaView], found: set[str]) -> Iterator[str]:
    """Reasons why differences above the largest known high watermark stay undecided. They do if a possible leader has no high watermark:
    a record that only some replicas hold may be committed, and that replica may have lost it. The metadata log stores no high watermark."""
    if views[0].replica.topic == METADATA_TOPIC:
        return
    views = [one for one in views if not _grows(one)]
    leading = [one for one in views if one.replica.claim is None or one.replica.node in one.replica.claim.complete]
    committed_to = max((one.replica.high_watermark for one in views if _has_high_watermark(one)), default=-1)
    shortest, longest = min((one.end_offset for one in leading), default=0), max(one.end_offset for one in views)
    if all(map(_has_high_watermark, leading)):
        return
    if "replica-tail" in found:
        yield "the replicas differ, and no high watermark shows what is committed"
    elif shortest < longest and longest > committed_to:
        yield f"logs end between {shortest} and {longest}, and no high watermark shows what is committed"


def _has_high_watermark(one: ReplicaView) -> bool:
    replica = one.replica
    return replica.has_high_watermark and replica.is_high_watermark_listed and not replica.high_watermark_unread


def _assigned(views: list[ReplicaView]) -> dict[str, Any] | None:
    """The controller's record of the partition, for the report."""
    claim = next((one.replica.claim for one in views if one.replica.claim is not None), None)
    if claim is None:
        return None
    return {
        "replicas": list(claim.replicas), "isr": list(claim.isr), "elr": list(claim.elr), "leader": claim.leader,
        "leader_epoch": claim.leader_epoch,
    }  # fmt: skip


def _row(one: ReplicaView) -> dict[str, Any]:
    replica = one.replica
    has_high_watermark = replica.has_high_watermark
    return {
        "broker": one.broker,
        "is_future": replica.is_future,
        "path": replica.path,
        "log_start": one.log_start,
        "log_end": one.end_offset,
        "high_watermark": replica.high_watermark if has_high_watermark else None,
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
    """The verdict on a partition, from its findings and the amount compared."""
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
        high_watermark, end = one.replica.high_watermark if one.replica.has_high_watermark else -1, one.end_offset
        if one.replica.place is not None or replica_unreadable(one):
            high_watermark, end = -1, UNBOUNDED  # a remote replica shows its log only up to its own, later, high watermark
        epoch = max([one.runs[-1][0] if one.runs else -1, *(entry[0] for entry in one.replica.epochs or [])])
        rows.append((one.replica.node, one.replica.topic_id, end, min(high_watermark, lost.get(number, high_watermark)), epoch))
    ignored_checks = set() if "topic-id" not in {check for check, _ in findings.counts} else {"topic-id"}
    for finding in check_claim(claim, rows):
        if finding.check not in ignored_checks:
            finding.topic, finding.partition = views[0].replica.topic, views[0].replica.partition
            findings.add(finding)


def _metadata_topic_ids(views: list[ReplicaView], findings: FindingList) -> None:
    """The metadata log has a reserved topic id: a node does not start with another one (UnifiedLog.initializeTopicId)."""
    for one in views:
        if one.replica.topic == METADATA_TOPIC and one.replica.topic_id not in {"", METADATA_TOPIC_ID}:
            text = f"the metadata log of node {one.broker} has topic id {one.replica.topic_id}, expected {METADATA_TOPIC_ID}"
            findings.add(finding_of("topic-id", text, views, (one.broker,)))


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
                    "the topic was deleted and recreated while this broker was away, or the directory was copied from another cluster"
                ),
            )
        )


def _epoch_forks(views: list[ReplicaView], findings: FindingList) -> None:
    """An epoch must start at the same offset on every replica that still has its start.

    A follower learns of an epoch from its first remaining batch. If batches were compacted away, the start is later there.
    """
    cleaned = max(cleaned_below(one) for one in views)
    starts: dict[int, dict[int, list[str]]] = {}
    for one in views:
        # The first epoch moves with the log start at once. A killed broker may not have stored that; of the metadata log none does.
        is_start_stored = one.replica.clean is True and one.replica.topic != METADATA_TOPIC
        entries = (one.replica.epochs or [])[0 if is_start_stored else 1 :]
        for epoch, start in entries:
            if one.log_start < start:
                starts.setdefault(epoch, {}).setdefault(start, []).append(one.broker)
    for epoch, places in sorted(starts.items()):
        if len(places) > 1 and min(places) >= cleaned:
            text = "; ".join(f"{start} on {names_of(brokers)}" for start, brokers in sorted(places.items()))
            fewest = min(places.values(), key=len)
            findings.add(finding_of("epoch-fork", f"leader epoch {epoch} starts at {text}", views, tuple(fewest), offset=min(places)))
