"""The proof that the proof works: every planted fault is found, named by the right check on the right broker; nothing else is blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.log_fault_clusters import Cluster, Fault, copy_tree, replicated, write_own_logs
from helpers.log_fault_table import TABLE

from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.findings import CHECKS
from minikafka.spark.ledger import LedgerError, read_ledgers
from minikafka.spark.scan import scan_segments

CASES = [(name, build, fault) for name, build, faults in TABLE for fault in faults]


@pytest.fixture(scope="module", autouse=True)
def own_logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    write_own_logs(tmp_path_factory.mktemp("own"))


def audit(cluster: Cluster, level: str = "batches") -> AuditResult:
    options = AuditOptions(level=level, topics=cluster.topics, acked=tuple(cluster.acked), compacted=cluster.compacted)
    return run_audit(cluster.paths, LocalEngine(1), options)


@pytest.mark.parametrize(("name", "build"), [(name, build) for name, build, _ in TABLE], ids=[name for name, _, _ in TABLE])
@pytest.mark.parametrize("level", ["batches", "records"])
def test_no_alarm_without_a_fault(tmp_path: Path, name: str, build, level: str) -> None:
    result = audit(build(tmp_path), level)
    assert [found.message for found in result.findings.kept if found.level != "note"] == []
    assert {one.verdict for one in result.partitions} <= {"MATCH", "EMPTY", "LAGGING", "SINGLE", "TRUNCATION_PENDING"}
    assert result.outcome == "PASS"


@pytest.mark.parametrize(("name", "build", "fault"), CASES, ids=[f"{name}: {fault.name}" for name, _, fault in CASES])
def test_a_planted_fault_is_found_and_named(tmp_path: Path, name: str, build, fault: Fault) -> None:
    cluster = build(tmp_path)
    fault.plant(cluster)
    result = audit(cluster, fault.level)
    serious = [found for found in result.findings.kept if found.level != "note"]
    named = [found for found in serious if found.check in fault.expected]
    assert named, [(found.check, found.brokers, found.message) for found in result.findings.kept]
    if fault.brokers:
        assert {broker for found in named for broker in found.brokers} == set(fault.brokers)
        assert {broker for found in serious for broker in found.brokers} <= set(fault.brokers), "an undamaged broker is blamed"
    if fault.cause:
        assert any(fault.cause in found.cause for found in result.findings.kept), [found.cause for found in result.findings.kept]
    assert result.exit_code == 1 or all(found.level == "warning" for found in serious)


def test_every_check_is_planted_somewhere() -> None:
    planted = {check for _, _, faults in TABLE for fault in faults for check in fault.expected}
    elsewhere = {
        # covered by the altered files of test_audit_golden.py and the tests below
        "epoch-order", "index-format", "index-order", "torn-tail", "replica-lagging", "replica-tail", "replica-reread", "unreadable",
        "epoch-fork", "producer-snapshot", "replica-offline", "stray-replica", "acked-conflict", "acked-unchecked",
        "not-compared", "replica-twice", "batch-sparse", "unclean-loss", "quorum-state", "prefix-missing",
        "group-offset", "coordinator-place", "coordinator-record", "resumed", "foreign-file", "foreign-directory", "txn-decision",
        "producer-transaction", "share-state",
    }  # fmt: skip
    assert planted | elsewhere >= set(CHECKS)


def test_a_directory_that_the_controller_does_not_assign_is_set_aside(tmp_path: Path) -> None:
    """Its whole record never made such a topic: where the directory comes from nobody knows."""
    cluster = replicated(tmp_path)
    copy_tree(cluster.files(), cluster.directories[1] / "gone-0")
    result = run_audit(cluster.paths, LocalEngine(1), AuditOptions(topics=("rep", "gone"), self_check=True))
    found, unexplained = [found for found in result.findings.kept if found.topic == "gone"]
    assert result.outcome == "INCOMPLETE" and found.check == "stray-replica" and unexplained.check == "not-compared"
    assert found.brokers == unexplained.brokers == ("1",)


def test_a_ledger_with_contradictions_and_of_unknown_partitions(tmp_path: Path) -> None:
    cluster = replicated(tmp_path)
    path = tmp_path / "acked.jsonl"
    rows = [{"topic": "rep", "partition": 0, "offset": 3, "value": value} for value in ("a", "b")]
    path.write_text("\n".join(map(json.dumps, [*rows, {"topic": "other", "partition": 1, "offset": 0}])) + "\n\n")
    cluster.acked.append(str(path))
    result = audit(cluster)
    checks = {found.check for found in result.findings.kept}
    assert {"acked-conflict", "acked-unchecked"} <= checks and result.partitions[-1].verdict == "LOST"


@pytest.mark.parametrize("content", ["", "\n", '{"name": "producer_send_error", "topic": "rep"}\n'])
def test_a_ledger_that_names_no_record_is_no_proof(tmp_path: Path, content: str) -> None:
    """A recorder that failed leaves an empty file, also beside another one that is not empty."""
    cluster = replicated(tmp_path)
    for name, text in (("empty.jsonl", content), ("acked.jsonl", json.dumps({"topic": "rep", "partition": 0, "offset": 3}))):
        (tmp_path / name).write_text(text)
        cluster.acked.append(str(tmp_path / name))
        result = audit(cluster)
        assert (result.outcome, result.exit_code) == ("INCOMPLETE", 3)
        assert [one.message for one in result.findings.kept if one.check == "acked-unchecked"] == [
            f"{tmp_path / 'empty.jsonl'} names no acknowledged record"
        ]


@pytest.mark.parametrize("content", [b"not json\n", b'{"topic": "t"}\n', b"\xff\xfe\n"])
def test_an_unreadable_ledger_is_reported_with_its_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "acked.jsonl"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"acked\.jsonl"):
        read_ledgers([str(path)])


def test_a_partition_that_was_caught_in_mid_write_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = replicated(tmp_path)
    for path in cluster.directories.values():
        (path / ".kafka_cleanshutdown").unlink()
    log = cluster.segments()[0]
    good, bad = log.read_bytes(), bytearray(log.read_bytes())
    bad[1800] ^= 1
    log.write_bytes(bad)
    scans = []

    def scan(tasks: list[Any]) -> Any:
        scans.append(len(tasks))
        result = scan_segments(tasks)
        log.write_bytes(good)
        return result

    monkeypatch.setattr("minikafka.spark.audit.scan_segments", scan)
    result = audit(cluster)
    assert result.outcome == "PASS" and len(scans) == 2
    assert [found.check for found in result.findings.kept if found.topic == "rep"] == ["replica-reread"]
