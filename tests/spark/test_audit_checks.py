"""Checks that other faults seldom reach alone, each by its own."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner
from crc32c import crc32c
from helpers.audited_clusters import BROKERS, TOPIC, registered_topic
from helpers.log_clusters import TIME_MS, Batch, Partition, plain, write_broker

from minikafka.cli.audit import audit as command
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


def test_a_snapshot_of_producers_names_each_once(tmp_path: Path) -> None:
    for broker in (1, 2):
        batches = [Batch(at, [(0, None, b"v")], producer=7 + at, producer_epoch=0, sequence=0) for at in range(4)]
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches)])
    assert audit(tmp_path).outcome == "PASS"
    path = tmp_path / "b1" / "t-0" / f"{4:020d}.snapshot"
    data = path.read_bytes()
    body = struct.pack(">i", 5) + data[10:] + data[10:56]
    path.write_bytes(data[:2] + struct.pack(">I", crc32c(body)) + body)
    result = audit(tmp_path)
    assert named(result, "producer-snapshot") and result.exit_code == 1


def test_a_checkpoint_of_epochs_ahead_of_the_log(two_brokers: Path) -> None:
    """After a clean stop it is wrong; after a power failure the next start cuts it."""
    path = two_brokers / "b1" / "t-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n1 25\n")
    assert named(audit(two_brokers), "epoch-checkpoint") == [(("1",), 25)]
    (two_brokers / "b1" / ".kafka_cleanshutdown").unlink()
    assert audit(two_brokers).outcome == "PASS"


@pytest.mark.parametrize(("shift_ms", "check"), [(0, ""), (-5, "batch-timestamps"), (7, "batch-timestamps")])
def test_deep_holds_the_times_of_cleaned_batches_against_their_records(tmp_path: Path, shift_ms: int, check: str) -> None:
    """A cleaner took a record of the second batch; on all brokers its header names another latest time, under a right checksum."""
    batches = [plain(0, 2), Batch(2, [(0, b"a", b"1"), (2, b"b", b"2")]), plain(5, 2), plain(7)]
    for one in (batches[0], batches[2], batches[3]):
        one.records = [(delta, b"k%d" % (one.base + delta), value) for delta, _, value in one.records]
    log = registered_topic().config("t", "cleanup.policy", "compact").encode()
    for broker in BROKERS:
        one = Partition("t-0", batches, bases=(0, 7), topic_id=TOPIC)
        path = write_broker(tmp_path / f"b{broker}", broker, [one], log, cleaned={"t-0": 7}) / "t-0" / f"{0:020d}.log"
        data, at = bytearray(path.read_bytes()), len(batches[0].encode())
        struct.pack_into(">q", data, at + 35, TIME_MS + shift_ms)
        struct.pack_into(">I", data, at + 17, crc32c(memoryview(data)[at + 21 : at + len(batches[1].encode())]))
        path.write_bytes(data)
        if shift_ms > 0:
            (path.parent / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", TIME_MS, 1) + struct.pack(">qi", TIME_MS + shift_ms, 4))
    said = CliRunner().invoke(command, [str(tmp_path), "--deep", "-o", "jsonl", "--processes", "1"])
    found = {json.loads(line).get("check") for line in said.output.splitlines()} - {None}
    assert found == ({check} if check else set()) and said.exit_code == (1 if check else 0)
    assert CliRunner().invoke(command, [str(tmp_path), "--quiet", "--processes", "1"]).exit_code == 0
