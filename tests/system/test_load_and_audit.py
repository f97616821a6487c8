"""The bulk load into real brokers, one of which dies in the middle, and the audit of their directories at every stage."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import parquet  # noqa: E402

from minikafka.spark import report as reporting  # noqa: E402
from minikafka.spark.audit import AuditOptions, run_audit  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.load import LoadOptions, LoadReport, run_load  # noqa: E402
from minikafka.spark.logformat import SegmentReader  # noqa: E402
from minikafka.spark.records import decode_records  # noqa: E402
from minikafka.testing.cluster import ProcessCluster  # noqa: E402

ROWS = 90_000
pytestmark = pytest.mark.timeout(180)


def table(path: Path) -> str:
    rows = pa.table({"k": [f"key-{n % 5000}" for n in range(ROWS)], "n": list(range(ROWS)), "text": [f"{n:0100d}" for n in range(ROWS)]})
    parquet.write_table(rows, path, row_group_size=10_000)
    return str(path)


def directories(cluster: ProcessCluster) -> list[str]:
    return [str(node.log_dir) for node in cluster.nodes.values()]


def audit(paths: list[str]) -> dict[str, Any]:
    return reporting.build(run_audit(paths, LocalEngine(1), AuditOptions(level="records")))


def rows_on_disk(directory: str, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for segment in Path(directory).glob(f"{topic}-*/*.log"):
        with segment.open("rb") as file:
            for batches in SegmentReader(file.fileno(), segment.stat().st_size):
                records, wrong = decode_records(batches)
                assert wrong == {}
                found.update(json.loads(records.value(index) or b"")["n"] for index in range(len(records)))
    return found


def test_a_leader_dies_during_a_load_and_every_row_is_there_once(tmp_path: Path) -> None:
    source = table(tmp_path / "rows.parquet")
    with ProcessCluster() as cluster:
        options = LoadOptions(
            cluster.bootstrap, "bulk", key="k", partitions=6, replication_factor=3, batch_bytes=16_384, bytes_per_second=5 << 20
        )  # fmt: skip
        victim = 3
        started, result = threading.Event(), []

        def progress(rows: int, share: float | None) -> None:
            if rows:
                started.set()

        thread = threading.Thread(target=lambda: result.append(run_load(source, options, LocalEngine(1), progress)))
        thread.start()
        assert started.wait(60)
        cluster.kill(victim)
        thread.join(120)
        assert result, "the load failed"
        report: LoadReport = result[0]
        assert (report.rows, report.acknowledged) == (ROWS, ROWS)
        crashed = audit(directories(cluster))
        assert crashed["summary"]["errors"] == 0, crashed["findings"]
        cluster.restart(victim)
        cluster.wait_for(lambda: in_sync(cluster), "all replicas in sync")
        live = audit(directories(cluster))
        assert (live["outcome"], live["summary"]["errors"]) == ("PASS", 0), live["findings"]
        wire = reporting.build(run_audit([], LocalEngine(1), AuditOptions(bootstrap=cluster.bootstrap, level="records")))
        assert (wire["outcome"], wire["summary"]["errors"]) == ("PASS", 0), wire["findings"]
        bulk = [partition for partition in wire["partitions"] if partition["topic"] == "bulk"]
        assert sum(partition["records_compared"] for partition in bulk) == ROWS and {len(one["replicas"]) for one in bulk} == {3}
        for node in (2, 3, 1):
            cluster.terminate(node, timeout_s=40)
        stopped = audit(directories(cluster))
        assert (stopped["outcome"], stopped["summary"]["errors"]) == ("PASS", 0), stopped["findings"]
        loaded = [partition for partition in stopped["partitions"] if partition["topic"] == "bulk"]
        assert {partition["verdict"] for partition in loaded} == {"MATCH"} and len(loaded) == 6
        assert sum(partition["records_compared"] for partition in loaded) == ROWS
        for directory in directories(cluster):
            found = rows_on_disk(directory, "bulk")
            assert len(found) == ROWS and set(found.values()) == {1}


def in_sync(cluster: ProcessCluster) -> bool:
    topics = cluster.metadata(["bulk"]).topics
    return all(len(partition.isr_nodes) == 3 for topic in topics for partition in topic.partitions)


def test_the_commands_work_from_a_shell(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(1000)))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from minikafka.cli.main import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ProcessCluster() as cluster:
        loaded = run(
            "load", str(rows), "--bootstrap-server", cluster.bootstrap, "--topic", "lines", "--partitions", "2", "--compression", "zstd"
        )
        assert loaded.returncode == 0 and "1,000 rows" in loaded.stdout, loaded.stderr
        cluster.wait_for(lambda: run("audit", *directories(cluster), "--quiet").returncode == 0, "the high watermarks to be on disk")
        segments = sorted(str(path) for path in Path(directories(cluster)[0]).glob("lines-*/*.log"))
        dumped = run("dump-log", "--print-data-log", "--files", ",".join(segments))
        assert dumped.returncode == 0 and dumped.stdout.count("payload: {") == 1000
