"""Every divergence planted in copies of a real replica is found and named; healthy logs of Apache Kafka give no alarm."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.spark import compare
from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.directories import SourceError
from minikafka.spark.engine_local import LocalEngine

REPLICAS = Path(__file__).parents[1] / "golden" / "logs" / "replicas"

# damage -> (verdict, the check that must name it on broker 1, the offset it names, or None for any)
PLANTED = {
    "base-offset-differs": ("DIVERGENT", "offset-gap", 30),
    "batch-removed": ("DIVERGENT", "offset-gap", 30),
    "batch-twice": ("DIVERGENT", "offset-order", 30),
    "batches-swapped": ("DIVERGENT", "offset-order", 30),
    "byte-flipped": ("CORRUPT", "batch-crc", 30),
    "byte-flipped-crc-right": ("DIVERGENT", "replica-differs", 30),
    "epoch-checkpoint-count-wrong": ("CORRUPT", "epoch-checkpoint-format", None),
    "epoch-checkpoint-differs": ("DIVERGENT", "epoch-checkpoint", 20),
    "epoch-differs": ("DIVERGENT", "epoch-order", 31),
    "index-not-multiple": ("CORRUPT", "index-format", None),
    "index-wrong-position": ("CORRUPT", "index-target", 26),
    "length-field-huge": ("CORRUPT", "segment-tail", 30),
    "length-field-small": ("CORRUPT", "batch-length", 30),
    "magic-1": ("CORRUPT", "batch-magic", 30),
    "producer-snapshot-crc-wrong": ("CORRUPT", "producer-snapshot", 60),
    "tail-garbage": ("CORRUPT", "segment-tail", 60),
    "tail-missing": ("DIVERGENT", "committed-missing", 55),
    "tail-torn": ("CORRUPT", "segment-tail", 57),
    "tail-zeros": ("CORRUPT", "segment-tail", 60),
    "topic-id-differs": ("DIVERGENT", "topic-id", None),
}  # fmt: skip
SAME_BYTES_ELSEWHERE = {
    "epoch-checkpoint-count-wrong", "epoch-checkpoint-differs", "index-not-multiple", "index-wrong-position", "producer-snapshot-crc-wrong",
    "tail-garbage", "tail-zeros", "topic-id-differs",
}  # fmt: skip


def audit(paths: list[str], **options: object) -> AuditResult:
    return run_audit(paths, LocalEngine(1), AuditOptions(**options))  # type: ignore[arg-type]


class ElsewhereEngine(LocalEngine):
    """Tasks see the directories that this process does not: they are in place only while one runs. Everything is pickled on its way."""

    name, parallelism, is_elsewhere = "elsewhere", 2, True

    def __init__(self, directories: list[str]) -> None:
        super().__init__(1)
        self._hidden = {path: f"{path}.away" for path in directories}
        self._move(away=True)

    def _move(self, *, away: bool) -> None:
        for path, hidden in self._hidden.items():
            Path(path if away else hidden).rename(hidden if away else path)

    def open(self) -> None:
        """Nothing to start."""

    def map(self, function: Any, items: list[Any]) -> Iterator[Any]:
        self._move(away=False)
        try:
            found = [pickle.dumps(function(pickle.loads(pickle.dumps(item)))) for item in items]
        finally:
            self._move(away=True)
        yield from map(pickle.loads, found)

    def close(self) -> None:
        """Nothing to end."""


@pytest.mark.parametrize("damage", [None, "byte-flipped", "epoch-differs", "tail-missing", "index-wrong-position"])
def test_directories_that_only_tasks_see_are_audited_there(three_brokers, damage: str | None) -> None:
    """Paths of Spark's executors need not be this machine's, also when brokers may be running and a fault is looked at once more."""
    directories = three_brokers(*[damage] if damage else [])
    for path in directories:
        Path(path, ".kafka_cleanshutdown").unlink(missing_ok=True)
    # The next start of a broker that was killed makes the indexes of its last segment anew.
    expected = ("PASS", 0) if damage in (None, "index-wrong-position") else ("FAIL", 1)
    here = audit(directories, level="records")
    there = run_audit(directories, ElsewhereEngine(directories), AuditOptions(level="records"))
    assert (there.outcome, there.exit_code) == (here.outcome, here.exit_code) == expected

    def findings_of(result: AuditResult) -> list[tuple[str, tuple[str, ...], int]]:
        return sorted((found.check, found.brokers, found.offset) for found in result.findings.kept)

    assert findings_of(there) == findings_of(here)
    assert [one.verdict for one in there.partitions] == [one.verdict for one in here.partitions]


def test_invisible_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere: no such directory \(where Spark's tasks run\)"):
        run_audit([str(tmp_path / "nowhere")], ElsewhereEngine([]), AuditOptions())


def test_the_table_of_damages_is_complete() -> None:
    assert set(PLANTED) == {path.name for path in (REPLICAS / "ALTERED").iterdir()}


def test_three_authentic_replicas_agree(three_brokers) -> None:
    result = audit(three_brokers())
    partition = result.partitions[0]
    assert (result.outcome, result.exit_code, partition.verdict) == ("PASS", 0, compare.MATCH)
    assert (partition.fence_from, partition.fence_to) == (0, 60)
    assert (partition.batches_compared, partition.records_compared, partition.bytes_compared) == (30, 60, 3942)
    assert result.findings.kept == []


@pytest.mark.parametrize("digest", ["crc", "blake2b"])
@pytest.mark.parametrize("damage", sorted(PLANTED))
def test_a_planted_damage_is_found_and_named(three_brokers, damage: str, digest: str) -> None:
    verdict, check, offset = PLANTED[damage]
    result = audit(three_brokers(damage), digest=digest, level="records" if digest == "blake2b" else "batches")
    assert (result.outcome, result.exit_code) == ("FAIL", 1)
    assert result.partitions[0].verdict == verdict
    named = [found for found in result.findings.kept if found.check == check]
    assert named, [found.check for found in result.findings.kept]
    assert all(found.brokers == ("1",) for found in named)
    assert offset is None or offset in {found.offset for found in named}
    assert all(found.brokers == ("1",) for found in result.findings.kept), "an undamaged broker is blamed"


@pytest.mark.parametrize(
    "damage", sorted(set(PLANTED) - SAME_BYTES_ELSEWHERE - {"tail-missing", "tail-torn", "length-field-huge", "length-field-small"})
)
def test_different_bytes_are_named_with_offset_position_and_cause(three_brokers, damage: str) -> None:
    result = audit(three_brokers(damage))
    (found,) = [found for found in result.findings.kept if found.check == "replica-differs"]
    assert found.offset == 30 and found.position >= 1727 and found.cause
    assert found.details["majority"] == ["2", "3"]
    assert {side["broker"] for side in found.details["sides"]} == {"1", "2", "3"}


def test_an_authentic_fork_is_divergence_when_nothing_says_that_it_is_uncommitted(tmp_path: Path) -> None:
    result = audit([str(REPLICAS / "diverged-authentic")])
    (found,) = [found for found in result.findings.kept if found.check == "replica-differs"]
    assert result.exit_code == 1 and result.partitions[0].verdict == "DIVERGENT"
    assert found.offset == 39 and "epochs 1 and 2" in found.cause
    assert result.partitions[0].batches_compared == 20


def fork_with_high_watermarks(tmp_path: Path, killed: int, new: int) -> list[str]:
    for name, node, offset in (("killed-leader-3", 3, killed), ("new-leader-2", 2, new)):
        target = tmp_path / name
        shutil.copytree(REPLICAS / "diverged-authentic" / name, target, copy_function=shutil.copyfile)
        (target / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={node}\n")
        (target / "replication-offset-checkpoint").write_text(f"0\n1\nrep 0 {offset}\n")
    return [str(tmp_path)]


def test_a_deposed_leaders_suffix_above_its_high_watermark_is_no_divergence(tmp_path: Path) -> None:
    result = audit(fork_with_high_watermarks(tmp_path, 39, 51))
    (found,) = [found for found in result.findings.kept if found.check == "replica-tail"]
    assert (result.outcome, result.partitions[0].verdict) == ("PASS", "TRUNCATION_PENDING")
    assert (result.partitions[0].fence_from, result.partitions[0].fence_to) == (0, 39)
    assert (found.offset, found.level) == (39, "note")
    assert audit([str(tmp_path)], fail_on=("TRUNCATION_PENDING",)).exit_code == 1


def test_the_same_suffix_below_its_high_watermark_is_divergence(tmp_path: Path) -> None:
    result = audit(fork_with_high_watermarks(tmp_path, 42, 51))
    assert (result.exit_code, result.partitions[0].verdict) == (1, "DIVERGENT")


def test_a_shorter_follower_is_lagging(three_brokers, tmp_path: Path) -> None:
    paths = three_brokers("tail-missing")
    broker = Path(paths[0])
    (broker / "replication-offset-checkpoint").write_text("0\n1\nrep 0 50\n")
    (broker / "recovery-point-offset-checkpoint").write_text("0\n1\nrep 0 50\n")
    for index in [*broker.glob("rep-0/*index"), *broker.glob("rep-0/*.snapshot"), broker / ".kafka_cleanshutdown"]:
        index.unlink()
    result = audit(paths)
    assert (result.outcome, result.partitions[0].verdict, result.partitions[0].fence_to) == ("PASS", "LAGGING", 50)
    assert [found.brokers for found in result.findings.kept] == [("1",)]
    assert result.partitions[0].batches_compared >= 28, "brokers 2 and 3 are compared up to their own high watermark"


def test_two_brokers_agree_above_the_low_high_watermark_of_a_third_and_are_compared_there(three_brokers) -> None:
    paths = three_brokers("byte-flipped-crc-right")
    (Path(paths[1]) / "replication-offset-checkpoint").write_text("0\n1\nrep 0 12\n")
    result = audit(paths)
    (found,) = [found for found in result.findings.kept if found.check == "replica-differs"]
    assert result.partitions[0].fence_to == 12
    assert found.offset == 30 and set(found.brokers) == {"1", "3"}


HEALTHY = [
    "single-killed",
    "single-recovered",
    "single-stopped",
    "compaction/before",
    "compaction/after",
    "kraft-static/stopped",
    "kraft-static/killed",
    "kraft-standalone/stopped",
    "kraft-dynamic/voter-1",
    "kraft-dynamic/late-observer-4",
]


@pytest.mark.parametrize("level", ["batches", "records"])
@pytest.mark.parametrize("folder", HEALTHY)
def test_no_alarm_over_logs_of_a_real_kafka(stopped_broker, folder: str, level: str) -> None:
    # Of the KRaft folders only the metadata log was kept.
    topics = ("__cluster_metadata",) if folder.startswith("kraft") else ()
    result = audit([stopped_broker(folder)], self_check=True, level=level, topics=topics, compacted=("compact", "compact2"))
    assert [found.message for found in result.findings.kept if found.level != "note"] == []
    assert result.exit_code == 0 and result.bytes_scanned > 0


def test_metadata_logs_of_three_voters_agree(tmp_path: Path) -> None:
    source = REPLICAS.parent / "kraft-dynamic"
    for voter in (1, 2, 3):
        shutil.copytree(source / f"voter-{voter}", tmp_path / f"voter-{voter}", copy_function=shutil.copyfile)
    result = audit([str(tmp_path)], topics=("__cluster_metadata",))
    assert result.outcome == "PASS" and result.batches_compared > 0
    everything = audit([str(tmp_path)])
    assert everything.exit_code == 3, "the logs of the topics that the controllers know were not given"


def test_equal_bytes_above_every_high_watermark_match_but_prove_nothing_committed(three_brokers) -> None:
    paths = three_brokers()
    for path in paths:
        (Path(path) / "replication-offset-checkpoint").write_text("0\n0\n")
    result = audit(paths)
    partition = result.partitions[0]
    assert (partition.verdict, partition.batches_compared, partition.batches_equal_above) == ("MATCH", 0, 30)
    assert (result.outcome, result.exit_code) == ("INCOMPLETE", 3)


def test_a_crashed_broker_with_preallocated_indexes_and_a_torn_tail_is_no_divergence(three_brokers) -> None:
    paths = three_brokers()
    broker = Path(paths[0])
    (broker / ".kafka_cleanshutdown").unlink()
    for name in ("index", "timeindex"):
        index = broker / "rep-0" / f"00000000000000000000.{name}"
        index.write_bytes(index.read_bytes().ljust(10485756 // 24 * 24, b"\0"))
    log = broker / "rep-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + log.read_bytes()[:70])
    result = audit(paths)
    assert (result.outcome, result.partitions[0].verdict) == ("PASS", "MATCH")
    assert [(found.check, found.level) for found in result.findings.kept] == [("torn-tail", "note")]


def test_one_replica_alone_is_never_a_pass_unless_asked_for(three_brokers) -> None:
    path = three_brokers()[0]
    assert audit([path]).exit_code == 3
    assert audit([path], self_check=True).exit_code == 0


def test_nothing_compared_is_never_a_pass(tmp_path: Path) -> None:
    for broker in (1, 2):
        directory = tmp_path / f"b{broker}" / "empty-0"
        directory.mkdir(parents=True)
        (directory / "00000000000000000000.log").touch()
    result = audit([str(tmp_path)])
    assert (result.outcome, result.exit_code, result.partitions[0].verdict) == ("INCOMPLETE", 3, "EMPTY")


def test_a_compacted_replica_is_compared_by_its_surviving_records(tmp_path: Path) -> None:
    source = REPLICAS.parent / "compaction"
    for name in ("before", "after"):
        target = tmp_path / name
        shutil.copytree(source / name, target, copy_function=shutil.copyfile)
        (target / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={len(name)}\n")
        (target / "replication-offset-checkpoint").write_text("0\n2\ncompact 0 43\ncompact2 0 43\n")
    (tmp_path / "after" / "cleaner-offset-checkpoint").write_text("0\n2\ncompact 0 38\ncompact2 0 38\n")
    result = audit([str(tmp_path)], compacted=("compact", "compact2"))
    assert [found.message for found in result.findings.kept] == []
    assert {partition.verdict for partition in result.partitions} == {"MATCH"}


def test_findings_are_capped_and_counted(three_brokers) -> None:
    paths = three_brokers()
    log = Path(paths[0]) / "rep-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    position = 0
    while position < len(data):
        data[position + 20] ^= 1
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    log.write_bytes(data)
    result = audit(paths, findings_each_max=3)
    assert sum(found.check == "batch-crc" for found in result.findings.kept) == 3
    assert result.findings.counts["batch-crc", "error"] == 30


def test_the_report_is_plain_json_and_parquet_with_versioned_schema(three_brokers, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from minikafka.spark import report as reporting

    report = reporting.build(audit(three_brokers("epoch-differs")))
    paths = reporting.write(report, str(tmp_path / "report"))
    read = json.loads(Path(paths[0]).read_text())
    assert read["schema"] == "minikafka.audit.report/1" and read["exit_code"] == 1
    assert {"id", "check", "level", "message", "meaning", "topic", "partition", "brokers", "offset", "file", "position", "cause"} <= set(
        read["findings"][0]
    )
    assert parquet.read_table(tmp_path / "report" / "findings.parquet").num_rows == len(read["findings"])
    assert parquet.read_table(tmp_path / "report" / "partitions.parquet").column("verdict").to_pylist() == ["DIVERGENT"]
    assert reporting.one_line(read).startswith("AUDIT FAIL cluster=")
