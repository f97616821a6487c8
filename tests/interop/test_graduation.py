"""A cluster that began as minikafka becomes Apache Kafka node by node, on the same directories, under its clients, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.ledger import GroupReader, Writer, audit, create_topic
from helpers.mixed_cluster import BOTH, KAFKA, MINI, MixedCluster, other_kind

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
NODES = (1, 2, 3)


def test_a_cluster_graduates_and_comes_back_with_clients_running(tmp_path: Path) -> None:
    with MixedCluster(tmp_path, [(node_id, MINI, BOTH) for node_id in NODES]) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", 4, 3)
        cluster.wait_for_isr("t", set(NODES))
        coordinators = set()
        with GroupReader(cluster.bootstrap, "t") as reader, Writer(cluster.bootstrap, "t", 4) as writer:
            writer.wait_for_more()
            for kind in (KAFKA, MINI):
                for node_id in NODES:
                    cluster.stop(node_id)
                    cluster.start(node_id, kind=kind)
                    cluster.wait_for_isr("t", set(NODES))
                    writer.wait_for_more()
                    leader, _ = cluster.partitions("__consumer_offsets")[0]
                    coordinators.add(cluster.nodes[leader].kind)
            writer.stop()
            reader.wait_until_seen(writer.acknowledged)
        assert writer.check(cluster.bootstrap) > 1000
        # Every move of the group's coordinator kept its commits: nothing was read twice.
        assert reader.failures == [] and set(reader.seen.values()) == {1}
        assert coordinators == {KAFKA, MINI}
        cluster.check_errors()
        for node_id in NODES:
            assert cluster.stop(node_id) == 0
        audit([node.data for node in cluster.nodes.values()])


@pytest.mark.interop
def test_nodes_that_were_killed_come_back_as_the_other_kind(tmp_path: Path) -> None:
    with MixedCluster(tmp_path, [(1, MINI, BOTH), (2, KAFKA, BOTH), (3, MINI, BOTH)]) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", 4, 3, segment_bytes="1048576", index_interval_bytes="100")
        cluster.wait_for_isr("t", set(NODES))
        with GroupReader(cluster.bootstrap, "t") as reader, Writer(cluster.bootstrap, "t", 4) as writer:
            writer.wait_for_more()
            for _ in range(2):
                for node_id in NODES:
                    cluster.kill(node_id)
                    writer.wait_for_more()
                    cluster.start(node_id, kind=other_kind(cluster.nodes[node_id].kind))
                    cluster.wait_for_isr("t", set(NODES))
                    writer.wait_for_more()
            writer.stop()
            reader.wait_until_seen(writer.acknowledged)
        assert writer.check(cluster.bootstrap) > 1000
        cluster.check_errors()
        for node_id in NODES:
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()])
