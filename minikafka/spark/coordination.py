"""Checks the coordinators' logs against the logs that they refer to: committed offsets, unfinished transactions, and their partitions.

The task that judges a coordinator partition also reads it, from the replica that answers for the most (read_coordinator). The size of its
result depends on the cluster, not on the number of groups: the largest committed offset of each partition, and the undecided transactions.
Plans list coordinator partitions first (planning.read_facts), so the logs, listed later, hold whatever a group had committed by then.
"""

from __future__ import annotations

import contextlib
import pickle
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minikafka.spark import unclean
from minikafka.spark.claims import COORDINATOR_TOPICS, GROUPS, SHARE_GROUPS, TRANSACTIONS
from minikafka.spark.compare import PartitionResult
from minikafka.spark.coordinator_log import (
    DECIDED,
    EPOCH_EACH,
    FINISHED,
    UNDECIDED,
    CommittedOffset,
    TransactionState,
    check_key,
    committed_offset,
    group_of,
    home_of,
    is_known,
    is_state,
    latest_records,
    overdue,
    share_state,
    transaction_state,
)
from minikafka.spark.coordinator_order import OrderError, check_end, check_order
from minikafka.spark.coordinator_places import Named, beyond, digest_of, lost_states
from minikafka.spark.coordinator_whole import Whole, owner_in
from minikafka.spark.findings import WARNING, Finding, FindingList
from minikafka.spark.group_records import Held, Values, held_alone, held_of, read_group_record
from minikafka.spark.held_twice import Holdings, held_twice, of_two_ids, of_two_types, type_of
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_state import NEXT_PRODUCER_ID
from minikafka.spark.records import Unread
from minikafka.spark.sources import UNBOUNDED, Plan, SegmentTask
from minikafka.spark.views import ReplicaView, replica_unreadable

Key = tuple[str, int]
Parsed = tuple[str, CommittedOffset | Held | TransactionState | None, Values | None]
FINDINGS_A_TASK = 1000
#: A reading holds so many records against each other, of which it keeps 52 to 61 bytes each.
RECORDS_HELD_MAX = 2_000_000
#: The last marker of a producer in a log, and a transaction that a coordinator decided.
MARKER = np.dtype([("producer", "i8"), ("epoch", "i2"), ("kind", "i1"), ("offset", "i8")])
DECISION = np.dtype([("producer", "i8"), ("epoch", "i2"), ("kind", "i1")])
ENDS = ("aborted", "committed")


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log that groups may have read: end offset, newest leader epoch (-1 unknown), and what truncated it ("" nothing)."""

    offset: int
    leader_epoch: int
    cut_by: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A coordinator partition to read, up to offset `end`. `skipped`: (producer id, first offset, last offset) of aborted and undecided
    transactions. `records`, `size_bytes`: of its log, about. `size`: number of partitions of its topic (0 unknown).
    `is_settled`: no cleaner removed records for the sake of such as lie behind the end."""

    key: Key
    broker: str
    path: str
    tasks: list[SegmentTask]
    end: int
    skipped: list[tuple[int, int, int]]
    records: int
    size_bytes: int
    size: int
    is_settled: bool = True


@dataclass(slots=True)
class Seen:
    """The facts about one partition that coordinators' logs are checked against. `is_read`: a replica of it could be read.
    `ran_until_ms`: a time until which its leader certainly ran. `source`: a coordinator partition that is still to be read; `packed`: what
    was read there (CoordinatorFacts; packed, because the driver keeps those of all coordinators), and `read_from`: (broker, path)."""

    key: Key
    end: LogEnd | None = None
    opened: dict[int, int] = field(default_factory=dict)
    #: The largest producer id of its batches; -1 none.
    newest_producer: int = -1
    #: How each producer's last transaction ended there (MARKER; packed).
    ended: bytes = b""
    source: Source | None = None
    is_read: bool = False
    ran_until_ms: int = -1
    packed: bytes = b""
    read_from: tuple[str, str] = ("", "")

    def keep(self, facts: CoordinatorFacts) -> None:
        """Keep what was read from the source, instead of the source."""
        assert self.source is not None
        self.packed, self.read_from, self.source = zlib.compress(pickle.dumps(facts), 1), (self.source.broker, self.source.path), None


@dataclass(slots=True)
class CoordinatorFacts:
    """The content of one coordinator partition. `commits`: by (topic, partition, topic id) the commit with the largest offset, and the one
    with the newest leader epoch. `undecided`: transactions that are open or lack markers, with the offset of their record."""

    findings: FindingList = field(default_factory=lambda: FindingList(FINDINGS_A_TASK))
    commits: dict[tuple[str, int, str], tuple[CommittedOffset, CommittedOffset]] = field(default_factory=dict)
    undecided: list[tuple[int, TransactionState]] = field(default_factory=list)
    #: Producers whose transactional ids have nothing open, and (producer id, epoch, COMMIT or ABORT) of those that were decided.
    finished: list[int] = field(default_factory=list)
    #: The largest producer id that a transactional id has, had or will have; -1 none.
    newest_producer: int = -1
    decided: list[tuple[int, int, int]] = field(default_factory=list)
    named: Named = field(default_factory=Named)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Facts about the cluster: the partition counts of the coordinators' topics, and the controller's last record time (-1 unknown)."""

    sizes: dict[str, int]
    last_ms: int = -1


def cluster_of(plan: Plan) -> Cluster:
    """These facts, from the metadata log."""
    image = plan.image
    return Cluster({}) if image is None else Cluster({topic: image.size_of(topic) for topic in COORDINATOR_TOPICS}, image.last_ms)


def seen_of(cluster: Cluster, copies: list[ReplicaView]) -> Seen:
    """The facts to keep about a partition, from its replicas."""
    key = copies[0].replica.topic, copies[0].replica.partition
    one = _best(copies)
    if one is None:
        return Seen(key)
    claim = one.replica.claim
    seen = Seen(key, is_read=True)
    reach = min(one.claim_to, one.end_offset)
    ids = (max(parts, default=-1) for summary in one.summaries for _, parts in summary.producers.pieces)
    seen.newest_producer = max(ids, default=-1)
    seen.opened = {producer: offset for producer, (offset, _) in one.opened.items() if offset < reach}
    ended = np.array([(producer, epoch, kind, offset) for producer, epoch, kind, offset in one.ended if offset < reach], MARKER)
    seen.ended = zlib.compress(ended.tobytes(), 1) if len(ended) else b""
    if key[0] in COORDINATOR_TOPICS:
        seen.source = _source(cluster, key, one) if one.batches else None
        seen.ran_until_ms = max((summary.producers.last_timestamp for summary in one.summaries), default=-1)
        if claim is not None and claim.leader != "-1":
            seen.ran_until_ms = max(seen.ran_until_ms, cluster.last_ms)
        return seen
    complete = [other for other in copies if claim is None or other.replica.node in claim.complete]
    if complete and not any(map(replica_unreadable, complete)):
        epoch = claim.leader_epoch if claim is not None else max((entry[0] for entry in one.replica.epochs or []), default=-1)
        cuts = unclean.history(copies)
        seen.end = LogEnd(max(other.end_offset for other in copies), epoch, cuts[-1][1] if cuts else "")
    return seen


def _best(copies: list[ReplicaView]) -> ReplicaView | None:
    """The readable copy that answers for the most offsets."""
    sound = [one for one in copies if one.summaries and not replica_unreadable(one) and not one.summaries[-1].vanished]
    own = [one for one in sound if not one.replica.is_future or one.replica.claim is not None]
    return max(own, key=lambda one: min(one.claim_to, one.end_offset), default=None)


def _source(cluster: Cluster, key: Key, one: ReplicaView) -> Source:
    skipped = [*one.aborted, *((producer, first, UNBOUNDED) for producer, (first, _) in one.opened.items())]
    tasks = [_bare(summary.task) for summary in one.summaries if not summary.vanished]
    end = min(one.claim_to, one.end_offset)
    size_bytes = sum(summary.bytes for summary in one.summaries)
    size, is_settled = cluster.sizes.get(key[0], 0), one.cleaned_to <= end
    return Source(key, one.broker, one.replica.path, tasks, end, skipped, one.records, size_bytes, size, is_settled)


def _bare(task: SegmentTask) -> SegmentTask:
    """The task without the fields that only comparisons need."""
    if task.place is not None:
        return task
    return replace(task, cuts=(), starts=(), cell_shift=0, cleaned_to=0, high_watermark=0, snapshots=(), policy="")


def read_coordinator(source: Source) -> CoordinatorFacts:
    """Read one coordinator's partition."""
    facts = CoordinatorFacts()
    try:
        _read(source, facts)
    except Exception as error:
        reason = f"{error.filename or source.path}: {error.strerror}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        text = f"its coordinator's log could not be read: {reason}"
        facts.findings.add(Finding("not-compared", text, *source.key, brokers=(source.broker,), file=source.path))
    return facts


class _Kept:
    """What of the latest records of a partition is held against each other: of one share of its groups, share partitions and producers, as
    there may be any number of them. Every share has a reading of its own."""

    def __init__(self, source: Source, share: int) -> None:
        self._source, self._share = source, share
        self._shares = shares_of(source)
        self.forget()

    def forget(self) -> None:
        """Free what was kept."""
        self.holdings, self.types, self.producers, self.whole = Holdings(), Holdings(), Holdings(), Whole(self._source.key[0])

    def has(self, key: bytes) -> bool:
        """Whether what the record says is kept here."""
        topic = self._source.key[0]
        return self._shares == 1 or topic == TRANSACTIONS or zlib.crc32(owner_in(topic, key)) % self._shares == self._share

    def add(self, offset: int, key: bytes, value: bytes, parsed: Parsed) -> None:
        """Add the latest record of a key."""
        name, found, fields = parsed
        if not name or not self.has(key):
            return
        self.whole.add(offset, key, value, fields)
        if (of_type := _type(self._source, key, name)) is not None:
            self.types.add(offset, of_type)
        if isinstance(found, Held):
            self.holdings.add(offset, found)
        elif isinstance(found, TransactionState) and found.producer_id % self._shares == self._share:
            self.producers.add(offset, _producer_of(found))

    def add_tombstone(self, offset: int, key: bytes) -> None:
        """Add a tombstone that can be read."""
        if self.has(key):
            self.whole.add(offset, key, None)

    def contradictions(self) -> Iterator[tuple[int, str]]:
        """(offset of a record, what is wrong with it)."""
        yield from _alone(self._source, self.holdings, self.types, self.producers)
        if self._source.is_settled:
            yield from _contradictions(self._source, self)


def shares_of(source: Source) -> int:
    """In how many readings the records of a partition are held against each other."""
    return 1 + source.records // RECORDS_HELD_MAX


def _read_share(source: Source, facts: CoordinatorFacts, share: int) -> None:
    """Hold the records of a further share against each other."""
    held = _Kept(source, share)

    def check(offset: int, key: bytes, value: bytes | None) -> None:
        with contextlib.suppress(FormatError):  # the first reading reported it
            if value is None and _parsed(source.key[0], key, None)[0]:
                held.add_tombstone(offset, key)

    for offset, key, value in latest_records(source.tasks, source.end, source.skipped, source.records, source.size_bytes, {}, check):
        with contextlib.suppress(FormatError):
            held.add(offset, key, value, _parsed(source.key[0], key, value))
    facts.named.add_tasks(held.whole.topologies.largest())
    for offset, text in held.contradictions():
        facts.findings.add(_finding(source, "coordinator-record", text, offset))


def _read(source: Source, facts: CoordinatorFacts) -> None:
    misplaced: set[str] = set()
    undecoded: dict[int, str] = {}
    held = _Kept(source, 0)
    states: list[bytes] = []

    def read(offset: int, key: bytes, value: bytes | None) -> Parsed:
        try:
            found = _parsed(source.key[0], key, value)
        except FormatError as error:
            facts.findings.add(_finding(source, "coordinator-record", f"the record at offset {offset} cannot be read: {error}", offset))
            return "", None, None
        if value is None:
            if found[0]:
                held.add_tombstone(offset, key)
        elif found[2] is not None:
            facts.named.add_record(offset, key, found[0], found[2])
        return found

    for offset, key, value in latest_records(
        source.tasks, source.end, source.skipped, source.records, source.size_bytes, undecoded, read, _follower(source, facts)
    ):
        parsed = name, found, fields = read(offset, key, value)
        held.add(offset, key, value, parsed)
        if fields is not None:
            facts.named.add_latest(key, name, fields)
        if isinstance(found, CommittedOffset):
            _keep_commit(facts, found)
            if found.is_of_share_group:
                facts.named.add(offset, found.group, found.topic_id, found.partition)
                states += [digest_of(name)] if is_state(key) else []
        elif isinstance(found, TransactionState):
            _keep_state(facts, offset, found)
        if name and source.size and home_of(name, source.size) != source.key[1] and name not in misplaced:
            misplaced.add(name)
            kind = {GROUPS: "group", SHARE_GROUPS: "share partition"}.get(source.key[0], "transactional id")
            text = f"{kind} {name} belongs to partition {home_of(name, source.size)} of {source.size}: "
            facts.findings.add(_finding(source, "coordinator-place", text + "its coordinator does not look for it here", offset))
    facts.named.tasks, facts.named.states = held.whole.topologies.largest(), b"".join(states)
    for found_undecoded in _undecoded(source, undecoded):
        facts.findings.add(found_undecoded)
    for offset, text in held.contradictions():
        facts.findings.add(_finding(source, "coordinator-record", text, offset))
    held.forget()
    for share in range(1, shares_of(source)):
        _read_share(source, facts, share)


def _follower(source: Source, facts: CoordinatorFacts) -> Callable[[int, bytes, bytes, bytes | None], None]:
    """Checks each record that replaces another one."""

    def follow(offset: int, key: bytes, before: bytes, after: bytes | None) -> None:
        try:
            with contextlib.suppress(FormatError):  # `read` reports it
                if after is None:
                    check_end(source.key[0], key, before)
                else:
                    check_order(source.key[0], key, before, after)
        except OrderError as error:
            text = f"the record at offset {offset}, of {group_of(key)}, cannot follow the one before: {error}"
            facts.findings.add(_finding(source, "coordinator-record", text, offset))

    return follow


def _alone(source: Source, holdings: Holdings, types: Holdings, producers: Holdings) -> Iterator[tuple[int, str]]:
    """What two have that only one can have."""
    for twice, suspects, what in (
        (held_twice, holdings.suspects(), held_alone), (of_two_types, types.suspects(), _type_alone),
        (of_two_ids, producers.suspects(), _producer_alone),
    ):  # fmt: skip
        yield from twice(suspects, _held(source, what)) if suspects else ()


def _type(source: Source, key: bytes, name: str) -> Held | None:
    """The type of a group, if the record has one. `name`: of the group, "" if the record cannot be read."""
    return type_of(int.from_bytes(key[:2], "big"), name) if name and source.key[0] == GROUPS else None


def _type_alone(key: bytes, value: bytes) -> Held | None:
    return type_of(int.from_bytes(key[:2], "big"), group_of(key))


def _producer_alone(key: bytes, value: bytes) -> Held | None:
    state = transaction_state(key, value)
    return None if state is None else _producer_of(state)


def _producer_of(state: TransactionState) -> Held:
    """A transactional id has a producer id alone. In place of a group stands nothing, in place of a member the transactional id."""
    return Held("", state.transactional_id, [("producer", state.producer_id)])


def _contradictions(source: Source, kept: _Kept) -> Iterator[tuple[int, str]]:
    """What the latest records cannot say together, by two readings: while a broker runs, its cleaner removes records between two moments of
    one reading."""
    suspects = kept.whole.suspects()
    if not suspects:
        return
    kept.whole.forget()
    again, names = Whole(source.key[0]), dict[int, str]()

    def read(offset: int, key: bytes, value: bytes | None) -> None:
        with contextlib.suppress(FormatError):  # the first reading reported it
            name, _, fields = _parsed(source.key[0], key, value)
            if name and kept.has(key):
                again.add(offset, key, value, fields)
            if offset in suspects:
                names[offset] = name.partition(":")[0]

    for offset, key, value in latest_records(
        source.tasks, source.end, source.skipped, source.records, source.size_bytes, {}, lambda *one: read(*one) if one[2] is None else None
    ):
        read(offset, key, value)
    for offset, text in again.suspects().items():
        if offset in suspects:
            yield offset, f"the record at offset {offset}, of group {names[offset]}, {text}"


def _held(source: Source, what: Callable[[bytes, bytes], Held | None]) -> Iterator[tuple[int, Held]]:
    """What the members of groups hold, or of which type groups are, from another reading."""
    for offset, key, value in latest_records(source.tasks, source.end, source.skipped, source.records, source.size_bytes, {}):
        with contextlib.suppress(FormatError):  # the first reading reported it
            if (held := what(key, value)) is not None:
                yield offset, held


def _parsed(topic: str, key: bytes, value: bytes | None) -> Parsed:
    """(the name by which the coordinator is found, what the record says, if anything is made of it, the fields of a group's record); "" for
    a key that is passed over. Raises FormatError."""
    if not is_known(topic, key):
        return "", None, None
    name = group_of(key)
    fields = read_group_record(key, value) if topic == GROUPS else None
    if value is None:
        check_key(topic, key)
        return name, None, None
    if topic == GROUPS:
        return name, committed_offset(key, value) if fields is None else held_of(key, fields), fields
    if topic == SHARE_GROUPS:
        found = share_state(key, value)
        return ("", None, None) if found is None else (found[1], found[0], None)
    return name, transaction_state(key, value), None


def _finding(source: Source, check: str, text: str, offset: int) -> Finding:
    return Finding(check, text, *source.key, brokers=(source.broker,), offset=offset, file=source.path)


def _undecoded(source: Source, found: dict[int, str]) -> Iterator[Finding]:
    """Batches that no coordinator can load."""
    for offset, text in sorted(found.items()):
        check = "not-compared" if isinstance(text, Unread) else "coordinator-record"
        text = f"the batch at offset {offset} cannot be decoded: {text}"
        yield _finding(source, check, text, offset)


def _keep_state(facts: CoordinatorFacts, offset: int, state: TransactionState) -> None:
    facts.newest_producer = max(facts.newest_producer, state.newest_producer)
    if state.state in UNDECIDED:
        facts.undecided.append((offset, state))
    elif state.state in FINISHED:
        facts.finished.append(state.producer_id)
    if state.state in DECIDED and state.client_version >= EPOCH_EACH:
        facts.decided.append((state.producer_id, state.producer_epoch, DECIDED[state.state]))


def _keep_commit(facts: CoordinatorFacts, commit: CommittedOffset) -> None:
    key = commit.topic, commit.partition, commit.topic_id
    largest, newest = facts.commits.get(key, (commit, commit))
    facts.commits[key] = (
        max(largest, commit, key=lambda one: one.offset),
        max(newest, commit, key=lambda one: one.leader_epoch),
    )


# ---- driver ----------------------------------------------------------------------------------------------------------------------


def check_coordinators(plan: Plan, results: list[PartitionResult], seen: dict[Key, Seen]) -> None:
    """Add findings from the coordinators' logs to the results, or to the plan if their partition was not audited."""
    findings: list[Finding] = []
    undecided: set[int] = set()
    finished: set[int] = set()
    producers = {key: one.newest_producer for key, one in seen.items()}
    owners: dict[Key, set[int]] = {}
    named: dict[Key, Named] = {}
    decided: list[tuple[int, int, int]] = []
    opened = {producer for one in seen.values() for producer in one.opened}
    ids = plan.image.topic_ids() if plan.image is not None else {}
    for key in sorted(key for key, one in seen.items() if one.packed):
        facts: CoordinatorFacts = pickle.loads(zlib.decompress(seen[key].packed))
        findings += facts.findings.kept
        _uncounted(plan, facts.findings)
        producers[key] = max(producers[key], facts.newest_producer)
        if ("coordinator-place", WARNING) not in facts.findings.counts:  # one that moved stands in two partitions
            owners[key] = {*facts.finished, *(state.producer_id for _, state in facts.undecided)}
        else:
            facts.named.initialized.clear()
        named[key] = facts.named
        for commits in facts.commits.values():
            findings += _commit_findings(plan, ids, seen, *commits)
        for offset, state in facts.undecided:
            undecided.add(state.producer_id)
            findings += _overdue(seen[key], offset, state)
        finished |= {producer for producer in facts.finished if producer in opened}
        decided += facts.decided
    findings += _unknown_transactions(plan, seen, undecided, finished - undecided)
    findings += _other_ends(seen, np.sort(np.array(decided, DECISION)))
    findings += _unallocated(plan, producers)
    if all(directory.clean for directory in plan.directories):  # otherwise there is more since the metadata was read
        findings += [*beyond(plan.image, named), *lost_states(plan.image, named, {key for key, one in seen.items() if one.is_read})]
    findings += _ids_twice(owners)
    by_key = {(one.topic, one.partition): one for one in results}
    for finding in findings:
        result = by_key.get((finding.topic, finding.partition))
        (plan if result is None else result).findings.add(finding)
    for key in {(finding.topic, finding.partition) for finding in findings} & by_key.keys():
        by_key[key].decide()


def _uncounted(plan: Plan, findings: FindingList) -> None:
    """Count the findings that a task found but did not keep."""
    for (check, level), count in findings.counts.items():
        more = count - sum((one.check, one.level) == (check, level) for one in findings.kept)
        if more:
            plan.findings.counts[check, level] = plan.findings.counts.get((check, level), 0) + more


def _commit_findings(
    plan: Plan, ids: dict[str, str], seen: dict[Key, Seen], largest: CommittedOffset, newest: CommittedOffset
) -> Iterator[Finding]:  # fmt: skip
    """Check commits against the log that they refer to. Commits for a deleted topic do not count."""
    if largest.is_of_share_group:
        topic = next((name for name, topic_id in ids.items() if topic_id == largest.topic_id), "")
        largest, newest = (replace(one, topic=topic) for one in (largest, newest))
    key = largest.topic, largest.partition
    verb = "has read up to" if largest.is_of_share_group else "committed"
    said = f"group {largest.group} {verb} offset {largest.offset}"
    if plan.image is not None and largest.topic in ids:
        if largest.topic_id not in {"", ids[largest.topic]}:
            return
        size = plan.image.size_of(largest.topic)
        if largest.partition >= size:
            text = f"{said} of partition {largest.partition}, the topic has {size}"
            yield Finding("group-offset", text, *key, offset=largest.offset)
    end = seen[key].end if key in seen else None
    if end is None:
        return
    if largest.offset > end.offset:
        text = f"{said}, the log ends at {end.offset}"
        cause = f"records were lost by {end.cut_by}" if end.cut_by else "records that the group had read are lost, or the offset was set"
        yield Finding("group-offset", text, *key, offset=largest.offset, cause=cause)
    if newest.leader_epoch > end.leader_epoch >= 0:
        text = f"group {newest.group} {verb} offset {newest.offset} of leader epoch {newest.leader_epoch}, "
        cause = "the partition's metadata was lost or rolled back"
        yield Finding("group-offset", text + f"the newest one is {end.leader_epoch}", *key, offset=newest.offset, cause=cause)


def _overdue(seen: Seen, offset: int, state: TransactionState) -> Iterator[Finding]:
    broker, path = seen.read_from
    for one, text in overdue([state], seen.ran_until_ms):
        text = f"the transaction of {one.transactional_id} (producer {one.producer_id}) {text}"
        yield Finding("txn-open", text, *seen.key, brokers=(broker,), offset=offset, file=path)


def _other_ends(seen: dict[Key, Seen], decided: Any) -> Iterator[Finding]:
    """Transactions that a log ended otherwise than their coordinator decided."""
    for key, one in sorted(seen.items()) if len(decided) else ():
        ended = np.frombuffer(zlib.decompress(one.ended), MARKER) if one.ended else np.empty(0, MARKER)
        at = np.minimum(np.searchsorted(decided["producer"], ended["producer"]), len(decided) - 1)
        same = (decided["producer"][at] == ended["producer"]) & (decided["epoch"][at] == ended["epoch"])
        for row in np.flatnonzero(same & (decided["kind"][at] != ended["kind"])).tolist():
            kind, offset = int(ended["kind"][row]), int(ended["offset"][row])
            text = f"producer {int(ended['producer'][row])}'s transaction of epoch {int(ended['epoch'][row])} is {ENDS[kind]} at {offset}, "
            text += f"but its coordinator decided that it is {ENDS[1 - kind]}"
            yield Finding("txn-decision", text, *key, offset=offset)


def _ids_twice(owners: dict[Key, set[int]]) -> Iterator[Finding]:
    """Producer ids of transactional ids in two partitions; of those in one, its own reading tells."""
    owner: dict[int, Key] = {}
    for key, found in sorted(owners.items()):
        if twice := sorted(found & owner.keys()):
            text = f"producer id {twice[0]} is that of a transactional id here and of another one in {'-'.join(map(str, owner[twice[0]]))}"
            yield Finding("coordinator-record", text, *key)
        owner |= dict.fromkeys(found, key)


def _unallocated(plan: Plan, producers: dict[Key, int]) -> Iterator[Finding]:
    """Producer ids that the controllers have yet to give away: the records of those who have them are gone, and others will get the same
    ids, whose batches brokers then take for duplicates. Only checked if all brokers stopped cleanly; otherwise ids may have been given away
    after the metadata was read."""
    following = int(plan.image.state.get(NEXT_PRODUCER_ID, b"-1")) if plan.image is not None else -1
    if following < 0 or not all(directory.clean for directory in plan.directories):
        return
    for key, newest in sorted(producers.items()):
        if newest >= following:
            text = f"it has producer id {newest}, but the metadata that was given says that {following} is the next one to be given away"
            yield Finding("not-compared", f"{text}: the metadata's end is missing", *key, level=WARNING)


def _unknown_transactions(plan: Plan, seen: dict[Key, Seen], undecided: set[int], finished: set[int]) -> Iterator[Finding]:
    """Open transactions that no coordinator will end (KIP-664). Only checked if all brokers stopped cleanly; otherwise the coordinators
    may have been read before the transactions began."""
    if plan.image is None or not all(directory.clean for directory in plan.directories):
        return
    numbers = {number for topic, number in plan.image.claims() if topic == TRANSACTIONS}
    if not numbers or any((TRANSACTIONS, number) not in seen or not seen[TRANSACTIONS, number].is_read for number in numbers):
        return
    for key, one in sorted(seen.items()):
        for producer, offset in sorted(one.opened.items()):
            if producer in finished:
                text = f"producer {producer}'s transaction has been open since offset {offset}, but its coordinator has finished it"
                yield Finding("txn-decision", text, *key, offset=offset)
            elif producer not in undecided:
                text = f"producer {producer}'s transaction has been open since offset {offset}, but no coordinator knows it: it never ends"
                yield Finding("txn-open", text, *key, offset=offset)
