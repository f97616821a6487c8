"""Follows Apache Kafka's `core/reassign_partitions_test.py` and `core/throttling_test.py`: partitions move to other brokers, at once or
throttled, while brokers are bounced and records are written."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from helpers.apache_kafka import NEXT, run_tool
from kafkatest.verifiable import Producer, bounce, create, in_sync, read_all

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.kafkatest, pytest.mark.timeout(500)]
TOPIC, PARTITIONS, RATE = "test_topic", 4, 100_000
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def plan(cluster: ProcessCluster, path: Path) -> dict[int, list[int]]:
    """Every partition leaves one of its brokers for the one that it is not on; by partition, the brokers afterwards."""
    wanted = {}
    for partition in cluster.metadata([TOPIC]).topics[0].partitions:
        new = next(node for node in cluster.nodes if node not in partition.replica_nodes)
        wanted[partition.partition_index] = [new, *partition.replica_nodes[1:]]
    parts = [{"topic": TOPIC, "partition": index, "replicas": replicas} for index, replicas in wanted.items()]
    path.write_text(json.dumps({"version": 1, "partitions": parts}))
    return wanted


def tool(cluster: ProcessCluster, path: Path, *words: str) -> str:
    return run_tool(TOOL, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path), *words, version=NEXT)


def is_moved(cluster: ProcessCluster, wanted: dict[int, list[int]]) -> bool:
    found = {one.partition_index: sorted(one.replica_nodes) for one in cluster.metadata([TOPIC]).topics[0].partitions}
    return found == {index: sorted(replicas) for index, replicas in wanted.items()}


@pytest.mark.parametrize("bounces", [False, True], ids=["brokers_stay", "brokers_bounce"])
@pytest.mark.parametrize("throttled", [False, True], ids=["at_once", "throttled"])
def test_reassign_partitions(tmp_path: Path, throttled: bool, bounces: bool) -> None:
    with ProcessCluster(4, controllers=3) as cluster:
        create(cluster, TOPIC, PARTITIONS)
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC)
        producer.command += ["--value-prefix", "7"]
        path = tmp_path / "plan.json"
        with producer.running():
            producer.more(1000)
            wanted = plan(cluster, path)
            tool(cluster, path, "--execute", *(("--throttle", str(RATE)) if throttled else ()))
            for node_id in cluster.nodes if bounces else ():
                bounce(cluster, node_id, hard=True)
                producer.more(100)
            cluster.wait_for(lambda: is_moved(cluster, wanted), "the move", timeout_s=120)
            in_sync(cluster, TOPIC)
            assert "is completed" in tool(cluster, path, "--verify")
            producer.more(200)
            producer.stop()
        found = read_all(cluster, TOPIC)
        assert {place: found.get(place) for place in producer.acknowledged} == producer.acknowledged
        assert len(set(found.values())) == len(found), "a record is there twice"


def test_throttled_reassignment(tmp_path: Path) -> None:
    """A move of known size takes at least as long as its throttle says, and then leaves no throttle behind."""
    size, records, rate = 10_000, 300, 300_000
    with ProcessCluster(4, controllers=3) as cluster:
        create(cluster, TOPIC, 1)
        perf = ("--topic", TOPIC, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1")
        run_tool("org.apache.kafka.tools.ProducerPerformance", *perf, "--bootstrap-server", cluster.bootstrap, version=NEXT)
        path = tmp_path / "plan.json"
        wanted = plan(cluster, path)
        begin = time.monotonic()
        tool(cluster, path, "--execute", "--throttle", str(rate))
        cluster.wait_for(lambda: is_moved(cluster, wanted), "the move", timeout_s=120)
        took_s = time.monotonic() - begin
        # A window of a second may pass unthrottled, as in Apache Kafka.
        assert took_s >= records * size / rate / 2, took_s
        assert "Clearing broker-level throttles" in tool(cluster, path, "--verify")
