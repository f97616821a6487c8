"""The operators' commands beside Apache Kafka's own tools: the same cluster, the same question, the same words."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
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
QUOTAS = (
    "--user alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
    "--entity-type users --entity-name alice --entity-type clients --entity-name app --add-config request_percentage=12.5",
    "--entity-type users --entity-default --add-config controller_mutation_rate=5",
    "--user bob --add-config SCRAM-SHA-512=[iterations=4096,password=secret]",
    "--ip 10.0.0.1 --add-config connection_creation_rate=10",
)


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
        for words in QUOTAS:
            done = CliRunner().invoke(cli, ["configs", "--alter", *words.split()], env={"MINIKAFKA_BOOTSTRAP": made.bootstrap_servers})
            assert done.exit_code == 0, done.output
        yield made


def settled(text: str) -> list[str]:
    """Lines without what time changes: offsets of the metadata log, milliseconds; order of lines and blanks at their ends."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if "SLF4J" not in line]
    lines = [re.sub(r"(Epoch: |HighWatermark: |MaxFollowerLagTimeMs: |MaxFollowerLag: )-?\d+$", r"\1N", line) for line in lines]
    # The tool of 4.3 has no name for the metadata.version of 4.4 that the brokers support.
    lines = [line.replace("SupportedMaxVersion: UNKNOWN 33 ", "SupportedMaxVersion: 4.4-IV2 ") for line in lines]
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
        ("consumer.group.ConsumerGroupCommand --list --type", "consumer-groups --list --type"),
        ("GroupsCommand --list", "groups --list"),
        ("MetadataQuorumCommand --bootstrap-controller C describe --status", "metadata-quorum --bootstrap-controller C describe --status"),
        ("FeatureCommand --bootstrap-controller C describe", "features --bootstrap-controller C describe"),
        ("ClusterTool list-endpoints --bootstrap-controller C", "cluster list-endpoints --bootstrap-controller C"),
        ("ClusterTool list-endpoints --include-fenced-brokers", "cluster list-endpoints --include-fenced-brokers"),
        ("kafka.admin.ConfigCommand --describe --entity-type users", "configs --describe --entity-type users"),
        (
            "kafka.admin.ConfigCommand --describe --entity-type users --entity-name alice --entity-type clients --entity-name app",
            "configs --describe --user alice --client app",
        ),
        ("kafka.admin.ConfigCommand --describe --entity-type ips", "configs --describe --entity-type ips"),
    ],
)  # fmt: skip
def test_the_output_equals_that_of_kafkas_tool(cluster: EmbeddedCluster, java: str, ours: str) -> None:
    java, ours = (words.replace("--bootstrap-controller C", f"--bootstrap-controller {controllers(cluster)}") for words in (java, ours))
    main_class, *arguments = java.split()
    # Kafka's tools with subcommands want the address before or after them; in both orders ours take it from the environment.
    where = ["--bootstrap-server", cluster.bootstrap_servers]
    if "--bootstrap-controller" in arguments:
        where = []
    ordered = [*where, *arguments] if main_class in ("MetadataQuorumCommand", "FeatureCommand") else [*arguments, *where]
    wanted = apache_kafka.run_tool(main_class if main_class.startswith("kafka.") else TOOLS + main_class, *ordered)
    result = CliRunner().invoke(cli, ours.split(), env={"MINIKAFKA_BOOTSTRAP": cluster.bootstrap_servers})
    assert settled(result.output) == settled(wanted)


def controllers(cluster: EmbeddedCluster) -> str:
    return ",".join(f"127.0.0.1:{node.controller_port}" for node in cluster.layout.nodes.values())


@pytest.mark.timeout(60)
def test_controllers_are_asked_themselves(cluster: EmbeddedCluster) -> None:
    """KIP-919: --bootstrap-controller, as Kafka's tools have it."""
    where = controllers(cluster)

    def say(words: str, exit_code: int = 0) -> str:
        done = CliRunner().invoke(cli, words.format(where).split(), env={"MINIKAFKA_BOOTSTRAP": "localhost:1"})
        assert done.exit_code == exit_code, done.output
        return done.output

    assert f"LeaderId:               {cluster.controller}" in say("metadata-quorum --bootstrap-controller {} describe --status")
    assert "Feature: metadata.version" in say("features --bootstrap-controller {} describe")
    assert f"Cluster ID: {cluster.cluster_id}" in say("cluster cluster-id -C {}")
    listed = [line.split() for line in say("cluster list-endpoints -C {}").splitlines()[1:]]
    nodes = cluster.layout.nodes.values()
    assert listed == [[str(n.node_id), "127.0.0.1", str(n.controller_port), "null", "controller"] for n in nodes]
    assert "--include-fenced-brokers needs --bootstrap-server" in say("cluster list-endpoints -C {} --include-fenced-brokers", 2)
    say("configs --bootstrap-controller {} --alter --entity-type topics --entity-name t --add-config retention.ms=12345")
    assert "retention.ms=12345" in say(f"configs -b {cluster.bootstrap_servers} --describe --entity-type topics --entity-name t")
    assert "No partition reassignments found." in say("reassign-partitions --bootstrap-controller {} --list")
    assert "retention.ms=12345" in say("configs --bootstrap-controller {} --describe --entity-type topics --entity-name t")
    assert "give either --bootstrap-server or --bootstrap-controller" in say("cluster cluster-id -C {0} -b {0}", 2)
    assert "is this the port of a controller?" in say("cluster cluster-id -b {}", 1)
    assert "wanted an endpoint of type CONTROLLER" in say(f"cluster cluster-id -C {cluster.bootstrap_servers}", 1)


@pytest.mark.timeout(60)
def test_a_secured_cluster_says_how_to_connect(tmp_path: Path) -> None:
    command = [sys.executable, "-B", "-m", "minikafka", "cluster", "up", "-n", "1", "--port", "0", "--http-port", "0"]
    command += ["--security", "sasl_ssl", "--mechanism", "SCRAM-SHA-256", "--user", "alice=secret", "--directory", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert running.stdout is not None and running.stderr is not None
    try:
        bootstrap = running.stdout.readline().strip()
        properties = tmp_path / "client.properties"
        assert properties.stat().st_mode & 0o077 == 0, "it holds a password"
        where = {"MINIKAFKA_BOOTSTRAP": bootstrap, "MINIKAFKA_COMMAND_CONFIG": str(properties)}
        assert CliRunner().invoke(cli, ["produce", "t"], input="hello\n", env=where).exit_code == 0
        librdkafka = dict(line.split("=", 1) for line in (tmp_path / "librdkafka.properties").read_text().splitlines())
        alice = {"sasl.username": "alice", "sasl.password": "secret", "bootstrap.servers": bootstrap}
        assert "t" in confluent_kafka.Producer({**librdkafka, **alice}).list_topics(timeout=10).topics
        plain = CliRunner().invoke(cli, ["produce", "t"], input="hello\n", env={"MINIKAFKA_BOOTSTRAP": bootstrap})
        assert (plain.exit_code, "does it speak TLS (--command-config)?" in plain.output) == (3, True), plain.output
    finally:
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate()
    assert f"export MINIKAFKA_COMMAND_CONFIG={properties}" in said and str(tmp_path / "librdkafka.properties") in said


@pytest.mark.timeout(60)
def test_cluster_up_serves_until_it_is_stopped(tmp_path: Path) -> None:
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
    # The second time it finds its data, and the topic among them; and the usual port taken.
    for turn in range(2):
        usual = socket.socket()
        if turn:
            with contextlib.suppress(OSError):  # then somebody else has it
                usual.bind(("127.0.0.1", 9092))
                usual.listen()
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert running.stdout is not None and running.stderr is not None
        bootstrap = running.stdout.readline().strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+,127\.0\.0\.1:\d+", bootstrap), running.stderr.read()
        metadata = confluent_kafka.Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
        assert len(metadata.topics["hello"].partitions) == 2 and len(metadata.brokers) == 2
        running.send_signal(signal.SIGTERM if turn else signal.SIGINT)
        _, said = running.communicate()
        usual.close()
        assert running.returncode == 0 and "is up after" in said and "/ui" in said and "Ctrl-C stops it." in said, said
        is_usual = bootstrap.startswith("127.0.0.1:9092,")
        assert ("ports 9092 to 9093 are not free" in said) == (not is_usual) and not (turn and is_usual), said
