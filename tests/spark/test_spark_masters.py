"""Clusters of Spark: one that does not answer, a standalone one, YARN; and Delta tables. What is long runs by `pytest -m long tests/spark`,
what needs Maven by `pytest -m interop tests/spark`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.cli.main import cli
from minikafka.spark.spark_master import reason

pytest.importorskip("pyspark")
HAS_JAVA = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
ROWS = 3000


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, [*arguments])


@pytest.fixture
def table(tmp_path: Path) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "table").mkdir()
    for part in range(3):
        rows = range(part * 1000, part * 1000 + 1000)
        parquet.write_table(pa.table({"k": [str(n % 17) for n in rows], "n": list(rows)}), tmp_path / "table" / f"part-{part}.parquet")
    return str(tmp_path / "table")


# ---- without a cluster --------------------------------------------------------------------------------------------------------


@HAS_JAVA
@pytest.mark.parametrize("command", [("audit",), ("load", "--topic", "t")])
def test_a_master_that_does_not_answer_is_not_replaced_by_the_local_engine(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        result = run(*command, str(tmp_path), "--master", master)
    assert result.exit_code == 3
    assert result.output == f"minikafka {command[0]}: no Spark master answers at {master}: Connection refused\n"


@HAS_JAVA
@pytest.mark.parametrize(("options", "text"), [
    (["--master", "spark://here"], "expected spark://HOST:PORT"),
    (["--engine", "local", "--master", "yarn"], "cannot be combined with --engine local"),
    (["--conf", "spark.executor.memory"], "is not NAME=VALUE"),
])  # fmt: skip
def test_masters_that_make_no_sense(options: list[str], text: str, tmp_path: Path) -> None:
    result = run("audit", str(tmp_path), *options)
    assert result.exit_code == 2 and text in result.output


def test_without_java_a_cluster_is_not_replaced_either(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = run("audit", str(tmp_path), "--master", "yarn")
    assert result.exit_code == 2 and "no Java on this machine" in result.output and "local engine" not in result.output


@pytest.mark.parametrize(("said", "expected"), [
    ("26/11/21 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! Giving up.\n",
     ("All masters are unresponsive", True)),
    ("WARNING: x\nException in thread \"main\" org.apache.spark.SparkException: With master 'yarn' set YARN_CONF_DIR.\n\tat y\n",
     ("With master 'yarn' set YARN_CONF_DIR", False)),
    ("Error: Master must either be yarn or start with spark, k8s, or local\nRun with --help for usage help\n",
     ("Master must either be yarn or start with spark, k8s, or local", False)),
    ("\tat x\nCaused by: java.net.ConnectException: Connection refused\n", ("Connection refused", True)),
    ("Exception in thread \"main\" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_9;1.0: not found]\n",
     ("unresolved dependency: io.delta#delta-spark_9;1.0: not found", False)),
    ("", ("what py4j says", False)),
])  # fmt: skip
def test_why_spark_does_not_start_is_found_in_what_its_jvm_writes(said: str, expected: tuple[str, bool]) -> None:
    assert reason(said, "what py4j says") == expected
    assert reason("", "Cannot call methods on a stopped SparkContext.")[1]


# ---- clusters -----------------------------------------------------------------------------------------------------------------


def use(cluster: Any, table: str, logs: list[str]) -> None:
    """Audit directories, load, audit over the wire, and the same commands by spark-submit."""
    from minikafka.testing.cluster import ProcessCluster

    audited = cluster.minikafka("audit", *logs, "--quiet")
    assert audited.returncode == 0 and audited.stdout.startswith("AUDIT PASS"), audited.stderr
    damaged = cluster.submit("audit", logs[0], "--quiet")
    assert damaged.returncode == 3 and "AUDIT INCOMPLETE" in damaged.stdout, damaged.stderr
    with ProcessCluster() as brokers:
        target = ["--bootstrap-server", brokers.bootstrap, "--key", "k", "--partitions", "3", "-o", "json"]
        for topic, start in (("a", cluster.minikafka), ("b", cluster.submit)):
            loaded = start("load", table, "--topic", topic, "--audit", *target)
            assert loaded.returncode == 0, loaded.stderr
            report = json.loads(loaded.stdout[loaded.stdout.index("{") :])
            assert (report["engine"], report["rows"], report["acknowledged"], report["reconciled"]) == ("spark", ROWS, ROWS, True)
            assert report["audit"] == "PASS"
        audited = cluster.minikafka("audit", "--bootstrap-server", brokers.bootstrap, "--topic", "a", "--topic", "b", "-o", "json")
        report = json.loads(audited.stdout)
        assert (report["outcome"], sum(one["records_compared"] for one in report["partitions"])) == ("PASS", 2 * ROWS), audited.stderr


@HAS_JAVA
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_standalone_cluster(tmp_path: Path, table: str, three_brokers: Any) -> None:
    from helpers.spark_clusters import Standalone

    with Standalone(tmp_path / "spark") as cluster:
        use(cluster, table, three_brokers())


@HAS_JAVA
@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(900)
def test_yarn(tmp_path: Path, table: str, three_brokers: Any) -> None:
    """Client mode all along; then the driver in a container, too."""
    from helpers.spark_clusters import Yarn
    from helpers.spark_connector import MINI_YARN, from_maven

    with Yarn(tmp_path / "yarn", from_maven("mini-yarn", MINI_YARN)) as cluster:
        use(cluster, table, three_brokers())
        inside = {"spark.submit.deployMode": "cluster", "spark.yarn.appMasterEnv.PYTHONPATH": cluster.environment["PYTHONPATH"],
                  "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable, "spark.driver.memory": "512m"}  # fmt: skip
        report = tmp_path / "report"
        audited = cluster.submit("audit", *three_brokers(), "--report", str(report), **inside)
        assert audited.returncode == 0, audited.stderr[-4000:]
        assert json.loads((report / "report.json").read_text())["outcome"] == "PASS"


# ---- Delta --------------------------------------------------------------------------------------------------------------------

#: Three commits: 2000 rows, 1000 more, a tenth deleted.
DELTA_TABLE = """
import sys
from minikafka.spark.engine_spark import start_session
from minikafka.spark.load import LoadOptions
from minikafka.spark.load_frame import load_dataframe
path, bootstrap, *confs = sys.argv[1:]
spark = start_session("local[2]", settings=dict(conf.split("=", 1) for conf in confs))
rows = spark.range(2000).selectExpr("id", "concat('k', id % 17) k")
rows.write.format("delta").save(path)
spark.range(2000, 3000).selectExpr("id", "concat('k', id % 17) k").write.format("delta").mode("append").save(path)
spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 3")
report = load_dataframe(spark.read.format("delta").load(path), LoadOptions(bootstrap, "frame", key="k", partitions=2))
print("RESULT", report.rows, report.acknowledged, report.reconciled)
"""


@HAS_JAVA
@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(900)
def test_a_delta_table_is_loaded(tmp_path: Path) -> None:
    from confluent_kafka import Consumer
    from helpers.spark_connector import DELTA, DELTA_SPARK, from_maven, pyspark_of

    from minikafka.testing.cluster import ProcessCluster

    confs = {
        "spark.jars": ",".join(map(str, from_maven("delta", DELTA))), "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog", "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }  # fmt: skip
    roots = (str(pyspark_of(DELTA_SPARK)), str(Path(__file__).parents[2]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    path = str(tmp_path / "table")

    def python(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        return done.stdout

    with ProcessCluster() as cluster:
        given = [f"{name}={value}" for name, value in confs.items()]
        assert "RESULT 2700 2700 True" in python("-c", DELTA_TABLE, path, cluster.bootstrap, *given)
        load = ["-m", "minikafka", "load", path, "--format", "delta", "--master", "local[2]", "--bootstrap-server", cluster.bootstrap]
        load += ["--key", "concat('id-', id)", "--partitions", "3", "-o", "json", *(part for conf in given for part in ("--conf", conf))]
        report = json.loads(python(*load, "--topic", "delta"))
        assert (report["rows"], report["acknowledged"], report["reconciled"]) == (2700, 2700, True)
        report = json.loads(python(*load, "--topic", "first", "--read-option", "versionAsOf=0"))
        assert (report["rows"], report["acknowledged"], report["reconciled"]) == (2000, 2000, True)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["delta"])
        found: dict[str, str] = {}
        while len(found) < 2700:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            found[message.key().decode()] = json.loads(message.value())["k"]
        consumer.close()
        assert found == {f"id-{n}": f"k{n % 17}" for n in range(3000) if n % 10 != 3}
        report = json.loads(python("-m", "minikafka", "audit", "--bootstrap-server", cluster.bootstrap, "-o", "json"))
        compared = dict.fromkeys(("delta", "first", "frame"), 0)
        for one in report["partitions"]:
            if one["topic"] in compared:
                compared[one["topic"]] += one["records_compared"]
        assert (report["outcome"], compared) == ("PASS", {"delta": 2700, "first": 2000, "frame": 2700})
