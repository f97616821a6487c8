"""What PASS means: whatever had to be compared was, and what was not is named and makes the outcome INCOMPLETE (docs/audit.md)."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.log_clusters import (
    Batch,
    MetadataLog,
    Partition,
    directory_id,
    lines,
    plain,
    write_broker,
)

from minikafka.spark import audit as auditing
from minikafka.spark import directories, scan, sources
from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.fetch_client import Place

TOPIC = bytes(range(16))
BROKERS = (1, 2, 3)


def audit(path: Path, **options: Any) -> AuditResult:
    return run_audit([str(path)], LocalEngine(1), AuditOptions(**options))


def told(result: AuditResult, check: str) -> list[str]:
    return [f"{','.join(one.brokers)}: {one.message}" for one in result.findings.kept if one.check == check]


def verdicts(result: AuditResult) -> dict[str, str]:
    return {f"{one.topic}-{one.partition}": one.verdict for one in result.partitions}


def three_alike(
    tmp_path: Path, batches: list[Batch], change: Callable[[int, Partition], None] = lambda broker, one: None, **more: Any
) -> Path:
    """Three brokers with the same partition t-0, without a metadata log; `change` alters a broker's copy before it is written."""
    for broker in BROKERS:
        one = Partition("t-0", list(batches), **more)
        change(broker, one)
        write_broker(tmp_path / f"b{broker}", broker, [one])
    return tmp_path


def known_to_the_controller(
    isr: tuple[int, ...] = BROKERS, elr: tuple[int, ...] = (), leader: int = 1, leader_epoch: int = 0
) -> MetadataLog:  # fmt: skip
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    return log.topic("t", TOPIC).partition(TOPIC, BROKERS, isr, leader, leader_epoch, elr=elr)


# ---- no cap hides anything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 7, 64, 1000])
@pytest.mark.parametrize("at", [0, 63, 64, 65, 150, 299])
def test_a_difference_is_found_however_many_batches_lie_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, at: int
) -> None:
    monkeypatch.setattr(scan, "DETAIL_BATCHES_MAX", page)

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches[at] = plain(at, text="w")

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(300)], change))
    (found,) = [one for one in result.findings.kept if one.check == "replica-differs"]
    assert (found.offset, found.brokers, result.exit_code) == (at, ("3",), 1)


def test_behind_the_first_difference_the_others_are_compared_further(tmp_path: Path) -> None:
    """Broker 3 differs at offset 10, broker 2 at offset 20 of the same cell: both are named."""

    def change(broker: int, one: Partition) -> None:
        if broker > 1:
            at = 40 - 10 * broker
            one.batches[at] = plain(at, text="w")

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    assert {(one.brokers, one.offset) for one in result.findings.kept if one.check == "replica-differs"} == {(("3",), 10), (("1", "2"), 20)}


def test_a_shorter_replica_hides_no_difference_of_the_others(tmp_path: Path) -> None:
    def change(broker: int, one: Partition) -> None:
        if broker == 1:
            del one.batches[10:]
            one.high_watermark = 10
        if broker == 3:
            one.batches[20] = plain(20, text="w")

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    (found,) = [one for one in result.findings.kept if one.check == "replica-differs"]
    assert found.offset == 20 and set(found.brokers) == {"2", "3"}


def test_a_batch_in_which_a_log_begins_is_compared(tmp_path: Path) -> None:
    """Records up to the midst of a batch were deleted; the rest of it is served."""

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches[0] = plain(0, 10, text="w")

    result = audit(three_alike(tmp_path, [plain(0, 10), plain(10)], change, log_start=5))
    assert (result.outcome, verdicts(result)) == ("FAIL", {"t-0": "DIVERGENT"})


def many_epochs(count: int) -> tuple[list[Batch], tuple[tuple[int, int], ...]]:
    return [plain(at, epoch=at) for at in range(count)], tuple((at, at) for at in range(count))


def test_more_leader_epochs_than_are_kept_are_no_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, epochs = many_epochs(9)
    three_alike(tmp_path, batches, epochs=epochs)
    monkeypatch.setattr(scan, "RUNS_MAX", 9)
    assert audit(tmp_path).outcome == "PASS"
    monkeypatch.setattr(scan, "RUNS_MAX", 8)
    result = audit(tmp_path)
    assert (result.outcome, result.exit_code, verdicts(result)) == ("INCOMPLETE", 3, {"t-0": "INCOMPLETE"})
    assert "more leader epochs" in told(result, "not-compared")[0]


def test_a_small_file_larger_than_any_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_alike(tmp_path, [plain(0)])
    monkeypatch.setattr(directories, "SMALL_FILE_BYTES_MAX", 8)
    result = audit(tmp_path)
    assert result.exit_code == 3 and "larger than 8 bytes" in told(result, "unreadable")[0]


def test_an_index_larger_than_is_read_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_alike(tmp_path, [plain(offset) for offset in range(20)])
    monkeypatch.setattr(scan, "INDEX_BYTES_MAX", 16)
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "UNREADABLE"})


# ---- what goes in comes out ------------------------------------------------------------------------------------------------------


def test_two_days_of_one_broker_end_no_audit(tmp_path: Path) -> None:
    """Two directories with one node id: each partition of theirs is INCOMPLETE, and the others are judged."""
    for name, text in (("monday", "v"), ("tuesday", "w")):
        write_broker(tmp_path / name, 1, [Partition("a-0", [plain(0, text=text)]), Partition("z-0", [plain(0)])])
    write_broker(tmp_path / "b2", 2, [Partition("m-0", [plain(0)])])
    write_broker(tmp_path / "b3", 3, [Partition("m-0", [plain(0)])])
    result = audit(tmp_path)
    assert verdicts(result) == {"a-0": "DIVERGENT", "m-0": "MATCH", "z-0": "INCOMPLETE"}
    assert any("copies of one log directory" in text for text in told(result, "not-compared"))


def test_of_two_copies_of_a_log_directory_neither_is_believed(tmp_path: Path) -> None:
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition(name, [plain(0)]) for name in ("t-0", "u-0")])
    shutil.copytree(tmp_path / "b1", tmp_path / "b1-copy")
    (tmp_path / "b1" / "t-0").rename(tmp_path / "b1" / f"t-0.{'0' * 32}-delete")
    assert (audit(tmp_path).exit_code, verdicts(audit(tmp_path))) == (3, {"t-0": "INCOMPLETE", "u-0": "INCOMPLETE"})


def test_a_log_directory_given_as_two_brokers_proves_nothing(tmp_path: Path) -> None:
    write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(0)])])
    shutil.copytree(tmp_path / "b1", tmp_path / "b2")
    path = tmp_path / "b2" / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})


def test_one_file_in_two_directories_proves_nothing(tmp_path: Path) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)])])
    segment = Path("t-0") / f"{0:020d}.log"
    (tmp_path / "b2" / segment).unlink()
    os.link(tmp_path / "b1" / segment, tmp_path / "b2" / segment)
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"}) and "share a segment" in told(result, "not-compared")[0]


def test_a_partition_in_two_log_directories_of_one_broker_is_an_error(tmp_path: Path) -> None:
    for number in (0, 1):
        write_broker(tmp_path / f"b1-{number}", 1, [Partition("t-0", [plain(0)])], number=number)
    write_broker(tmp_path / "b2", 2, [Partition("t-0", [plain(0)])])
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (1, {"t-0": "CORRUPT"}) and told(result, "replica-twice")


@pytest.mark.parametrize("error", [StopIteration("x"), ValueError("x"), MemoryError("x"), KeyError("x")])
def test_no_exception_of_a_scan_ends_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition(f"{name}-0", [plain(0)]) for name in "abc"])
    run = scan._Scan.run

    def broken(self: Any) -> Any:
        if self.task.topic == "b":
            raise error
        return run(self)

    monkeypatch.setattr(scan._Scan, "run", broken)
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"a-0": "MATCH", "b-0": "INCOMPLETE", "c-0": "MATCH"})
    assert type(error).__name__ in told(result, "not-compared")[0]


@pytest.mark.parametrize("error", [StopIteration("x"), ValueError("x")])
def test_no_exception_of_a_comparison_ends_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition(f"{name}-0", [plain(0, text=str(broker))]) for name in "abc"])

    judge = auditing.compare.judge

    def broken(views: Any, readers: Any) -> Any:
        if views[0].replica.topic == "b":
            raise error
        return judge(views, readers)

    monkeypatch.setattr(auditing.compare, "judge", broken)
    assert verdicts(audit(tmp_path)) == {"a-0": "DIVERGENT", "b-0": "INCOMPLETE", "c-0": "DIVERGENT"}


class ForgetfulEngine(LocalEngine):
    """Loses the last result of every map."""

    def map(self, function: Any, items: list[Any]) -> Iterator[Any]:
        yield from list(super().map(function, items))[:-1]


def test_results_that_do_not_come_back_are_missed(tmp_path: Path) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0, text=str(broker))])])
    result = run_audit([str(tmp_path)], ForgetfulEngine(1), AuditOptions(split_bytes=1 << 20))
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})


def test_what_cannot_be_read_again_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digests differ, and when the batches are looked at the file is gone."""

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches[0] = plain(0, text="w")

    three_alike(tmp_path, [plain(0)], change)
    real = scan.open_log

    def gone(task: Any, position: int = 0, low: int = -1, **more: Any) -> Any:
        if low >= 0:
            raise FileNotFoundError(2, "No such file or directory", task.path)
        return real(task, position, low, **more)

    monkeypatch.setattr(scan, "open_log", gone)
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})
    assert any("cannot be read again" in text for text in told(result, "not-compared"))


def test_what_a_running_broker_replaced_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner takes a segment away between the scan and the closer look, once."""
    three_alike(tmp_path, [plain(0)])
    for broker in BROKERS:
        (tmp_path / f"b{broker}" / ".kafka_cleanshutdown").unlink()
    segment = tmp_path / "b3" / "t-0" / f"{0:020d}.log"
    good = segment.read_bytes()
    segment.write_bytes(plain(0, text="w").encode())
    real, looks = scan.open_log, []

    def replaced(task: Any, position: int = 0, low: int = -1, **more: Any) -> Any:
        if low >= 0 and not looks:
            looks.append(task)
            segment.write_bytes(good)
            raise FileNotFoundError(2, "No such file or directory", task.path)
        return real(task, position, low, **more)

    monkeypatch.setattr(scan, "open_log", replaced)
    result = audit(tmp_path)
    assert (result.outcome, len(looks)) == ("PASS", 1) and told(result, "replica-reread")


def test_behind_a_difference_the_next_cells_are_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_cell_shift", lambda copies: 3)

    def change(broker: int, one: Partition) -> None:
        for at in {2: (25,), 3: (10,)}.get(broker, ()):
            one.batches[at] = plain(at, text="w")

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    assert {one.offset for one in result.findings.kept if one.check == "replica-differs"} == {10, 25}


# ---- who answers for what --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [0, 12, 20, -1, None])
def test_an_eligible_leader_answers_for_all_that_is_committed(tmp_path: Path, mark: int | None) -> None:
    """Broker 3 alone may lead; it has other bytes from 20 on, of another epoch, and knows little of what is committed, or nothing."""
    log = known_to_the_controller(isr=(), elr=(3,), leader=-1, leader_epoch=1).encode()
    batches = [plain(offset) for offset in range(60)]
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches)], log)
    others = [plain(offset, epoch=1, text="w") for offset in range(20, 60)]
    other = Partition("t-0", [*batches[:20], *others], epochs=((0, 0), (1, 20)), high_watermark=mark)
    path = write_broker(tmp_path / "b3", 3, [other], log)
    if mark is None:
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
    (((0, 0), (2, 40)), 0), (((0, 20), (2, 40)), 0),
])  # fmt: skip
def test_a_leader_epoch_below_the_log_start_is_of_what_lies_before(
    tmp_path: Path, epochs: tuple[tuple[int, int], ...], code: int, clean: bool
) -> None:
    """Segments are gone, and the checkpoint ends epoch 0 where it should not, below the batches of epoch 0 that are left."""
    batches = [*(plain(offset) for offset in range(20, 40)), *(plain(offset, epoch=2) for offset in range(40, 60))]
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", batches, (20,), epochs)], clean=clean)
    result = audit(tmp_path)
    assert (result.exit_code, bool(told(result, "epoch-checkpoint"))) == (code, bool(code))


@pytest.mark.parametrize("epochs", [((0, 0), (1, 10), (2, 20)), ((1, 10), (2, 20)), ((2, 40),), ((2, 40), (3, 60))])
def test_older_leader_epochs_below_the_log_start_may_still_be_listed(tmp_path: Path, epochs: tuple[tuple[int, int], ...]) -> None:
    batches = [plain(offset, epoch=2) for offset in range(20, 60)]
    assert audit(three_alike(tmp_path, batches, bases=(20,), epochs=epochs, log_start=40)).outcome == "PASS"


def test_replicas_that_were_in_sync_before_an_orderly_stop_must_be_there(tmp_path: Path) -> None:
    """After the stop the in-sync set is empty and one replica is eligible: that is the normal state of stopped clusters."""
    log = known_to_the_controller().change(TOPIC, isr=(3,), elr=()).change(TOPIC, isr=(), elr=(3,), leader=-1).encode()
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


def test_a_crashed_brokers_checkpoint_may_name_what_was_just_deleted(tmp_path: Path) -> None:
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)]), Partition("u-0", [plain(0)])], clean=False)
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
    assert verdicts(audit(tmp_path)) == {"t-0": "INCOMPLETE", "u-0": "MATCH"}


def test_a_broker_that_was_not_given_is_named(tmp_path: Path) -> None:
    log = known_to_the_controller().encode()
    for broker in (1, 2):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(0)])], log)
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")
    assert told(result, "not-compared") == ["3: the controller counts broker 3 as in sync of t-0, but its log directories were not given"]
    assert audit(tmp_path, self_check=True).outcome == "PASS"


def test_a_broker_that_answers_over_the_wire_need_not_be_given(tmp_path: Path) -> None:
    write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(0)])], known_to_the_controller().encode())
    plan = sources.make_plan([str(tmp_path)])
    assert [one.brokers for one in plan.missing["t", 0]] == [("2",), ("3",)]
    live = dataclasses.replace(plan.replicas["t", 0][0], node="2", broker="2", place=Place("localhost", 9092))
    plan.replicas["t", 0].append(live)
    auditing._given_live(plan)
    assert [one.brokers for one in plan.missing["t", 0]] == [("3",)]


def test_one_replica_is_enough_where_the_controller_knows_of_no_other(tmp_path: Path) -> None:
    log = MetadataLog().broker(1).broker(2).topic("t", TOPIC).partition(TOPIC, (1,), (1,), 1)
    log.topic("u", bytes(16)).partition(bytes(16), (1, 2), (1, 2), 1)
    write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(0)]), Partition("u-0", [plain(0)], topic_id=bytes(16))], log.encode())
    write_broker(tmp_path / "b2", 2, [Partition("u-0", [plain(0)], topic_id=bytes(16))], log.encode())
    result = audit(tmp_path)
    assert (result.outcome, verdicts(result)["t-0"], verdicts(result)["u-0"]) == ("PASS", "SINGLE", "MATCH")
    for broker in (1, 2):
        shutil.rmtree(tmp_path / f"b{broker}" / "__cluster_metadata-0")
    assert verdicts(audit(tmp_path)) == {"t-0": "INCOMPLETE", "u-0": "MATCH"}


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
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "MATCH"}) and closed in told(result, "unreadable")[0]


# ---- what may have been compacted ------------------------------------------------------------------------------------------------


def sparse(batch: Batch) -> Batch:
    """One record less than the offsets that it takes."""
    return Batch(batch.base, batch.records[:-1], batch.epoch, last_delta=batch.span - 1)


def in_segments(tmp_path: Path, batches: list[Batch], log: MetadataLog | None, **more: Any) -> Path:
    for broker in BROKERS:
        one = Partition("t-0", batches, bases=(0, 10, 20))
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode() if log is not None else b"", **more)
    return tmp_path


BATCHES = [plain(base, 2) for base in range(0, 30, 2)]
#: One batch that looks compacted, and the segment in the middle gone, on every replica alike.
ROBBED = [*BATCHES[:2], sparse(BATCHES[2]), *BATCHES[3:5], *BATCHES[10:]]


def test_one_sparse_batch_excuses_nothing_in_a_topic_that_was_never_compacted(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, ROBBED, known_to_the_controller()))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "CORRUPT")
    assert told(result, "batch-sparse") and told(result, "offset-gap")


def test_without_a_word_of_the_policy_a_sparse_batch_is_no_proof(tmp_path: Path) -> None:
    result = audit(in_segments(tmp_path, ROBBED, None))
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("now", ["", "delete"])
def test_a_topic_that_once_was_compacted_may_have_gaps(tmp_path: Path, policy: str, now: str) -> None:
    log = known_to_the_controller().config("t", "cleanup.policy", policy)
    if now:
        log.config("t", "cleanup.policy", now)
    assert audit(in_segments(tmp_path, ROBBED, log)).outcome == "PASS"


def test_a_cleaners_checkpoint_tells_of_a_policy_that_only_the_brokers_know(tmp_path: Path) -> None:
    assert audit(in_segments(tmp_path, ROBBED, known_to_the_controller(), cleaned={"t-0": 20})).outcome == "PASS"


def test_a_topic_made_again_does_not_inherit_its_policy(tmp_path: Path) -> None:
    log = MetadataLog().topic("t", bytes(16)).config("t", "cleanup.policy", "compact").remove(bytes(16))
    log.values += known_to_the_controller().values
    assert audit(in_segments(tmp_path, ROBBED, log)).exit_code == 1


# ---- unclean elections -----------------------------------------------------------------------------------------------------------


def after_an_unclean_election(tmp_path: Path, mark: int) -> Path:
    """Broker 1 was alone in sync and wrote 20..119; broker 2 was elected uncleanly and went on at 20; 1 has not come back."""
    log = known_to_the_controller().change(TOPIC, isr=(1,)).change(TOPIC, leader=2, isr=(2,), recovering=True)
    log.change(TOPIC, isr=(2, 3), recovering=False)
    common = [plain(offset) for offset in range(20)]
    old = [*common, *(plain(offset, text="acked") for offset in range(20, 120))]
    new = [*common, *(plain(offset, epoch=1, text="new") for offset in range(20, 50))]
    write_broker(tmp_path / "b1", 1, [Partition("t-0", old, high_watermark=mark)], log.encode(), clean=False)
    for broker in (2, 3):
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", new, epochs=((0, 0), (1, 20)))], log.encode())
    return tmp_path


@pytest.mark.parametrize("mark", [20, 35, 120])
def test_what_an_unclean_election_lost_is_told(tmp_path: Path, mark: int) -> None:
    result = audit(after_an_unclean_election(tmp_path, mark))
    (text,) = told(result, "unclean-loss")
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "LOST")
    assert text == (
        "1: offsets 20..119 that broker 1 still holds may have been acknowledged; they were lost by the unclean election of broker 2 in "
        "leader epoch 1 (metadata offset 6, 2023-11-14T22:13:26Z; in sync were 1, eligible none)"
    )
    assert not told(result, "isr-claim"), "those in sync do not lack what nobody can have any more"


def test_an_unclean_election_that_cost_nothing_is_no_alarm(tmp_path: Path) -> None:
    after_an_unclean_election(tmp_path, 20)
    shutil.rmtree(tmp_path / "b1" / "t-0")
    shutil.copytree(tmp_path / "b2" / "t-0", tmp_path / "b1" / "t-0")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (tmp_path / "b1" / name).write_text(lines(["t 0 50"]))
    assert audit(tmp_path).outcome == "PASS"


def test_acknowledged_records_lost_by_an_election_are_told_once(tmp_path: Path) -> None:
    import json

    after_an_unclean_election(tmp_path, 20)
    rows = [(offset, f"v{offset:08d}") for offset in range(20)] + [(offset, f"acked{offset:08d}") for offset in range(20, 120)]
    rows += [(offset, f"new{offset:08d}") for offset in range(20, 50)]
    ledger = tmp_path / "acked.jsonl"
    ledger.write_text("".join(json.dumps({"topic": "t", "partition": 0, "offset": at, "value": value}) + "\n" for at, value in rows))
    result = audit(tmp_path, acked=(str(ledger),))
    (conflict,) = told(result, "acked-conflict")
    assert verdicts(result)["t-0"] == "LOST"
    assert "offsets 20..49" in conflict and "unclean election of broker 2" in conflict


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
