"""Load to files by Spark tasks: the same bytes as the local engine's, expressions of a DataFrame, tasks that fail and run again."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"), pytest.mark.timeout(180)]

from helpers.file_clusters import NOW_MS, check_records, manifest, write_table  # noqa: E402
from spark.test_to_files import OPTIONS, audit, read_back  # noqa: E402

from minikafka.spark.cluster_files import ClusterOptions  # noqa: E402
from minikafka.spark.cluster_segments import FilesFailed  # noqa: E402
from minikafka.spark.engine_local import LocalEngine  # noqa: E402
from minikafka.spark.engine_spark import SparkEngine  # noqa: E402
from minikafka.spark.to_files import dataframe_to_files, load_to_files  # noqa: E402


def logs(target: Path) -> list[Any]:
    return sorted(fact for path, fact in manifest(target)["files"].items() if "/t-" in path and path.endswith((".log", "index")))


def test_spark_writes_what_the_local_engine_writes(session: Any, tmp_path: Path) -> None:
    rows = write_table(tmp_path / "rows.parquet", 4000)
    for name, engine in (("local", LocalEngine(2)), ("spark", SparkEngine(session))):
        report = load_to_files(str(tmp_path / "rows.parquet"), OPTIONS, ClusterOptions(str(tmp_path / name)), engine)
        assert (report.engine, report.rows) == (name, 4000)
        engine.close()
    assert logs(tmp_path / "local") == logs(tmp_path / "spark")
    check_records(read_back(tmp_path / "spark", 3), rows)


@pytest.mark.interop
def test_a_dataframe_with_expressions_some_of_whose_tasks_die(session: Any, tmp_path: Path) -> None:
    rows = write_table(tmp_path / "rows.parquet", 4000)
    frame = session.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1).repartitionByRange(3, "at").sortWithinPartitions("at")
    deaths = tmp_path / "deaths"
    deaths.mkdir()

    def die_once(batches: Any) -> Any:
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            context = TaskContext.get()
            assert context is not None
            path = deaths / str(context.partitionId())
            if number == 0 and context.partitionId() != 1 and not path.exists():
                path.write_text("")
                yield batch  # something is written already
                os._exit(9)
            yield batch

    fragile = frame.mapInArrow(die_once, frame.schema)
    options = replace(OPTIONS, key="concat(id, '')", timestamp="timestamp_millis(at)", partition="place % 4")
    report = dataframe_to_files(fragile, options, ClusterOptions(str(tmp_path / "c"), replication_factor=2))
    assert len(list(deaths.iterdir())) == 2 and report.rows == 4000
    assert [one["rows"] for one in manifest(tmp_path / "c")["partitions"]] == [1600, 800, 800, 800]
    assert audit(tmp_path / "c")["outcome"] == "PASS"
    found: dict[int, list[Any]] = {}
    for node in (1, 2, 3):
        found |= read_back(tmp_path / "c", node)
    check_records(found, rows)
    assert rows[0]["at"] == NOW_MS
    assert sorted(os.listdir(tmp_path)) == ["c", "deaths", "rows.parquet"]
    with pytest.raises(FilesFailed, match="the partition column ranges from 0 to 4"):
        dataframe_to_files(frame, replace(OPTIONS, partition="place"), ClusterOptions(str(tmp_path / "d")))
