"""Apache Kafka's own tools and the Java client, against three brokers of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.apache_kafka import run_tool

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
RECORDS = 5000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(3) as running:
        yield running


def test_topics_records_groups_and_the_quorum(cluster: ProcessCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    created = run_tool(
        "org.apache.kafka.tools.TopicCommand", *server,
        "--create", "--topic", "java", "--partitions", "3", "--replication-factor", "3",
    )  # fmt: skip
    assert "Created topic java." in created
    described = run_tool("org.apache.kafka.tools.TopicCommand", *server, "--describe", "--topic", "java")
    assert described.count("Partition: ") == 3
    assert "ReplicationFactor: 3" in described
    produced = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "java", "--num-records", str(RECORDS), "--record-size", "200",
        "--throughput", "-1", "--command-property", f"bootstrap.servers={cluster.bootstrap}", "acks=all",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in produced
    consumed = run_tool(
        "org.apache.kafka.tools.ConsumerPerformance", *server,
        "--topic", "java", "--num-records", str(RECORDS), "--group", "java-group",
    )  # fmt: skip
    assert f" {RECORDS}, " in consumed
    groups = run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *server, "--describe", "--group", "java-group")
    lags = [line.split()[5] for line in groups.splitlines() if line.startswith("java-group")]
    assert lags == ["0", "0", "0"]
    offsets = run_tool("org.apache.kafka.tools.GetOffsetShell", *server, "--topic", "java")
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split() if line.startswith("java:")) == RECORDS
    quorum = run_tool("org.apache.kafka.tools.MetadataQuorumCommand", *server, "describe", "--status")
    assert "LeaderId:               1" in quorum
    configs = run_tool("kafka.admin.ConfigCommand", *server, "--describe", "--entity-type", "topics", "--entity-name", "java", "--all")
    assert "retention.ms=604800000" in configs
    directories = run_tool("org.apache.kafka.tools.LogDirsCommand", *server, "--describe", "--topic-list", "java")
    assert directories.count('"partition":"java-0"') == 3
    run_tool("org.apache.kafka.tools.TopicCommand", *server, "--delete", "--topic", "java")
    assert "java" not in run_tool("org.apache.kafka.tools.TopicCommand", *server, "--list").split()
