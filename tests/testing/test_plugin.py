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
    done = run_pytest("examples", "-n", "2", "--kafka-mode=process", "--ignore=examples/test_spark.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 passed" in done.stdout


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
        done = run_pytest(
            "examples/test_confluent_kafka.py", "examples/test_kafka_python.py", f"--kafka-bootstrap-servers={broker.bootstrap_servers}"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 passed, 2 skipped" in done.stdout
        assert broker.topics() == []


def test_a_failure_shows_the_cluster(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(kafka, kafka_topic):\n    assert not kafka_topic\n")
    kept = tmp_path / "kept"
    done = run_pytest(str(test), f"--kafka-keep-logs={kept}")
    assert done.returncode == 1
    assert "Kafka cluster (kafka)" in done.stdout and "leader 1 epoch 0" in done.stdout
    assert "Kafka brokers' logs (kafka)" in done.stdout and "in service" in done.stdout
    assert "\naudit " in done.stdout
    assert [path.name for path in kept.glob("*/broker-1/*")] and list(kept.glob("*/broker-1/broker.log"))


def test_a_fixture_that_fails_shows_the_cluster_too(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import pytest\n@pytest.fixture\ndef broken(kafka):\n    raise ValueError('no')\n\ndef test_it(broken):\n    pass\n"
    )
    done = run_pytest(str(test))
    assert done.returncode == 1
    assert "Kafka cluster (kafka" in done.stdout and "Kafka brokers' logs (kafka" in done.stdout, done.stdout


def test_a_handle_says_where_to_look_for_what_it_has_not() -> None:
    handle = KafkaHandle(ExternalCluster("localhost:1"))
    with pytest.raises(AttributeError, match=r"no attribute 'admin'; its \.cluster has one: \.cluster\.admin$"):
        handle.admin  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'leder'$"):
        handle.leder  # noqa: B018
    assert not hasattr(handle, "__len__")
