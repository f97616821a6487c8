"""The audit: plan, scan every segment once, compare the replicas, and reread where they differ. All engines run the same code."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from minikafka.counted import counted
from minikafka.spark import compare, ledger, unclean, wire_ledger
from minikafka.spark.compare import PartitionResult
from minikafka.spark.coordination import check_coordinators, cluster_of
from minikafka.spark.directories import SourceError
from minikafka.spark.findings import NOTE, Finding, FindingList
from minikafka.spark.judging import Job, Judged, judge, key_of, keys_of, nothing_of
from minikafka.spark.live import add_live_replicas, identity, live_claims
from minikafka.spark.metadata_log import METADATA_TOPIC, PartitionClaim
from minikafka.spark.planning import make_plan
from minikafka.spark.scan import SegmentSummary, scan_segments
from minikafka.spark.security import Security
from minikafka.spark.sources import Plan, Replica, SegmentTask, changed, partition_tasks
from minikafka.spark.splits import split
from minikafka.spark.views import cleaned_below, names_of
from minikafka.spark.wire_ledger import WireLedger

Item = TypeVar("Item")
ATTEMPTS_MAX = 6
#: Findings that hold a log against what the controllers said before it was read.
CLAIM_CHECKS = {"epoch-unknown", "topic-id"}
UNPROVEN = {compare.UNREADABLE, compare.SKIPPED, compare.INCOMPLETE}
FAILING = {compare.LOST, compare.CORRUPT, compare.DIVERGENT, compare.MISSING}
Result = TypeVar("Result")
Value = TypeVar("Value")
Context = TypeVar("Context")


class Engine(Protocol):
    """Runs pure functions over items, locally or in a cluster. Results come in any order."""

    name: str
    parallelism: int
    #: Whether tasks may run on other machines, which may see files that this machine does not.
    is_elsewhere: bool

    def open(self) -> None:
        """Start whatever must be started before this process has threads."""

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]: ...

    def gather(
        self, function: Callable[[Item], list[Value]], items: list[Item], key_of: Callable[[Value], Key],
        groups: dict[Key, tuple[Context, int]], finish: Callable[[tuple[Context, list[Value]]], Result],
        watch: Callable[[list[Value]], None], keys_of: Callable[[Item], Iterable[Key]],
    ) -> Iterator[Result]:  # fmt: skip
        """Group the values that the functions return by key. `finish` gets a group's context and all its expected values, and runs as
        soon as they are complete, so that only a few groups are in memory at once. `watch` may be called with incoming values. `keys_of`
        an item: the key of each value that it will give, or none if its groups must be finished after all items were read."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`level`: "batches" (headers and CRC) or "records" (decode every record too). `digest`: "crc" or "blake2b", of each batch.

    `self_check`: a single replica is enough; only its own checks count. `fail_on`: verdicts that fail the audit besides LOST, CORRUPT,
    DIVERGENT and MISSING, and WARNINGS for warnings. `acked`: files of acknowledged records, one JSON object a line. `compacted`: topics
    that a cleaner may have compacted although no metadata log in these directories says so. `partitions` limits the audit to these.
    `confirm` rereads failing partitions of brokers that may be running. `wire_ledger`: a file that records the progress of an audit of
    `bootstrap`. The audit resumes from it after a failure, and deletes it once it has a verdict.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    acked: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()
    transaction_timeout_ms: int = 0
    bootstrap: str = ""
    security: Security = field(default_factory=Security)
    confirm: bool = True
    level: str = "batches"
    digest: str = "crc"
    split_bytes: int = 512 << 20
    findings_each_max: int = 20
    self_check: bool = False
    fail_on: tuple[str, ...] = ()
    wire_ledger: str = ""


@dataclass(slots=True)
class AuditResult:
    """What an audit found. `started_ms` is in milliseconds since 1970; `seconds` is the whole time, `scan_seconds` that of the scan."""

    plan: Plan
    partitions: list[PartitionResult]
    findings: FindingList
    options: AuditOptions
    engine: str
    started_ms: int
    scan_seconds: float = 0.0
    seconds: float = 0.0
    bytes_scanned: int = 0

    def __repr__(self) -> str:
        # Shown by a notebook if the result of the call is not assigned.
        batches = counted(self.batches_compared, "batch", "batches")
        return f"<audit {self.outcome}: {counted(len(self.partitions), 'partition')}, {batches} compared>"

    def count(self, verdict: str) -> int:
        """Partitions with this verdict."""
        return sum(1 for partition in self.partitions if partition.verdict == verdict)

    @property
    def batches_compared(self) -> int:
        """Number of compared batches in all partitions."""
        return sum(partition.batches_compared for partition in self.partitions)

    @property
    def outcome(self) -> str:
        """PASS, FAIL or INCOMPLETE. Never PASS if nothing was compared (with self_check: if nothing was read)."""
        failing = {*FAILING, *self.options.fail_on}
        if "WARNINGS" in failing and self.findings.total("warning"):
            return "FAIL"
        roots = {check for check, level in self.plan.findings.counts if level == "error"}
        if any(partition.verdict in failing for partition in self.partitions) or roots - {"unreadable"}:
            return "FAIL"
        counts = self.plan.findings.counts
        unchecked = ("acked-unchecked", "warning") in self.findings.counts
        unchecked |= any((check, "warning") in counts for check in compare.INCOMPLETE_CHECKS)
        if roots or unchecked or self.findings.total("error") or any(one.verdict in UNPROVEN for one in self.partitions):
            return "INCOMPLETE"
        looked_at = self.batches_compared
        if self.options.self_check:
            looked_at = sum(row["batches"] for partition in self.partitions for row in partition.replicas)
        return "PASS" if looked_at else "INCOMPLETE"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 divergence or corruption, 3 incomplete (2 is for usage errors)."""
        return {"PASS": 0, "FAIL": 1, "INCOMPLETE": 3}[self.outcome]


def run_audit(
    paths: Iterable[str], engine: Engine, options: AuditOptions | None = None, progress: Callable[[int, int], None] | None = None
) -> AuditResult:
    """Audit the log directories at or below `paths`, and the running cluster of `options.bootstrap`.

    `progress(bytes done, bytes planned)` is called as results come in.

    Raises SourceError if a path holds no log directory, BrokerError if no broker answers, WireLedgerError.
    """
    options = options or AuditOptions()
    with wire_ledger.opened(options.wire_ledger) as book:
        result = _run(paths, engine, options, progress, book)
        if book is not None:
            book.finish()
    return result


def _run(
    paths: Iterable[str], engine: Engine, options: AuditOptions, progress: Callable[[int, int], None] | None, book: WireLedger | None
) -> AuditResult:
    started_ms, start = time.time_ns() // 1_000_000, time.perf_counter()
    plan, partitions, found, done, scan_seconds = _round(paths, engine, options, options.partitions, progress, book)
    partitions = _confirmed(paths, engine, options, plan, partitions, found)
    check_coordinators(plan, partitions, {key: one.seen for key, one in found.items()})
    if options.acked:
        acknowledged, empty = ledger.read_ledgers(options.acked)
        for path in empty:
            plan.findings.add(Finding("acked-unchecked", f"{path} names no acknowledged record", file=path))
        _hold_against_ledger(acknowledged, plan, partitions, found, engine)
    findings = FindingList(max(1000, options.findings_each_max))
    findings.extend(plan.findings)
    for partition in partitions:
        findings.extend(partition.findings)
    return AuditResult(plan, partitions, findings, options, engine.name, started_ms, scan_seconds, time.perf_counter() - start, done)


Key = tuple[str, int]
Found = dict[Key, Judged]
#: Checks of the findings that report a broker that does not answer over the network.
WIRE_CHECKS = {"unreadable", "replica-offline"}


def _round(
    paths: Iterable[str], engine: Engine, options: AuditOptions, only: Iterable[tuple[str, int]],
    progress: Callable[[int, int], None] | None = None, book: WireLedger | None = None,
) -> tuple[Plan, list[PartitionResult], Found, int, float]:  # fmt: skip
    """Plan, scan and judge once. Returns (plan, results, views of the replicas, bytes scanned, seconds of the scan)."""
    start = time.perf_counter()
    only = list(only)
    plan = _plan(paths, engine, options, only)
    if options.bootstrap:
        add_live_replicas(plan, options.bootstrap, options.security, options.topics, only, options.findings_each_max, options.split_bytes)
        _given_live(plan)
        if book is not None:
            book.settle(plan, *identity(options.bootstrap, options.security, {topic for topic, _ in plan.replicas}))
    cluster = cluster_of(plan)
    groups: dict[Key, tuple[Job, int]] = {}
    tasks: list[SegmentTask] = []
    for key, copies in plan.replicas.items():
        mine = list(partition_tasks(copies, options.level, options.digest))
        groups[key] = Job(copies, cluster, bool(options.acked)), len(mine)
        tasks += mine
    split_bytes = max(1 << 20, min(options.split_bytes, plan.bytes // max(1, 2 * engine.parallelism) + 1))
    done = _Done(plan.bytes, progress)
    if book is None:
        judged = list(engine.gather(scan_segments, list(split(tasks, split_bytes)), key_of, groups, judge, done.add, keys_of))
    else:
        read = book.read_all(plan, tasks, split_bytes, engine.parallelism, functools.partial(mapped, engine, scan_segments), done.add)
        judged = list(engine.gather(wire_ledger.summaries_of, read, key_of, groups, judge, lambda _: None, wire_ledger.keys_of))
    seen = {(one.result.topic, one.result.partition): one for one in judged}
    partitions = completed(plan, [one.result for one in judged], options)
    return plan, partitions, seen, sum(one.bytes for one in judged), time.perf_counter() - start


class _Done:
    """Counts the bytes read so far."""

    def __init__(self, planned: int, progress: Callable[[int, int], None] | None) -> None:
        self.done, self.planned, self.progress = 0, planned, progress

    def add(self, summaries: list[SegmentSummary]) -> None:
        """Count these summaries and report the progress."""
        self.done += sum(summary.task.size for summary in summaries)
        if self.progress is not None:
            self.progress(self.done, self.planned)


def _given_live(plan: Plan) -> None:
    """Drop the findings about missing log directories of brokers that were asked over the network: either the broker answered, or
    another finding says that it did not. One note names the brokers whose directories were not given."""
    absent: set[str] = set()
    for key, findings in plan.missing.items():
        asked = {one.node for one in plan.replicas.get(key, []) if one.place is not None}
        asked |= {broker.partition("/")[0] for one in findings if one.check in WIRE_CHECKS for broker in one.brokers}
        absent |= {broker for one in findings if one.check == "not-compared" for broker in one.brokers if broker in asked}
        findings[:] = [one for one in findings if one.check != "not-compared" or not asked.issuperset(one.brokers)]
    plan.missing = {key: findings for key, findings in plan.missing.items() if findings}
    if absent:
        names = sorted(absent, key=lambda name: (len(name), name))
        text = f"the log directories of {names_of(absent)} were not given: what clients can read of them was read over the network"
        plan.findings.add(Finding("not-compared", text, brokers=tuple(names), level=NOTE))


def _plan(paths: Iterable[str], engine: Engine, options: AuditOptions, only: list[tuple[str, int]]) -> Plan:
    """Make the plan. If tasks run on other machines, they list the directories, because this process may not see them."""
    work = list(paths), options.topics, options.findings_each_max, only, options.transaction_timeout_ms, True, options.compacted
    if not engine.is_elsewhere or not work[0]:
        return make_plan(*work)
    try:
        plan = make_plan(*work, functools.partial(mapped, engine))
    except SourceError as error:
        raise SourceError(f"{error} (where Spark's tasks run)") from error
    plan.is_elsewhere = True
    return plan


def _any_changed(replicas: list[Replica], plan: Plan, engine: Engine) -> bool:
    return any(mapped(engine, changed, replicas) if plan.is_elsewhere else map(changed, replicas))


def _confirmed(
    paths: Iterable[str], engine: Engine, options: AuditOptions, plan: Plan, partitions: list[PartitionResult], seen: Found
) -> list[PartitionResult]:
    """Judge failing partitions of brokers that did not stop cleanly again: a file read during a write is not a fault.

    A fault counts if it is seen twice and no segment was replaced, cut or deleted during the second reading, and if the controllers
    still say afterwards what it was held against. Over the network that
    cannot be observed. There the same fault must appear at the same offset in two readings, because a cleaner may have removed a record
    that a newer one, after the plan's end, replaced. A partition that never stops changing is not judged, and a finding says so.
    A replica that lagged behind what is committed may have caught up. So it is read again, too, with new high watermarks.
    """
    results = {(one.topic, one.partition): one for one in partitions}
    first = {key: one.verdict for key, one in results.items()}
    before = {key: _errors(one) for key, one in results.items()}
    doubtful = {key for key, one in results.items() if _is_doubtful(one)}
    if not options.confirm:
        return partitions
    for attempt in range(ATTEMPTS_MAX):
        if not doubtful:
            break
        time.sleep(0.1 * attempt)
        again, judged, found_again, _, _ = _round(paths, engine, options, doubtful)
        plan.missing.update(again.missing)
        seen.update(found_again)
        found = {(one.topic, one.partition): one for one in judged}
        claims = _claims_now(paths, engine, options, judged)
        for key in list(doubtful):
            later = found.get(key)
            if later is None:
                results.pop(key, None)
                doubtful.discard(key)
                continue
            results[key] = later
            replicas = again.replicas.get(key, [])
            on_wire = any(replica.place is not None for replica in replicas)
            moved = _any_changed(replicas, again, engine) or _lags(later) or _is_of_older_claim(later, replicas, claims)
            moved |= on_wire and not before[key] & _errors(later)
            before[key] = _errors(later)
            if not _is_doubtful(later) or not moved:
                doubtful.discard(key)
            if later.verdict not in FAILING and key not in doubtful:
                text = f"the first reading gave {first[key]}, a later one {later.verdict}: the files changed while they were read"
                later.findings.add(Finding("replica-reread", text, *key, later.brokers, level=NOTE))
    for key in {key for key in doubtful if not _lags(results[key])}:
        results[key] = _never_at_rest(results[key])
    if plan.findings.total("error") and any(directory.clean is False for directory in plan.directories):
        plan.findings = _plan(paths, engine, options, [("", -1)]).findings
    return list(results.values())


def _never_at_rest(result: PartitionResult) -> PartitionResult:
    text = f"its claim changed, or its segments were replaced or cut during each of {ATTEMPTS_MAX} readings"
    skipped = dataclasses.replace(result, verdict=compare.SKIPPED, findings=FindingList())
    skipped.findings.add(Finding("replica-reread", text, result.topic, result.partition, result.brokers, level=NOTE))
    return skipped


def _claims_now(
    paths: Iterable[str], engine: Engine, options: AuditOptions, judged: list[PartitionResult]
) -> dict[tuple[str, int], PartitionClaim] | None:
    """What the controllers say after the logs were read, if a finding holds the logs against an earlier claim."""
    if not any(one.check in CLAIM_CHECKS for result in judged for one in result.findings.kept):
        return None
    claims = live_claims(options.bootstrap, options.security) if options.bootstrap else {}
    image = _plan(paths, engine, options, [("", -1)]).image if list(paths) else None
    return claims if image is None else claims | image.claims()


def _is_of_older_claim(
    result: PartitionResult, replicas: list[Replica], claims: dict[tuple[str, int], PartitionClaim] | None
) -> bool:  # fmt: skip
    """Whether a finding holds a log against a claim that has changed since: a leader was elected or the topic was made again in between."""
    then = next((one.claim for one in replicas if one.claim is not None), None)
    if not claims or then is None or not any(one.check in CLAIM_CHECKS for one in result.findings.kept):
        return False
    now = claims.get((result.topic, result.partition))
    return now is None or (now.topic_id, now.leader_epoch) != (then.topic_id, then.leader_epoch)


def _errors(result: PartitionResult) -> set[tuple[str, tuple[str, ...], int]]:
    return {(one.check, one.brokers, one.offset) for one in result.findings.kept if one.level == "error"}


def _lags(result: PartitionResult) -> bool:
    """Whether a replica of a running broker was not compared as far as it answers for, which a later reading may show."""
    return result.verdict in UNPROVEN and any(one.details.get("lags") for one in result.findings.kept) and not _moved(result)


def _moved(result: PartitionResult) -> bool:
    """Whether files or batches changed between two looks at them, so that nothing else that was found says much."""
    return any(one.details.get("moved") for one in result.findings.kept)


def _is_doubtful(result: PartitionResult) -> bool:
    moved = result.verdict in UNPROVEN and (_moved(result) or _lags(result) or ("replica-reread", NOTE) in result.findings.counts)
    live = any(row["clean_shutdown"] is False for row in result.replicas or [{"clean_shutdown": False}])
    return live and (moved or result.verdict in FAILING)


def mapped(engine: Engine, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
    """Like engine.map, but a StopIteration raised by a function is an error and does not end the results."""
    for failure, result in engine.map(_Guarded(function), items):
        if failure is not None:
            raise failure
        yield result


class _Guarded:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, item: Any) -> tuple[Exception | None, Any]:
        try:
            return None, self.function(item)
        except StopIteration as error:
            return RuntimeError(f"StopIteration: {error}"), None


def completed(plan: Plan, results: list[PartitionResult], options: AuditOptions) -> list[PartitionResult]:
    """The results, sorted by topic and partition, completed with planned partitions without a result and with missing replicas."""
    by_key = {(result.topic, result.partition): result for result in results}
    for key in (plan.replicas.keys() | plan.missing.keys()) - by_key.keys():
        by_key[key] = nothing_of(*key)
        if key in plan.replicas:
            text = "the partition was planned, but its verdict is missing"
            by_key[key].findings.add(Finding("not-compared", text, *key, tuple(one.broker for one in plan.replicas[key])))
    for key, findings in plan.missing.items():
        for finding in findings:
            accepted = options.self_check and finding.check == "not-compared"
            by_key[key].findings.add(dataclasses.replace(finding, level=NOTE) if accepted else finding)
    for result in by_key.values():
        _alone(result, options)
        result.decide()
    return sorted(by_key.values(), key=lambda result: (result.topic, result.partition))


def _alone(result: PartitionResult, options: AuditOptions) -> None:
    """Add a finding if only one replica was given, unless the controller assigns no other."""
    assigned = result.assigned["replicas"] if result.assigned is not None else []
    given = [row for row in result.replicas if not row["is_future"]]
    if options.self_check or len(given) != 1 or len(assigned) == 1 or not given[0]["batches"]:
        return
    if options.bootstrap and result.topic == METADATA_TOPIC:  # the other nodes' metadata logs cannot be read over the network
        return
    text = f"only broker {result.brokers[0]}'s replica was given" + (f", of {len(assigned)}" if assigned else "")
    result.findings.add(Finding("not-compared", text, result.topic, result.partition, result.brokers))


def _hold_against_ledger(
    acknowledged: dict[tuple[str, int], ledger.Acknowledged], plan: Plan, partitions: list[PartitionResult], seen: Found, engine: Engine
) -> None:
    """Check that every acknowledged record is on some replica, and on each replica that claims its offset or is in sync."""
    results = {(one.topic, one.partition): one for one in partitions}
    items = []
    for key, promised in sorted(acknowledged.items()):
        if key not in results or key not in seen:
            text = f"{counted(len(promised.offsets), 'acknowledged record')} of {key[0]}-{key[1]}, but none of its replicas were given"
            plan.findings.add(Finding("acked-unchecked", text, *key))
            continue
        items += [(key, (one.broker, [summary.task for summary in one.summaries], promised)) for one in seen[key].views]
    held: dict[tuple[str, int], list[ledger.Held]] = {}
    for key, found in mapped(engine, _look_up, items):
        held.setdefault(key, []).append(found)
    for key, all_held in held.items():
        views, result = seen[key].views, results[key]
        promises = {one.broker: one.claim_to if one.replica.has_high_watermark else 0 for one in views}
        cleaned = max(cleaned_below(one) for one in views)
        starts = {one.broker: one.log_start for one in views}
        elections = unclean.history(views)
        sorted_held = sorted(all_held, key=lambda one: one.broker)
        for finding in ledger.judge_ledger(acknowledged[key], sorted_held, starts, promises, cleaned, elections):
            finding.topic, finding.partition = key
            result.findings.add(finding)
        result.decide()


def _look_up(item: tuple[tuple[str, int], tuple[str, list[SegmentTask], ledger.Acknowledged]]) -> tuple[tuple[str, int], ledger.Held]:
    return item[0], ledger.look_up(item[1])
