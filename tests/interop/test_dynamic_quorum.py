"""Voters in the log (KIP-853): controllers of one kind join and leave a quorum of the other, by Kafka's own tool and by themselves."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from helpers.apache_kafka import free_ports, run_tool
from helpers.ledger import create_topic
from helpers.mixed_cluster import BOTH, BROKER, CONTROLLER, KAFKA, MINI, MixedCluster

from minikafka.wire.uuid import uuid_to_text

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]
TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


def status(cluster: MixedCluster) -> dict[int, str]:
    """Directory id of each voter, as kafka-metadata-quorum describe --status shows them."""
    shown = cluster.quorum("describe", "--status")
    found = re.search(r"^CurrentVoters: *(.*)$", shown, re.MULTILINE)
    assert found is not None, shown
    return {voter["id"]: voter["directoryId"] for voter in json.loads(found[1])}


def voters(cluster: MixedCluster) -> dict[int, str]:
    """The same as the leader says to us."""
    return replicas(cluster, "current_voters")


def observers(cluster: MixedCluster) -> dict[int, str]:
    return replicas(cluster, "observers")


def replicas(cluster: MixedCluster, which: str) -> dict[int, str]:
    partition = cluster.describe_quorum()
    return {entry.replica_id: uuid_to_text(bytes(entry.replica_directory_id)) for entry in getattr(partition, which, ())}


def directory_ids(cluster: MixedCluster, *node_ids: int) -> dict[int, str]:
    return {node_id: cluster.nodes[node_id].directory_id for node_id in node_ids}


@pytest.mark.parametrize(
    "kinds", [(MINI, KAFKA, MINI), pytest.param((KAFKA, MINI, KAFKA), marks=pytest.mark.interop)], ids="-".join
)
def test_controllers_join_and_leave_by_the_java_tool(kinds: tuple[str, str, str], tmp_path: Path) -> None:
    """The first is formatted --standalone, the others --no-initial-controllers; the first is removed while it leads."""
    nodes = [(index + 1, kind, CONTROLLER) for index, kind in enumerate(kinds)]
    with MixedCluster(tmp_path, [*nodes, (9, MINI, BROKER)], dynamic=True) as cluster:
        cluster.format(1, options=["--standalone"])
        cluster.format(2, 3, options=["--no-initial-controllers"])
        cluster.format(9)
        cluster.start()
        assert voters(cluster) == directory_ids(cluster, 1)
        for node_id in (2, 3):
            node = cluster.nodes[node_id]
            cluster.wait_for(lambda: node_id in observers(cluster), f"controller {node_id} to be an observer")  # noqa: B023
            address = cluster.nodes[1].controller_address
            added = run_tool(TOOL, "--bootstrap-controller", address, "--command-config", str(node.properties_path), "add-controller")
            assert f"Added controller {node_id} with directory id {node.directory_id}" in added
        assert voters(cluster) == directory_ids(cluster, 1, 2, 3)
        first = cluster.nodes[1].directory_id
        removed = cluster.quorum("remove-controller", "--controller-id", "1", "--controller-directory-id", first)
        assert f"controller 1 with directory id {first}" in removed
        assert cluster.wait_for_leader(1)[1] in (2, 3)
        cluster.stop(1)
        assert status(cluster) == voters(cluster) == directory_ids(cluster, 2, 3)
        create_topic(cluster.bootstrap, "after", 1, 1)
        features = run_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", cluster.bootstrap, "describe")
        assert re.search(r"kraft\.version.*FinalizedVersionLevel: 1", features), features
        cluster.check_errors()


@pytest.mark.interop
@pytest.mark.parametrize("kinds", [(MINI, KAFKA, MINI), (KAFKA, MINI, KAFKA)], ids="-".join)
def test_controllers_join_by_themselves_also_with_a_new_disk(kinds: tuple[str, str, str], tmp_path: Path) -> None:
    """controller.quorum.auto.join.enable: a wiped controller has its old self removed and itself added."""
    nodes = [(index + 1, kind, CONTROLLER) for index, kind in enumerate(kinds)]
    automatic = {"controller.quorum.auto.join.enable": "true"}
    with MixedCluster(tmp_path, [*nodes, (9, MINI, BROKER)], dynamic=True, properties=automatic) as cluster:
        cluster.format(1, options=["--standalone"])
        cluster.format(2, 3, options=["--no-initial-controllers"])
        cluster.format(9)
        cluster.start()
        cluster.wait_for(lambda: voters(cluster) == directory_ids(cluster, 1, 2, 3), "two controllers to join")
        cluster.stop(2)
        before = cluster.nodes[2].directory_id
        shutil.rmtree(cluster.nodes[2].data)
        cluster.format(2, options=["--no-initial-controllers"])
        cluster.start(2)
        cluster.wait_for(lambda: voters(cluster) == directory_ids(cluster, 1, 2, 3), "the wiped controller to join again")
        assert cluster.nodes[2].directory_id != before
        cluster.check_errors()


@pytest.mark.interop
@pytest.mark.parametrize("kinds", [(MINI, KAFKA, MINI), (KAFKA, MINI, KAFKA)], ids="-".join)
def test_controllers_move_to_other_ports(kinds: tuple[str, str, str], tmp_path: Path) -> None:
    """UpdateRaftVoter: followers of both kinds, and at last the leader, come back elsewhere and tell the quorum."""
    nodes = [(index + 1, kind, CONTROLLER) for index, kind in enumerate(kinds)]
    automatic = {"controller.quorum.auto.join.enable": "true"}
    with MixedCluster(tmp_path, [*nodes, (9, MINI, BROKER)], dynamic=True, properties=automatic) as cluster:
        cluster.format(1, options=["--standalone"])
        cluster.format(2, 3, options=["--no-initial-controllers"])
        cluster.format(9)
        cluster.start()
        cluster.wait_for(lambda: voters(cluster) == directory_ids(cluster, 1, 2, 3), "two controllers to join")
        for node_id in (2, 3, 1):
            node = cluster.nodes[node_id]
            cluster.stop(node_id)
            (node.controller_port,) = free_ports(1)
            cluster.start(node_id)
            cluster.wait_for(lambda: node.controller_address in cluster.quorum("describe", "--status"), f"{node_id} to be known")  # noqa: B023
        cluster.kill(2)
        create_topic(cluster.bootstrap, "t", 1, 1)
        cluster.check_errors()


@pytest.mark.interop
@pytest.mark.parametrize("kinds", [(KAFKA, MINI, MINI), (MINI, KAFKA, KAFKA)], ids="-".join)
def test_both_kinds_are_formatted_with_the_same_initial_controllers(kinds: tuple[str, str, str], tmp_path: Path) -> None:
    nodes = [(index + 1, kind, BOTH) for index, kind in enumerate(kinds)]
    with MixedCluster(tmp_path, nodes, dynamic=True) as cluster:
        ids = dict(zip((1, 2, 3), ("4yy_LWbrRdKOB7HJBfV0uA", "QcTWE1d0QE6NaQBNGUG6bg", "frAbvvQkRoa4DiCInkHNqg"), strict=True))
        initial = ",".join(f"{node_id}@{cluster.nodes[node_id].controller_address}:{ids[node_id]}" for node_id in ids)
        cluster.format(options=["--initial-controllers", initial])
        cluster.start()
        assert voters(cluster) == ids
        for _ in range(2):
            epoch, leader = cluster.wait_for_leader()
            cluster.kill(leader)
            cluster.wait_for_leader(epoch)
            cluster.start(leader)
        create_topic(cluster.bootstrap, "t", 1, 3)
        cluster.check_errors()


@pytest.mark.interop
@pytest.mark.parametrize(("kinds", "leader"), [((KAFKA, MINI, MINI), MINI), ((MINI, KAFKA, MINI), KAFKA)], ids=["ours", "kafkas"])
def test_static_voters_become_dynamic_while_the_quorum_runs(kinds: tuple[str, str, str], leader: str, tmp_path: Path) -> None:
    """kafka-features upgrade --feature kraft.version=1: each kind of leader has learnt the other kind's directory ids (UpdateRaftVoter)."""
    nodes = [(index + 1, kind, CONTROLLER) for index, kind in enumerate(kinds)]
    with MixedCluster(tmp_path, [*nodes, (9, MINI, BROKER)]) as cluster:
        cluster.format()
        cluster.start()
        while cluster.nodes[cluster.wait_for_leader()[1]].kind != leader:
            epoch, current = cluster.quorum_leader()
            cluster.stop(current)
            cluster.wait_for_leader(epoch)
            cluster.start(current)
        cluster.wait_for(lambda: "was upgraded to 1" in upgrade(cluster), "all voters to have told their directory ids")
        assert status(cluster) == directory_ids(cluster, 1, 2, 3)
        for _ in range(2):
            epoch, current = cluster.wait_for_leader()
            cluster.kill(current)
            cluster.wait_for_leader(epoch)
            cluster.start(current)
        removed = next(node_id for node_id in (1, 2, 3) if node_id != cluster.wait_for_leader()[1])
        cluster.wait_for(lambda: observers(cluster).keys() == {9}, "the leader to know of everybody")
        of = cluster.nodes[removed].directory_id
        cluster.quorum("remove-controller", "--controller-id", str(removed), "--controller-directory-id", of)
        assert voters(cluster) == directory_ids(cluster, *({1, 2, 3} - {removed}))
        cluster.check_errors()


def upgrade(cluster: MixedCluster) -> str:
    tool, server = "org.apache.kafka.tools.FeatureCommand", ("--bootstrap-server", cluster.bootstrap)
    try:
        return run_tool(tool, *server, "upgrade", "--feature", "kraft.version=1")
    except RuntimeError as error:
        assert "Directory id" in str(error) or "not all of the voters" in str(error), error
        return ""
