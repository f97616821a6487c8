"""Records that were never committed are cut when a leader of the other kind has taken over: in partitions, and in the metadata log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.ledger import audit, create_topic, read_all, silent
from helpers.mixed_cluster import BROKER, CONTROLLER, KAFKA, MINI, MixedCluster, other_kind

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(180)]
QUIET = {"error_cb": silent, "log_level": 0}


@pytest.mark.parametrize("leader", [KAFKA, MINI])
def test_a_leader_that_died_with_records_of_its_own_cuts_them(leader: str, tmp_path: Path) -> None:
    """The follower is paused while the leader takes records with acks=1, and leads when the leader has died."""
    nodes = [(1, KAFKA, CONTROLLER), (2, leader, BROKER), (3, other_kind(leader), BROKER)]
    with MixedCluster(tmp_path, nodes, properties={"broker.session.timeout.ms": "6000"}) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", 2, 2)
        cluster.wait_for_isr("t", {2, 3})
        partition = next(index for index, (node_id, _) in cluster.partitions("t").items() if node_id == 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", **QUIET})

        def produce(text: str, count: int) -> None:
            for number in range(count):
                producer.produce("t", f"{text}-{number}".encode(), partition=partition)
            assert producer.flush(20) == 0

        produce("replicated", 50)
        cluster.wait_for(lambda: len(read_all(cluster.bootstrap, "t", partition)) == 50, "the high watermark to reach 50")
        cluster.pause(3)
        for batch in range(20):
            produce(f"lost-{batch}", 5)
        cluster.kill(2)
        cluster.resume(3)
        cluster.wait_for_isr("t", {3})
        produce("after", 10)
        cluster.start(2)
        cluster.wait_for_isr("t", {2, 3})
        values = [value for _, value in read_all(cluster.bootstrap, "t", partition)]
        assert values[:50] == [b"replicated-%d" % number for number in range(50)]
        assert values[-10:] == [b"after-%d" % number for number in range(10)]
        # A fetch that was under way may have brought the first of them.
        assert len(values) < 160
        assert re.search(rf"[Tt]runcat.*t-{partition}|t-{partition}: in epoch \d+ truncated from", cluster.nodes[2].output)
        cluster.check_errors()
        for node_id in (3, 2, 1):
            cluster.stop(node_id)
        audit([cluster.nodes[2].data, cluster.nodes[3].data])


@pytest.mark.parametrize("leader", [KAFKA, MINI])
def test_metadata_that_only_a_dead_leader_had_is_cut(leader: str, tmp_path: Path) -> None:
    """The leader is alone when it appends a topic; two voters of the other kind go on without it, and then it comes back."""
    other = other_kind(leader)
    nodes = [(1, leader, CONTROLLER), (2, other, CONTROLLER), (3, other, CONTROLLER), (4, MINI, BROKER)]
    with MixedCluster(tmp_path, nodes) as cluster:
        cluster.format()
        cluster.start()
        while cluster.wait_for_leader()[1] != 1:
            epoch, current = cluster.quorum_leader()
            cluster.stop(current)
            cluster.wait_for_leader(epoch)
            cluster.start(current)
        create_topic(cluster.bootstrap, "before", 1, 1)
        epoch, _ = cluster.quorum_leader()
        log = cluster.nodes[1].data / "__cluster_metadata-0" / "00000000000000000000.log"
        for node_id in (2, 3):
            cluster.kill(node_id)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        admin.create_topics([NewTopic("uncommitted", 4, 1)], request_timeout=10)
        cluster.wait_for(lambda: b"uncommitted" in log.read_bytes(), "the leader to append what it cannot commit")
        cluster.kill(4)
        cluster.kill(1)
        cluster.start(2, 3, wait=False)
        cluster.wait_for_leader(epoch)
        cluster.start(4)
        create_topic(cluster.bootstrap, "after", 1, 1)
        cluster.start(1)
        cluster.wait_for(lambda: b"after" in log.read_bytes(), "the old leader to follow")
        assert b"uncommitted" not in log.read_bytes()
        assert re.search(r"Truncated to offset|truncating the metadata log", cluster.nodes[1].output)
        cluster.check_errors()
        for node_id in (4, 1, 2, 3):
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()], single=True)
