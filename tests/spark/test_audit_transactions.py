"""Producers and transactions under the audit: more of them than a summary keeps, and index entries as followers write them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import registered_topic
from helpers.log_clusters import ABORT, COMMIT, TIME_MS, TRANSACTIONAL, Batch, Partition, marker, plain, write_broker

from minikafka.spark import producers, scan
from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.planning import make_plan
from minikafka.spark.sources import partition_tasks


def audit(path: Path, **options: Any) -> AuditResult:
    return run_audit([str(path)], LocalEngine(1), AuditOptions(**options))


def messages_of(result: AuditResult, check: str) -> list[str]:
    return [one.message for one in result.findings.kept if one.check == check]


def transactions(count: int, abort: bool = True) -> list[Batch]:
    """`count` transactions of a record each, by three producers in turn, aborted and committed in turn."""
    found: list[Batch] = []
    for number in range(count):
        at, producer = 2 * number, number % 3
        found.append(Batch(at, [(0, None, b"x")], 0, TIME_MS, producer, 0, number // 3, TRANSACTIONAL))
        found.append(marker(at + 1, ABORT if abort and number % 2 else COMMIT, producer))
    return found


@pytest.mark.parametrize(("module", "name"), [
    (producers, "EVENTS_MAX"), (producers, "PRODUCERS_MAX"), (scan, "ABORTS_MAX"),
    (producers, "EVENTS_A_PARTITION"), (producers, "PRODUCERS_A_PARTITION"), (scan, "EVENTS_A_PARTITION"),
])  # fmt: skip
def test_more_transactions_than_a_summary_keeps_are_still_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    monkeypatch.setattr(module, name, 2)
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", transactions(30), bases=(0, 20, 40))])
    assert audit(tmp_path).outcome == "PASS"
    for broker in (1, 2):
        (tmp_path / f"b{broker}" / "t-0" / f"{20:020d}.txnindex").unlink()
    result = audit(tmp_path)
    assert result.exit_code == 1 and len(messages_of(result, "txn-index-target")) == 10, "five in each replica"


@pytest.mark.parametrize("most", [5, 6, 17, 18, 19, 10**6])
def test_the_summaries_of_a_partition_share_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A task holds them all. What there is more of is not kept in part, because only a second reading is of use then."""
    monkeypatch.setattr(producers, "PRODUCERS_A_PARTITION", most)
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", transactions(30), bases=(0, 20, 40))])
    plan = make_plan([str(tmp_path)])
    found = [scan.scan_segment(task) for task in partition_tasks(plan.replicas["t", 0], "batches", "crc")]
    held = [sum(len(parts) for _, parts in one.producers.pieces) for one in found]
    assert [one.producers.limited for one in found] == [most < 18] * 6 and held == [3 * (most >= 18)] * 6


def opened(base: int, producer: int, sequence: int) -> Batch:
    return Batch(base, [(0, None, b"x")], 0, TIME_MS, producer, 0, sequence, TRANSACTIONAL)


@pytest.mark.parametrize(("stable", "is_legal"), [(2, True), (4, True), (1, False), (3, False), (5, False), (6, False), (9, False)])
def test_a_follower_that_copied_several_transactions_at_once_may_name_the_next_one(tmp_path: Path, stable: int, is_legal: bool) -> None:
    """Producer 0 aborts twice, then 1 and 2 begin. When 0's first marker came nobody else was open: the leader writes 2. A follower that
    got everything in one fetch writes the first offset of 1's transaction."""
    batches = [
        opened(0, 0, 0),
        marker(1, ABORT, 0),
        opened(2, 0, 1),
        marker(3, ABORT, 0),
        opened(4, 1, 0),
        marker(5, COMMIT, 1),
        opened(6, 2, 0),
    ]
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [*batches, marker(7, COMMIT, 2)])])
    path = tmp_path / "b2" / "t-0" / f"{0:020d}.txnindex"
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 26, stable)
    path.write_bytes(data)
    result = audit(tmp_path)
    assert result.exit_code == (0 if is_legal else 1) and len(messages_of(result, "txn-index-target")) == (0 if is_legal else 1)


def test_with_another_transaction_open_leader_and_follower_write_the_same(tmp_path: Path) -> None:
    batches = [opened(0, 1, 0), opened(1, 0, 0), marker(2, ABORT, 0), opened(3, 2, 0), marker(4, COMMIT, 2), marker(5, COMMIT, 1)]
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches)])
    assert audit(tmp_path).outcome == "PASS"
    path = tmp_path / "b2" / "t-0" / f"{0:020d}.txnindex"
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 26, 3)
    path.write_bytes(data)
    assert messages_of(audit(tmp_path), "txn-index-target")


# ---- entries that hide what was committed, or show what was aborted -----------------------------------------------------------------


def by_one(ends: str) -> list[Batch]:
    """Transactions of producer 7, of three records each, four offsets with the marker: "a" aborted, "c" committed."""
    found: list[Batch] = []
    for number, end in enumerate(ends):
        at = 4 * number
        data = [(delta, b"k%d" % delta, b"%d" % (at + delta)) for delta in range(3)]
        found.append(Batch(at, data, 0, TIME_MS, 7, 0, 3 * number, TRANSACTIONAL))
        found.append(marker(at + 3, ABORT if end == "a" else COMMIT, 7))
    return found


def entries(path: Path) -> list[list[int]]:
    data = path.read_bytes()
    return [list(struct.unpack_from(">hqqqq", data, at)) for at in range(0, len(data), 34)]


CHANGES: list[Callable[[list[list[int]]], list[list[int]]]] = [
    lambda rows: [[0, 7, 4, 11, 12], *rows],
    lambda rows: [[0, 8, 0, 3, 4], *rows],
    lambda rows: rows[::-1],
    lambda rows: [*rows[:1], [0, 7, 5, 11, 12]],
    lambda rows: [*rows[:1], [0, 7, 9, 11, 12]],
    lambda rows: [*rows[:1], [0, 7, -5, 11, 12]],
    lambda rows: [[0, 7, 2, 3, 4], *rows[1:]],
    lambda rows: [*rows, [0, 7, 12, 16, 17]],
    lambda rows: [*rows, [0, 7, 4, 14, 15]],
    lambda rows: [],
]


@pytest.mark.parametrize("kind", ["whole", "begun later", "compacted"])
def test_no_entry_covers_another_transaction_and_none_is_missing(tmp_path: Path, kind: str) -> None:
    """Transactions: aborted 0..3 and 8..11, committed 4..7 and 12..15, and an abort of nothing at 16; each change shows aborted records or
    hides committed ones. Below a log start, and where cleaners were, the log may have lost a beginning, but no marker that counts."""
    log = registered_topic()
    if kind == "compacted":
        log.config("t", "cleanup.policy", "compact")
    for broker in (1, 2, 3):
        batches = [*by_one("acac"), marker(16, ABORT, 7), plain(17)]
        start = 2 if kind == "begun later" else 0
        one = Partition("t-0", batches, (0, 17), ((0, start),), log_start=start)
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode(), cleaned={"t-0": 17} if kind == "compacted" else None)
    result = audit(tmp_path)
    assert result.outcome == "PASS", [one.message for one in result.findings.kept]
    path = tmp_path / "b2" / "t-0" / f"{0:020d}.txnindex"
    held = entries(path)
    for number, change in enumerate(CHANGES):
        path.write_bytes(b"".join(struct.pack(">hqqqq", *row) for row in change(held)))
        result = audit(tmp_path)
        assert result.exit_code == 1 and messages_of(result, "txn-index-target"), number
