"""Spark and the local engine give the same report. Runs where Java is."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.timeout(180),
]

from minikafka.spark import report as reporting  # noqa: E402
from minikafka.spark.audit import AuditOptions, run_audit  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.engine_spark import SparkEngine  # noqa: E402


def test_both_engines_give_the_same_findings(session: Any, three_brokers: Any) -> None:
    paths = three_brokers("byte-flipped")
    reports = []
    for engine in (LocalEngine(2), SparkEngine(session)):
        report = reporting.build(run_audit(paths, engine, AuditOptions(level="records")))
        engine.close()
        reports.append({name: report[name] for name in ("outcome", "partitions", "findings", "finding_counts", "cluster")})
    assert json.dumps(reports[0]) == json.dumps(reports[1])
    assert reports[0]["outcome"] == "FAIL"


def test_workers_run_this_interpreter(session: Any) -> None:
    assert session.sparkContext.parallelize([1], 1).map(lambda _: __import__("sys").executable).collect() == [sys.executable]


def test_a_table_is_loaded_by_spark_tasks(session: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    from helpers.topic_server import TopicServer
    from pyarrow import parquet

    from minikafka.spark.load import LoadOptions, run_load

    for part in range(3):
        rows = range(part * 1000, part * 1000 + 1000)
        parquet.write_table(pa.table({"k": [str(n % 17) for n in rows], "n": list(rows)}), tmp_path / f"part-{part}.parquet")
    with TopicServer("t", 4) as server:
        report = run_load(str(tmp_path), LoadOptions(server.bootstrap, "t", key="k"), SparkEngine(session))
    assert (report.rows, report.acknowledged, report.engine) == (3000, 3000, "spark")
    found = sorted(json.loads(bytes(record.value))["n"] for number in range(4) for record in server.records(number))
    assert found == list(range(3000))
