"""An audit over the wire whose driver fails goes on from its ledger: what was read is not read again, the verdict is that of one run, and
what changed meanwhile is read anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.log_clusters import Batch, plain
from helpers.wire_replicas import WireReplicas

from minikafka.spark import summary_codec, wire_ledger
from minikafka.spark.audit import AuditResult
from minikafka.spark.wire_ledger import WireLedgerError

BROKERS, BATCHES, SPLIT_BYTES = (1, 2, 3), 24, 400


class Killed(BaseException):
    """The driver's end."""


def alike(**more: object) -> WireReplicas:
    return WireReplicas({broker: [plain(offset) for offset in range(BATCHES)] for broker in BROKERS}, **more)  # type: ignore[arg-type]


def killed_at(world: WireReplicas, number: int, ledger: Path, **options: object) -> set[tuple[int, int]]:
    """End an audit at its `number`th Fetch of records; what was fetched before."""

    def on_fetch(broker: int, offset: int) -> None:
        if len(world.fetched) == number:
            raise Killed

    world.fetched, world.on_fetch = [], on_fetch
    with pytest.raises(Killed):
        world.audit(SPLIT_BYTES, wire_ledger=str(ledger), **options)
    world.on_fetch = lambda broker, offset: None
    fetched, world.fetched = set(world.fetched), []
    return fetched


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch a task, two tasks at a time, three summaries handed on at once."""
    for name, value in (("AHEAD", 2), ("SMALL_BYTES", 1), ("HANDED_ON", 3)):
        monkeypatch.setattr(wire_ledger, name, value)


def results_of(result: AuditResult) -> tuple[object, ...]:
    partitions = [(one.verdict, one.batches_compared, one.records_compared, one.replicas) for one in result.partitions]
    found = [(one.check, one.offset, one.brokers, one.message) for one in result.findings.kept if one.check != "resumed"]
    return result.outcome, partitions, found


def said(result: AuditResult) -> str:
    return "; ".join(one.message for one in result.findings.kept if one.check == "resumed")


@pytest.mark.parametrize("number", [0, 1, 20, 50, 65])
@pytest.mark.parametrize("fault", ["none", "differs", "gone"])
def test_stretches_already_read_are_not_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, fault: str) -> None:
    world = alike()
    world.install(monkeypatch)
    if fault == "differs":
        world.bytes[2][5] = plain(5, text="other").encode()
    elif fault == "gone":
        for broker in BROKERS:
            del world.logs[broker][20], world.bytes[broker][20]
    usual, whole = results_of(world.audit(SPLIT_BYTES)), len(world.fetched)
    ledger = tmp_path / "ledger"
    before = killed_at(world, number, ledger)
    result = world.audit(SPLIT_BYTES, wire_ledger=str(ledger))
    assert results_of(result) == usual and usual[0] == ("PASS" if fault == "none" else "FAIL")
    assert not ledger.exists(), "a verdict leaves nothing to take up"
    assert (said(result) == "") == (len(before) < 14)
    lost = before & set(world.fetched)  # what was under way, and, where replicas differ, what is looked at more closely
    assert fault != "none" or (len(lost) <= 14 and len(before) + len(world.fetched) <= whole + 14)


@pytest.mark.parametrize("keep", [0, 10, 30, 60, 200, -1, -5, -200])
def test_a_ledger_that_ends_anywhere_or_is_damaged_costs_reading_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: int) -> None:
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)
    killed_at(world, 60, ledger)
    data = ledger.read_bytes()
    for torn in (data[:keep], data[:keep] + bytes([data[keep] ^ 1]) + data[keep:][1:]) if keep else (b"",):
        ledger.write_bytes(torn)
        if keep == 10 and len(torn) > 10:
            continue  # that is no ledger: see below
        assert world.audit(SPLIT_BYTES, wire_ledger=str(ledger)).outcome == "PASS"


Change = Callable[[WireReplicas], None]


def _new_epoch(world: WireReplicas) -> None:
    world.leader_epoch += 1


def _made_again(world: WireReplicas) -> None:
    world.topic_id = "B" * 22


def _deleted(world: WireReplicas) -> None:
    world.log_start = 1


def _compacted(world: WireReplicas) -> None:
    world.compacted = True


def _truncated(world: WireReplicas) -> None:
    world.high_watermarks[3] = world.high_watermark - 1


def _other_cluster(world: WireReplicas) -> None:
    world.cluster_id = "d"


def _unknown(world: WireReplicas) -> None:
    world.topic_id = ""


@pytest.mark.parametrize("change", [_new_epoch, _made_again, _deleted, _compacted, _truncated, _other_cluster, _unknown])
def test_changed_stretches_are_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: Change) -> None:
    """And what it became is what the verdict is on: all that the first run had read was otherwise."""
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)
    killed_at(world, 70, ledger)
    change(world)
    world.bytes[1][4] = plain(4, text="other").encode()
    result = world.audit(SPLIT_BYTES, wire_ledger=str(ledger))
    assert result.exit_code == 1 and "1 partition changed" in said(result) and "interrupted run read" not in said(result)
    assert {offset for _, offset in world.fetched} >= set(range(world.log_start, BATCHES - 1))


@pytest.mark.parametrize("killed", [0, 40])
def test_records_appended_meanwhile_are_read_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, killed: int) -> None:
    """A verdict is about all that is committed when it is asked for, however much the first run had read."""
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)
    killed_at(world, killed, ledger)
    more: list[Batch] = [plain(BATCHES), plain(BATCHES + 1)]
    for broker in BROKERS:
        world.logs[broker] += more
        world.bytes[broker] += [one.encode() for one in more]
    world.high_watermark += 2
    world.bytes[2][BATCHES] = plain(BATCHES, text="other").encode()
    result = world.audit(SPLIT_BYTES, wire_ledger=str(ledger))
    assert result.exit_code == 1 and result.partitions[0].batches_compared == BATCHES + 2 and "were read" not in said(result)


def test_records_that_a_lagging_replica_copied_meanwhile_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)
    world.high_watermarks[3] = 10
    killed_at(world, 40, ledger)
    world.high_watermarks[3] = 20
    world.bytes[3][15] = plain(15, text="other").encode()
    assert world.audit(SPLIT_BYTES, wire_ledger=str(ledger)).exit_code == 1


@pytest.mark.parametrize("becomes", ["gone", "another's"])
def test_a_ledger_that_was_removed_under_way_takes_no_verdict_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, becomes: str) -> None:
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)

    def remove(broker: int, offset: int) -> None:
        ledger.unlink(missing_ok=True)
        if becomes != "gone":
            ledger.write_text("another audit's")

    world.on_fetch = remove
    assert world.audit(SPLIT_BYTES, wire_ledger=str(ledger)).outcome == "PASS"
    assert ledger.exists() == (becomes != "gone")


def test_a_ledger_that_cannot_grow_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{ledger}'"):
        world.audit(SPLIT_BYTES, wire_ledger=str(ledger))


def test_other_digests_and_old_readings_are_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)
    killed_at(world, 70, ledger)
    result = world.audit(SPLIT_BYTES, wire_ledger=str(ledger), digest="blake2b")
    assert result.outcome == "PASS" and len(world.fetched) == 3 * BATCHES and not said(result)
    killed_at(world, 70, ledger)
    monkeypatch.setattr(wire_ledger, "AGE_MS_MAX", -1)
    result = world.audit(SPLIT_BYTES, wire_ledger=str(ledger))
    assert result.outcome == "PASS" and len(world.fetched) == 3 * BATCHES and not said(result)


def test_unreadable_stretches_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from minikafka.spark import fetch_reader
    from minikafka.spark.fetch_client import BrokerError

    world, ledger = alike(), tmp_path / "ledger"
    world.install(monkeypatch)
    monkeypatch.setattr(fetch_reader, "PATIENCE_S", 0.0)

    def away(broker: int, offset: int) -> None:
        if broker == 1 and offset == 8:
            raise BrokerError("broker h:1 closed the connection", is_away=True)
        if broker == 3 and offset == 20:
            raise Killed

    world.on_fetch = away
    with pytest.raises(Killed):
        world.audit(SPLIT_BYTES, wire_ledger=str(ledger))
    world.on_fetch = lambda broker, offset: None
    world.fetched = []
    assert world.audit(SPLIT_BYTES, wire_ledger=str(ledger)).outcome == "PASS" and (1, 8) in world.fetched and (1, 0) not in world.fetched


def test_no_other_file_and_no_other_audits_ledger_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = alike()
    world.install(monkeypatch)
    other = tmp_path / "notes.txt"
    other.write_text("minikafka is not what this is about")
    with pytest.raises(WireLedgerError, match="not the ledger of an audit"):
        world.audit(wire_ledger=str(other))
    assert other.read_text().startswith("minikafka is")
    with wire_ledger.opened(str(tmp_path / "ledger")), pytest.raises(WireLedgerError, match="of an audit that is still running"):
        world.audit(wire_ledger=str(tmp_path / "ledger"))
    monkeypatch.setattr(summary_codec, "FORMAT_DIGEST", "another")
    killed_at(world, 10, tmp_path / "ledger")
    monkeypatch.undo()
    world.install(monkeypatch)
    assert world.audit(SPLIT_BYTES, wire_ledger=str(tmp_path / "ledger")).outcome == "PASS"


PROGRAM = """
import os, signal, sys
sys.path[:0] = {root!r}, {root!r} + "/tests"
import pytest
from minikafka.spark import summary_codec, wire_ledger
from tests.spark.test_audit_wire_ledger import SPLIT_BYTES, alike
wire_ledger.SMALL_BYTES = 1
world = alike(answer_bytes=1)
world.install(pytest.MonkeyPatch())
world.on_fetch = lambda broker, offset: len(world.fetched) < 50 or os.kill(os.getpid(), signal.SIGKILL)
world.audit(SPLIT_BYTES, wire_ledger={ledger!r})
"""


def test_a_killed_process_leaves_a_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    program = PROGRAM.format(root=str(Path(__file__).parents[2]), ledger=str(ledger))
    ran = subprocess.run([sys.executable, "-c", program], check=False, env=os.environ)
    assert ran.returncode == -signal.SIGKILL
    world = alike()
    world.install(monkeypatch)
    result = world.audit(SPLIT_BYTES, wire_ledger=str(ledger))
    assert result.outcome == "PASS" and "an interrupted run read" in said(result) and len(world.fetched) < 3 * BATCHES - 30
