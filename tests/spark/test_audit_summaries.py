"""Clusters audited by summaries, without any machine that sees all: the same verdicts, and no summary that is not whole."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import crc32c
import numpy as np
import pytest
from click.testing import CliRunner
from helpers.log_clusters import Partition, plain, write_broker
from helpers.log_fault_bases import BASES
from helpers.log_fault_grammar import Case, Player, Step, draw
from helpers.summarized_clusters import OPTIONS, by_summaries, direct, scans, summary_of

from minikafka.cli.audit import audit as command
from minikafka.spark import summary_audit, summary_codec, summary_file
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.scan import Cell, scan_segment
from minikafka.spark.sources import SegmentTask
from minikafka.spark.summaries import as_if_scanned, is_locked, labels, write_scan
from minikafka.spark.summary_audit import compare_summaries
from minikafka.spark.summary_file import SummaryError, SummaryReader


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    player = Player("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())
    yield player
    player.close()


def both(player: Player, case: Case) -> int:
    """Audited in both ways, which agree; returns how often the machines were asked again."""
    asked: list[int] = []

    def audit(folder: Path) -> int:
        found, rounds = by_summaries(folder, folder.parent / "summaries")
        assert summary_of(found) == summary_of(direct(folder)), case
        asked.append(rounds)
        return found.exit_code

    player.play(case, audit)
    return asked[0]


@pytest.mark.parametrize("name", ["eligible", "retained", "compacted transactions", "two log directories"])
def test_summaries_say_what_a_direct_audit_says(player: Player, name: str) -> None:
    assert both(player, Case(name, ())) <= 3


@pytest.mark.parametrize("name", ["plain", "transactions", "unclean election"])
def test_of_a_cluster_that_rests_one_scan_of_each_machine_is_enough(player: Player, name: str) -> None:
    assert both(player, Case(name, ())) == 0


@pytest.mark.parametrize("case", [
    Case("plain", (Step("payload", (2,), (30000, 9, 1, 1)),)), Case("compacted", (Step("others", (3,), (30000, 3, 0)),)),
    Case("two log directories", (Step("twin", (1,), ("same",)),)), Case("no controller", (Step("lose_tail", (2, 3), (4,)),)), draw(11),
    draw(23),
])  # fmt: skip
def test_faults_are_found_alike(player: Player, case: Case) -> None:
    """`tests/bench/audit_fuzz.py --summaries` plays thousands."""
    both(player, case)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster"
    folder.mkdir()
    BASES["plain"].write(folder)
    return folder


def test_a_machine_that_did_not_scan_is_missed(three: Path, tmp_path: Path) -> None:
    files = scans(three, tmp_path / "out")
    result = compare_summaries(files[:2], OPTIONS)
    assert result.exit_code == 3 and "its log directories were not given" in str(summary_of(result)) + str(
        [one.message for one in result.findings.kept]
    )


def test_no_cut_and_no_damaged_summary_is_taken(three: Path, tmp_path: Path) -> None:
    """Cut at many bytes, and with many bytes changed."""
    path = Path(scans(three, tmp_path / "out")[0])
    whole = path.read_bytes()
    step = max(1, len(whole) // 100)
    for at in [*range(0, len(whole), step), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:at])
        with pytest.raises(SummaryError, match=r"truncated at byte|not a summary"):
            SummaryReader(str(path))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(SummaryError):
            SummaryReader(str(path))
    path.write_bytes(whole + b"x")
    with pytest.raises(SummaryError, match="does not end"):
        SummaryReader(str(path))


def test_a_summary_that_contradicts_itself_is_refused(three: Path, tmp_path: Path) -> None:
    """One machine's list of replicas stands in another's summary, with a right checksum."""
    files = scans(three, tmp_path / "out")
    frames = {path: list(frames_of(path)) for path in files[1:]}
    taken = [frames[files[2]][at] if frame[0] == "entries" else frame for at, frame in enumerate(frames[files[1]])]
    Path(files[1]).write_bytes(summary_file.MAGIC + b"".join(summary_file.frame_of(*frame) for frame in taken))
    with pytest.raises(SummaryError, match="contradicts itself"):
        compare_summaries(files, OPTIONS)


def frames_of(path: str) -> Iterator[tuple[str, str, bytes]]:
    with open(path, "rb") as file:
        file.read(len(summary_file.MAGIC))
        while (frame := summary_file.read_frame(file)) is not None:
            yield frame


def test_the_command_says_what_is_wrong_with_a_summary(three: Path, tmp_path: Path) -> None:
    files = scans(three, tmp_path / "out")
    Path(files[0]).write_bytes(Path(files[0]).read_bytes()[:-10])
    said = CliRunner().invoke(command, ["--compare-summaries", *files])
    assert said.exit_code == 3 and said.output.count("\n") == 1 and "is truncated at byte" in said.output


def test_a_scan_that_fails_leaves_no_summary(tmp_path: Path, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(summary_file.SummaryWriter, "add", fails)
    with pytest.raises(OSError, match="No space"):
        write_scan([str(three / "b1")], LocalEngine(1), OPTIONS, str(tmp_path / "s"))
    assert not list(tmp_path.glob("s*"))


def test_scans_that_do_not_go_together_are_refused(three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = scans(three, tmp_path / "out")
    shutil.copy(files[0], tmp_path / "again")
    with pytest.raises(SummaryError, match="scans of the same log directories"):
        compare_summaries([*files, str(tmp_path / "again")], OPTIONS)
    write_scan([str(three / "b3")], LocalEngine(1), replace(OPTIONS, digest="blake2b"), files[2])
    with pytest.raises(SummaryError, match="different options"):
        compare_summaries(files, OPTIONS)
    monkeypatch.setattr(summary_codec, "FORMAT_DIGEST", "another")
    with pytest.raises(SummaryError, match="another version"):
        compare_summaries(files, OPTIONS)


def test_another_version_asks_otherwise() -> None:
    """Whoever has other classes, other questions, or the same ones with other arguments."""
    asked: list[dict[str, Callable[..., object]]] = [
        {}, {"cell": lambda task: task}, {"cell": lambda task, end: task}, {"another": lambda task: task},
    ]  # fmt: skip
    assert len({summary_codec.shape_of(classes, answers) for classes in ([], [Cell]) for answers in asked}) == 8


def test_answers_without_their_scan_are_refused(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    BASES["eligible"].write(folder)
    _, rounds = by_summaries(folder, tmp_path / "out")
    assert rounds
    with pytest.raises(SummaryError, match="answers none of the scans"):
        compare_summaries([str(tmp_path / "out" / name) for name in ("b2", "b3", "b1-0")], OPTIONS)
    with pytest.raises(SummaryError, match="only answers"):
        compare_summaries([], OPTIONS)


def test_two_machines_with_one_name_and_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers: each sees its log directory in the same place, under the same device and inode numbers."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    BASES["plain"].write(folder)
    files = []
    for number in (1, 2, 3):
        (folder / f"b{number}").rename(tmp_path / "data")
        files.append(str(tmp_path / f"summary-{number}"))
        write_scan([str(tmp_path / "data")], LocalEngine(1), OPTIONS, files[-1])
        shutil.rmtree(tmp_path / "data")
    assert compare_summaries(files, OPTIONS).outcome == "PASS"


def test_a_fault_of_a_broker_that_runs_is_no_verdict(tmp_path: Path) -> None:
    """It holds the lock of its directory; a killed one does not, and its fault counts."""
    for broker in (1, 2):
        batches = [plain(at, text="v" if broker == 1 or at != 5 else "w") for at in range(20)]
        write_broker(tmp_path / "cluster" / f"b{broker}", broker, [Partition("t-0", batches)], clean=False)
        (tmp_path / "cluster" / f"b{broker}" / ".lock").touch()
    assert not is_locked(str(tmp_path / "cluster" / "b1"))
    assert by_summaries(tmp_path / "cluster", tmp_path / "killed")[0].outcome == "FAIL"
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    lock = str(tmp_path / "cluster" / "b2" / ".lock")
    with subprocess.Popen([sys.executable, "-c", hold, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        assert is_locked(str(tmp_path / "cluster" / "b2"))
        result, _ = by_summaries(tmp_path / "cluster", tmp_path / "running")
        assert holder.stdin is not None
        holder.stdin.close()
    assert result.exit_code == 3 and [one.verdict for one in result.partitions] == ["INCOMPLETE"]
    assert ("replica-differs", "warning") in result.findings.counts
    with open(lock, "rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_the_command_in_three_steps(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    BASES["eligible"].write(folder)
    run, names, questions = CliRunner().invoke, ("b1", "b2", "b3"), str(tmp_path / "questions")
    for name in names:
        said = run(command, ["--scan", str(tmp_path / name), str(folder / name), "--processes", "1"])
        assert said.exit_code == 0 and "segments read" in said.output
    files = [str(tmp_path / name) for name in names]
    said = run(command, ["--compare-summaries", *files, "--questions", questions])
    assert said.exit_code == 3 and "--questions" in said.output
    for name in names:
        files.append(str(tmp_path / f"{name}-more"))
        assert run(command, ["--scan", files[-1], "--questions", questions, str(folder / name), "--processes", "1"]).exit_code == 0
    said = run(command, ["--compare-summaries", *files, "--questions", questions, "--report", str(tmp_path / "report")])
    assert said.exit_code == 0 and not os.path.exists(questions) and (tmp_path / "report" / "report.html").exists()
    assert run(command, ["--scan", "x", "--compare-summaries", "y"]).exit_code == 2
    assert run(command, ["--questions", "x", str(folder)]).exit_code == 2
    assert run(command, ["--scan", "x", "--questions", files[0], str(folder / "b1")]).exit_code == 3


def test_answers_of_other_bytes_than_were_scanned_prove_nothing(three: Path, tmp_path: Path) -> None:
    """A replica that differed when it was scanned, and was made like the others before it answered."""
    out, questions = tmp_path / "out", tmp_path / "questions"
    path = next(path for path in sorted((three / "b2").rglob("*.log")) if path.stat().st_size > 200 and "__" not in str(path))
    good = path.read_bytes()
    raw = bytearray(good)
    end = 12 + int.from_bytes(raw[8:12], "big")
    raw[end - 2] ^= 1
    raw[17:21] = crc32c.crc32c(bytes(raw[21:end])).to_bytes(4, "big")
    path.write_bytes(raw)
    options, time_ns = replace(OPTIONS, level="batches"), path.stat().st_mtime_ns
    files = scans(three, out, options)
    assert direct(three, options).exit_code == 1
    assert compare_summaries(files, options, str(questions)).exit_code == 3
    path.write_bytes(good)
    os.utime(path, ns=(time_ns + 10**9, time_ns + 10**9))
    write_scan([str(three / "b2")], LocalEngine(1), options, str(out / "late"), str(questions))
    with pytest.raises(SummaryError, match="changed between"):
        compare_summaries([*files, str(out / "late")], options)
    os.utime(path, ns=(time_ns, time_ns))
    for name in ("b1", "b2", "b3"):
        files.append(str(out / f"{name}-more"))
        write_scan([str(three / name)], LocalEngine(1), options, files[-1], str(questions))
    result = compare_summaries(files, options, str(questions))
    assert result.exit_code == 3
    (found,) = (one for one in result.findings.kept if "files changed in between" in one.message)
    assert [name.partition(" ")[0] for name in found.brokers] == ["2"]


# ---- what one plan's scan tells another plan -------------------------------------------------------------------------------------------


def task(path: Path, **change: object) -> SegmentTask:
    usual = SegmentTask("t", 0, "1", str(path), 0, -1, (path / f"{0:020d}.log").stat().st_size, (), (), True, 100, 0, (0, 100), 4,
                        starts=(0,), policy="delete")  # fmt: skip
    return replace(usual, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(("change", "is_reported"), [
    ({"cell_shift": 6}, True), ({"cell_shift": 3}, False), ({"cuts": (0, 200, 300), "starts": (0,)}, True),
    ({"cuts": (0, 50, 100)}, False), ({"policy": "unknown"}, True), ({"policy": "compact"}, False), ({"cleaned_to": 40}, False),
    ({"broker": "1 (x)"}, True), ({"size": 3}, False), ({"level": "records"}, False), ({"high_watermark": 50}, True),
    ({"cell_shift": 5, "cuts": (-5, 0, 100)}, True),
])  # fmt: skip
def test_a_scan_by_another_plan_is_reported_or_repeated(tmp_path: Path, change: dict[str, object], is_reported: bool) -> None:
    path = write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(at) for at in range(100)])]) / "t-0"
    wanted = task(path, **change)
    found = as_if_scanned(scan_segment(task(path)), wanted)
    assert (found is not None) == is_reported
    if found is not None:
        again = scan_segment(wanted)
        assert summary_codec.dumps(found) == summary_codec.dumps(again)


def test_values_come_back_as_they_were() -> None:
    findings = FindingList(2)
    findings.add(Finding("batch-crc", "x", "t", 3, ("1",), 5, "/data/t-3", details={"sides": [{"a": None}], "moved": True}))
    array = np.array([(1, 2)], [("a", ">i4"), ("b", "u8")])
    for value in [None, 1 << 70, "é", b"\0\xff", (1, (2, "x")), {("t", 1): [3]}, {1, 2}, frozenset({"a"}), Cell(1 << 63, 1, 2, 3, 4)]:
        back = summary_codec.loads(summary_codec.dumps(value))
        assert back == value and type(back) is type(value)
    back = summary_codec.loads(summary_codec.dumps([findings, array], "/data"), "host:/data")
    assert back[0].kept[0].file == "host:/data/t-3" and back[0].counts == findings.counts and (back[1] == array).all()


@pytest.mark.parametrize("text", [
    b"{", b'{"Cell":[1]}', b'{"os.system":["x"]}', b'{"a":["O",""]}', b'{"t":3}', b'{"d":[1]}', b'{"a":["<i8","AA=="]}',
])  # fmt: skip
def test_invalid_values_are_refused(text: bytes) -> None:
    with pytest.raises(summary_codec.CodecError):
        summary_codec.loads(text)


def test_more_cells_that_differ_than_are_asked_for_at_once(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_audit, "CELLS_ASKED_MAX", 1)
    both(player, Case("compacted", ()))


def test_nothing_is_asked_that_the_verdict_does_not_need(tmp_path: Path) -> None:
    """A replica that is behind lacks batches of a cell, but they are not due from it."""
    for broker, end in ((1, 40), (2, 40), (3, 20)):
        one = Partition("t-0", [plain(base, 10) for base in range(0, end, 10)], high_watermark=20)
        write_broker(tmp_path / "c" / f"b{broker}", broker, [one])
    result, rounds = by_summaries(tmp_path / "c", tmp_path / "out")
    assert [one.verdict for one in result.partitions] == ["LAGGING"] and rounds == 0
    assert summary_of(result) == summary_of(direct(tmp_path / "c"))


def test_brokers_of_equal_hosts_and_paths_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    """As in containers, and before directories had ids."""
    files = []
    for broker in (1, 2, 3):
        write_broker(tmp_path / "kafka", broker, [Partition("t-0", [plain(0, 5)])])
        properties = (tmp_path / "kafka" / "meta.properties").read_text().splitlines()
        (tmp_path / "kafka" / "meta.properties").write_text("".join(f"{line}\n" for line in properties if "directory.id" not in line))
        files.append(str(tmp_path / f"{broker}.summary"))
        write_scan([str(tmp_path / "kafka")], LocalEngine(1), OPTIONS, files[-1])
        shutil.move(tmp_path / "kafka", tmp_path / f"b{broker}")
    result = compare_summaries(files, OPTIONS)
    assert [(one.verdict, one.brokers) for one in result.partitions] == [("MATCH", ("1", "2", "3"))]
    assert len({row["path"] for one in result.partitions for row in one.replicas}) == 3


def test_machines_of_one_name_have_different_names_in_the_comparison() -> None:
    """Their paths may be equal: with one name, a log would be compared with itself."""
    scanned = [{"host": "kafka", "id": "abcd0123"}, {"host": "kafka", "id": "abcd0456"}, {"host": "b3", "id": "ef000000"}]
    assert labels(scanned) == ["kafka#abcd01", "kafka#abcd04", "b3"]
    assert labels(scanned[1:]) == ["kafka", "b3"] and labels([]) == []
