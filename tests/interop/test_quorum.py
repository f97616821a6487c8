"""Controllers of both kinds in one quorum of static voters: each leads, each dies, each gives the others its snapshots."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.apache_kafka import run_tool
from helpers.ledger import Writer, audit, create_topic
from helpers.mixed_cluster import BOTH, CONTROLLER, KAFKA, MINI, MixedCluster, other_kind

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
#: Snapshots after a few changes.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
#: Answers hold less than a snapshot, so that several are needed.
IN_PIECES = {"controller.quorum.fetch.max.bytes": "700", "controller.quorum.fetch.snapshot.max.bytes": "900"}


BETWEEN_KINDS = {(KAFKA, MINI), (MINI, KAFKA)}


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    # Followers that are Apache Kafka deny ours a pre-vote until their own timeouts, so that ours seldom succeeds one of two of them.
    [((KAFKA, MINI, MINI), BETWEEN_KINDS), pytest.param((KAFKA, KAFKA, MINI), set(), marks=pytest.mark.interop)],
    ids=["kafka-minikafka-minikafka", "kafka-kafka-minikafka"],
)
def test_leaders_die_in_turn(kinds: tuple[str, ...], wanted: set[tuple[str, str]], tmp_path: Path) -> None:
    """At least two, and until a leader of each kind has been replaced by one of the other kind where both are `wanted`."""
    nodes = set(range(1, len(kinds) + 1))
    with MixedCluster(tmp_path, [(index + 1, kind, BOTH) for index, kind in enumerate(kinds)], properties=SNAPSHOTS) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", 4, 3)
        cluster.wait_for_isr("t", nodes)
        moves: list[tuple[str, str]] = []
        with Writer(cluster.bootstrap, "t", 4) as writer:
            writer.wait_for_more()
            while len(moves) < 2 or (not wanted <= set(moves) and len(moves) < 15):
                epoch, dead = cluster.wait_for_leader()
                cluster.kill(dead)
                _, successor = cluster.wait_for_leader(epoch)
                moves.append((cluster.nodes[dead].kind, cluster.nodes[successor].kind))
                writer.wait_for_more()
                cluster.start(dead)
                cluster.wait_for_isr("t", nodes)
        assert wanted <= set(moves)
        # KIP-919: controllers of both kinds register with active ones of both kinds.
        listed = run_tool("org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-controller", cluster.controllers)
        assert {int(line.split()[0]) for line in listed.splitlines() if line[:1].isdigit()} == nodes, listed
        assert writer.check(cluster.bootstrap) > 500
        cluster.check_errors()
        for node_id in nodes:
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()])


@pytest.mark.interop
@pytest.mark.parametrize("leader", [KAFKA, MINI])
def test_a_wiped_controller_takes_the_others_snapshot(leader: str, tmp_path: Path) -> None:
    """A controller whose disk is new gets the state by FetchSnapshot from a leader of the other kind, and can lead with it."""
    other = other_kind(leader)
    nodes = [(1, leader, CONTROLLER), (2, leader, CONTROLLER), (3, other, CONTROLLER), (4, MINI, "broker")]
    with MixedCluster(tmp_path, nodes, properties=SNAPSHOTS | IN_PIECES) as cluster:
        cluster.format(1, 2, 4)
        cluster.start(1, 2, 4)
        for number in range(20):
            create_topic(cluster.bootstrap, f"t{number}", 4, 1)
        epoch, first = cluster.wait_for_leader()
        wiped = cluster.nodes[3]
        for attempt in range(2):
            cluster.format(3)
            cluster.start(3)
            cluster.wait_for(lambda: list(metadata_log(wiped.data).glob("*[0-9].checkpoint")), "a snapshot on the wiped controller")
            snapshot = next(metadata_log(wiped.data).glob("*[0-9].checkpoint")).name
            assert any((metadata_log(cluster.nodes[node_id].data) / snapshot).exists() for node_id in (1, 2))
            if attempt == 0:
                cluster.stop(3)
                shutil.rmtree(wiped.data)
        # With one of the others gone, and then the leader, the wiped one counts.
        cluster.stop(3 - first)
        create_topic(cluster.bootstrap, "with-the-wiped", 1, 1)
        cluster.start(3 - first)
        while cluster.quorum_leader()[1] != 3:
            epoch, current = cluster.wait_for_leader()
            cluster.stop(current)
            cluster.wait_for_leader(epoch)
            cluster.start(current)
        create_topic(cluster.bootstrap, "from-the-wiped", 1, 1)
        assert {f"t{number}" for number in range(20)} <= topics(cluster)
        cluster.check_errors()


def metadata_log(data: Path) -> Path:
    return data / "__cluster_metadata-0"


def topics(cluster: MixedCluster) -> set[str]:
    from minikafka.testing.probe import metadata

    return {topic.name for topic in metadata("127.0.0.1", cluster.nodes[4].port).topics}
