"""Broken rules of the audit, each of which the nearest tests must notice: `pytest -m mutants tests/spark/test_audit_mutants.py`.

A mutant replaces functions or numbers while it is applied (minikafka.sim.mutants.applied).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from minikafka.sim.mutants import Mutant
from minikafka.spark import logformat

SPARK = "minikafka.spark"
CONTRACT, GENERATED = "tests/spark/test_audit_contract.py", "tests/spark/test_audit_generated.py"
BESIDE, FENCES = "tests/spark/test_audit_beside.py", "tests/spark/test_audit_fences.py"
QUORUM, STRETCHES = "tests/spark/test_audit_quorum.py", "tests/spark/test_audit_wire_stretches.py"
TRANSACTIONS, GOLDEN = "tests/spark/test_audit_transactions.py", "tests/spark/test_audit_golden.py"
COORDINATORS, STATE = "tests/spark/test_audit_coordinators.py", "tests/spark/test_audit_metadata_state.py"
IMPOSSIBLE, VALUES = "tests/spark/test_audit_impossible_metadata.py", "tests/spark/test_audit_metadata_values.py"
ORDER, NAMED = "tests/spark/test_audit_coordinator_order.py", "tests/spark/test_audit_named_partitions.py"
PRODUCERS = "tests/spark/test_audit_producers.py"
KILLED, CODECS = "tests/spark/test_audit_killed.py", "tests/spark/test_audit_codecs.py"
AGREEMENT, HISTORY = "tests/spark/test_audit_agreement.py", "tests/spark/test_audit_history.py"
CLAIMS, POLICIES, ELECTIONS, STARTUP = (f"tests/spark/test_audit_{name}.py" for name in ("claims", "policies", "elections", "startup"))
Patch = tuple[str, Callable[[Any], Any]]


def _nothing(original: Any) -> Any:
    return lambda *_, **__: iter(())


def _none(original: Any) -> Any:
    return lambda *_, **__: None


def _constant(value: Any) -> Any:
    return lambda original: lambda *_, **__: value


def _constant_value(value: Any) -> Any:
    return lambda original: value


def _settled(original: Any) -> Any:
    return lambda *arguments: dataclasses.replace(original(*arguments), is_settled=True)


def _at_any_offset(original: Any) -> Any:
    return lambda suspects, again: original({(key, offset) for key, _ in suspects for offset in range(100)}, again)


def _whoever_is_to_have(original: Any) -> Any:
    return lambda table, targets: targets.suspects()


def _no_ledger_is_empty(original: Any) -> Any:
    return lambda paths: (original(paths)[0], [])


def _first_page_only(original: Any) -> Any:
    def detail(*arguments: Any) -> Any:
        page = original(*arguments)
        page.resume = None
        return page

    return detail


def _whoever_was_killed(original: Any) -> Any:
    def is_new(image: Any, claim: Any, broker: str, committed: int, within_ms: int) -> Any:
        return original(image, claim, broker, committed, 10_000 if within_ms < 0 else within_ms)

    return is_new


def _digest_without_epoch(original: Any) -> Any:
    def batch_digests(batches: Any, kind: str = "crc", chosen: Any = None) -> Any:
        header = batches.header.copy()
        header["epoch"] = 0
        return original(dataclasses.replace(batches, header=header), kind, chosen)

    return batch_digests


def _digest_of_offsets(original: Any) -> Any:
    def batch_digests(batches: Any, kind: str = "crc", chosen: Any = None) -> Any:
        offsets = batches.base_offset if chosen is None else batches.base_offset[chosen]
        return offsets.astype(np.uint64)

    return batch_digests


def _cells_of_equal_count(original: Any) -> Any:
    def equal_cells(views: Any, key: Any) -> Any:
        cells = [one.cells.get(key) for one in views]
        return cells[0] if None not in cells and len({cell.batches for cell in cells}) == 1 else None

    return equal_cells


def _claims_without_the_last_zone(original: Any) -> Any:
    return lambda self, low, high: original(self, low, high) and high < self.claim_to


def _claims_only_zero(original: Any) -> Any:
    return lambda self, low, high: original(self, low, high) and low > 0


def _zones_by_first_offset(original: Any) -> Any:
    return lambda task, base, last: original(task, base, base)


def _own_high_watermark_only(original: Any) -> Any:
    def bounds(views: Any, findings: Any) -> Any:
        kept = [one.claim_to for one in views]
        lost = original(views, findings)
        for one, claim_end in zip(views, kept, strict=True):
            one.claim_to = min(claim_end, one.claim_to)
        return lost

    return bounds


def _verdict_without_incomplete(original: Any) -> Any:
    def verdict_of(findings: Any, replicas: int, empty: bool, compared: int) -> str:
        found = original(findings, replicas, empty, compared)
        return "MATCH" if found == "INCOMPLETE" else str(found)

    return verdict_of


def _odd_stay(original: Any) -> Any:
    def in_step(self: Any, key: Any, views: Any, committed: bool) -> Any:
        return original(self, key, views[:2], committed) + views[2:]

    return in_step


def _stops_at_the_first(original: Any) -> Any:
    def in_step(self: Any, key: Any, views: Any, committed: bool) -> Any:
        found = original(self, key, views, committed)
        return found if len(found) == len(views) else []

    return in_step


def _pass_though_unproven(original: Any) -> Any:
    def outcome(self: Any) -> str:
        found = original(self)
        return "PASS" if found == "INCOMPLETE" else str(found)

    return outcome


def _unguarded(original: Any) -> Any:
    return lambda self, item: (None, self.function(item))


def _raising_scan(original: Any) -> Any:
    def scan_segment(task: Any, is_bounded: bool = True) -> Any:
        from minikafka.spark import scan

        return scan._Scan(task, is_bounded).run()

    return scan_segment


def _results_are_enough(original: Any) -> Any:
    return lambda plan, *rest: [one for one in original(plan, *rest) if one.replicas]


def _strict_read(original: Any) -> Any:
    def read(directory: Any, name: str) -> Any:
        found = original(directory, name)
        directory.unread.clear()
        return found

    return read


def _without_starts(original: Any) -> Any:
    return lambda *arguments: (dataclasses.replace(task, starts=()) for task in original(*arguments))


def _all_cleaned(original: Any) -> Any:
    return lambda replica, log_start, cleaned_to: original(replica, log_start, 1 << 62 if cleaned_to else 0)


def _plain_files_only(original: Any) -> Any:
    return lambda names, end_of: original([name for name in names if not name.endswith(".swap")], end_of)


def _nothing_makes_room(original: Any) -> Any:
    return lambda plain, swapped, ends: plain | original(plain, swapped, ends)


def _splits_count_as_finished(original: Any) -> Any:
    return lambda names, end_of: original([name for name in names if not name.endswith(".cleaned")], end_of)


def _records_only(original: Any) -> Any:
    def keep(found: Any, *rest: Any) -> None:
        original(found, *rest)
        for key in [key for key in found.held if key[0] == "batch"]:
            del found.held[key]

    return keep


def _not_the_last(original: Any) -> Any:
    return lambda *arguments: original(*arguments)[:-1] or original(*arguments)


def _takes_up_where_it_begins(original: Any) -> Any:
    def taken(self: Any, batches: Any) -> Any:
        begin = self.taken_up
        yield from original(self, batches)
        self.taken_up = begin

    return taken


def _as_it_is(original: Any) -> Any:
    return lambda value: value


def _of_nobody(original: Any) -> Any:
    return lambda *arguments: [one for one in original(*arguments) if one[0] != 1]


def _any_delivery_state(original: Any) -> Any:
    return set(range(128))


def _markers_as_data(original: Any) -> Any:
    def batch_header(batches: Any, is_metadata: bool = False) -> Any:
        return (one for one in original(batches, is_metadata) if "in a marker" not in one.message)

    return batch_header


def _any_start(original: Any) -> Any:
    def continuity(producer: int, before_epoch: int, before: int, epoch: int, sequence: int, offset: int) -> Any:
        is_start = epoch > before_epoch or before == -1
        return original(producer, before_epoch, before, epoch, 0 if is_start and sequence > 0 else sequence, offset)

    return continuity


def _as_new(original: Any) -> Any:
    def add_topic(image: Any, topic_id: str, name: str) -> None:
        image.topics[topic_id], image.names[name] = name, topic_id

    return add_topic


def _whatever_it_is(original: Any) -> Any:
    return lambda image, topic_id, what: image.topics.get(topic_id, "")


def _any_producers(original: Any) -> Any:
    return lambda data: np.frombuffer(data, logformat.SNAPSHOT_ENTRY, -1, logformat.SNAPSHOT_HEADER.size)


def _latest_only(original: Any) -> Any:
    return lambda *arguments: original(*arguments[:6])


def _begun_later(original: Any) -> Any:
    return lambda entries, offset, states, begin, *rest: original(entries, offset, states, begin or 1, *rest)


def _within_a_piece(original: Any) -> Any:
    def feed(self: Any, batches: Any) -> Any:
        yield from original(self, batches)
        for part in self.parts.values():
            part.plain_at = -1

    return feed


def _furthest(original: Any) -> Any:
    return lambda images, voters: max(images, key=lambda image: (image.epoch, image.end_offset), default=None)


def _mutant(name: str, breaks: str, target: str, make: Callable[[Any], Any], *tests: str, also: tuple[Patch, ...] = ()) -> Mutant:
    return Mutant(name, breaks, ((f"{SPARK}.{target}", make), *also), tests=tests or (GENERATED,))


_ALL = (
    # caps
    _mutant("first page", "a comparison ends with its first page of batches", "rereading:detail", _first_page_only, CONTRACT),
    _mutant("limits", "more producers than a summary keeps are dropped", "judging:is_limited", _constant(False), TRANSACTIONS),
    _mutant("leader epochs", "more leader epochs than are kept are dropped", "scan:_Scan._runs", _none, CONTRACT,
            also=((f"{SPARK}.views:_own_checks", _none),)),
    _mutant("small files", "a small file of any size is read in part", "directories:_read", _strict_read, CONTRACT),
    # what is compared
    _mutant("count only", "cells with as many batches count as equal", "difference:equal_cells", _cells_of_equal_count,
            also=((f"{SPARK}.compare:equal_cells", _cells_of_equal_count),)),
    _mutant("digest: offsets", "the digest is of offsets alone", "scan:batch_digests", _digest_of_offsets),
    _mutant("digest: epoch", "the digest leaves the leader epoch out", "scan:batch_digests", _digest_without_epoch, GOLDEN),
    _mutant("in step", "behind a difference nothing is compared", "difference:Comparison._in_step", _stops_at_the_first, CONTRACT),
    _mutant("two replicas", "where digests differ only two replicas are looked at", "difference:Comparison._in_step", _odd_stay, CONTRACT),
    _mutant("never cut", "a difference inside a leader epoch counts as pending", "difference:_never_cut", _constant(False), CLAIMS),
    _mutant("read again", "what cannot be read again is no finding", "difference:Comparison._rest", _none, CONTRACT,
            also=((f"{SPARK}.compare:_settle", _none),)),
    _mutant("survivors", "cleaned parts are not compared by record", "rereading:Rereading.compare_surviving", _constant([]),
            "tests/spark/test_audit_faults.py", also=((f"{SPARK}.rereading:Rereading.compare_latest", _none),)),
    _mutant("latest before", "a cleaner may remove a record for one that it did not know", "rereading:_cleaned_together",
            _constant(1 << 62), "tests/spark/test_audit_compacted.py"),
    _mutant("latest keys", "cleaned logs are not compared by key", "logical:first_lost_key", _none,
            "tests/spark/test_audit_faults.py::test_a_planted_fault_is_found_and_named"),
    # over the wire, and lists of directories
    _mutant("last stretch", "the last stretch of a replica on the wire is left out", "live:stretches_of", _not_the_last, STRETCHES),
    _mutant("between stretches", "what is missing between stretches is not told", "views:_across_segments", _none, STRETCHES),
    _mutant("taken up", "a stretch does not say which batch the one before has", "fetch_reader:FetchReader._taken",
            _takes_up_where_it_begins, STRETCHES),
    _mutant("away", "a broker that goes away is not awaited", "fetch_reader:FetchReader._is_worth_waiting", _constant(False), STRETCHES),
    _mutant("once more", "a stretch whose broker went away is not read again", "judging:_read_again", _as_it_is, STRETCHES),
    _mutant("odd directories", "a directory beside which no broker starts is passed over", "logformat:is_kafkas_directory", _constant(True),
            "tests/spark/test_audit_listing.py"),
    _mutant("listed by tasks", "a log directory's partitions are left out", "planning:_shares", _of_nobody,
            "tests/spark/test_audit_listing.py"),
    # fences and claims
    _mutant("last zone", "the zone up to the claim is left out", "views:ReplicaView.claims", _claims_without_the_last_zone, CLAIMS),
    _mutant("first zone", "the zone from offset 0 is left out", "views:ReplicaView.claims", _claims_only_zero, CLAIMS),
    _mutant("start in a batch", "a batch in which a log begins is left out", "scan:zones", _zones_by_first_offset, CONTRACT),
    _mutant("starts", "tasks do not know where logs begin", "audit:partition_tasks", _without_starts, CONTRACT),
    _mutant("eligible", "replicas in sync answer for their own high watermark only", "compare:_bounds", _own_high_watermark_only, CLAIMS),
    _mutant("claims", "the controller's in-sync sets are not held against the logs", "compare:_claim_findings", _none,
            "tests/spark/test_audit_faults.py"),
    _mutant("topic ids", "replicas of two topics are compared", "compare:_topic_ids", _none, GOLDEN),
    _mutant("epoch forks", "epochs that begin elsewhere are not told", "compare:_epoch_forks", _none, "tests/spark/test_audit_checks.py"),
    # the account
    _mutant("account", "what was due and what was compared are not held against each other", "compare:_settle", _none, CONTRACT),
    _mutant("shortfalls", "less compared than was due counts as all", "coverage:Account.shortfalls", _nothing, CONTRACT),
    _mutant("incomplete", "INCOMPLETE counts as a match", "compare:verdict_of", _verdict_without_incomplete, CLAIMS),
    _mutant("outcome", "an incomplete audit passes", "audit:AuditResult.outcome", _pass_though_unproven, CLAIMS),
    _mutant("single", "one replica alone is enough", "audit:_alone", _none, CLAIMS),
    _mutant("segments", "segments whose scans did not come back are not missed", "views:_all_segments", _none, CONTRACT,
            also=((f"{SPARK}.views:replica_unreadable", _constant(False)), (f"{SPARK}.compare:replica_unreadable", _constant(False)))),
    _mutant("partitions", "partitions without a result are not missed", "audit:completed", _results_are_enough, CONTRACT),
    _mutant("guard", "a StopIteration passes for the end", "judging:judge_partition", lambda original: original, CONTRACT,
            also=((f"{SPARK}.audit:_Guarded.__call__", _unguarded), (f"{SPARK}.scan:scan_segment", _raising_scan))),
    _mutant("missing", "replicas that are not there are not missed", "sources:missing_replicas", _nothing, CLAIMS),
    _mutant("named", "what only checkpoints name is not missed", "claims:_named", _nothing, CLAIMS),
    _mutant("twins", "copies of one broker count as replicas", "sources:_name_twins", _none, CONTRACT),
    _mutant("policy", "every topic may have been compacted", "sources:policy_of", _constant("compact"), POLICIES),
    _mutant("sparse", "sparse batches are taken for granted", "checks:sparse", _nothing, POLICIES,
            also=((f"{SPARK}.checks:offsets", _nothing),)),
    _mutant("policy by checkpoint", "a cleaner's checkpoint tells the policy", "sources:policies_of", _constant({"compact"}), POLICIES,
            also=((f"{SPARK}.sources:policy_of", _constant("compact")),)),
    _mutant("unknown policy", "missing offsets are an error though a cleaner may have been there", "views:UNKNOWN",
            _constant_value("never"), POLICIES),
    _mutant("held gaps", "missing offsets that a cleaner would explain are not told", "views:_add_held", _none, POLICIES),
    _mutant("cleaner's point", "cleaners may have been anywhere", "sources:_cleaned", _constant(1 << 40), POLICIES),
    _mutant("cleaned everywhere", "above the cleaner's point nothing is followed", "views:_replay_options", _all_cleaned, POLICIES),
    _mutant("kept fields", "survivors are compared without their batches' fields", "logical:_keep", _records_only, POLICIES),
    _mutant("prefixes", "a compacted log may begin anywhere", "compare:_lost_prefixes", _none, POLICIES),
    _mutant("replacements", "interrupted replacements are passed over", "sources:at_start", _plain_files_only, STARTUP),
    _mutant("replaced", "segments stand beside what replaces them", "startup:_installed", _nothing_makes_room, STARTUP),
    _mutant("splits", "replacements of a split that did not end are read", "sources:at_start", _splits_count_as_finished, STARTUP),
    _mutant("futures", "copies in other log directories are passed over", "sources:_add_future", _none, STARTUP),
    _mutant("losses", "what unclean elections lost is not told", "unclean:losses", _nothing, ELECTIONS),
    _mutant("elections", "unclean elections are not noted", "metadata_log:_note_election", _none, ELECTIONS),
    _mutant("conflicts", "records acknowledged twice are not told", "ledger:_conflicts", _nothing, ELECTIONS),
    # the controllers among themselves, and what none of them knows
    _mutant("beginnings", "first segments may be gone", "compare:_lost_beginnings", _none, CLAIMS),
    _mutant("proposals", "what one controller alone holds is taken for agreed", "claims:settled_image", _furthest, AGREEMENT),
    _mutant("elections of the quorum", "an epoch may have no majority", "quorum:_unelected", _nothing, AGREEMENT),
    _mutant("own snapshots", "snapshots are not held against other nodes' logs", "claims:compare_with_logs", _nothing, AGREEMENT),
    _mutant("strays", "logs that nobody ever made are set aside", "sources:never_was", _constant(""), AGREEMENT),
    _mutant("agreement", "nothing in the metadata log is agreed on", "claims:agreed_ends", _constant({}), HISTORY),
    _mutant("pasts", "what was before a snapshot is not asked of others", "metadata_history:complete", _none, HISTORY),
    _mutant("cleared", "eligible leaders are never cleared", "metadata_log:_clear_elr", _none, HISTORY),
    _mutant("registrations", "of a broker's registration only its directories count", "metadata_registrations:Registration.state",
            lambda original: property(lambda self: self.directories), STATE),
    _mutant("partition epochs", "partition epochs and last known eligible leaders do not count", "metadata_log:state_of",
            lambda original: lambda claim: original(claim)[:-2], STATE),
    _mutant("tags", "a record may have tags of a later version", "metadata_log:PARTITION_TAGS", lambda original: {}, STATE),
    _mutant("nobody's log", "a new partition of which no broker has a log is not missed", "claims:_is_new", _whoever_was_killed, KILLED),
    _mutant("record ends", "bytes behind a record's last field pass", "metadata_log:Fields.finish", _none, HISTORY),
    _mutant("pipes", "pipes are opened as files", "regular_files:_is_regular", _constant(True), AGREEMENT),
    # checks
    _mutant("crc", "checksums are not looked at", "checks:batch_crc", _nothing, GOLDEN),
    _mutant("magic", "the format's version is not looked at", "checks:batch_magic", _nothing, GOLDEN),
    _mutant("header", "header fields are not looked at", "checks:batch_header", _nothing, "tests/spark/test_audit_faults.py"),
    _mutant("offsets", "gaps and repeats are not looked at", "checks:offsets", _nothing, POLICIES),
    _mutant("epochs", "epochs that go back are not looked at", "checks:epochs", _nothing, GOLDEN),
    _mutant("bounds of segments", "batches outside of their segment are not told", "checks:segment_bounds", _nothing,
            "tests/spark/test_audit_faults.py"),
    _mutant("records", "records are not decoded", "checks:record_level", _nothing, "tests/spark/test_audit_faults.py"),
    _mutant("offset index", "the offset index is not held against the log", "checks:OffsetIndexCheck.feed", _nothing),
    _mutant("time index", "the time index is not held against the log", "checks:TimeIndexCheck.feed", _nothing,
            "tests/spark/test_audit_faults.py"),
    _mutant("no fence", "logs that differ where nobody knows what is committed pass", "compare:_unfenced", _nothing, FENCES),
    _mutant("earlier topics", "checkpoints of an earlier topic are taken for the later's", "sources:forget_earlier_topics",
            _constant(frozenset()), FENCES),
    _mutant("not given", "directories that were not given are missed though their brokers answer", "audit:_given_live", _none, FENCES),
    _mutant("first epochs", "first epochs may be gone that no other log start explains", "compare:_unexplained_starts", _none, FENCES),
    _mutant("odd names", "files that a start takes for segments are passed over", "sources:mistaken_files", _constant([]), STARTUP),
    _mutant("coordinators", "what coordinators keep is not held against the logs", "audit:check_coordinators", _none, COORDINATORS),
    _mutant("held twice", "two members may hold one partition", "coordination:held_twice", _nothing, COORDINATORS),
    _mutant("being given up", "what a member is to give up counts as free", "group_records:ALONE",
            _constant_value({8: ("assigned",), 22: ("active",)}), COORDINATORS),
    _mutant("held at one reading", "what a cleaner removed counts as held", "held_twice:held_twice", _at_any_offset, COORDINATORS),
    _mutant("share groups", "the state of share groups is not read", "coordination:share_state", _none, COORDINATORS),
    _mutant("fields of votes", "fields of quorum-state may have any value", "quorum:_is_of", _constant(True), QUORUM,
            also=((f"{SPARK}.quorum:_is_uuid", _constant(True)), (f"{SPARK}.quorum:_are_voters", _constant(True)))),
    _mutant("lacking fields", "fields of quorum-state may be missing", "quorum:FIELDS_OF_VERSION", _constant_value({0: {}, 1: {}}), QUORUM),
    _mutant("empty ledgers", "a ledger that names no record proves everything", "ledger:read_ledgers", _no_ledger_is_empty,
            "tests/spark/test_audit_faults.py::test_a_ledger_that_names_no_record_is_no_proof"),
    _mutant("quorum", "what nodes remember of their votes is not looked at", "claims:check_quorum", _nothing, QUORUM),
    _mutant("two leaders", "two leaders of one epoch of the quorum are not told", "quorum:_two_leaders", _nothing, QUORUM),
    _mutant("voters", "voters without a metadata log are not missed", "quorum:_missing_voters", _nothing, QUORUM),
    _mutant("time index end", "a time index may end too early", "checks:TimeIndexCheck.finish", _nothing, BESIDE),
    _mutant("stop snapshot", "the snapshot of an orderly stop is not missed", "checks:stop_snapshot", _nothing, BESIDE),
    _mutant("identity", "a log may lack the file that says of which topic it is", "sources:_without_identity", _none, BESIDE),
    _mutant("index order", "indexes may be out of order", "checks:index_sorted", _nothing, "tests/spark/test_audit_checks.py"),
    _mutant("index end", "index entries behind the log's end are not told", "checks:OffsetIndexCheck.finish", _nothing,
            "tests/spark/test_audit_checks.py"),
    _mutant("epoch checkpoint", "the epoch checkpoint is not held against the log", "checks:epoch_checkpoint", _nothing, CLAIMS),
    _mutant("epoch entries", "an entry inside of another epoch's batches is not told", "checks:_between_runs", _nothing, CLAIMS),
    _mutant("checkpoints", "checkpoints beyond the log's end are not told", "checks:bounds", _nothing, "tests/spark/test_audit_faults.py"),
    _mutant("snapshots", "producer snapshots are not held against the log", "replay:_snapshot", _nothing,
            "tests/spark/test_audit_faults.py"),
    _mutant("transactions", "transactions are not followed", "replay:Replayer._transactions", _nothing, TRANSACTIONS),
    _mutant("index entries", "entries of aborted transactions are taken as they are", "replay:Replayer._entry", _nothing, TRANSACTIONS),
    _mutant("stable offset", "any later last stable offset is taken", "replay:_Unsettled.findings_at", _constant([]), TRANSACTIONS),
    _mutant("open transactions", "transactions that never end are not told", "replay:_hanging", _nothing,
            "tests/spark/test_audit_faults.py"),
    _mutant("sequences", "sequences of producers are not followed", "producers:continuity", _none, "tests/spark/test_audit_faults.py",
            also=((f"{SPARK}.replay:continuity", _none), (f"{SPARK}.producers:ProducerScan.feed", _nothing))),
    # what brokers leave between two writes
    _mutant("recovery points", "recovery points beyond a killed broker's log are not told", "compare:_recovery_points", _none, KILLED),
    _mutant("unwritten snapshots", "any snapshot of producers may be unwritten", "sources:recovered_from", _constant(0), KILLED),
    _mutant("unwritten identity", "whatever is in partition.metadata may be unwritten", "logformat:is_torn_partition_metadata",
            _constant(True), KILLED),
    _mutant("forks", "without a high watermark compacted logs fork at 0", "difference:_fork", _constant(0), KILLED),
    # decisions of coordinators, and codecs
    _mutant("other ends", "a log may end a transaction otherwise than its coordinator decided", "coordination:_other_ends", _nothing,
            COORDINATORS),
    _mutant("ghosts", "a snapshot may know a producer of which the whole log has nothing", "replay:_snapshot", _begun_later, PRODUCERS),
    _mutant("outside", "producers may write outside of their open transactions", "producers:ProducerScan._outside", _none, PRODUCERS),
    _mutant("outside later", "producers may write outside of transactions that are open since another segment",
            "producers:ProducerScan.feed", _within_a_piece, PRODUCERS),
    _mutant("markers", "a marker may have several records", "checks:batch_header", _markers_as_data, PRODUCERS),
    _mutant("lost aborts", "the end of an aborted transaction may be gone where a cleaner was", "compare:_lost_aborts", _none, PRODUCERS),
    _mutant("older formats", "messages of older formats are taken for broken batches", "logformat:older_format", _none,
            "tests/spark/test_audit_older_formats.py"),
    _mutant("epoch starts", "a producer may begin an epoch with any sequence", "producers:continuity", _any_start, PRODUCERS,
            also=((f"{SPARK}.replay:continuity", _any_start),)),
    _mutant("topics twice", "a topic may be made twice", "metadata_log:add_topic", _as_new, IMPOSSIBLE),
    _mutant("unknown topics", "partitions may be of topics that never were", "metadata_log:known_topic", _whatever_it_is, IMPOSSIBLE),
    _mutant("values", "a feature may have any level", "metadata_values:check_feature", _none, VALUES),
    _mutant("rules", "a rule may say anything", "metadata_values:check_rule", _none, VALUES),
    _mutant("quotas", "a quota may be for anything", "metadata_values:check_quota", _none, VALUES),
    _mutant("settings", "a setting may have any value", "metadata_values:check_setting", _none, VALUES),
    _mutant("directories twice", "two brokers may have one directory", "metadata_log:check_registered", _none, VALUES),
    _mutant("controls", "any control record may stand in the metadata log", "metadata_controls:check_control", _none, VALUES),
    _mutant("control order", "control records may follow each other in any order", "metadata_controls:Controls.check", _none, VALUES),
    _mutant("setting values", "a setting may have a value that no broker takes", "metadata_values:check_value", _none, VALUES),
    _mutant("tokens", "a token may outlive its end", "metadata_values:check_token", _none, VALUES),
    _mutant("transitions", "a transaction may go from any state to any other", "coordinator_order:_may_follow", _constant(True), ORDER),
    _mutant("forgotten", "a transactional id may be forgotten in any state", "coordination:check_end", _none, ORDER),
    _mutant("current", "a member may be in an earlier epoch than before", "group_records:_check_current", _none,
            "tests/spark/test_audit_group_records.py"),
    _mutant("ahead", "a member may be ahead of its group's assignment", "coordinator_whole:_ahead", _constant({}), ORDER),
    _mutant("earlier states", "changes may be of an earlier state", "coordinator_whole:_of_earlier_states", _constant({}), ORDER),
    _mutant("unknown kinds", "keys of later releases are read", "coordination:is_known", _constant(True), ORDER),
    _mutant("unallocated", "producer ids may come from nowhere", "coordination:_unallocated", _nothing, COORDINATORS),
    _mutant("ids in two", "ids in two partitions may have one producer id", "coordination:_ids_twice", _nothing, COORDINATORS),
    _mutant("producers twice", "a producer may stand in a snapshot twice", "logformat:parse_snapshot", _any_producers,
            "tests/spark/test_audit_checks.py"),
    _mutant("snapshot controls", "any control record may stand in a snapshot", "metadata_log:check_snapshot_controls", _none, VALUES),
    _mutant("in snapshots", "a snapshot may have any record", "metadata_log:IN_SNAPSHOTS", _constant_value(set(range(30))), VALUES),
    _mutant("whole metadata", "topics may lack partitions", "claims:contradictions", _nothing, VALUES),
    _mutant("bootstrap", "a node starts with any bootstrap.checkpoint", "directories:why_no_node_starts", _constant(""), VALUES),
    _mutant("votes", "a leader needs no votes", "quorum:_outvoted", _nothing, QUORUM),
    _mutant("empty logs", "an empty log may begin anywhere", "compare:_empty_beginnings", _none, FENCES),
    _mutant("order", "coordinators may write in any order", "coordination:check_order", _none, ORDER),
    _mutant("unfinished groups", "groups may be removed with members", "coordination:_contradictions", _nothing, ORDER),
    _mutant("shares", "only a share of the groups is looked at", "coordination:_read_share", _none, ORDER),
    _mutant("strangers", "strangers may hold partitions", "coordinator_whole:_of_others", _constant([]), ORDER),
    _mutant("unsettled", "what a later record replaced is missed", "coordination:_source", _settled, ORDER),
    _mutant("beyond", "groups may name partitions that there are not", "coordination:beyond", _nothing, NAMED),
    _mutant("lost states", "the states of share groups may be gone", "coordination:lost_states", _nothing, NAMED),
    _mutant("static names", "two static members may have one name", "coordinator_whole:_later_ones", _nothing, NAMED),
    _mutant("targets", "two members may be to have one partition", "coordinator_whole:_settled_targets", _nothing, NAMED),
    _mutant("targets in part", "targets count before all are written", "coordinator_whole:_settled_targets", _whoever_is_to_have, NAMED),
    _mutant("subtopologies", "tasks may be of no subtopology", "group_topologies:Topologies.strange_tasks", _nothing, NAMED),
    _mutant("numbers of tasks", "a subtopology may have any number of tasks", "group_topologies:Topologies.largest", _constant({}), NAMED),
    _mutant("log ends", "what is left of a log may contradict the snapshot", "metadata_snapshots:contradictions", _constant([]),
            "tests/spark/test_audit_partial_snapshots.py"),
    _mutant("reserved directories", "a directory may have any id", "metadata_registrations:is_reserved", _constant(False), VALUES),
    _mutant("reserved places", "a replica may be in any directory", "metadata_partitions:is_reserved", _constant(False), IMPOSSIBLE),
    _mutant("epochs to come", "a broker may have any epoch", "metadata_log:check_epoch", _none, VALUES),
    _mutant("one producer", "two transactional ids may have one producer id", "coordination:of_two_ids", _nothing, ORDER),
    _mutant("reserved id", "the metadata log may have any topic id", "compare:_metadata_topic_ids", _none, IMPOSSIBLE),
    _mutant("impossible", "the controller may say anything of leaders and replicas in sync", "claims:_impossible", _nothing, IMPOSSIBLE),
    _mutant("superseded", "of coordinators only the latest record of each key is read", "coordination:latest_records", _latest_only,
            COORDINATORS),
    _mutant("delivery states", "records of share groups may be in any state", "coordinator_log:DELIVERY_STATES", _any_delivery_state,
            COORDINATORS),
    _mutant("zstd frames", "a zstd frame may be cut", "records:_whole_zstd_frames", _none, CODECS),
    _mutant("snappy headers", "any header of snappy is taken", "records:_xerial_header", _none, CODECS),
)  # fmt: skip
MUTANTS: dict[str, Mutant] = {one.name: one for one in _ALL}
assert len(MUTANTS) == len(_ALL), "two mutants have one name"
