"""Where nobody knows what is committed, whose checkpoints speak of an earlier topic, and what was not given."""

from __future__ import annotations

import dataclasses
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import MetadataLog, Partition, lines, plain, write_broker

from minikafka.spark import audit as auditing
from minikafka.spark import directories
from minikafka.spark.audit import AuditResult
from minikafka.spark.fetch_client import Place
from minikafka.spark.findings import NOTE, Finding, FindingList
from minikafka.spark.metadata_log import PartitionClaim
from minikafka.spark.security import Security
from minikafka.spark.sources import Plan

OLD_TOPIC = bytes(range(16, 32))
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"


def cluster(folder: Path, ends: dict[int, int], log: MetadataLog | None, clean: bool = True, **more: Any) -> Path:
    """Three brokers whose copies of t-0 end where they are told to."""
    for broker in BROKERS:
        one = Partition("t-0", [plain(offset) for offset in range(ends.get(broker, 40))], **more)
        write_broker(folder / f"b{broker}", broker, [one], log.encode() if log is not None else b"", clean)
    return folder


def without_high_watermarks(folder: Path, how: str, brokers: tuple[int, ...] = BROKERS) -> Path:
    for broker in brokers:
        path = folder / f"b{broker}" / HIGH_WATERMARK_CHECKPOINT
        path.unlink() if how == "gone" else path.write_text(lines([]))
    return folder


@pytest.mark.parametrize("how", ["gone", "no line"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("log", [registered_topic(), None], ids=["controller", "no controller"])
def test_a_cut_log_without_any_high_watermark_is_no_proof(tmp_path: Path, how: str, clean: bool, log: MetadataLog | None) -> None:
    """Broker 3 may lead and ends at 20: what lies behind may have been committed."""
    result = audit(without_high_watermarks(cluster(tmp_path, {3: 20}, log, clean), how))
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")
    assert "logs end between 20 and 40" in messages_of(result, "not-compared")[0]


@pytest.mark.parametrize("how", ["gone", "no line"])
def test_equal_logs_without_any_high_watermark_are_a_match(tmp_path: Path, how: str) -> None:
    result = audit(without_high_watermarks(cluster(tmp_path, {}, registered_topic()), how))
    assert verdicts(result)["t-0"] == "MATCH"


@pytest.mark.parametrize("how", ["gone", "no line"])
def test_the_high_watermark_of_a_lagging_replica_is_no_fence(tmp_path: Path, how: str) -> None:
    """Broker 3 alone knows a high watermark, that of its own shorter log."""
    result = audit(without_high_watermarks(cluster(tmp_path, {3: 20}, registered_topic()), how, (1, 2)))
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")


def test_a_replica_out_of_sync_may_be_shorter_without_a_high_watermark(tmp_path: Path) -> None:
    folder = cluster(tmp_path, {3: 20}, registered_topic(isr=(1, 2)))
    assert verdicts(audit(without_high_watermarks(folder, "no line", (3,))))["t-0"] == "LAGGING"


def test_one_high_watermark_that_covers_all_is_enough(tmp_path: Path) -> None:
    result = audit(without_high_watermarks(cluster(tmp_path, {3: 20}, registered_topic()), "gone", (1, 3)))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "DIVERGENT")


def made_again(seconds: int) -> MetadataLog:
    """The topic was deleted and recreated so many records, one a second, before the newest."""
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.topic("t", OLD_TOPIC).partition(OLD_TOPIC, BROKERS, BROKERS, 1).remove(OLD_TOPIC)
    log.topic("t", TOPIC).partition(TOPIC, BROKERS, BROKERS, 1)
    for number in range(seconds):
        log.config("t", "retention.ms", str(number))
    return log


def with_lines(folder: Path, value: int) -> Path:
    for broker in BROKERS:
        for name in (HIGH_WATERMARK_CHECKPOINT, "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            (folder / f"b{broker}" / name).write_text(lines([f"t 0 {value}"]))
    return folder


def test_checkpoints_of_an_earlier_topic_are_not_the_later_ones(tmp_path: Path) -> None:
    """Killed before the next checkpoint was due."""
    result = audit(with_lines(cluster(tmp_path, {}, made_again(3), clean=False), 900))
    assert (result.outcome, verdicts(result)["t-0"]) == ("PASS", "MATCH")
    assert "may belong to the deleted topic of that name" in messages_of(result, "checkpoint-bounds")[0]


@pytest.mark.parametrize(("seconds", "clean"), [(130, False), (3, True)])
def test_checkpoints_written_since_are_the_later_topics(tmp_path: Path, seconds: int, clean: bool) -> None:
    """By an orderly stop, or because the broker ran for longer than checkpoints wait."""
    result = audit(with_lines(cluster(tmp_path, {}, made_again(seconds), clean=clean), 900))
    assert result.exit_code == 1 and {"committed-missing", "checkpoint-bounds"} <= {one.check for one in result.findings.kept}


def test_a_cut_log_of_a_topic_made_again_is_no_proof(tmp_path: Path) -> None:
    result = audit(with_lines(cluster(tmp_path, {3: 20}, made_again(3), clean=False), 900))
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")


@pytest.mark.parametrize(("isr", "expected"), [((1, 2), (0, "MATCH")), (BROKERS, (1, "MISSING"))])
def test_a_log_of_the_earlier_topic_is_set_aside(tmp_path: Path, isr: tuple[int, ...], expected: tuple[int, str]) -> None:
    """Broker 3 was away when the topic was recreated; were it in sync with the later one, it would have lost that."""
    log = made_again(0).change(TOPIC, isr=isr)
    cluster(tmp_path, {}, log)
    one = Partition("t-0", [plain(offset, text="old") for offset in range(90)], topic_id=OLD_TOPIC)
    write_broker(tmp_path / "other", 3, [one], log.encode())
    for path in (tmp_path / "b3").rglob("*"):
        path.unlink() if path.is_file() else None
    (tmp_path / "b3" / "t-0").rmdir()
    (tmp_path / "b3" / "__cluster_metadata-0").rmdir()
    (tmp_path / "b3").rmdir()
    (tmp_path / "other").rename(tmp_path / "b3")
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == expected
    assert "belongs to an earlier topic t" in messages_of(result, "stray-replica")[0]


def test_a_log_of_a_topic_that_never_was_is_an_error(tmp_path: Path) -> None:
    folder = cluster(tmp_path, {}, registered_topic())
    (folder / "b3" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OBB\n")
    assert (audit(folder).exit_code, "topic-id" in {one.check for one in audit(folder).findings.kept}) == (1, True)


def live(plan: Plan, *rest: Any) -> None:
    """As if broker 2 had answered over the wire and broker 3 were down."""
    replica = next(iter(plan.replicas["t", 0]))
    claim = PartitionClaim("", ("1", "2", "3"), ("1", "2"), "1", 0, -1)
    other = dataclasses.replace(
        replica, broker="2", node="2", clean=False, place=Place("127.0.0.1", 1, Security()), claim=claim, findings=FindingList()
    )
    plan.replicas["t", 0].append(other)
    absent = Finding("replica-offline", "broker 3 is not in the cluster", "t", 0, ("3",), level=NOTE)
    plan.missing.setdefault(("t", 0), []).append(absent)


def test_directories_that_were_not_given_are_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the wire one broker answered, and one that is out of sync did not: neither is a fault."""
    cluster(tmp_path, {}, registered_topic(isr=(1, 2)))
    plan = auditing.make_plan([str(tmp_path / "b1")])
    assert [one.check for one in plan.missing["t", 0]] == ["not-compared"] * 2
    live(plan)
    auditing._given_live(plan)
    assert [one.check for one in plan.missing["t", 0]] == ["replica-offline"]
    assert [(one.level, one.message) for one in plan.findings.kept] == [
        ("note", "the log directories of brokers 2 and 3 were not given: what clients can read of them was read over the network")
    ]


@pytest.mark.parametrize(("first", "expected"), [(20, (0, "SINGLE")), (30, (0, "SINGLE")), (31, (3, "INCOMPLETE"))])
def test_a_killed_brokers_first_epoch_begins_below_what_is_committed(tmp_path: Path, first: int, expected: tuple[int, str]) -> None:
    """It may have raised its log start, and cut its epochs, without having written the log start down; there is no other replica."""
    log = MetadataLog().broker(1).topic("t", TOPIC).partition(TOPIC, [1], [1], 1)
    one = Partition("t-0", [plain(at) for at in range(40)], topic_id=TOPIC, high_watermark=30, epochs=((0, first),))
    write_broker(tmp_path / "b1", 1, [one], log.encode(), clean=False)
    result = audit(tmp_path, self_check=True)
    assert (result.exit_code, verdicts(result)["t-0"]) == expected
    with (tmp_path / "b1" / ".lock").open("wb") as lock:  # the checkpoint of a broker that runs may be older than its log start
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert audit(tmp_path, self_check=True).outcome == "PASS"


@pytest.mark.parametrize(("brokers", "start", "code"), [
    ((1, 2, 3), 0, 0), ((2, 3), 0, 0), ((2,), 0, 3), ((2,), 10, 0), ((2,), 9, 3),
])  # fmt: skip
def test_first_epochs_are_gone_where_another_replica_starts_there(tmp_path: Path, brokers: tuple[int, ...], start: int, code: int) -> None:
    """A log start moves on all replicas; else leader epochs may be lost. `start`: in broker 1's log-start-offset-checkpoint."""
    cluster(tmp_path, {}, registered_topic(), clean=False, high_watermark=30)
    (tmp_path / "b1" / "log-start-offset-checkpoint").write_text(lines([f"t 0 {start}"] if start else []))
    for broker in brokers:
        (tmp_path / f"b{broker}" / "t-0" / "leader-epoch-checkpoint").write_text(lines(["0 10"]))
    with (tmp_path / "b2" / ".lock").open("wb") as lock:  # a broker that runs has its epochs in memory
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert audit(tmp_path).outcome == "PASS" and directories.is_locked(str(tmp_path / "b2"))
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (code, "INCOMPLETE" if code else "MATCH")
    assert all("nothing else says that it starts there" in text for text in messages_of(result, "not-compared"))


# ---- what only one answers for ---------------------------------------------------------------------------------------------------


def beside_another(
    tmp_path: Path, change: Callable[[int, Partition], None], log: MetadataLog | None = None, clean: bool = True
) -> AuditResult:
    """The partition t-0 as `change` leaves it, and u-0, alike on all."""
    for broker in BROKERS:
        one, other = Partition("t-0", [plain(at) for at in range(20)], (0, 10)), Partition("u-0", [plain(0)], topic_id=bytes([7] * 16))
        change(broker, one)
        write_broker(tmp_path / f"b{broker}", broker, [one, other], log.encode() if log is not None else b"", clean)
    return audit(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("in_writing", ["epochs", "checkpoint", "nowhere"])
@pytest.mark.parametrize("reported_already", [(1,), (1, 2)])
def test_a_replica_unaware_of_deleted_records_lacks_no_required_record(
    tmp_path: Path, clean: bool, in_writing: str, reported_already: tuple[int, ...]
) -> None:
    """DeleteRecords emptied the leader, and the brokers stopped before its followers heard of it. An empty log that nobody explains is
    another thing."""

    def change(broker: int, one: Partition) -> None:
        if broker in reported_already:
            one.batches, one.bases = [], (20,)
            one.log_start = 20 if in_writing == "checkpoint" else 0
            one.epochs = ((0, 20),) if in_writing == "epochs" else ()
            one.high_watermark = 20

    result = beside_another(tmp_path, change, clean=clean)
    alone = len(reported_already) == 2
    assert result.outcome == ("INCOMPLETE" if in_writing == "nowhere" else "PASS"), [one.message for one in result.findings.kept]
    assert verdicts(result)["t-0"] == ("INCOMPLETE" if in_writing == "nowhere" else "EMPTY" if alone else "MATCH")


@pytest.mark.parametrize("differs", [False, True])
def test_a_replica_without_a_high_watermark_may_hold_committed_records(tmp_path: Path, differs: bool) -> None:
    """Brokers 2 and 3 were killed before they first wrote a high watermark down: what broker 1 answers for was found on both."""

    def change(broker: int, one: Partition) -> None:
        one.high_watermark = 20 if broker == 1 else 0
        if broker == 3 and differs:
            one.batches[15:] = [plain(at, epoch=1) for at in range(15, 20)]
            one.epochs = ((0, 0), (1, 15))

    assert beside_another(tmp_path, change, clean=False).outcome == ("INCOMPLETE" if differs else "PASS")


def test_one_node_may_have_a_metadata_snapshot_before_the_others(tmp_path: Path) -> None:
    log = registered_topic().topic("u", bytes([7] * 16)).partition(bytes([7] * 16), BROKERS, BROKERS, 1)

    def change(broker: int, one: Partition) -> None:
        pass

    assert beside_another(tmp_path, change, log).outcome == "PASS"
    name = f"{len(log.values):020d}-{1:010d}.checkpoint"
    (tmp_path / "b2" / "__cluster_metadata-0" / name).write_bytes(log.snapshot())
    result = audit(tmp_path)
    assert result.outcome == "PASS", [one.message for one in result.findings.kept]


@pytest.mark.parametrize(
    ("clean", "brokers", "outcome"), [(False, (1, 2), "PASS"), (False, (1,), "INCOMPLETE"), (True, (1,), "FAIL"), (True, (1, 2), "FAIL")]
)
def test_a_killed_broker_may_have_cut_its_epochs_into_the_midst_of_a_segment(
    tmp_path: Path, clean: bool, brokers: tuple[int, ...], outcome: str
) -> None:
    """DeleteRecords to 13: the epochs are cut at once, the log start is written down a minute later; the followers do as the leader."""

    def change(broker: int, one: Partition) -> None:
        one.batches = [plain(at, epoch=at // 5) for at in range(20)]
        one.epochs = ((2, 13), (3, 15)) if broker in brokers else ((0, 0), (1, 5), (2, 10), (3, 15))

    assert beside_another(tmp_path, change, clean=clean).outcome == outcome
