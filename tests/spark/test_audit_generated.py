"""Generated faults: what a reader or a follower could see is never passed, and what brokers do in good order is never blamed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.log_fault_bases import BASES, LOG_ENDS, OWN_SNAPSHOTS, RARE
from helpers.log_fault_grammar import ALL_VERBS, Case, Player, Step, draw, is_legal, shrink
from helpers.log_fault_holders import CONSUMER, GROUPS_BASE, ONCE, SHARE, STREAMS, TWICE
from helpers.log_fault_lives import RIGHT, WRONG
from helpers.log_fault_named import RIGHT as RIGHT_NAMES
from helpers.log_fault_named import WRONG as WRONG_NAMES
from helpers.log_fault_values import SOUND, UNSOUND

from minikafka.spark import scan
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

SLICES, CASES_A_SLICE = 4, 40
OPTIONS = AuditOptions(level="records", confirm=False)


def audit(folder: Path) -> int:
    return run_audit([str(path) for path in sorted(folder.iterdir())], LocalEngine(1), OPTIONS).exit_code


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    player = Player(memory)
    yield player
    player.close()


@pytest.mark.parametrize("name", sorted(BASES.keys() - RARE))
def test_a_base_passes_and_shows_nothing(player: Player, name: str) -> None:
    judgement, code = player.play(Case(name, ()), audit)
    assert (judgement.visible, code) == ((), 0)


WRONG_ONCE = {
    "a replica that is being added and lost its log": Case("being reassigned", (Step("remove_segment", (3,), (49291, 0)),)),
    "rubbish behind the metadata log of a killed node": Case("made again", (Step("metadata", (1,), (22562, "rubbish", 25577, 0)),)),
    "an aborted transaction that began below the log start": Case("Apache Kafka's txn-0", (Step("retain", (1, 2)),)),
    "a killed broker's only leader epoch behind its log's end, which the next start cuts": Case("made again", (
        Step("cut", (3,), (11,)), Step("epochs_from_log", (3,)))),
    "a log start behind the beginning of an aborted transaction": Case("transactions", (
        Step("line_twice", (3,), ("log-start-offset-checkpoint", 41995, "behind")),)),
    "a log start behind the newest snapshot of producers that can be read": Case("killed in an append", (
        Step("line_twice", (3,), ("log-start-offset-checkpoint", 60071, "before")),)),
    "a log start behind a producer's last record, of which a snapshot still knows": Case("killed in an append", (
        Step("line_twice", (3,), ("log-start-offset-checkpoint", 20000, "before")),)),
    "a file whose name begins with an offset and opens an empty segment": Case("plain", (Step("odd_name", (2,), (40000, "0N.x.log")),)),
    "a directory id with which no broker starts": Case("plain", (Step("directory_identity", (2,), ("reserved",)),)),
    "a producer without a batch that has an offset delta": Case("Apache Kafka's txn-0", (Step("snapshot_field", (3,), (58090, 23, 2)),)),
    "records behind the first member of a compressed batch": Case("plain", (
        Step("compressed", (1, 2, 3), (60000, 1, "twice", 0)), Step("repair_indexes", (1, 2, 3)))),
    "a lost log of a topic made again, where nobody knows what was committed": Case("made again", (Step("no_directory", (2,), ("gone",)),)),
    "a zstd frame that lacks its last byte": Case("plain", (
        Step("compressed", (1, 2, 3), (60000, 4, "cut", 0)), Step("repair_indexes", (1, 2, 3)))),
    "a control batch without a producer": Case("plain", (Step("header", (1, 2, 3), (40000, "attributes", 32, 1)),)),
    "an epoch for which only a voter with a replaced directory may have voted": Case("transaction states", (
        Step("metadata_epoch", (1,), (1,)), Step("directory_identity", (3,), ("other",)))),
    "a pipe in the place of an index that the next start makes anew": Case("made again", (Step("pipe", (2,), (".timeindex",)),)),
    "a time index entry beyond the end of a cleaned segment": Case("compacted", (Step("entry", (1, 2), (".timeindex", 6205, 3, 16)),)),
    "a copy that has what a cleaner removed from the log since": Case("compacted transactions", (
        Step("interrupt", (2,), (8408, "beside")), Step("foreign", (2,), ("future",)), Step("interrupt", (2,), (48725, "alone")))),
    "a topic that never was, where the newest metadata begin with a snapshot": Case("a leader's uncopied tail", (
        Step("stray", (1,), ("topic",)),)),
    "an observer of the quorum without a metadata log": Case("metadata that begins with a snapshot", (Step("votes", (2,), ("no log",)),)),
    "a removal of a compacted topic that two controllers hold": Case("compacted transactions", (
        Step("metadata_proposal", (3,), ("removed",)), Step("metadata_proposal", (1,), ("removed",)))),
    "logs of which retention deleted everything": Case("Apache Kafka's mixed-0", (Step("roll", (1, 2, 3)), Step("retain", (1, 2, 3)))),
    "null in place of the log directories in a snapshot of the metadata": Case("metadata snapshots of their own", (
        Step("metadata_snapshot", (1,), (51920, "bit", 1)),)),
    "a topic made again of which no broker has a log": Case("made again", (Step("no_directory", (1, 2, 3), ("gone",)),)),
    "a broker that is shutting down by a snapshot of the metadata": Case("metadata snapshots of their own", (
        Step("metadata_snapshot", (1,), (7484, "bit", 1)),)),
    "records that cleaners removed for later ones of which they did not know": Case("compacted", (
        Step("interrupt", (1, 2, 3), (56876, "alone")), Step("repair_checkpoints", (1, 2, 3)))),
    "a file that opens an empty segment": Case("metadata snapshots", (Step("odd_name", (3,), (54985, "N.log")),)),
}  # fmt: skip


@pytest.mark.parametrize("step", [
    Step("owner", (2,), ("syntax",)), *(Step("metadata_proposal", (2,), (what,)) for what in ("in sync", "compacted", "removed")),
])  # fmt: skip
def test_what_has_no_effect_passes(player: Player, step: Step) -> None:
    judgement, code = player.play(Case("plain", (step,)), audit)
    assert (judgement.visible, code) == ((), 0)


@pytest.mark.parametrize("case", WRONG_ONCE.values(), ids=WRONG_ONCE)
def test_a_case_that_was_judged_wrongly(player: Player, case: Case) -> None:
    assert not _play(player, case)


@pytest.mark.parametrize("number", range(SLICES))
def test_generated_faults(player: Player, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A small part of what tests/bench/audit_fuzz.py plays; pages are small, so that comparisons turn many."""
    monkeypatch.setattr(scan, "DETAIL_BATCHES_MAX", 5)
    seen = set()
    for seed in range(number * CASES_A_SLICE, (number + 1) * CASES_A_SLICE):
        case = draw(seed)
        if case.base in RARE:  # it takes seconds
            continue
        judgement, code = player.play(case, audit)
        seen.add("visible" if judgement.visible else "legal" if judgement.is_legal else "neither")
        blamed = judgement.blames(code)
        if blamed:
            smaller = shrink(case, lambda one, blamed=blamed: _play(player, one)[:6] == blamed[:6])
            pytest.fail(f"seed {seed}: {blamed}: {smaller}")
    assert {"visible", "legal"} <= seen


def _play(player: Player, case: Case) -> str:
    judgement, code = player.play(case, audit)
    return judgement.blames(code)


def test_a_case_shrinks_to_what_is_wrong() -> None:
    steps = tuple(Step(verb, (1, 2, 3), ()) for verb in ("link", "swap", "roll"))
    smaller = shrink(Case("plain", steps), lambda case: any(step.verb == "swap" and 2 in step.brokers for step in case.steps))
    assert smaller == Case("plain", (Step("swap", (2,), ()),))


def test_the_grammar_draws_every_fault_and_every_base() -> None:
    drawn = [draw(seed) for seed in range(4000)]
    assert {case.base for case in drawn} == set(BASES)
    assert {step.verb for case in drawn for step in case.steps} == set(ALL_VERBS)
    assert sum(all(is_legal(step, case.base) for step in case.steps) for case in drawn) > 500


def test_a_topic_that_the_only_voter_removed_has_no_replicas_that_could_differ(player: Player) -> None:
    """The oracle asked more than Kafka's rules do: a record that a majority holds is committed."""
    steps = (Step("metadata_proposal", (1,), ("removed",)), Step("rename_segment", (2,), (2718, 16)))
    judgement, code = player.play(Case("metadata that begins with a snapshot", steps), audit)
    assert (judgement.visible, judgement.is_legal, code) == ((), False, 0)
    judgement, code = player.play(Case("plain", steps), audit)
    assert judgement.visible and code != 0, "of three voters one alone removes nothing"


@pytest.mark.parametrize("kind", [CONSUMER, STREAMS, SHARE])
@pytest.mark.parametrize("how", [*TWICE, *ONCE])
def test_a_partition_that_two_members_hold_is_seen_by_the_oracle_and_the_audit(player: Player, kind: int, how: str) -> None:
    """The records themselves are right, and the same on all replicas."""
    judgement, code = player.play(Case(GROUPS_BASE, (Step("two_holders", (1, 2, 3), (40000, kind, how, "one")),)), audit)
    is_wrong = how in TWICE and kind != SHARE  # partitions of a share group have several readers
    assert (bool(judgement.visible), judgement.is_legal, code) == (is_wrong, not is_wrong, int(is_wrong))


@pytest.mark.parametrize("kind", [CONSUMER, STREAMS, SHARE])
@pytest.mark.parametrize("how", [*RIGHT, *WRONG])
def test_a_life_of_a_group_that_ends_wrong_is_seen_by_the_oracle_and_the_audit(player: Player, kind: int, how: str) -> None:
    """The same on all replicas, too."""
    judgement, code = player.play(Case(GROUPS_BASE, (Step("group_life", (1, 2, 3), (30000, kind, how)),)), audit)
    assert (bool(judgement.visible), judgement.is_legal, code) == (how in WRONG, how in RIGHT, int(how in WRONG))


@pytest.mark.parametrize("what", ["setting", "leader"])
def test_a_snapshot_that_differs_from_the_log_that_leads_up_to_it(player: Player, what: str) -> None:
    """The same on all controllers; the log before is gone."""
    judgement, code = player.play(Case(LOG_ENDS, (Step("snapshot_said", (1, 2, 3), (what,)),)), audit)
    assert (bool(judgement.visible), code) == (True, 1)


@pytest.mark.parametrize("how", [*RIGHT_NAMES, *WRONG_NAMES])
def test_what_a_groups_records_name_is_seen_by_the_oracle_and_the_audit(player: Player, how: str) -> None:
    judgement, code = player.play(Case(GROUPS_BASE, (Step("group_names", (1, 2, 3), (20000, how)),)), audit)
    is_wrong = how in WRONG_NAMES
    assert (bool(judgement.visible), judgement.is_legal, code != 0) == (is_wrong, not is_wrong, is_wrong)


@pytest.mark.parametrize("what", [*SOUND, *UNSOUND])
def test_a_metadata_record_that_no_controller_loads_is_seen_by_the_oracle_and_the_audit(player: Player, what: str) -> None:
    judgement, code = player.play(Case("plain", (Step("metadata_value", (1, 2, 3), (what,)),)), audit)
    assert (bool(judgement.visible), judgement.is_legal, code) == (what in UNSOUND, what in SOUND, int(what in UNSOUND))


@pytest.mark.parametrize(("kind", "where", "is_wrong"), [
    (CONSUMER, "groups", False), (CONSUMER, "topics", False), (STREAMS, "groups", False), (STREAMS, "topics", False),
    (STREAMS, "together", False), (CONSUMER, "together", True),
])  # fmt: skip
def test_what_two_members_may_hold_is_no_fault(player: Player, kind: int, where: str, is_wrong: bool) -> None:
    judgement, code = player.play(Case(GROUPS_BASE, (Step("two_holders", (1, 2, 3), (20000, kind, "both", where)),)), audit)
    assert (bool(judgement.visible), judgement.is_legal, code) == (is_wrong, not is_wrong, int(is_wrong))


def _visible_on(player: Player, case: Case) -> bool:
    return bool(player.play(case, lambda folder: 0)[0].visible)


@pytest.mark.parametrize("step", [
    Step("header", (2,), (40000, "count", 1, 1)), Step("payload", (3,), (40000, 9, 1, 0)), Step("drop", (1, 2, 3), (30000, 1)),
    Step("others", (3,), (30000, 1000, 1)), Step("epoch_line", (1, 2, 3), ("more", 60000, 1)), Step("no_directory", (2,), ("gone",)),
    Step("twin", (1,), ("another",)), Step("checkpoint_line", (1,), ("replication-offset-checkpoint", "beyond", 3)),
    Step("swap", (1,), (20000,)),
    Step("zeros_behind", (2,), (0, ".timeindex", 3)), Step("entry", (1,), (".index", 0, 1, 1)), Step("time_entries", (1,), (0, "last")),
    Step("identity", (3,), ("gone",)), Step("directory_identity", (2,), ("short",)), Step("directory_identity", (3,), ("theirs",)),
    *(Step("owner", (1,), (how,)) for how in ("version", "text", "negative", "space", "long", "old")),
    Step("lose_head", (2,), (1,)), Step("lose_head", (1, 2, 3), (2,)), Step("pipe", (3,), (".timeindex",)),
    Step("stray", (1,), ("number",)), Step("stray", (1, 2, 3), ("topic",)), Step("metadata_epoch", (3,), (2,)),
    Step("odd_name", (2,), (40000, "0N.x.log")), Step("odd_name", (2,), (40000, "0N.x.log.swap")),
    *(Step("compressed", (1, 2, 3), (60000, codec, "twice", 0)) for codec in (1, 2, 4)),
    *(Step("compressed", (1, 2, 3), (60000, codec, "cut", 0)) for codec in (1, 2, 3, 4)),
    *(Step("inner", (1, 2, 3), (40000, 0, field, 1)) for field in ("offset", "time", "twice")),
])  # fmt: skip
def test_the_oracle_sees_what_anybody_would(player: Player, step: Step) -> None:
    assert _visible_on(player, Case("plain", (step,)))


@pytest.mark.parametrize("step", [Step("metadata_snapshot", (2,), (30000, "less", 1)), Step("metadata_snapshot", (3,), (30000, "bit", 1))])
def test_the_oracle_sees_what_only_other_controllers_can_tell(player: Player, step: Step) -> None:
    assert _visible_on(player, Case(OWN_SNAPSHOTS, (step,)))


@pytest.mark.parametrize("how", [("first", -4), ("first", 1), ("order", 1), ("twin", -4), ("forged", 1)])
def test_the_oracle_sees_what_a_read_committed_consumer_would(player: Player, how: tuple[str, int]) -> None:
    steps = [Step("aborted_entry", (2,), (at << 13, how[0], how[1])) for at in range(8)]
    assert any(_visible_on(player, Case("transactions", (step,))) for step in steps)


@pytest.mark.parametrize(("name", "brokers", "at", "expected"), [
    ("plain", (1, 2, 3), 0, 1), ("plain", (1, 2, 3), 60000, 1), ("crashed", (1, 2, 3), 0, 0), ("crashed", (1, 2, 3), 60000, 1),
    ("crashed", (1, 2), 0, 0), ("crashed", (2,), 0, 3),
])  # fmt: skip
def test_of_a_killed_broker_the_first_epochs_may_be_cut_already(
    player: Player, name: str, brokers: tuple[int, ...], at: int, expected: int
) -> None:
    """The oracle and the audit agree on it; a stopped broker has written the log start too, and a log start is moved on all replicas."""
    judgement, code = player.play(Case(name, (Step("epoch_line", brokers, ("less", at, 1)),)), audit)
    assert (bool(judgement.visible), code) == (expected > 0, expected)
