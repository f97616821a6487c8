"""Checks that other faults seldom reach alone, each by its own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from helpers.log_clusters import Partition, plain, write_broker

from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine

INDEX = f"{0:020d}.index"


def audit(path: Path) -> AuditResult:
    return run_audit([str(path)], LocalEngine(1), AuditOptions())


def named(result: AuditResult, check: str) -> list[tuple[tuple[str, ...], int]]:
    return [(one.brokers, one.offset) for one in result.findings.kept if one.check == check]


def test_an_epoch_that_begins_elsewhere_above_the_high_watermark(tmp_path: Path) -> None:
    """Each log agrees with its own checkpoint, and where they part the epochs differ; but no epoch has two beginnings."""
    for broker, start in ((1, 10), (2, 10), (3, 12)):
        batches = [plain(at, epoch=int(at >= start), text="v" if broker < 3 or at < 10 else "w") for at in range(20)]
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches, epochs=((0, 0), (1, start)), high_watermark=10)])
    result = audit(tmp_path)
    assert named(result, "epoch-fork") == [(("3",), 10)] and result.exit_code == 1


@pytest.fixture
def two_brokers(tmp_path: Path) -> Path:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(20)])])
    return tmp_path


def test_index_entries_in_the_wrong_order(two_brokers: Path) -> None:
    path = two_brokers / "b1" / "t-0" / INDEX
    data = path.read_bytes()
    path.write_bytes(data[8:16] + data[:8] + data[16:])
    assert named(audit(two_brokers), "index-order")


@pytest.mark.parametrize(("offset", "position"), [(19, 10**6), (25, 10**6)])
def test_an_index_entry_behind_the_end(two_brokers: Path, offset: int, position: int) -> None:
    path = two_brokers / "b1" / "t-0" / INDEX
    path.write_bytes(path.read_bytes() + struct.pack(">ii", offset, position))
    result = audit(two_brokers)
    assert named(result, "index-target") == [(("1",), offset)] and result.exit_code == 1


def test_a_checkpoint_of_epochs_ahead_of_the_log(two_brokers: Path) -> None:
    """After a clean stop it is wrong; after a power failure the next start cuts it."""
    path = two_brokers / "b1" / "t-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n1 25\n")
    assert named(audit(two_brokers), "epoch-checkpoint") == [(("1",), 25)]
    (two_brokers / "b1" / ".kafka_cleanshutdown").unlink()
    assert audit(two_brokers).outcome == "PASS"
