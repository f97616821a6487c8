"""From one release of Apache Kafka to the next, with nodes of both releases and of minikafka in one cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.apache_kafka import NEXT, run_tool
from helpers.ledger import GroupReader, Writer, audit, create_topic
from helpers.mixed_cluster import BOTH, BROKER, CONTROLLER, KAFKA, KAFKA_NEXT, MINI, MixedCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(900)]
NODES = (1, 2, 3)
#: For the start of an Apache Kafka node beside others on a busy machine.
SLOW_S = 240
#: No node dies here, and no busy one may be fenced: while none is in service, Apache Kafka names no broker to clients, and librdkafka then
#: forgets every address.
PROPERTIES = {"broker.session.timeout.ms": "30000"}
#: The metadata.version that both releases open, and those that came with the next one.
OLD, NEW = "4.3-IV0", "4.4-IV2"


def levels(cluster: MixedCluster) -> dict[str, str]:
    """The finalized level of each feature."""
    shown = run_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", cluster.bootstrap, "describe", version=NEXT)
    return dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", shown))


def upgrade(cluster: MixedCluster) -> None:
    """Raise the features. Apache Kafka's leader refuses until every voter has told it its kraft.version, and Apache Kafka's voters do so
    controller.quorum.fetch.timeout.ms after they found the leader."""
    command = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", cluster.bootstrap, "upgrade", "--release-version", "4.4")

    def is_raised() -> bool:
        try:
            run_tool(*command, version=NEXT)
        except RuntimeError as error:
            if "not all of the voters support it" not in str(error):
                raise
            return False
        return True

    cluster.wait_for(is_raised, "the voters' versions", SLOW_S)


def replace(cluster: MixedCluster, node_id: int, kind: str, writer: Writer) -> None:
    """Stop a node and start it as `kind`, while others write."""
    cluster.stop(node_id)
    writer.wait_for_more(timeout_s=SLOW_S)
    cluster.start(node_id, kind=kind, wait=False)
    cluster.wait_for_brokers(SLOW_S)
    cluster.wait_for_isr("t", set(NODES), SLOW_S)
    writer.wait_for_more(timeout_s=SLOW_S)


@pytest.mark.parametrize("kinds", [(KAFKA, KAFKA, MINI), (MINI, KAFKA, MINI)], ids="-".join)
def test_a_cluster_rolls_to_the_next_release_under_load(kinds: tuple[str, str, str], tmp_path: Path) -> None:
    """Formatted by the older release, each Apache Kafka node becomes one of the next release, then the features are raised."""
    nodes = [(index + 1, kind, BOTH) for index, kind in enumerate(kinds)]
    with MixedCluster(tmp_path, nodes, properties=PROPERTIES) as cluster:
        cluster.format()
        cluster.start(wait=False)
        cluster.wait_for_brokers(SLOW_S)
        create_topic(cluster.bootstrap, "t", 4, 3)
        cluster.wait_for_isr("t", set(NODES), SLOW_S)
        before = levels(cluster)
        assert before["metadata.version"] == OLD
        readers = [GroupReader(cluster.bootstrap, "t", protocol, protocol) for protocol in ("classic", "consumer")]
        with readers[0], readers[1], Writer(cluster.bootstrap, "t", 4) as writer:
            writer.wait_for_more(timeout_s=SLOW_S)
            for node_id in NODES:
                replace(cluster, node_id, MINI if kinds[node_id - 1] == MINI else KAFKA_NEXT, writer)
            assert levels(cluster) == before, "a cluster formatted by the older release runs on"
            upgrade(cluster)
            cluster.wait_for(lambda: levels(cluster)["metadata.version"] == NEW, "the raised features", SLOW_S)
            writer.wait_for_more(timeout_s=SLOW_S)
            for node_id in NODES:
                replace(cluster, node_id, cluster.nodes[node_id].kind, writer)
            writer.stop()
            for reader in readers:
                reader.wait_until_seen(writer.acknowledged, SLOW_S)
        assert writer.check(cluster.bootstrap) > 1000
        for reader in readers:
            assert reader.failures == [] and set(reader.seen.values()) == {1}
        cluster.check_errors()
        for node_id in NODES:
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()])


@pytest.mark.parametrize("leader", [MINI, KAFKA_NEXT])
def test_a_controller_that_is_gone_is_unregistered(leader: str, tmp_path: Path) -> None:
    """KIP-1312, by the tool of the next release, at the metadata.version that brought it, and not before."""
    other = KAFKA_NEXT if leader == MINI else MINI
    nodes = [(1, leader, CONTROLLER), (2, other, CONTROLLER), (9, other, BROKER)]
    with MixedCluster(tmp_path, nodes, dynamic=True) as cluster:
        release = ["--release-version", OLD]
        cluster.format(1, options=["--standalone", *release])
        cluster.format(2, options=["--no-initial-controllers", *release])
        cluster.format(9, options=release)
        cluster.start(wait=False)
        cluster.wait_for_brokers(SLOW_S)
        cluster.wait_for(lambda: 2 in [one.replica_id for one in cluster.describe_quorum().observers], "the second controller", SLOW_S)
        cluster.stop(2)
        tool = ("org.apache.kafka.tools.ClusterTool", "unregister-controller")
        unregister = (*tool, "--bootstrap-server", cluster.bootstrap, "--id", "2")
        assert "does not support the controller unregistration API" in run_tool(*unregister, version=NEXT)
        upgrade(cluster)
        assert "Controller 2 is no longer registered" in run_tool(*unregister, version=NEXT)
        cluster.check_errors()
