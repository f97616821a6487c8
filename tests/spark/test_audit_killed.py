"""Brokers that were killed at odd moments: before they made a new partition's log, and in the midst of an append."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.audited_clusters import audit, messages_of
from helpers.log_clusters import MetadataLog, lines
from helpers.log_fault_bases import BASES, BROKERS, controller

NEW_TOPIC = bytes(range(40, 56))
METADATA = f"__cluster_metadata-0/{0:020d}.log"


def killed_early(folder: Path, log: MetadataLog) -> None:
    """Only broker 1 has a log of new-0; all of them have this metadata."""
    BASES["killed before a log was made"].write(folder)
    for broker in BROKERS:
        (folder / f"b{broker}" / METADATA).write_bytes(log.encode())
    without_old_lines(folder)


def without_old_lines(folder: Path) -> None:
    """Broker 3's checkpoints are those of broker 2."""
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (folder / "b3" / name).write_text((folder / "b2" / name).read_text())


def new_topic() -> MetadataLog:
    """Brokers, t-0, and new-0 at the end."""
    return controller().topic("new", NEW_TOPIC).partition(NEW_TOPIC, BROKERS, BROKERS, 1)


def test_a_broker_may_be_killed_before_it_makes_a_log(tmp_path: Path) -> None:
    killed_early(tmp_path, new_topic())
    assert audit(tmp_path).outcome == "PASS"


def test_without_a_log_nothing_is_committed(tmp_path: Path) -> None:
    killed_early(tmp_path, new_topic())
    path = tmp_path / "b1" / "replication-offset-checkpoint"
    path.write_text(lines([*path.read_text().splitlines()[2:-1], "new 0 3"]))
    assert len(messages_of(audit(tmp_path), "replica-missing")) == 2


def test_a_broker_that_lived_on_has_made_its_log(tmp_path: Path) -> None:
    log = new_topic()
    for number in range(11):  # each a second later
        log.config("t", "retention.ms", str(number))
    killed_early(tmp_path, log)
    assert len(messages_of(audit(tmp_path), "replica-missing")) == 2


def test_a_broker_that_is_stopped_in_order_makes_the_logs_that_it_knows_of(tmp_path: Path) -> None:
    """Broker 2 has not heard of the topic."""
    BASES["killed before a log was made"].write(tmp_path)
    without_old_lines(tmp_path)
    for broker in (2, 3):
        (tmp_path / f"b{broker}" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    found = [one for one in audit(tmp_path).findings.kept if one.check == "replica-missing"]
    assert [(one.brokers, one.level) for one in found] == [(("2",), "note"), (("3",), "error")]


def test_a_broker_that_came_into_sync_had_a_log(tmp_path: Path) -> None:
    killed_early(tmp_path, new_topic().change(NEW_TOPIC, isr=(1, 2)).change(NEW_TOPIC, isr=(1, 2, 3)))
    found = audit(tmp_path)
    assert found.outcome == "FAIL" and "broker 3" in messages_of(found, "replica-missing")[-1]


@pytest.mark.parametrize("broker", [2, 3])
def test_what_a_start_does_not_make_anew_has_to_be_whole(tmp_path: Path, broker: int) -> None:
    """Behind the recovery point nothing is made anew; neither is anything after an orderly stop."""
    BASES["killed in an append"].write(tmp_path)
    (tmp_path / f"b{broker}" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    assert audit(tmp_path).outcome == "FAIL"
    (tmp_path / f"b{broker}" / ".kafka_cleanshutdown").unlink()
    assert audit(tmp_path).outcome == "PASS"
    (tmp_path / f"b{broker}" / "recovery-point-offset-checkpoint").write_text(lines(["t 0 68"]))
    assert audit(tmp_path).outcome == ("PASS" if broker == 2 else "FAIL")


@pytest.mark.parametrize(("without", "outcome"), [(BROKERS, "INCOMPLETE"), ((1, 2), "INCOMPLETE"), ((1, 3), "INCOMPLETE"), ((3,), "PASS")])
def test_a_tail_of_a_replaced_leader_before_a_high_watermark_was_written(tmp_path: Path, without: tuple[int, ...], outcome: str) -> None:
    """Broker 3 led, was replaced, and is not in sync. If nothing says what is committed of brokers that are, nothing is proven."""
    BASES["pending"].write(tmp_path)
    for broker in BROKERS:
        (tmp_path / f"b{broker}" / ".kafka_cleanshutdown").unlink()
        if broker in without:
            (tmp_path / f"b{broker}" / "replication-offset-checkpoint").unlink()
    assert audit(tmp_path).outcome == outcome
