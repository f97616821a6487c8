"""Replicas that cleaners left different: what survived is held against each other, whoever else is among the replicas."""

from __future__ import annotations

import gzip
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.audited_clusters import BROKERS, audit, messages_of, registered_topic
from helpers.log_clusters import ABORT, TRANSACTIONAL, Batch, Partition, lines, marker, write_broker

from minikafka.spark import records, sources
from minikafka.spark.audit import AuditResult

TIME_MS = 1_700_000_000_000
BASES = (0, 20, 40)


def each_its_key(count: int = 60) -> list[Batch]:
    return [Batch(at, [(0, b"k%d" % at, b"v%d" % at)], 0, TIME_MS + at) for at in range(count)]


def write(folder: Path, change: Callable[[int, Partition], None], isr: tuple[int, ...] = BROKERS, killed: tuple[int, ...] = ()) -> Path:
    """A compacted topic, which all cleaners did up to 40; `change` alters a broker's copy before it is written."""
    log = registered_topic(isr, leader=isr[0]).config("t", "cleanup.policy", "compact")
    for broker in BROKERS:
        one = Partition("t-0", each_its_key(), BASES)
        change(broker, one)
        cleaned = {"t-0": 40} if broker not in killed else None
        write_broker(folder / f"b{broker}", broker, [one], log.encode(), broker not in killed, cleaned=cleaned)
    return folder


def lacks(*offsets: int) -> Callable[[int, Partition], None]:
    """Broker 3 lacks these, which nobody wrote again."""

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches = [batch for batch in one.batches if batch.base not in offsets]

    return change


@pytest.mark.parametrize(("replaced_by", "killed", "found"), [
    (39, (), []), (40, (), [(("3",), 5)]), (59, (), [(("3",), 5)]), (39, BROKERS, []), (40, BROKERS, [(("3",), 5)]),
])  # fmt: skip
def test_a_record_is_removed_only_for_one_that_the_cleaner_knew(
    tmp_path: Path, replaced_by: int, killed: tuple[int, ...], found: list[object]
) -> None:
    """Cleaners came to 40; where brokers were killed they came no further either, for there the active segment begins."""

    def change(broker: int, one: Partition) -> None:
        one.batches[replaced_by] = Batch(replaced_by, [(0, b"k5", b"new")], 0, TIME_MS + replaced_by)
        lacks(5)(broker, one)

    assert lost(audit(write(tmp_path, change, killed=killed), confirm=False)) == found


def lost(result: AuditResult) -> list[tuple[tuple[str, ...], int]]:
    return [(one.brokers, one.offset) for one in result.findings.kept if one.check == "replica-differs"]


@pytest.mark.parametrize(("high_watermark", "end", "start", "gone"), [(10, 20, 0, 17), (20, 20, 0, 37), (20, 20, 0, 7), (60, 60, 10, 7)])
def test_a_lost_key_is_seen_beside_a_replica_that_answers_for_less(
    tmp_path: Path, high_watermark: int, end: int, start: int, gone: int
) -> None:
    """Broker 1 stopped early, or begins later: the keys behind its claim are held against broker 2's."""

    def change(broker: int, one: Partition) -> None:
        lacks(gone)(broker, one)
        if broker == 1:
            one.batches = [batch for batch in one.batches if batch.base < end]
            one.bases = tuple(base for base in BASES if base < end)
            one.high_watermark, one.log_start = high_watermark, start

    folder = write(tmp_path, change, (2, 3), killed=(1,))
    (folder / "b1" / "log-start-offset-checkpoint").write_text(lines([f"t 0 {start}"] if start else []))
    assert lost(audit(folder, confirm=False)) == [(("3",), gone)]


@pytest.mark.parametrize("high_watermark", [60, 41, 18, 6])
def test_a_lost_key_is_seen_though_high_watermarks_are_older_than_the_cleaning(tmp_path: Path, high_watermark: int) -> None:
    """All were killed: their checkpoints of high watermarks are some seconds old, and how far cleaners came is not known."""

    def change(broker: int, one: Partition) -> None:
        lacks(5)(broker, one)
        one.high_watermark = high_watermark

    assert lost(audit(write(tmp_path, change, killed=BROKERS), confirm=False)) == [(("3",), 5)]


def test_a_key_that_a_tombstone_removed_beyond_the_others_end_is_no_loss(tmp_path: Path) -> None:
    """Broker 1 was away; the others cleaned key 5, its tombstone and all, behind the end of broker 1's log."""

    def change(broker: int, one: Partition) -> None:
        one.high_watermark = 60
        if broker == 1:
            one.batches, one.bases, one.high_watermark = one.batches[:20], (0,), 20
        else:
            one.batches = [batch for batch in one.batches if batch.base not in {5, 30}]

    assert audit(write(tmp_path, change, (2, 3), killed=(1,))).outcome == "PASS"


def _encoded(body: bytes, count: int = 1, attributes: int = 0, max_ms: int = TIME_MS + 5) -> bytes:
    rest = struct.pack(">hiqqqhii", attributes, 0, TIME_MS + 5, max_ms, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 5, 9 + len(rest), 0, 2, crc32c(rest)) + rest


@pytest.mark.parametrize(("raw", "check"), [
    (_encoded(b"\x7f" * 30), "batch-records"),
    (_encoded(b"\x7f" * 30, attributes=1), "batch-records"),
    (_encoded(gzip.compress(b"\x7f" * 30, mtime=0), attributes=1), "batch-records"),
    (_encoded(each_its_key()[5].encode()[61:], count=0), "batch-records"),
    (_encoded(each_its_key()[5].encode()[61:], max_ms=TIME_MS), "batch-timestamps"),
    (_encoded(each_its_key()[5].encode()[61:], max_ms=TIME_MS + 1000), "batch-timestamps"),
], ids=["rubbish", "no gzip", "rubbish in gzip", "more than counted", "too early", "too late"])  # fmt: skip
@pytest.mark.parametrize("broker", BROKERS)
def test_a_batch_that_no_reader_can_take_does_not_count_as_cleaned(tmp_path: Path, raw: bytes, check: str, broker: int) -> None:
    """Its checksum is right; key 5 was written again, so that its record might be gone."""

    def change(number: int, one: Partition) -> None:
        one.batches[45] = Batch(45, [(0, b"k5", b"new")], 0, TIME_MS + 45)

    folder = write(tmp_path, change)
    file = folder / f"b{broker}" / "t-0" / f"{0:020d}.log"
    before = each_its_key()[5].encode()
    file.write_bytes(file.read_bytes().replace(before, raw))
    for suffix in (".index", ".timeindex"):  # positions moved: a broker makes both again
        file.with_suffix(suffix).unlink()
    result = audit(folder)
    assert result.exit_code == 1 and messages_of(result, check)[0].startswith(f"{broker}: ")


@pytest.mark.parametrize("record", [0, 15, 16, 17, 31, 32, 39])
def test_a_batch_that_reaches_over_a_cell_is_compared_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: int) -> None:
    """Cells of 16 offsets; one record of a batch of 40 differs, and a later one has its key."""
    monkeypatch.setattr(sources, "_cell_shift", lambda copies: 4)

    def change(broker: int, one: Partition) -> None:
        records = [(delta, b"a", b"w" if broker == 3 and delta == record else b"v") for delta in range(40)]
        one.batches = [Batch(0, records, 0, TIME_MS), *each_its_key()[40:], Batch(60, [(0, b"a", b"z")], 0, TIME_MS + 60)]
        one.bases = (0, 40)

    assert lost(audit(write(tmp_path, change))) == [(("3",), record)]


@pytest.mark.parametrize(("most", "outcome"), [(5000, "INCOMPLETE"), (50_000, "PASS")])
def test_a_batch_that_unpacks_to_more_than_is_held_is_no_proof_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, outcome: str
) -> None:
    """It lies beside others that a cleaner removed on one replica; so it is with every record decoded, and with a ledger of it."""

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches = [batch for batch in one.batches if batch.base != 7]
        one.batches = [Batch(39, [(0, b"k7", b"new")], 0, TIME_MS + 39) if batch.base == 39 else batch for batch in one.batches]

    monkeypatch.setattr(records, "RECORDS_BYTES_MAX", most)
    folder = write(tmp_path / "cluster", change)
    large = Batch(5, [(0, b"k5", bytes(20_000))], 0, TIME_MS + 5).encode()[61:]
    for broker in BROKERS:
        file = folder / f"b{broker}" / "t-0" / f"{0:020d}.log"
        raw = _encoded(gzip.compress(large, mtime=0), attributes=1)
        file.write_bytes(file.read_bytes().replace(each_its_key()[5].encode(), raw))
        for suffix in (".index", ".timeindex"):
            file.with_suffix(suffix).unlink()
    ledger = tmp_path / "acked.jsonl"
    ledger.write_text('{"topic": "t", "partition": 0, "offset": 5}\n')
    assert [audit(folder, **more).outcome for more in ({}, {"level": "records"}, {"acked": (str(ledger),)})] == [outcome] * 3


def test_a_transaction_of_whose_end_not_all_have_heard(tmp_path: Path) -> None:
    """Broker 3 does not have the abort marker yet, so the aborted record is the latest of its key there only."""

    def change(broker: int, one: Partition) -> None:
        one.batches[10] = Batch(10, [(0, b"k5", b"again")], 0, TIME_MS + 10)
        if broker == 2:
            del one.batches[5]
        one.batches.append(Batch(60, [(0, b"k50", b"aborted")], 0, TIME_MS + 60, 7, 0, 0, TRANSACTIONAL))
        one.high_watermark = 61
        if broker != 3:
            one.batches.append(marker(61, ABORT, 7))

    assert audit(write(tmp_path, change)).outcome == "PASS"


def test_a_copy_that_grows_explains_no_hole(tmp_path: Path) -> None:
    """No cleaner has run. Brokers 1 and 2 lack a record whose key came again, and broker 3 moves its log to another directory."""

    def change(broker: int, one: Partition) -> None:
        one.batches[30] = Batch(30, [(0, b"k15", b"again")], 0, TIME_MS + 30)
        if broker != 3:
            del one.batches[15]

    write(tmp_path, change)
    for broker in BROKERS:
        (tmp_path / f"b{broker}" / "cleaner-offset-checkpoint").unlink()
    assert audit(tmp_path).exit_code
    shutil.copytree(tmp_path / "b3" / "t-0", tmp_path / "b3" / f"t-0.{'fedcba9876543210' * 2}-future")
    assert audit(tmp_path).exit_code
