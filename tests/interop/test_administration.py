"""What changes metadata, by Apache Kafka's tools, on brokers of both kinds with two disks each, under controllers of both kinds."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer
from helpers.apache_kafka import dump_log, run_tool
from helpers.ledger import audit, create_topic, silent
from helpers.mixed_cluster import BROKER, CONTROLLER, KAFKA, MINI, MixedCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(240)]
TOOLS = "org.apache.kafka.tools."
PARTITIONS = range(4)


@pytest.mark.parametrize("controller", [KAFKA, MINI])
def test_topics_configs_reassignments_and_deletion(controller: str, tmp_path: Path) -> None:
    nodes = [(1, controller, CONTROLLER), (2, KAFKA, BROKER), (3, MINI, BROKER)]
    quick = {"log.segment.delete.delay.ms": "300", "log.initial.task.delay.ms": "300"}
    with MixedCluster(tmp_path, nodes, properties=quick) as cluster:
        for node in (cluster.nodes[2], cluster.nodes[3]):
            node.overrides["log.dirs"] = f"{node.data},{node.directory / 'second'}"
        cluster.format()
        cluster.start()
        for node_id in (2, 3):
            through_one_broker(cluster, node_id)
        describe_users(cluster, is_kafka=controller == KAFKA)
        move_everything(cluster, tmp_path / "plan.json")
        delete_records(cluster, tmp_path / "plan.json")
        tool(cluster, "TopicCommand", "--delete", "--topic", "via-3")
        places = [path for node_id in (2, 3) for path in (cluster.nodes[node_id].data, cluster.nodes[node_id].directory / "second")]
        cluster.wait_for(lambda: not [path for place in places for path in place.glob("via-3-*")], "the deleted topic's files to go")
        cluster.stop(3)
        tool(cluster, "ClusterTool", "unregister", "--id", "3")
        cluster.start(3)
        cluster.wait_for_isr("via-2", {2, 3})
        # Apache Kafka says so of every partition that a topic or broker gets later on, under its own controller too.
        assert [error for error in cluster.errors() if "to exist, but it was missing. Creating" not in error] == []
        for node_id in (3, 2, 1):
            cluster.stop(node_id)
        report = audit(places)
        assert {p["verdict"] for p in report["partitions"] if p["topic"] == "via-2"} == {"MATCH"}


def tool(cluster: MixedCluster, name: str, *arguments: str, broker: int | None = None) -> str:
    server = cluster.nodes[broker].address if broker is not None else cluster.bootstrap
    main_class = name if name.startswith("kafka.") else TOOLS + name
    subcommand = [arguments[0]] if name == "ClusterTool" else []
    return run_tool(main_class, *subcommand, "--bootstrap-server", server, *arguments[len(subcommand) :])


def through_one_broker(cluster: MixedCluster, broker: int) -> None:
    """Create, enlarge and configure a topic: the broker forwards it in envelopes of its kind."""
    address, topic = cluster.nodes[broker].address, f"via-{broker}"
    create_topic(address, topic, 4, 2)
    tool(cluster, "TopicCommand", "--alter", "--topic", topic, "--partitions", "6", broker=broker)
    config = ("--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=1234567")
    tool(cluster, "kafka.admin.ConfigCommand", *config, broker=broker)
    cluster.wait_for_isr(topic, {2, 3})
    assert len(cluster.partitions(topic)) == 6
    shown = tool(cluster, "kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic, broker=5 - broker)
    assert "retention.ms=1234567" in shown


def describe_users(cluster: MixedCluster, *, is_kafka: bool) -> None:
    """Quotas of users through each broker, and SCRAM credentials where a controller of Apache Kafka has stored some."""
    users = ("kafka.admin.ConfigCommand", "--entity-type", "users")
    tool(cluster, *users, "--alter", "--entity-name", "alice", "--add-config", "producer_byte_rate=1000", broker=3)
    if is_kafka:
        tool(cluster, *users, "--alter", "--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[password=secret]", broker=2)
    for broker in (2, 3):
        shown = tool(cluster, *users, "--describe", broker=broker)
        assert "user-principal 'alice' are producer_byte_rate=1000" in shown
        assert ("SCRAM-SHA-256=iterations=4096" in shown) == is_kafka, shown


def move_everything(cluster: MixedCluster, plan: Path) -> None:
    """Records move away from each broker and back; then the preferred replicas lead."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "error_cb": silent, "log_level": 0})
    for number in range(1000):
        producer.produce("via-3", b"%d" % number * 20, partition=number % 4)
        producer.produce("via-2", b"%d" % number, partition=number % 6)
    assert producer.flush(20) == 0

    def reassign(replicas: dict[int, list[int]]) -> None:
        partitions = [{"topic": "via-3", "partition": index, "replicas": nodes} for index, nodes in replicas.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        tool(cluster, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute")

        def done() -> bool:
            found = cluster.partitions("via-3")
            return all(found[index][1] == set(nodes) for index, nodes in replicas.items())

        cluster.wait_for(done, "the reassignment")

    reassign({index: [2 + index % 2] for index in PARTITIONS})
    reassign({index: [3 - index % 2, 2 + index % 2] for index in PARTITIONS})
    tool(cluster, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    cluster.wait_for(lambda: all(cluster.partitions("via-3")[index][0] == 3 - index % 2 for index in PARTITIONS), "preferred leaders")


def delete_records(cluster: MixedCluster, plan: Path) -> None:
    """The followers of the other kind take over the start of the log."""
    wanted = [{"topic": "via-3", "partition": index, "offset": 100} for index in PARTITIONS]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    assert tool(cluster, "DeleteRecordsCommand", "--offset-json-file", str(plan)).count("low_watermark: 100") == len(PARTITIONS)
    starts = tool(cluster, "GetOffsetShell", "--topic", "via-3", "--time", "-2")
    assert all(f"via-3:{index}:100" in starts for index in PARTITIONS)


def test_records_have_the_versions_of_an_older_metadata_version(tmp_path: Path) -> None:
    """A cluster formatted for 3.9 and then upgraded: our controller writes each record in the version that Apache Kafka's writes."""
    found = {}
    for controller in (KAFKA, MINI):
        nodes = [(1, controller, CONTROLLER), (2, KAFKA, BROKER), (3, MINI, BROKER)]
        with MixedCluster(tmp_path / controller, nodes) as cluster:
            cluster.format(options=["--release-version", "3.9-IV0"])
            cluster.start()
            before = tool(cluster, "FeatureCommand", "describe")
            levels = dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", before))
            assert levels.pop("metadata.version") == "3.9-IV0" and set(levels.values()) == {"0"}
            for topic in ("before", "after"):
                create_topic(cluster.bootstrap, topic, 2, 2)
                cluster.wait_for_isr(topic, {2, 3})
                cluster.stop(3)
                cluster.wait_for_isr(topic, {2})
                cluster.start(3)
                cluster.wait_for_isr(topic, {2, 3})
                if topic == "before":
                    tool(cluster, "FeatureCommand", "upgrade", "--release-version", "4.3")
            cluster.check_errors()
            for node_id in (3, 2, 1):
                cluster.stop(node_id)
            found[controller] = record_versions(cluster.nodes[1].data)
    assert found[KAFKA] == found[MINI]


def record_versions(data: Path) -> dict[tuple[bool, str], set[str]]:
    """Versions of each type of record, before and after the upgrade of metadata.version."""
    shown = dump_log([data / "__cluster_metadata-0" / "00000000000000000000.log"], "--cluster-metadata-decoder")
    versions: dict[tuple[bool, str], set[str]] = defaultdict(set)
    is_upgraded = False
    for line in shown.splitlines():
        is_upgraded |= '"metadata.version","featureLevel":30' in line
        for kind, version in re.findall(r'"type":"(\w+)","version":(\d+)', line):
            if kind != "NO_OP_RECORD":
                versions[is_upgraded, kind].add(version)
    return versions
