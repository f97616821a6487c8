"""The operators' commands beside Apache Kafka's own tools: the same cluster, the same question, the same words."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner
from helpers import apache_kafka

from minikafka.cli.main import cli
from minikafka.testing import EmbeddedCluster

ROOT = Path(__file__).parents[2]
TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, mode="process", topics={"t": {"partitions": 3}}) as made:
        producer = confluent_kafka.Producer(made.client_config())
        for number in range(30):
            producer.produce("t", f"v{number}", partition=number % 3)
        assert producer.flush(10) == 0
        consumer = confluent_kafka.Consumer(made.client_config(**{"group.id": "g"}))
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", n, n) for n in range(3)], asynchronous=False)
        consumer.close()
        yield made


def settled(text: str) -> list[str]:
    """Lines without what time changes: offsets of the metadata log, milliseconds; order of lines and blanks at their ends."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if "SLF4J" not in line]
    lines = [re.sub(r"(Epoch: |HighWatermark: |MaxFollowerLagTimeMs: |MaxFollowerLag: )-?\d+$", r"\1N", line) for line in lines]
    return sorted(line for line in lines if line)


@pytest.mark.java
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("GetOffsetShell --topic-partitions t:0-2", "get-offsets --topic-partitions t:0-2"),
        ("FeatureCommand describe", "features describe"),
        ("MetadataQuorumCommand describe --status", "metadata-quorum describe --status"),
        ("consumer.group.ConsumerGroupCommand --describe --group g", "consumer-groups --describe --group g"),
    ],
)  # fmt: skip
def test_it_says_what_kafkas_tool_says(cluster: EmbeddedCluster, java: str, ours: str) -> None:
    main_class, *arguments = java.split()
    # Kafka's tools with subcommands want the address before or after them; in both orders ours take it from the environment.
    where = ["--bootstrap-server", cluster.bootstrap_servers]
    ordered = [*where, *arguments] if main_class in ("MetadataQuorumCommand", "FeatureCommand") else [*arguments, *where]
    wanted = apache_kafka.run_tool(TOOLS + main_class, *ordered)
    result = CliRunner().invoke(cli, ours.split(), env={"MINIKAFKA_BOOTSTRAP": cluster.bootstrap_servers})
    assert settled(result.output) == settled(wanted)


@pytest.mark.timeout(60)
def test_cluster_up_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-B",
        "-m",
        "minikafka",
        "cluster",
        "up",
        "-n",
        "2",
        "--topic",
        "hello:2:2",
        "--directory",
        str(tmp_path),
        "--http-port",
        "0",
    ]
    # The second time it finds its data, and the topic among them.
    for _ in range(2):
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert running.stdout is not None and running.stderr is not None
        bootstrap = running.stdout.readline().strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+,127\.0\.0\.1:\d+", bootstrap), running.stderr.read()
        metadata = confluent_kafka.Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
        assert len(metadata.topics["hello"].partitions) == 2 and len(metadata.brokers) == 2
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=20)
        assert running.returncode == 0 and "is up after" in said and "/ui" in said, said
