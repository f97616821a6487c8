"""Brokers of both kinds under a controller of either kind: each leads, each follows, each dies, and no acknowledged record is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from helpers.apache_kafka import run_tool
from helpers.ledger import Writer, audit, create_topic
from helpers.mixed_cluster import BROKER, CONTROLLER, KAFKA, MINI, MixedCluster

from minikafka.broker.config.broker_config import BrokerConfig

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]
PARTITIONS = 4
PERFORMANCE_RECORDS = 2000


@pytest.mark.parametrize("controller", [KAFKA, pytest.param(MINI, marks=pytest.mark.interop)])
def test_brokers_of_both_kinds_lead_follow_and_die(controller: str, tmp_path: Path) -> None:
    with MixedCluster(tmp_path, [(1, controller, CONTROLLER), (2, KAFKA, BROKER), (3, MINI, BROKER)]) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", PARTITIONS, 2)
        cluster.wait_for_isr("t", {2, 3})
        assert {leader for leader, _ in cluster.partitions("t").values()} == {2, 3}
        with Writer(cluster.bootstrap, "t", PARTITIONS) as writer:
            writer.wait_for_more()
            for victim, survivor in ((2, 3), (3, 2)):
                cluster.kill(victim)
                cluster.wait_for_isr("t", {survivor})
                writer.wait_for_more()
                cluster.start(victim)
                cluster.wait_for_isr("t", {2, 3})
                writer.wait_for_more()
        assert writer.check(cluster.bootstrap) > 1000
        if controller == KAFKA:
            through_java_tools(cluster)
            check_properties(cluster)
        cluster.check_errors()
        for node_id in (3, 2, 1):
            cluster.stop(node_id)
        report = audit([cluster.nodes[2].data, cluster.nodes[3].data])
        compared = {p["partition"]: p["verdict"] for p in report["partitions"] if p["topic"] == "t"}
        assert compared == dict.fromkeys(range(PARTITIONS), "MATCH")


def check_properties(cluster: MixedCluster) -> None:
    """Every broker property that Apache Kafka knows may stand in our server.properties, with the value that it has there."""
    resource = ConfigResource(ResourceType.BROKER, "2")
    admin = AdminClient({"bootstrap.servers": cluster.nodes[2].address})
    theirs = {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(20).items()}
    ours = cluster.properties(cluster.nodes[3])
    assert len(theirs) > 300
    unset = {name: value for name, value in theirs.items() if value and name not in (*ours, "broker.id")}
    BrokerConfig.from_properties({**unset, **ours})


def through_java_tools(cluster: MixedCluster) -> None:
    """Apache Kafka's producer and consumer against leaders of both kinds."""
    produced = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", str(PERFORMANCE_RECORDS), "--record-size", "100",
        "--throughput", "-1", "--command-property", f"bootstrap.servers={cluster.bootstrap}", "acks=all",
    )  # fmt: skip
    assert f"{PERFORMANCE_RECORDS} records sent" in produced
    consumed = run_tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", cluster.bootstrap, "--topic", "t",
        "--num-records", str(PERFORMANCE_RECORDS), "--group", "java",
    )  # fmt: skip
    assert f" {PERFORMANCE_RECORDS}, " in consumed or int(consumed.splitlines()[1].split(", ")[4]) >= PERFORMANCE_RECORDS
