"""What a local Spark starts with: workers that share what they import, and a JVM that does not compile for hours it will not live."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from minikafka.spark import engine_spark
from minikafka.spark.engine_spark import SIMPLE_COMPILER, SparkEngine
from minikafka.spark.worker_daemon import without_archives


def test_an_installed_pyspark_is_not_compiled_from_its_archive(tmp_path: Path) -> None:
    home = tmp_path / "site-packages" / "pyspark"
    archives = [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    Path(archives[0]).parent.mkdir(parents=True)
    paths = ["/usr/lib/python311.zip", *archives, str(home.parent)]
    assert without_archives(paths) == paths, "a directory without the package cannot replace them"
    (home / "__init__.py").touch()
    assert without_archives(paths) == ["/usr/lib/python311.zip", str(home.parent)]
    assert without_archives(paths[:-1]) == paths[:-1], "without the directory in the path nothing can be imported from it"


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.timeout(180)
def test_workers_are_forked_with_the_audit_imported(session: Any) -> None:
    def seen(_: int) -> tuple[str, bool, bool]:
        import sys
        import threading

        import pyspark

        return pyspark.__file__, "minikafka.spark.judging" in sys.modules, threading.active_count() == 1

    found = session.sparkContext.parallelize([1, 2], 2).map(seen).collect()
    import pyspark

    assert found == [(pyspark.__file__, True, True)] * 2


class Started:
    """Stands for SparkContext: what it was asked for, and the options that a JVM would have had."""

    master, pythonExec, appName = "local[2]", "", ""
    defaultParallelism = 2
    options: str | None = None
    properties: dict[str, str] = {}
    stopped = False

    @classmethod
    def getOrCreate(cls, conf: Any) -> Started:
        cls.options = os.environ.get("SPARK_SUBMIT_OPTS")
        cls.properties = dict(conf.getAll())
        cls.stopped = False
        return cls()

    def setLogLevel(self, _: str) -> None: ...

    def stop(self) -> None:
        type(self).stopped = True


@pytest.fixture()
def started(monkeypatch: pytest.MonkeyPatch) -> type[Started]:
    import pyspark

    monkeypatch.setattr(pyspark, "SparkContext", Started)
    monkeypatch.setattr(pyspark, "SparkConf", functools.partial(pyspark.SparkConf, loadDefaults=False))  # not those of a JVM that runs
    monkeypatch.setattr(engine_spark, "_check_java", lambda: None)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)  # what is set meanwhile is undone
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return Started


@pytest.mark.parametrize("before", [None, "-Dits=own"])
def test_a_jvm_that_only_passes_tasks_on_compiles_simply(
    started: type[Started], before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    if before is not None:
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", before)
    engine = SparkEngine(master="local[2]")
    assert started.options is not None and started.options.split() == [SIMPLE_COMPILER, *([before] if before else [])]
    assert os.environ.get("SPARK_SUBMIT_OPTS") == before
    engine.close()
    assert started.stopped
    SparkEngine(master="local[2]", java_computes=True).close()
    assert started.options == before


def test_only_executors_on_this_machine_get_the_daemon(started: type[Started]) -> None:
    SparkEngine(master="local[2]", settings={"spark.app.id": "a"}).close()
    assert started.properties["spark.python.daemon.module"] == "minikafka.spark.worker_daemon"
    assert (started.properties["spark.master"], started.properties["spark.app.id"]) == ("local[2]", "a")
    SparkEngine(master="local[2]", settings={"spark.python.daemon.module": "theirs"}).close()
    assert started.properties["spark.python.daemon.module"] == "theirs"
    SparkEngine(master="local-cluster[2,1,512]").close()
    assert "spark.python.daemon.module" not in started.properties
