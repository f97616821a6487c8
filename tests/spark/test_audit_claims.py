"""Which replica answers for which offsets, who must be there, and which leader epochs its checkpoint may list (docs/audit-rules.md)."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, three_alike, verdicts
from helpers.log_clusters import CLUSTER_ID, Batch, MetadataLog, Partition, directory_id, plain, write_broker

from minikafka.spark import audit as auditing
from minikafka.spark import directories, planning
from minikafka.spark.fetch_client import Place
from minikafka.spark.findings import FindingList


@pytest.mark.parametrize("high_watermark", [0, 12, 20, -1, None])
def test_an_eligible_leader_answers_for_all_that_is_committed(tmp_path: Path, high_watermark: int | None) -> None:
    """Broker 3 alone may lead; it has other bytes from 20 on, of another epoch, and knows little of what is committed, or nothing."""
    log = registered_topic(isr=(), elr=(3,), leader=-1, leader_epoch=1).encode()
    batches = [plain(offset) for offset in range(60)]
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches)], log)
    others = [plain(offset, epoch=1, text="w") for offset in range(20, 60)]
    other = Partition("t-0", [*batches[:20], *others], epochs=((0, 0), (1, 20)), high_watermark=high_watermark)
    path = write_broker(tmp_path / "b3", 3, [other], log)
    if high_watermark is None:
        (path / "replication-offset-checkpoint").write_bytes(b"")
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "DIVERGENT")


def test_a_difference_inside_a_leader_epoch_is_never_cut(tmp_path: Path) -> None:
    """Above every high watermark, but of one epoch: a follower would keep it (KIP-101)."""

    def change(broker: int, one: Partition) -> None:
        one.high_watermark = 10
        if broker == 3:
            one.batches[20] = plain(20, text="w")

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    assert (result.exit_code, verdicts(result)) == (1, {"t-0": "DIVERGENT"})


def test_a_tail_of_another_epoch_above_the_high_watermark_is_cut(tmp_path: Path) -> None:
    def change(broker: int, one: Partition) -> None:
        one.high_watermark = 20
        if broker == 3:
            one.batches[20:] = [plain(offset, epoch=1, text="w") for offset in range(20, 25)]
            one.epochs = ((0, 0), (1, 20))

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    assert (result.outcome, verdicts(result)) == ("PASS", {"t-0": "TRUNCATION_PENDING"})


def test_tails_that_differ_without_any_high_watermark_are_no_proof(tmp_path: Path) -> None:
    def change(broker: int, one: Partition) -> None:
        one.high_watermark = -1
        if broker == 3:
            one.batches[20:] = [plain(offset, epoch=1, text="w") for offset in range(20, 25)]
            one.epochs = ((0, 0), (1, 20))

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})


@pytest.mark.parametrize("brokers", [(1,), (1, 2, 3), (3,)])
def test_a_leader_epoch_inside_the_batches_of_another_is_an_error(tmp_path: Path, brokers: tuple[int, ...]) -> None:
    def change(broker: int, one: Partition) -> None:
        one.epochs = ((0, 0), (2, 20), (3, 42), (4, 60)) if broker in brokers else ((0, 0), (2, 20), (4, 60))

    batches = [*(plain(offset) for offset in range(20)), *(plain(offset, epoch=2) for offset in range(20, 60))]
    result = audit(three_alike(tmp_path, batches, change))
    found = [one for one in result.findings.kept if one.check == "epoch-checkpoint"]
    assert result.exit_code == 1 and {(one.offset, *one.brokers) for one in found} == {(42, str(broker)) for broker in brokers}


@pytest.mark.parametrize("epochs", [((0, 0), (1, 20), (2, 20)), ((0, 0), (2, 20), (3, 60)), ((0, 0), (2, 20), (3, 60), (4, 60))])
def test_leader_epochs_without_batches_are_legal(tmp_path: Path, epochs: tuple[tuple[int, int], ...]) -> None:
    batches = [*(plain(offset) for offset in range(20)), *(plain(offset, epoch=2) for offset in range(20, 60))]
    assert audit(three_alike(tmp_path, batches, epochs=epochs)).outcome == "PASS"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("epochs", "code"), [
    (((0, 0), (1, 5), (2, 40)), 1), (((0, 0), (1, 20), (2, 40)), 1), (((0, 0), (2, 5)), 1), (((1, 5), (2, 40)), 1),
    (((0, 0), (2, 40)), 3), (((0, 20), (2, 40)), 0),
])  # fmt: skip
def test_a_leader_epoch_below_the_log_start_is_of_what_lies_before(
    tmp_path: Path, epochs: tuple[tuple[int, int], ...], code: int, clean: bool
) -> None:
    """Segments are gone, and the checkpoint ends epoch 0 where it should not, below the batches of epoch 0 that are left. An orderly stop
    leaves epochs that begin where the log does; a killed broker may not have written them."""
    batches = [*(plain(offset) for offset in range(20, 40)), *(plain(offset, epoch=2) for offset in range(40, 60))]
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches, (20,), epochs)], clean=clean)
    result = audit(tmp_path)
    assert (result.exit_code, bool(messages_of(result, "epoch-checkpoint"))) == (code if clean or code == 1 else 0, code == 1)


@pytest.mark.parametrize(("epochs", "outcome"), [
    (((0, 0), (1, 10), (2, 20)), "INCOMPLETE"), (((1, 10), (2, 20)), "INCOMPLETE"), (((2, 40),), "PASS"), (((2, 40), (3, 60)), "PASS"),
])  # fmt: skip
def test_leader_epochs_move_with_the_log_start(tmp_path: Path, epochs: tuple[tuple[int, int], ...], outcome: str) -> None:
    """A broker that deletes records cuts them in the same breath: older ones say that somebody else took the records away."""
    batches = [plain(offset, epoch=2) for offset in range(20, 60)]
    result = audit(three_alike(tmp_path, batches, bases=(20,), epochs=epochs, log_start=40))
    assert result.outcome == outcome and len(messages_of(result, "not-compared")) == (0 if outcome == "PASS" else 3)


@pytest.mark.parametrize(("brokers", "code"), [((1,), 3), ((1, 2), 3), ((1, 2, 3), 3), ((), 0)])
def test_the_first_segments_do_not_vanish_unseen(tmp_path: Path, brokers: tuple[int, ...], code: int) -> None:
    batches = [plain(offset) for offset in range(30)]
    folder = three_alike(tmp_path, batches, bases=(0, 10, 20))
    for broker in brokers:
        for file in (folder / f"b{broker}" / "t-0").glob(f"{0:020d}.*"):
            file.unlink()
    assert audit(folder).exit_code == code


def test_replicas_that_were_in_sync_before_an_orderly_stop_must_be_there(tmp_path: Path) -> None:
    """After the stop the in-sync set is empty and one replica is eligible: that is the normal state of stopped clusters."""
    log = registered_topic().change(TOPIC, isr=(3,), elr=()).change(TOPIC, isr=(), elr=(3,), leader=-1).encode()
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)])], log)
    assert audit(tmp_path).outcome == "PASS"
    for broker in (1, 2):
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "MISSING")
    assert {one.brokers for one in result.findings.kept if one.check == "replica-missing"} == {("1",), ("2",)}


@pytest.mark.parametrize("gone", [(1,), (1, 2)])
def test_a_directory_that_its_checkpoints_name_must_be_there(tmp_path: Path, gone: tuple[int, ...]) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)]), Partition("u-0", [plain(0)])])
    for broker in gone:
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
    result = audit(tmp_path)
    assert result.exit_code == 1 and verdicts(result) == {"t-0": "MISSING", "u-0": "MATCH"}


@pytest.mark.parametrize(("written", "verdict"), [([plain(0)], "MISSING"), ([], "MATCH")])
def test_a_replica_that_is_being_added_is_missed_once_its_checkpoint_names_it(tmp_path: Path, written: list[Batch], verdict: str) -> None:
    log = registered_topic().change(TOPIC, isr=(1, 2), adding=(3,))
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)] if broker < 3 else written)], log.encode())
    shutil.rmtree(tmp_path / "b3" / "t-0")
    assert verdicts(audit(tmp_path))["t-0"] == verdict


def test_a_crashed_brokers_checkpoint_may_name_what_was_just_deleted(tmp_path: Path) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)]), Partition("u-0", [plain(0)])], clean=False)
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
    assert verdicts(audit(tmp_path)) == {"t-0": "INCOMPLETE", "u-0": "MATCH"}


def test_a_broker_that_was_not_given_is_named(tmp_path: Path) -> None:
    log = registered_topic().encode()
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)])], log)
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")
    expected = "3: the controller counts broker 3 as in sync of t-0, but its log directories were not given"
    assert messages_of(result, "not-compared") == [expected]
    assert audit(tmp_path, self_check=True).outcome == "PASS"


def test_a_broker_that_answers_over_the_wire_need_not_be_given(tmp_path: Path) -> None:
    write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(0)])], registered_topic().encode())
    plan = planning.make_plan([str(tmp_path)])
    assert [one.brokers for one in plan.missing["t", 0]] == [("2",), ("3",)]
    live = dataclasses.replace(plan.replicas["t", 0][0], node="2", broker="2", place=Place("localhost", 9092))
    plan.replicas["t", 0].append(live)
    auditing._given_live(plan)
    assert [one.brokers for one in plan.missing["t", 0]] == [("3",)]


def test_one_replica_is_enough_where_the_controller_knows_of_no_other(tmp_path: Path) -> None:
    log = MetadataLog().broker(1).broker(2).topic("t", TOPIC).partition(TOPIC, (1,), (1,), 1)
    log.topic("u", bytes([7] * 16)).partition(bytes([7] * 16), (1, 2), (1, 2), 1)
    write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(0)]), Partition("u-0", [plain(0)], topic_id=bytes([7] * 16))], log.encode())
    write_broker(tmp_path / "b2", 2, [Partition("u-0", [plain(0)], topic_id=bytes([7] * 16))], log.encode())
    result = audit(tmp_path)
    assert (result.outcome, verdicts(result)["t-0"], verdicts(result)["u-0"]) == ("PASS", "SINGLE", "MATCH")
    for broker in (1, 2):
        shutil.rmtree(tmp_path / f"b{broker}" / "__cluster_metadata-0")
    assert verdicts(audit(tmp_path)) == {"t-0": "INCOMPLETE", "u-0": "MATCH"}


OWNED = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=2\n"


@pytest.mark.parametrize(
    ("text", "has_checkpoints", "code"),
    [(None, True, 3), ("", True, 3), (f"version=1\ncluster.id={CLUSTER_ID}\n", True, 3), (None, False, 0)]
    + [(f"{OWNED}directory.id={one}\n", True, 3) for one in ("short", "", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAYw", "!" * 22)]
    + [(f"{OWNED}directory.id={one}\n", True, 0) for one in ("AAAAAAAAAAAAAAAAAAAAZA", "AAAAAAAAAAAAAAAAAAAAZA==")]
    + [(OWNED, True, 0), (OWNED.replace("version=1", "version=2"), True, 3), (OWNED.replace("version=1\n", ""), True, 3)]
    + [(OWNED.replace("=2", f"={directories.NODE_ID_MAX + 1}"), True, 3)]
    + [("version=1\nnode.id=2\n", True, 3), (f"version=0\ncluster.id={CLUSTER_ID}\nbroker.id=2\n", True, 0)],
)
def test_a_log_directory_says_whose_it_is(tmp_path: Path, text: str | None, has_checkpoints: bool, code: int) -> None:
    """Apache Kafka does not start with it; copies of partition directories alone have no such file, and no checkpoints."""
    paths = three_alike(tmp_path, [plain(at) for at in range(9)])
    file = paths / "b2" / "meta.properties"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    for name in () if has_checkpoints else ("replication", "recovery-point", "log-start"):
        (paths / "b2" / f"{name}-offset-checkpoint").unlink()
    result = audit(paths)
    assert result.exit_code == code and bool(messages_of(result, "unreadable")) == bool(code)


@pytest.mark.parametrize("written", ["+2", "02", " 2"])
def test_a_node_id_is_a_number_however_it_is_written(tmp_path: Path, written: str) -> None:
    """Broker 2 is the controller's broker 2."""
    paths = three_alike(tmp_path, [plain(at) for at in range(9)])
    (paths / "b2" / "meta.properties").write_text(OWNED.replace("=2", f"={written}"))
    assert directories.open_directory(str(paths / "b2"), "b2", FindingList()).broker == "2"


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint", "meta.properties"])
def test_a_root_file_that_cannot_be_read_costs_only_its_own_directory(tmp_path: Path, name: str) -> None:
    for broker in BROKERS:
        names = ("t-0", "u-0") if broker < 3 else ("u-0",)
        write_broker(tmp_path / f"b{broker}", broker, [Partition(one, [plain(0)]) for one in names])
    write_broker(tmp_path / "b4", 4, [Partition("t-0", [plain(0)])])
    path = tmp_path / "b3" / name
    path.unlink(missing_ok=True)
    path.mkdir()
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "MATCH", "u-0": "UNREADABLE"})


def test_a_log_directory_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)])])
    closed, listdir, scandir = str(tmp_path / "b3"), os.listdir, os.scandir

    def refuse(real: Any) -> Any:
        def wrapper(path: Any = ".") -> Any:
            if str(path) == closed:
                raise PermissionError(13, "Permission denied", path)
            return real(path)

        return wrapper

    monkeypatch.setattr(os, "listdir", refuse(listdir))
    monkeypatch.setattr(os, "scandir", refuse(scandir))
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "MATCH"}) and closed in messages_of(result, "unreadable")[0]


def test_partitions_of_two_log_directories_of_one_broker_are_of_one_broker(tmp_path: Path) -> None:
    """JBOD: the controller says in which directory a replica lies; each has its own checkpoints."""
    ids = [directory_id(1, 0), directory_id(1, 1)]
    log = MetadataLog().broker(1, directories=2).broker(2).topic("t", TOPIC)
    for number in (0, 1):
        log.partition(TOPIC, (1, 2), (1, 2), 1, number=number, directories=(ids[number], directory_id(2)))
    for number in (0, 1):
        write_broker(
            tmp_path / f"b1-{number}", 1, [Partition(f"t-{number}", [plain(0)])], log.encode() if not number else b"", number=number
        )
    write_broker(tmp_path / "b2", 2, [Partition("t-0", [plain(0)]), Partition("t-1", [plain(0)])], log.encode())
    assert (audit(tmp_path).outcome, verdicts(audit(tmp_path))["t-1"]) == ("PASS", "MATCH")
    shutil.rmtree(tmp_path / "b1-1")
    assert verdicts(audit(tmp_path))["t-1"] == "INCOMPLETE"
