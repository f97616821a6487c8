"""Brokers that were killed at odd moments: before they made a new partition's log, and in the midst of an append."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.audited_clusters import audit, messages_of, registered_topic
from helpers.log_clusters import Batch, MetadataLog, Partition, lines, plain, write_broker
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


@pytest.mark.parametrize(("has_heard", "doubtful"), [(True, ["1", "2", "3"]), (False, ["1", "3"])])
def test_a_new_partition_of_which_no_broker_has_a_log(tmp_path: Path, has_heard: bool, doubtful: list[str]) -> None:
    """They may have made the logs, taken records and lost them; but not broker 2, if it never heard of it."""
    killed_early(tmp_path, new_topic())
    if not has_heard:
        (tmp_path / "b2" / METADATA).write_bytes(controller().encode())
    shutil.rmtree(tmp_path / "b1" / "new-0")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        path = tmp_path / "b1" / name
        path.write_text(lines([row for row in path.read_text().splitlines()[2:] if not row.startswith("new ")]))
    result = audit(tmp_path)
    assert result.outcome == "INCOMPLETE"
    assert [one.brokers[0] for one in result.findings.kept if one.level == "warning"] == doubtful


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


def killed(folder: Path, change: Callable[[int, Partition], None], log: MetadataLog | None = None) -> Path:
    """Three brokers with t-0, all killed."""
    for broker in BROKERS:
        one = Partition("t-0", [plain(at) for at in range(40)], (0, 20))
        change(broker, one)
        write_broker(folder / f"b{broker}", broker, [one], (log or registered_topic()).encode(), clean=False)
    return folder


@pytest.mark.parametrize(("point", "outcome"), [(20, "PASS"), (21, "FAIL")])
def test_a_snapshot_of_producers_at_the_recovery_point_may_be_unwritten(tmp_path: Path, point: int, outcome: str) -> None:
    """The log was flushed to its end, 20, and rolled there: the broker was killed when it had opened the snapshot's file."""

    def change(broker: int, one: Partition) -> None:
        one.batches = one.batches[: 20 if broker == 2 else 40]
        one.high_watermark = 20

    killed(tmp_path, change, registered_topic(isr=(1, 3)))
    (tmp_path / "b2" / "t-0" / f"{20:020d}.snapshot").write_bytes(b"")
    (tmp_path / "b2" / "recovery-point-offset-checkpoint").write_text(lines([f"t 0 {point}"]))
    assert audit(tmp_path).outcome == outcome


@pytest.mark.parametrize("clean", [True, False])
def test_the_metadata_log_closes_behind_the_mark_of_a_clean_stop(tmp_path: Path, clean: bool) -> None:
    """Each start recovers it, and drops a snapshot of producers that was not written whole."""
    log = registered_topic()
    for broker in BROKERS:
        path = write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(9)])], log.encode(), clean)
        (path / "__cluster_metadata-0" / f"{len(log.values):020d}.snapshot").write_bytes(b"")
    assert audit(tmp_path).outcome == "PASS"


@pytest.mark.parametrize(
    ("text", "records", "clean", "outcome"),
    [("", 0, False, "PASS"), ("version: 0\ntopic_id: AAEC", 0, False, "PASS"), ("", 0, True, "FAIL"), ("", 9, False, "FAIL"),
     ("version: 0\ntopic_id: !", 0, False, "FAIL")],
)  # fmt: skip
def test_a_new_partitions_name_may_be_unwritten(tmp_path: Path, text: str, records: int, clean: bool, outcome: str) -> None:
    """minikafka's next start writes it anew, but not where records are, or after an orderly stop."""
    for broker in BROKERS:
        one = Partition("t-0", [plain(at) for at in range(records)], epochs=() if not records else ((0, 0),))
        write_broker(tmp_path / f"b{broker}", broker, [one, Partition("u-0", [plain(0)], topic_id=NEW_TOPIC)],
                     registered_topic().topic("u", NEW_TOPIC).partition(NEW_TOPIC, BROKERS, BROKERS, 1).encode(), clean)  # fmt: skip
    (tmp_path / "b3" / "t-0" / "partition.metadata").write_text(text)
    assert audit(tmp_path).outcome == outcome


@pytest.mark.parametrize(
    ("brokers", "leader_epoch", "outcome"), [((3,), 1, "PASS"), ((3,), 0, "FAIL"), (BROKERS, 1, "FAIL"), ((1, 3), 1, "PASS")]
)
def test_a_follower_that_cut_its_log_has_yet_to_write_its_recovery_point(
    tmp_path: Path, brokers: tuple[int, ...], leader_epoch: int, outcome: str
) -> None:
    """It cut what a later leader did not have; so one of the others has no such contradiction."""

    def change(broker: int, one: Partition) -> None:
        one.batches, one.high_watermark = one.batches[:30], 30

    killed(tmp_path, change, registered_topic(leader=2, leader_epoch=leader_epoch))
    for broker in brokers:
        (tmp_path / f"b{broker}" / "recovery-point-offset-checkpoint").write_text(lines(["t 0 35"]))
    result = audit(tmp_path)
    assert result.outcome == outcome
    assert all("recovery point 35" in text for text in messages_of(result, "checkpoint-bounds"))


def compacted(broker: int, one: Partition) -> None:
    """Each record has a key; the last batch of broker 3 is a later leader's."""
    one.batches = [Batch(at, [(0, b"k%d" % (at % 15), b"v%d" % at)]) for at in range(40)]
    if broker != 3:
        one.batches[-5:] = [Batch(at, [(0, b"n%d" % at, b"n")], 1) for at in range(35, 38)]
        one.epochs = ((0, 0), (1, 35))
    if broker == 2:
        del one.batches[3]  # its cleaner has been here


@pytest.mark.parametrize("lost", [False, True])
def test_a_compacted_tail_of_a_replaced_leader_before_a_high_watermark_was_written(tmp_path: Path, lost: bool) -> None:
    """Broker 3 led, wrote 35..39, and was replaced. Up to 35 the latest records of all keys have to be alike."""

    def change(broker: int, one: Partition) -> None:
        compacted(broker, one)
        if broker == 2 and lost:
            one.batches = [batch for batch in one.batches if batch.base != 16]

    log = registered_topic(leader=1, leader_epoch=1).config("t", "cleanup.policy", "compact")
    killed(tmp_path, change, log)
    for broker in BROKERS:
        (tmp_path / f"b{broker}" / "replication-offset-checkpoint").unlink()
    result = audit(tmp_path)
    assert result.outcome == ("FAIL" if lost else "INCOMPLETE")
    assert [one.offset for one in result.findings.kept if one.check == "replica-differs"] == ([16] if lost else [])
