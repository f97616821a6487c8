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


def test_a_dataframe_is_loaded_once_with_expressions(session: Any, tmp_path: Path) -> None:
    from helpers.topic_server import TopicServer

    from minikafka.spark.load import LoadOptions
    from minikafka.spark.load_frame import load_dataframe

    session.range(4000).selectExpr("id n", "cast(id % 5 as string) k").repartition(3).write.orc(str(tmp_path / "t.orc"))
    frame = session.read.orc(str(tmp_path / "t.orc"))
    with TopicServer("t", 4) as server:
        columns = {"key": "concat('k-', k)", "partition": "n % 4", "timestamp": "timestamp_millis(n)", "headers": (("h", "n * 2"),)}
        options = LoadOptions(server.bootstrap, "t", job="frame", **columns)
        first, again = load_dataframe(frame, options), load_dataframe(frame, options)
        records = [server.records(number) for number in range(4)]
    assert (first.rows, first.reconciled, again.already_done) == (4000, True, True)
    for number, found in enumerate(records):
        rows = [json.loads(bytes(record.value)) for record in found]
        assert sorted(row["n"] for row in rows) == list(range(number, 4000, 4))
        for record, row in zip(found, rows, strict=True):
            assert (bytes(record.key).decode(), record.timestamp) == (f"k-{row['k']}", row["n"])
            assert bytes(record.headers[0][1]).decode() == str(2 * row["n"])


def test_a_dry_run_of_a_dataframe_sends_nothing_and_needs_no_broker(session: Any) -> None:
    from minikafka.spark.load import LoadOptions
    from minikafka.spark.load_frame import load_dataframe

    report = load_dataframe(session.range(1000).repartition(2), LoadOptions("127.0.0.1:1", "t", dry_run=True))
    assert (report.rows, report.acknowledged, report.reconciled) == (1000, 0, False)


def test_a_dataframe_of_other_files_under_the_same_id_is_refused(session: Any, tmp_path: Path) -> None:
    from helpers.topic_server import TopicServer

    from minikafka.spark.load import LoadFailed, LoadOptions
    from minikafka.spark.load_frame import load_dataframe

    path = str(tmp_path / "t.orc")
    with TopicServer("t", 2) as server:
        options = LoadOptions(server.bootstrap, "t", job="night")
        session.range(100).coalesce(1).write.orc(path)
        assert load_dataframe(session.read.orc(path), options).rows == 100
        session.range(200).coalesce(1).write.mode("overwrite").orc(path)
        with pytest.raises(LoadFailed, match="another table"):
            load_dataframe(session.read.orc(path), options)


def test_a_table_with_a_scheme_or_options_of_a_reader_is_read_by_spark(session: Any, tmp_path: Path) -> None:
    from minikafka.cli.load_source import Source
    from minikafka.spark.load import LoadOptions
    from minikafka.spark.tables import TableError

    (tmp_path / "t.csv").write_text("a;b\n1;\n2;x\n")
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n')
    engine, options = SparkEngine(session), LoadOptions("127.0.0.1:1", "t", delimiter=";")
    found = Source((tmp_path / "t.csv").as_uri(), options, {"nullValue": "x"})
    assert found.is_for_spark and [row.asDict() for row in found.frame(engine).collect()] == [{"a": "1", "b": None}, {"a": "2", "b": None}]
    assert Source((tmp_path / "t.jsonl").as_uri(), options, {}).frame(engine).collect()[0].a == 1
    for table, text in (("file:///nowhere/t.parquet", "PATH_NOT_FOUND"), ("hdfs://x/t", "format is not clear")):
        with pytest.raises(TableError, match=text):
            Source(table, options, {}).frame(engine)
    assert not Source(str(tmp_path / "t.csv"), options, {}).is_for_spark
    with pytest.raises(TableError, match="give --master"):
        Source("file:///t.csv", options, {}).frame(LocalEngine(1))
