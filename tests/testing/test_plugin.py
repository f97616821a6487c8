"""The pytest plugin, from outside: the examples, workers of pytest-xdist, an external cluster, what a failure shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.spark_connector import spark_kafka_connector

from minikafka.testing import EmbeddedBroker
from minikafka.testing.handle import ExternalCluster, KafkaHandle

ROOT = Path(__file__).parents[2]
PLUGIN = "minikafka.testing.pytest_plugin"
pytestmark = pytest.mark.timeout(120)


def run_pytest(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q", "-rs", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, **(environment or {})})


def test_the_examples_pass_in_two_workers_with_processes() -> None:
    others = (f"--ignore={path.relative_to(ROOT)}" for path in (ROOT / "examples").iterdir() if path.is_dir())
    done = run_pytest("examples", "-n", "2", "--kafka-mode=process", "--ignore=examples/test_spark.py", *others)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 passed" in done.stdout


def test_an_example_needs_no_plugin_of_the_projects_own_tests() -> None:
    """In a checkout pytest found the project's options, which only its own plugins know."""
    missing = [word for name in ("xdist", "timeout", "asyncio", "pytest_cov") for word in ("-p", f"no:{name}")]
    done = run_pytest(*missing, "examples/test_from_testcontainers.py")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_an_external_cluster_that_is_not_there_is_one_line() -> None:
    """Every test that needed it printed a traceback of fifty lines."""
    examples = ("examples/test_aiokafka.py", "examples/test_confluent_kafka.py")
    done = run_pytest("-n", "0", "--no-header", *examples, "--kafka-bootstrap-servers=127.0.0.1:1")
    errors = done.stdout.partition("short test summary")[0].split("ERROR at setup of ")[1:]
    assert done.returncode == 1 and len(errors) > 1
    said = "the cluster of --kafka-bootstrap-servers cannot be used: no broker answers (127.0.0.1:1: connection refused)"
    assert all(said in error and error.count("\n") <= 3 for error in errors), done.stdout


@pytest.mark.docs
@pytest.mark.java
@pytest.mark.timeout(240)
def test_the_example_of_spark_passes() -> None:
    jars = ",".join(map(str, spark_kafka_connector()))
    done = run_pytest("examples/test_spark.py", environment={"SPARK_KAFKA_JARS": jars})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_examples_pass_on_a_cluster_that_runs_already() -> None:
    with EmbeddedBroker() as broker:
        examples = ("examples/test_confluent_kafka.py", "examples/test_kafka_python.py")
        done = run_pytest("-n", "0", *examples, f"--kafka-bootstrap-servers={broker.bootstrap_servers}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 passed, 2 skipped" in done.stdout
        assert broker.topics() == []


def test_a_failure_shows_the_cluster(tmp_path: Path) -> None:
    """That of a test, and that of another's fixture."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\ndef test_it(kafka, kafka_topic):\n    assert not kafka_topic\n\n\n"
        "@pytest.fixture\ndef broken(kafka):\n    raise ValueError('no')\n\n\ndef test_with_it(broken):\n    pass\n"
    )
    kept = tmp_path / "kept"
    done = run_pytest(str(tmp_path / "test_it.py"), f"--kafka-keep-logs={kept}")
    assert done.returncode == 1
    of_the_fixture, _, of_the_test = done.stdout.rpartition(" test_it ")
    assert "ValueError: no" in of_the_fixture
    for shown in (of_the_fixture, of_the_test):
        assert "Kafka cluster (kafka)" in shown and "leader 1 epoch 0" in shown
        assert "Kafka brokers' logs (kafka)" in shown and "in service" in shown
        assert "\naudit " in shown
    assert [path.name for path in kept.glob("*/broker-1/*")] and list(kept.glob("*/broker-1/broker.log"))


def test_a_handle_says_where_to_look_for_what_it_has_not() -> None:
    handle = KafkaHandle(ExternalCluster("localhost:1"))
    with pytest.raises(AttributeError, match=r"no attribute 'admin'; its \.cluster has one: \.cluster\.admin$"):
        handle.admin  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'leder'$"):
        handle.leder  # noqa: B018
    assert not hasattr(handle, "__len__")
