"""The audit's checks, each with its id and meaning, and the findings, which are capped and counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from minikafka.spark.textfile import printable

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Check:
    """A kind of finding. `meaning`: one sentence for the reader of the report. `level`: the default level of its findings."""

    id: str
    level: str
    meaning: str

    @property
    def remedy(self) -> str:
        """What an operator can do about it; "" if the finding needs no further advice."""
        return next((text for checks, text in _REMEDIES.items() if self.id in checks), "")


_COPY_AGAIN = (
    "stop the named broker, move the partition directory aside and start it: it fetches the log again from the leader. "
    "If the named broker leads, first move the leadership to a replica of the majority."
)
_REMEDIES = {
    ("batch-crc", "batch-length", "batch-magic", "batch-header", "segment-tail", "offset-order"): _COPY_AGAIN,
    ("replica-differs", "epoch-fork"): _COPY_AGAIN,
    ("offset-gap", "prefix-missing", "committed-missing", "isr-claim", "replica-missing", "segment-name"): _COPY_AGAIN,
    ("index-format", "index-order", "index-target", "time-index-target"): (
        "delete the segment's .index and .timeindex while the broker is stopped; both are rebuilt."
    ),
    ("producer-replay", "producer-snapshot"): (
        "delete the partition's snapshots and the directory's .kafka_cleanshutdown while the broker is stopped; "
        "the state is rebuilt from the log."
    ),
    ("foreign-file",): "move the file out of the directory before the broker starts.",
    ("foreign-directory",): "move the directory out of the log directory before the broker starts.",
    ("partition-metadata",): "copy the file from another replica before the broker starts.",
    ("txn-index-target",): "copy the partition again from another replica, or delete the index and let recovery rebuild it.",
    ("quorum-state",): "remove the node from the quorum and format it again: it fetches the log from the leader.",
    ("group-offset",): "reset the group's offset (minikafka consumer-groups --reset-offsets, kafka-consumer-groups.sh --reset-offsets).",
    ("txn-decision",): "keep all copies; a missing end: kafka-transactions.sh find-hanging, then write it as the coordinator decided.",
    ("share-state",): "keep all copies: an older one may have the state. Until it is found, set where the share group begins.",
    ("txn-open",): "kafka-transactions.sh find-hanging, then abort.",
    ("epoch-checkpoint", "epoch-checkpoint-format"): "copy the partition again from another replica.",
    ("replica-twice",): "determine which of the two is current (newest leader epoch, longest log) and move the other out of log.dirs.",
    ("unclean-loss",): "save the named directory before its broker starts again and truncates it. Its records can be written again.",
    ("not-compared",): "provide what is missing or repair what is named, then audit again.",
    ("acked-missing", "acked-differs", "acked-conflict"): "keep all copies; the ledger and the oldest copy show what can be written again.",
}
_CHECKS = (
    Check("batch-crc", ERROR, "The bytes of a batch differ from those that were written: consumers and followers will reject it."),
    Check("batch-length", ERROR, "The length of a batch is invalid, so nothing after it in the segment can be read."),
    Check("batch-magic", ERROR, "A batch is of no known format."),
    Check("batch-header", ERROR, "The fields of a batch header contradict each other or the format."),
    Check("batch-records", ERROR, "The records inside a batch do not decode, or do not agree with the batch header."),
    Check("batch-timestamps", ERROR, "A header's max timestamp is not that of its records: lookups by time and retention go wrong."),
    Check(
        "batch-sparse",
        ERROR,
        "A batch lacks records, as after compaction, but its topic was never compacted: records are lost or the header is wrong.",
    ),
    Check("offset-gap", ERROR, "Offsets are missing inside the log although nothing was compacted: records are lost."),
    Check(
        "prefix-missing",
        ERROR,
        "The log of a compacted topic begins later than anything explains, and another replica has the earlier records: records are lost.",
    ),
    Check("offset-order", ERROR, "Offsets go back or repeat: a consumer would see records twice or skip some."),
    Check("epoch-order", ERROR, "Leader epochs go back inside a log: followers that truncate by epoch would keep the wrong records."),
    Check(
        "segment-name",
        ERROR,
        "Batches lie outside the offset range in the segment's file name: lookups by offset will miss them.",
    ),
    Check("foreign-file", ERROR, "A file in a partition's directory has a name that a broker takes for a segment's."),
    Check("foreign-directory", WARNING, "A directory in a log directory has no partition's name: Apache Kafka does not start with it."),
    Check("segment-tail", ERROR, "The bytes after the last whole batch are not a batch: a reader stops or fails there."),
    Check(
        "torn-tail", NOTE, "A crash cut off a write; recovery removes it at the next start. The in-sync replicas never acknowledged it."
    ),
    Check(
        "index-format", ERROR, "An index file does not hold whole entries. A broker rebuilds it at the next start; a running one may fail."
    ),
    Check("index-order", ERROR, "Index entries are not sorted: binary search in them gives wrong answers."),
    Check(
        "index-target",
        ERROR,
        "An offset index entry does not point at the start of its batch: reads from there fail or skip records.",
    ),
    Check("time-index-target", ERROR, "A time index entry disagrees with the log: looking up an offset by time gives a wrong answer."),
    Check(
        "txn-index-target",
        ERROR,
        "The index of aborted transactions disagrees with the markers in the log: "
        "read_committed consumers see aborted records or lose committed ones.",
    ),
    Check(
        "producer-snapshot",
        ERROR,
        "A producer snapshot is missing, unreadable, or names offsets beyond its own: "
        "duplicate detection starts from a wrong state.",
    ),
    Check(
        "producer-replay",
        ERROR,
        "A producer snapshot disagrees with the log below it: after a restart the broker would accept duplicates or reject good batches.",
    ),
    Check("producer-sequence", ERROR, "An idempotent producer's sequences repeat or jump: records are duplicated or missing."),
    Check("producer-epoch", ERROR, "A producer's epoch goes back: a fenced (zombie) producer wrote after its successor."),
    Check(
        "producer-transaction",
        ERROR,
        "A producer wrote outside of its open transaction: read_committed consumers see these records whatever becomes of it.",
    ),
    Check("txn-marker", ERROR, "A transaction marker cannot be read or is older than the one before it."),
    Check("txn-decision", ERROR, "A log lacks the end of a transaction that its coordinator decided and finished, or has the other one."),
    Check("txn-open", WARNING, "A transaction never ended: read_committed consumers cannot read past it."),
    Check(
        "group-offset",
        WARNING,
        "A group committed an offset that its topic's logs do not reach: records that it read are lost, or the offset was set manually.",
    ),
    Check(
        "coordinator-place",
        WARNING,
        "A group or transactional id is stored in a partition where its coordinator does not look: partitions were swapped or added.",
    ),
    Check("coordinator-record", ERROR, "A record of a coordinator's log cannot be read: the coordinator does not load that partition."),
    Check("share-state", ERROR, "The state of a share partition, which was written, is gone: its group starts anew there."),
    Check("epoch-checkpoint-format", ERROR, "The leader epoch checkpoint cannot be read: the broker takes the log directory offline."),
    Check(
        "epoch-checkpoint",
        ERROR,
        "The leader epoch checkpoint disagrees with the batches: truncation after a leader change would cut at the wrong offset.",
    ),
    Check("epoch-fork", ERROR, "Replicas disagree about where a leader epoch starts: two leaders wrote the same offsets."),
    Check("partition-metadata", ERROR, "The partition's identity file is missing or cannot be read."),
    Check("topic-id", ERROR, "Replicas of one partition carry different topic ids: they belong to different incarnations of the topic."),
    Check("checkpoint-format", ERROR, "An offset checkpoint cannot be read: the broker takes the log directory offline."),
    Check("checkpoint-bounds", ERROR, "A checkpoint names offsets that the log does not hold."),
    Check(
        "committed-missing",
        ERROR,
        "The replica's high watermark shows that it held records that are no longer in its log: committed records are missing.",
    ),
    Check(
        "replica-differs",
        ERROR,
        "Replicas hold different bytes at an offset that was committed: consumers get different records from different brokers.",
    ),
    Check(
        "replica-tail", NOTE, "Replicas differ above the high watermark only; the follower truncates and copies the leader when it rejoins."
    ),
    Check("replica-lagging", NOTE, "A replica is a correct but shorter copy."),
    Check("replica-reread", NOTE, "A segment changed or disappeared while it was read; that range was not judged."),
    Check("resumed", NOTE, "An audit over the network resumed after an earlier one whose driver failed."),
    Check("not-compared", WARNING, "Something that had to be compared was not, so the audit proves nothing about it."),
    Check(
        "replica-twice",
        ERROR,
        "One broker has the partition in two log directories: it cannot start with both, and one of them is stale.",
    ),
    Check(
        "unclean-loss",
        ERROR,
        "A leader that was not in sync was elected, and records that only others held are lost, acknowledged ones among them.",
    ),
    Check("unreadable", ERROR, "Files could not be read, so nothing can be said about them."),
    Check("replica-missing", ERROR, "The controller or its own checkpoints name a broker as a replica, but it has no log."),
    Check("replica-offline", NOTE, "A replica that is not in sync does not answer; the others were compared without it."),
    Check(
        "isr-claim",
        ERROR,
        "A replica that the controller counts as in sync lacks committed records: electing it would silently lose them.",
    ),
    Check("epoch-unknown", ERROR, "A log holds batches of a leader epoch that the controller never assigned."),
    Check("stray-replica", NOTE, "A partition directory that the controller does not assign to this broker; it is not compared."),
    Check("metadata-log", ERROR, "A copy of the metadata log cannot be read: the node would not start from it."),
    Check(
        "quorum-state",
        ERROR,
        "A node's record of its votes is missing, or contradicts its log or another node: two controllers may lead in one epoch.",
    ),
    Check(
        "metadata-snapshot",
        ERROR,
        "A metadata snapshot is damaged, or differs from the log or from another node's snapshot of the same name.",
    ),
    Check("acked-missing", ERROR, "An acknowledged record is missing: acknowledged data is lost."),
    Check("acked-differs", ERROR, "The acknowledged offset holds another record than the one that the producer wrote."),
    Check("acked-conflict", ERROR, "The same offset was acknowledged for different records: the first ones are lost."),
    Check("acked-unchecked", WARNING, "Acknowledged records belong to partitions that are not part of this audit, or a ledger names none."),
    Check("cluster-id", ERROR, "Log directories of different clusters were given as one cluster."),
)
CHECKS = {check.id: check for check in _CHECKS}


@dataclass(slots=True)
class Finding:
    """One fact. `brokers`: the brokers that it concerns. `offset` and `position`: -1 if they do not apply."""

    check: str
    message: str
    topic: str = ""
    partition: int = -1
    brokers: tuple[str, ...] = ()
    offset: int = -1
    file: str = ""
    position: int = -1
    level: str = ""
    cause: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.level = self.level or CHECKS[self.check].level
        self.message = printable(self.message)

    @property
    def meaning(self) -> str:
        return CHECKS[self.check].meaning

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "brokers": list(self.brokers), "meaning": self.meaning, "remedy": CHECKS[self.check].remedy}


class FindingList:
    """Keeps the first `each_max` findings of every check and counts the rest, so that a ruined log costs no memory."""

    def __init__(self, each_max: int = 20) -> None:
        self.each_max = each_max
        self.kept: list[Finding] = []
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, finding: Finding, count: int = 1) -> None:
        key = finding.check, finding.level
        seen = self.counts.get(key, 0)
        self.counts[key] = seen + count
        if seen < self.each_max:
            self.kept.append(finding)

    def extend(self, other: FindingList) -> None:
        before = {key: sum(1 for kept in self.kept if (kept.check, kept.level) == key) for key in other.counts}
        for finding in other.kept:
            key = finding.check, finding.level
            if before[key] < self.each_max:
                before[key] += 1
                self.kept.append(finding)
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count

    def total(self, level: str) -> int:
        return sum(count for (_, found), count in self.counts.items() if found == level)
