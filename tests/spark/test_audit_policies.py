"""What may have been compacted: by the controller's record, not by the look of a batch (docs/audit-rules.md)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import ABORT, COMMIT, TRANSACTIONAL, Batch, MetadataLog, Partition, marker, plain, write_broker

from minikafka.spark.audit import AuditResult


def sparse(batch: Batch) -> Batch:
    """One record less than the offsets that it takes."""
    return Batch(batch.base, batch.records[:-1], batch.epoch, last_delta=batch.span - 1)


def in_segments(tmp_path: Path, batches: list[Batch], log: MetadataLog | None, **more: Any) -> Path:
    for broker in BROKERS:
        one = Partition("t-0", batches, bases=(0, 10, 20))
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode() if log is not None else b"", **more)
    return tmp_path


BATCHES = [plain(base, 2) for base in range(0, 30, 2)]
#: One batch that looks compacted, and the segment in the middle gone, on every replica alike.
ROBBED = [*BATCHES[:2], sparse(BATCHES[2]), *BATCHES[3:5], *BATCHES[10:]]


def test_one_sparse_batch_excuses_nothing_in_a_topic_that_was_never_compacted(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, ROBBED, registered_topic()))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "CORRUPT")
    assert messages_of(result, "batch-sparse") and messages_of(result, "offset-gap")


def test_without_a_word_of_the_policy_a_sparse_batch_is_no_proof(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, ROBBED, None))
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})


@pytest.mark.parametrize("gone", [{6}, {8}, {10}, {0}, set(range(10, 20))])
@pytest.mark.parametrize(("log", "cleaned", "outcome"), [
    (None, None, "INCOMPLETE"), (registered_topic(), {"t-0": 20}, "INCOMPLETE"), (registered_topic(), None, "FAIL"),
    (registered_topic().config("t", "cleanup.policy", "delete"), {"t-0": 20}, "FAIL"),
    (registered_topic().config("t", "cleanup.policy", "compact"), {"t-0": 20}, "PASS"),
])  # fmt: skip
@pytest.mark.parametrize("producer", [-1, 7])
def test_missing_offsets_are_no_proof_where_nobody_knows_the_policy(
    tmp_path: Path, gone: set[int], log: MetadataLog | None, cleaned: dict[str, int] | None, outcome: str, producer: int
) -> None:
    """A cleaner leaves whole batches too, of a producer that numbers them or not; which batches are missing is the same on all replicas."""
    held = [replace(batch, producer=producer, producer_epoch=min(producer, 0), sequence=batch.base if producer >= 0 else -1)
            for batch in BATCHES if batch.base not in gone]  # fmt: skip
    result = audit(in_segments(tmp_path, held, log, cleaned=cleaned))
    assert result.outcome == outcome, result.findings.kept
    if outcome == "INCOMPLETE":
        assert any("does not say whether the topic was ever compacted" in text for text in messages_of(result, "not-compared"))


def test_no_cleaner_was_ever_in_the_active_segment(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, [batch for batch in BATCHES if batch.base != 24], None))
    assert (result.exit_code, len(messages_of(result, "offset-gap"))) == (1, 3)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("now", ["", "delete"])
@pytest.mark.parametrize(("cleaned", "code"), [({"t-0": 20}, 0), ({"t-0": 10}, 3), (None, 3)])
def test_a_topic_that_once_was_compacted_may_have_gaps_as_far_as_cleaners_came(
    tmp_path: Path, policy: str, now: str, cleaned: dict[str, int] | None, code: int
) -> None:
    log = registered_topic().config("t", "cleanup.policy", policy)
    if now:
        log.config("t", "cleanup.policy", now)
    assert audit(in_segments(tmp_path, ROBBED, log, cleaned=cleaned)).exit_code == code


def test_a_cleaners_checkpoint_does_not_overrule_the_controller(tmp_path: Path) -> None:
    log = registered_topic().config("t", "cleanup.policy", "delete")
    result = audit(in_segments(tmp_path, ROBBED, log, cleaned={"t-0": 20}))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "CORRUPT")
    assert messages_of(result, "batch-sparse") and messages_of(result, "offset-gap")


@pytest.mark.parametrize(("batches", "code"), [(ROBBED, 3), ([sparse(BATCHES[0]), *BATCHES[1:]], 3), (BATCHES, 0)])
def test_a_cleaners_checkpoint_of_a_topic_without_a_policy_of_its_own_proves_nothing(
    tmp_path: Path, batches: list[Batch], code: int
) -> None:
    """A static log.cleanup.policy of the brokers may be behind it, or somebody's hand."""
    assert audit(in_segments(tmp_path, batches, registered_topic(), cleaned={"t-0": 20})).exit_code == code


def test_a_cleaner_never_was_in_the_active_segment(tmp_path: Path) -> None:
    log = registered_topic().config("t", "cleanup.policy", "compact")
    result = audit(in_segments(tmp_path, [*BATCHES[:12], *BATCHES[13:]], log, cleaned={"t-0": 30}))
    assert result.exit_code == 3 and any("24..25 are missing" in text for text in messages_of(result, "not-compared"))


# ---- above what cleaners did, and below --------------------------------------------------------------------------------------------


def cleaned_to_20(tmp_path: Path, change: Callable[[int, Partition], None] = lambda broker, one: None) -> Path:
    """Two producers, one of them in transactions, in a compacted topic. Brokers 2 and 3 have cleaned up to 20, each on its own."""
    log = registered_topic().config("t", "cleanup.policy", "compact")
    for broker in BROKERS:
        gone = {1: (), 2: (2, 6), 3: (2, 10)}[broker]
        batches = [replace(batch) for batch in keyed() if batch.base not in gone]
        one = Partition("t-0", batches, (0, 12, 20))
        change(broker, one)
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode(), cleaned={"t-0": 20} if broker > 1 else None)
    return tmp_path


def keyed() -> list[Batch]:
    """Offsets 0..31: of each four, producer 7's record in a transaction, its marker (every other one an abort), two of producer 8's."""
    found = []
    for number in range(8):
        at, key = 4 * number, b"k%d" % (number % 3)
        found.append(Batch(at, [(0, key, b"t%d" % at)], producer=7, producer_epoch=0, sequence=number, attributes=TRANSACTIONAL))
        found.append(marker(at + 1, ABORT if number % 2 else COMMIT, 7))
        found.append(Batch(at + 2, [(0, b"p", b"v%d" % at), (1, b"q", b"w")], producer=8, producer_epoch=0, sequence=2 * number))
    return found


def test_replicas_that_were_cleaned_differently_match(tmp_path: Path) -> None:
    result = audit(cleaned_to_20(tmp_path))
    assert (result.outcome, verdicts(result)["t-0"]) == ("PASS", "MATCH"), [one.message for one in result.findings.kept]


@pytest.mark.parametrize(
    "field", [{"producer": 9}, {"producer_epoch": 1}, {"sequence": 77}, {"attributes": 8}, {"time_ms": 5}, {"epoch": 1}]
)
@pytest.mark.parametrize(("broker", "at"), [(1, 14), (3, 6)])
def test_survivors_are_compared_in_all_fields_that_a_cleaner_keeps(tmp_path: Path, field: dict[str, int], broker: int, at: int) -> None:
    """Also between two replicas of which the first lacks it."""

    def change(number: int, one: Partition) -> None:
        if number == broker:
            index = next(index for index, batch in enumerate(one.batches) if batch.base == at)
            one.batches[index] = replace(one.batches[index], **field)
        if at == 6 and number == 1:
            one.batches = [batch for batch in one.batches if batch.base != 6]
        if at == 6 and number == 2:
            one.batches = sorted([*one.batches, next(batch for batch in keyed() if batch.base == 6)], key=lambda batch: batch.base)

    result = audit(cleaned_to_20(tmp_path, change))
    assert result.exit_code == 1 and messages_of(result, "replica-differs")


def test_above_the_cleaners_point_nothing_may_be_missing(tmp_path: Path) -> None:
    """A record that a later one of its key replaced: by keys alone nobody would miss it."""

    def change(number: int, one: Partition) -> None:
        if number == 3:
            one.batches = [batch for batch in one.batches if batch.base != 22]

    result = audit(cleaned_to_20(tmp_path, change))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "DIVERGENT")


def test_above_the_cleaners_point_sequences_are_followed(tmp_path: Path) -> None:
    def change(number: int, one: Partition) -> None:
        one.batches = [replace(batch, sequence=99) if batch.base == 26 else batch for batch in one.batches]

    result = audit(cleaned_to_20(tmp_path, change))
    assert result.exit_code == 1 and messages_of(result, "producer-sequence")


def test_above_the_cleaners_point_transactions_are_followed(tmp_path: Path) -> None:
    cleaned_to_20(tmp_path)
    for path in tmp_path.glob(f"b?/t-0/{20:020d}.txnindex"):
        path.unlink()
    result = audit(tmp_path)
    assert result.exit_code == 1 and len(messages_of(result, "txn-index-target")) == 3 * 2


def test_above_the_cleaners_point_snapshots_are_held_against_the_log(tmp_path: Path) -> None:
    cleaned_to_20(tmp_path)
    path = tmp_path / "b2" / "t-0" / f"{32:020d}.snapshot"
    data = bytearray(path.read_bytes())
    data[10 + 8 + 2 + 3] ^= 1  # the last sequence of the first producer
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[6:]))
    path.write_bytes(data)
    result = audit(tmp_path)
    assert result.exit_code == 1 and messages_of(result, "producer-replay")


def test_a_topic_made_again_does_not_inherit_its_policy(tmp_path: Path) -> None:
    log = MetadataLog().topic("t", bytes(16)).config("t", "cleanup.policy", "compact").remove(bytes(16))
    log.values += registered_topic().values
    assert audit(in_segments(tmp_path, ROBBED, log)).exit_code == 1


def test_without_a_controller_the_auditor_says_what_was_compacted(tmp_path: Path) -> None:
    in_segments(tmp_path, ROBBED, None, cleaned={"t-0": 20})
    assert [audit(tmp_path, compacted=names).exit_code for names in ((), ("u",), ("t",))] == [3, 3, 0]


def test_the_auditor_does_not_overrule_the_controller(tmp_path: Path) -> None:
    in_segments(tmp_path, ROBBED, registered_topic(), cleaned=None)
    assert audit(tmp_path, compacted=("t",)).exit_code == 1


# ---- where a log that is only compacted begins -----------------------------------------------------------------------------------


def without_the_first_segment(
    tmp_path: Path, brokers: tuple[int, ...], topic: str = "t", policies: tuple[str, ...] = ("compact",), at_creation: bool = True,
    starts: dict[int, int] | None = None,
) -> AuditResult:  # fmt: skip
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.topic(topic, TOPIC)
    for number, policy in enumerate(policies):
        if number or not at_creation:
            log.partition(TOPIC, BROKERS, BROKERS, 1)
        log.config(topic, "cleanup.policy", policy)
    if len(policies) == 1 and at_creation:
        log.partition(TOPIC, BROKERS, BROKERS, 1)
    for broker in BROKERS:
        robbed = broker in brokers
        start = (starts or {}).get(broker, 0)
        epochs = ((0, max(10 if robbed else 0, start)),)
        one = Partition(f"{topic}-0", BATCHES[5:] if robbed else BATCHES, (10, 20) if robbed else (0, 10, 20), epochs, log_start=start)
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode(), cleaned={f"{topic}-0": 20})
    return audit(tmp_path)


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
@pytest.mark.parametrize("brokers", [(1,), (2, 3)])
def test_a_compacted_log_does_not_lose_its_beginning_to_retention(tmp_path: Path, brokers: tuple[int, ...], topic: str) -> None:
    result = without_the_first_segment(tmp_path, brokers, topic)
    assert (result.exit_code, verdicts(result)[f"{topic}-0"]) == (1, "DIVERGENT")
    assert {one.brokers for one in result.findings.kept if one.check == "prefix-missing"} == {(str(broker),) for broker in brokers}


def test_a_beginning_that_is_lost_everywhere_is_reported(tmp_path: Path) -> None:
    result = without_the_first_segment(tmp_path, BROKERS)
    assert result.exit_code == 3 and len(messages_of(result, "not-compared")) == 3


@pytest.mark.parametrize("starts", [{3: 10}, {1: 12, 2: 12, 3: 12}])
def test_records_that_were_deleted_are_not_lost(tmp_path: Path, starts: dict[int, int]) -> None:
    """DeleteRecords: a broker writes the start of its log down unless a segment begins there."""
    assert without_the_first_segment(tmp_path, (1, 2), starts=starts).outcome == "PASS"


@pytest.mark.parametrize(("policies", "at_creation", "brokers", "code"), [
    (("compact,delete",), True, (1,), 0), (("delete", "compact"), True, (1,), 0), (("compact",), False, BROKERS, 0),
    (("compact",), False, (1,), 3),
])  # fmt: skip
def test_retention_may_have_been_there_before(
    tmp_path: Path, policies: tuple[str, ...], at_creation: bool, brokers: tuple[int, ...], code: int
) -> None:
    assert without_the_first_segment(tmp_path, brokers, policies=policies, at_creation=at_creation).exit_code == code
