"""The other bounds of audit, load and reports made small and crossed: what is shown or held is bounded, and what was found is not."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, three_alike, verdicts
from helpers.log_clusters import Batch, Partition, plain, write_broker
from helpers.wire_replicas import WireReplicas

from minikafka.spark import audit as auditing
from minikafka.spark import (
    cluster_manifest,
    explain,
    fetch_client,
    fetch_reader,
    judging,
    ledger,
    live,
    logical,
    records,
    report_html,
    rereading,
    sources,
    summaries,
    summary_audit,
    summary_file,
    trend,
)
from minikafka.spark import report as reporting
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.engine_spark import GROUPS_A_TASK, SparkEngine
from minikafka.spark.fetch_client import BrokerError, Connection
from minikafka.spark.source_options import SHARES, SourceOptions
from minikafka.spark.sources import SegmentTask
from minikafka.spark.splits import split
from minikafka.spark.summary_file import SummaryError, SummaryReader, SummaryWriter

TIME_MS = 1_700_000_000_000


# ---- comparing cleaned parts ---------------------------------------------------------------------------------------------------------


def cleaned_apart(folder: Path, other: int | None = None) -> Path:
    """A compacted topic of ten keys, cleaned up to 40 on each broker to another extent, but for the latest record of each key below 40,
    which no cleaner removes; broker 3 has another value at offset `other`."""
    log = registered_topic().config("t", "cleanup.policy", "compact")
    for broker in BROKERS:
        batches = [Batch(at, [(0, b"k%d" % (at % 10), b"v%d" % at)], 0, TIME_MS + at) for at in range(60)]
        if broker == 3 and other is not None:
            batches[other] = Batch(other, [(0, b"k%d" % (other % 10), b"other")], 0, TIME_MS + other)
        left = [one for one in batches if one.base >= 30 or one.base % (broker + 1) == 0]
        one = Partition("t-0", left, (0, 40), topic_id=TOPIC)
        write_broker(folder / f"b{broker}", broker, [one], log.encode(), cleaned={"t-0": 40})
    return folder


@pytest.mark.parametrize("bound", [1, 7, 10**6])
def test_survivors_and_keys_are_compared_in_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bound: int) -> None:
    monkeypatch.setattr(logical, "SURVIVORS_A_PASS", bound)
    monkeypatch.setattr(logical, "ROWS_UNPACKED_MAX", bound)
    shares: set[tuple[int, int]] = set()
    surviving = logical.surviving

    def noted(places: Any, key: Any, share: tuple[int, int] = (1, 0)) -> logical.Surviving:
        shares.add(share)
        return surviving(places, key, share)

    monkeypatch.setattr(rereading.logical, "surviving", noted)
    assert audit(cleaned_apart(tmp_path / "sound")).outcome == "PASS"
    for other in (12, 24, 36):
        result = audit(cleaned_apart(tmp_path / str(other), other))
        found = {(one.check, one.brokers, one.offset) for one in result.findings.kept if one.level == "error"}
        assert found == {("replica-differs", ("3",), other)}
    passes = {count for count, _ in shares}
    assert shares == {(count, number) for count in passes for number in range(count)} and (max(passes) > 1) == (bound < 60)


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_batches_that_are_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: int) -> None:
    monkeypatch.setattr(records, "SCALAR_BYTES_MAX", held)
    assert audit(three_alike(tmp_path, [plain(offset, 3) for offset in range(0, 30, 3)]), level="records").outcome == "PASS"


# ---- reading again -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 2])
def test_files_that_keep_changing_are_left_out_and_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, attempts: int) -> None:
    monkeypatch.setattr(auditing, "ATTEMPTS_MAX", attempts)
    looked: list[int] = []
    monkeypatch.setattr(auditing, "_any_changed", lambda *_: looked.append(1) or len(looked) < 9)

    def change(broker: int, one: Partition) -> None:
        one.batches = [*one.batches[:3], plain(3, text="w"), *one.batches[4:]] if broker == 3 else one.batches

    folder = three_alike(tmp_path, [plain(offset) for offset in range(9)], change)
    for stopped in folder.glob("b*/.kafka_cleanshutdown"):
        stopped.unlink()
    result = audit(folder)
    assert len(looked) == attempts and (result.exit_code, verdicts(result)["t-0"]) == (3, "SKIPPED")
    assert f"during each of {attempts} readings" in messages_of(result, "replica-reread")[0]


@pytest.mark.parametrize("tasks_each", [1, 1024, 2000])
def test_tasks_are_split_by_size_and_number(tasks_each: int) -> None:
    one = SegmentTask("t", 0, "1", "/t-0", 0, -1, 1, (), (), None, 0, 0, (), 4)
    found = list(split([one] * 2500, tasks_each))
    assert sum(map(len, found)) == 2500 and max(map(len, found)) == min(tasks_each, 1024)


def test_a_replica_that_sends_nothing_is_asked_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_reader, "EMPTY_MAX", 3)
    world = WireReplicas({broker: [plain(offset) for offset in range(9)] for broker in BROKERS})
    world.high_watermark = 12
    world.install(monkeypatch)
    result = world.audit()
    assert (result.exit_code, len(world.fetched)) == (1, 3 * (9 + 3 + 1)), "what all say they have and none sends is missing"


@pytest.mark.parametrize("partitions", [1, 3, 100])
def test_bounds_are_asked_for_in_several_requests(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    monkeypatch.setattr(live, "PARTITIONS_A_REQUEST", partitions)
    asked: list[int] = []

    class Asked:
        place = "h:1"

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def earliest(self, keys: list[tuple[str, int]]) -> dict[Any, Any]:
            asked.append(len(keys))
            return dict.fromkeys(keys, (0, 5))

        def sizes(self, keys: list[tuple[str, int]]) -> dict[Any, int]:
            return {}

        def fetch(self, wanted: dict[Any, int], *_: Any, **__: Any) -> dict[Any, Any]:
            return {key: fetch_client.Fetched(0, 5, 5, memoryview(b"")) for key in wanted}

    keys = [("t", number) for number in range(7)]
    state = fetch_client.ClusterState("c", {1: ("h", 1)}, {key: fetch_client.PartitionState(1, 0, [1], [1]) for key in keys}, [])
    monkeypatch.setattr(live, "Connection", Asked)
    plan = sources.Plan({}, [], auditing.FindingList(20), 0)
    live._probe(plan, state, 1, "1", fetch_client.Place("h", 1), keys, 20, 1 << 20)
    assert len(plan.replicas) == 7 and max(asked) == min(7, partitions) and sum(asked) == 7


def test_an_answer_larger_than_any_broker_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(fetch_client.Security, "connect", lambda *_: ours)
    with theirs, Connection("h", 1) as connection:
        monkeypatch.setattr(fetch_client, "ANSWER_BYTES_MAX", 100)
        for size, text in ((101, "a frame of 101 bytes"), (100, "wrong correlation id")):
            theirs.sendall(size.to_bytes(4, "big") + bytes(100 if size == 100 else 0))
            with pytest.raises(BrokerError, match=text):
                connection.ask(3, 7, b"")


# ---- summaries -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 2, 1000])
def test_entries_of_a_directory_in_several_frames(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each: int) -> None:
    monkeypatch.setattr(summaries, "ENTRIES_A_FRAME", each)
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition(f"t-{number}", [plain(0)]) for number in range(5)])
        paths, out = [str(tmp_path / f"b{broker}")], str(tmp_path / f"{broker}.summary")
        assert summaries.write_scan(paths, LocalEngine(1), AuditOptions(), out) == 5
    result = summary_audit.compare_summaries([str(tmp_path / f"{broker}.summary") for broker in BROKERS], AuditOptions())
    assert result.outcome == "PASS" and len(result.partitions) == 5


def test_a_frame_larger_than_a_reader_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with SummaryWriter(path) as file:
        file.add("header", "", {"shape": summary_file.summary_codec.FORMAT_DIGEST})
        file.add("scan", "large", ["x" * 5000])
    reader = SummaryReader(path)
    assert reader.one("scan", "large") == ["x" * 5000]
    monkeypatch.setattr(summary_file, "CONTENT_BYTES_MAX", 1000)
    with pytest.raises(SummaryError, match="more than 1000 bytes"):
        reader.one("scan", "large")
    reader.close()
    with pytest.raises(SummaryError, match=r"takes 50\d\d bytes, more than 1000"), SummaryWriter(path + "2") as file:
        file.add("scan", "large", ["x" * 5000])
    assert not (tmp_path / "s2").exists()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SummaryError, match="damaged"):
        patched.setattr(summary_file, "KEY_BYTES_MAX", 3)
        SummaryReader(path)
    monkeypatch.setattr(summary_file, "CONTENT_BYTES_MAX", 10)
    with pytest.raises(SummaryError, match="damaged"):
        SummaryReader(path)


# ---- what is shown -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A report on nine topics, of which the last one differs."""
    folder = tmp_path_factory.mktemp("forked")
    for broker in BROKERS:
        made = [Partition(f"t{number}-0", [plain(0, text="w" if (number, broker) == (8, 3) else "v")]) for number in range(9)]
        write_broker(folder / f"b{broker}", broker, made)
    return reporting.build(run_audit([str(folder)], LocalEngine(1), AuditOptions()))


def test_the_page_draws_the_worst_and_counts_the_rest(monkeypatch: pytest.MonkeyPatch, forked: dict[str, Any]) -> None:
    monkeypatch.setattr(report_html, "PARTITIONS_DRAWN_MAX", 3)
    page = report_html.html(forked)
    assert "6 more partitions in report.json" in page and "6 more topics in report.json" in page
    assert "t8-0 on broker 3" in page and "t7-0 on broker 3" not in page
    monkeypatch.setattr(report_html, "FINDINGS_DRAWN_MAX", 0)
    assert re.search(r"[1-9]\d* more finding(s were| was) counted", report_html.html(forked))


def test_runs_drawn(monkeypatch: pytest.MonkeyPatch, forked: dict[str, Any]) -> None:
    monkeypatch.setattr(trend, "RUNS_DRAWN_MAX", 4)
    runs = [trend.run_of(forked) for _ in range(9)]
    assert trend.html(runs).count("<rect") == 4 and "0 of 9 runs" in trend.html(runs)


@pytest.mark.parametrize("shown", [1, 3])
def test_batches_and_records_around_an_offset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: int) -> None:
    monkeypatch.setattr(explain, "AROUND", shown)
    monkeypatch.setattr(explain, "RECORDS_SHOWN", shown)
    place = Partition("t-0", [plain(offset, 4) for offset in range(0, 80, 4)]).write(tmp_path)
    lines = list(explain.around(str(place), 41))
    assert sum(".." in line for line in lines) == 2 * shown + 1
    assert f"and {4 - shown} more record" in " ".join(lines)


def test_stretches_of_offsets_in_words() -> None:
    some = [(number * 10, number * 10) for number in range(ledger.RANGES_SHOWN + 2)]
    assert ledger.in_words(some).endswith("and 2 more ranges") and "more" not in ledger.in_words(some[:-2])


def test_bytes_of_a_large_batch_that_differ_behind_what_is_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are equal as far as bytes are held: the finding stands, without its picture."""

    def change(broker: int, one: Partition) -> None:
        one.batches = [Batch(0, [(0, None, b"x" * 999 + b"%d" % (broker == 3))])]

    for held, has_bytes in ((1 << 20, True), (500, False)):
        monkeypatch.setattr(judging, "HEX_BATCH_BYTES_MAX", held)
        result = audit(three_alike(tmp_path / str(held), [], change))
        # The CRC in the header differs, too, so that something is shown even where the records are not held.
        (finding,) = (one for one in result.findings.kept if one.check == "replica-differs")
        assert result.exit_code == 1 and bool(finding.details["hex"]) >= has_bytes


@pytest.mark.parametrize("shown", [2, 100])
def test_problems_of_a_loaded_directory_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: int) -> None:
    monkeypatch.setattr(cluster_manifest, "PROBLEMS_MAX", shown)
    manifest = cluster_manifest.Manifest("now", "c", [], {}, [], "t", 7, 7)
    for number in range(5):
        manifest.add(f"f{number}", 10, 0)
        (tmp_path / f"f{number}").write_bytes(b"0123456789")
    manifest.write(str(tmp_path))
    found = cluster_manifest.check_directory(str(tmp_path), LocalEngine(1))
    assert (found.count, len(found.problems), found.is_good) == (5, min(shown, 5), False)


# ---- load ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [0, 10, 1 << 20])
def test_runs_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: int) -> None:
    runs, framing = pytest.importorskip("minikafka.spark.cluster_runs"), pytest.importorskip("minikafka.spark.framing")
    monkeypatch.setattr(runs, "_WRITE_BYTES", held)
    with (tmp_path / "run").open("xb", buffering=0) as file:
        out = runs._Out(file)
        for number in range(2000):
            out.write(bytearray(b"%04d" % number))
        out.flush()
    assert (tmp_path / "run").read_bytes() == b"".join(b"%04d" % number for number in range(2000)) and out.position == 8000
    monkeypatch.setattr(framing, "_REUSED_BYTES_MAX", held)
    monkeypatch.setattr(framing, "_buffers", SimpleNamespace())
    first = framing._reused("name", 100, "u1")
    assert (len(first), framing._reused("name", 50, "u1").base is first.base) == (100, held > 100)


@pytest.mark.parametrize("bound", [1, 100])
def test_a_manifest_is_checked_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bound: int) -> None:
    monkeypatch.setattr(cluster_manifest, "READ_BYTES", bound)
    (tmp_path / "f").write_bytes(b"123456789")
    assert cluster_manifest.check_file((str(tmp_path), "f", 9, 0xE3069283)) == ""


def test_rows_come_in_small_tables_and_are_put_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from helpers.file_clusters import write_table

    from minikafka.spark import cluster_runs, tables

    write_table(tmp_path / "rows.parquet", 100)
    monkeypatch.setattr(tables, "ROWS_MAX", 7)
    units, _ = tables.plan_units(str(tmp_path / "rows.parquet"))
    read = [table for unit in units for table in tables.read_unit(unit, None)]
    assert sum(table.num_rows for table in read) == 100 and max(table.num_rows for table in read) == 7
    starts = [sum(table.num_rows for table in read[:number]) for number in range(len(read))]
    for wanted in (1, 2000, 1 << 30):
        made = list(cluster_runs._gathered(iter(zip(read, starts, strict=True)), wanted))
        assert sum(table.num_rows for table, _ in made) == 100 and (len(made) == 1) == (wanted == 1 << 30)
        assert [row for _, row in made] == [sum(table.num_rows for table, _ in made[:number]) for number in range(len(made))]


@pytest.mark.parametrize(("task_bytes", "tasks"), [(1 << 30, 4), (100, 10), (1, 1000)])
def test_a_large_table_has_more_tasks(monkeypatch: pytest.MonkeyPatch, task_bytes: int, tasks: int) -> None:
    load = pytest.importorskip("minikafka.spark.load")
    monkeypatch.setattr(load, "TASK_BYTES_MAX", task_bytes)
    units: Any = [SimpleNamespace(bytes=250) for _ in range(4)]
    assert load._task_count(units, 2) == tasks


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_load_whose_tasks_ask_for_it_runs_so_often(monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
    load = pytest.importorskip("minikafka.spark.load")
    monkeypatch.setattr(load, "ATTEMPTS_MAX", attempts)
    runs: list[int] = []
    failed = SimpleNamespace(error="a broker went away: run the job again", rows=0)
    task: Any = SimpleNamespace(index=0, options=load.LoadOptions("", ""), units=[])
    engine: Any = SimpleNamespace(map=lambda _, left: runs.append(len(left)) or [(0, failed)], name="local")
    monkeypatch.setattr(load, "sum_up", lambda *_: SimpleNamespace(acknowledged=0, job="j"))
    with pytest.raises(load.LoadFailed, match="resume with --job-id j"):
        load._run_tasks([task], task.options, None, None, engine, None, 0.0)
    assert runs == [1] * attempts


# ---- how work is shared out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "cores", "tasks"), [(1, 2, 1), (100, 2, 2), (10_000, 2, 10_000 // GROUPS_A_TASK), (100, 1000, 100)])
def test_tasks_of_groups(groups: int, cores: int, tasks: int) -> None:
    engine: Any = object.__new__(SparkEngine)
    engine.parallelism = cores
    assert engine._parts(groups) == tasks


def test_shares_of_directories_that_only_executors_see() -> None:
    found: Callable[..., Any] = lambda **more: SourceOptions.parse({"logdirs": "/x", **more}).shares()  # noqa: E731
    assert len(found()) == SHARES and {one.share for one in found(minpartitions="40")} == {(number, 40) for number in range(40)}
    assert json.dumps([one.share for one in found(minpartitions="1")]) == "[[0, 1]]"
