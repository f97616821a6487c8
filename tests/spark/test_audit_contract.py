"""What PASS means: whatever had to be compared was, and what was not is named and makes the outcome INCOMPLETE (docs/audit-rules.md)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, audit, messages_of, three_alike, verdicts
from helpers.log_clusters import Batch, Partition, plain, write_broker

from minikafka.spark import audit as auditing
from minikafka.spark import difference, directories, scan, sources
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

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


@pytest.mark.parametrize("step", ["_count", "_zone"])
def test_batches_left_out_of_a_comparison_are_not_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whatever the reason: here a comparison passes over all cells, and finds nothing."""
    paths = three_alike(tmp_path, [plain(offset) for offset in range(30)], lambda broker, one: None)
    assert audit(paths).outcome == "PASS"
    monkeypatch.setattr(difference.Comparison, step, lambda *_, **__: None)
    result = audit(paths)
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")
    assert {one.brokers for one in result.findings.kept if "compared 0 (0 offsets) of" in one.message} == {("1",), ("2",), ("3",)}


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
    assert "more leader epochs" in messages_of(result, "not-compared")[0]


def test_a_small_file_larger_than_any_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_alike(tmp_path, [plain(0)])
    monkeypatch.setattr(directories, "SMALL_FILE_BYTES_MAX", 8)
    result = audit(tmp_path)
    assert result.exit_code == 3 and "larger than 8 bytes" in messages_of(result, "unreadable")[0]


def test_a_checkpoint_larger_than_any_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for one that is not there, without which the whole log counts as committed."""
    three_alike(tmp_path, [plain(0)])
    (tmp_path / "b1" / "replication-offset-checkpoint").write_text("0\n200\n" + "".join(f"t {number} 1\n" for number in range(200)))
    monkeypatch.setattr(directories, "SMALL_FILE_BYTES_MAX", 500)
    result = audit(tmp_path)
    assert result.exit_code == 3 and "larger than 500 bytes" in messages_of(result, "unreadable")[0]


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
    assert any("copies of one log directory" in text for text in messages_of(result, "not-compared"))


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
    assert (result.exit_code, verdicts(result)) == (3, {"t-0": "INCOMPLETE"})
    assert "share a segment" in messages_of(result, "not-compared")[0]


def test_a_partition_in_two_log_directories_of_one_broker_is_an_error(tmp_path: Path) -> None:
    for number in (0, 1):
        write_broker(tmp_path / f"b1-{number}", 1, [Partition("t-0", [plain(0)])], number=number)
    write_broker(tmp_path / "b2", 2, [Partition("t-0", [plain(0)])])
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)) == (1, {"t-0": "CORRUPT"}) and messages_of(result, "replica-twice")


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
    assert type(error).__name__ in messages_of(result, "not-compared")[0]


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


def test_files_that_cannot_be_read_again_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert any("cannot be read again" in text for text in messages_of(result, "not-compared"))


def test_files_that_a_running_broker_replaced_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (result.outcome, len(looks)) == ("PASS", 1) and messages_of(result, "replica-reread")


def test_behind_a_difference_the_next_cells_are_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_cell_shift", lambda copies: 3)

    def change(broker: int, one: Partition) -> None:
        for at in {2: (25,), 3: (10,)}.get(broker, ()):
            one.batches[at] = plain(at, text="w")

    result = audit(three_alike(tmp_path, [plain(offset) for offset in range(30)], change))
    assert {one.offset for one in result.findings.kept if one.check == "replica-differs"} == {10, 25}
