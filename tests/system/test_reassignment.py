"""Replicas move to other brokers: throttled, cancelled, by request and by Apache Kafka's tools; elections and farewells by its tools."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.apache_kafka import run_tool

from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.messages.metadata import MetadataResponse

pytestmark = pytest.mark.timeout(240)
VALUE = b"v" * 10_000
RECORDS = 300
RATE = 1_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    properties = {"leader.imbalance.check.interval.seconds": "3600"}
    with ProcessCluster(3, directory=tmp_path_factory.mktemp("cluster"), properties=properties) as made:
        yield made


def partition_of(cluster: ProcessCluster, topic: str, index: int = 0) -> MetadataResponse.MetadataResponsePartition:
    return next(p for p in cluster.metadata([topic]).topics[0].partitions if p.partition_index == index)


async def fill(cluster: ProcessCluster, topic: str, brokers: list[int]) -> None:
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topic(topic, assignments={0: brokers}, configs={"min.insync.replicas": "1"})
        for _ in range(RECORDS):
            await producer.send(topic, VALUE, partition=0)
        await producer.flush()


async def ask(cluster: ProcessCluster, request: Any) -> Any:
    network = SocketNetwork(asyncio.get_running_loop())
    channel = await Channel.open(network, "127.0.0.1", next(iter(cluster.nodes.values())).port, client_id="t")
    try:
        return await channel.request(request)
    finally:
        channel.close()


async def reassign(cluster: ProcessCluster, topic: str, brokers: list[int] | None) -> ErrorCode:
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=brokers)
    topics = [AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[wanted])]
    return ErrorCode((await ask(cluster, AlterPartitionReassignmentsRequest(topics=topics))).responses[0].partitions[0].error_code)


async def going_on(cluster: ProcessCluster) -> list[str]:
    return [topic.name for topic in (await ask(cluster, ListPartitionReassignmentsRequest(topics=None))).topics]


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_takes_its_time_and_arrives_whole(cluster: ProcessCluster, side: str) -> None:
    async def story() -> float:
        topic = f"throttled-{side}"
        await fill(cluster, topic, [1])
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_configs(4, "", [("set", f"{side}.replication.throttled.rate", str(RATE))])
            await admin.alter_configs(2, topic, [("set", f"{side}.replication.throttled.replicas", "*")])
            started = time.monotonic()
            assert await reassign(cluster, topic, [2]) is ErrorCode.NONE
            assert await going_on(cluster) == [topic]
            while await going_on(cluster):
                await asyncio.sleep(0.02)
            took_s = time.monotonic() - started
            await admin.alter_configs(4, "", [("delete", f"{side}.replication.throttled.rate", None)])
        async with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([(topic, 0)])
            count = 0
            while count < RECORDS:
                records = await consumer.poll(5000)
                assert records
                count += len(records)
        return took_s

    took_s = asyncio.run(story())
    assert partition_of(cluster, f"throttled-{side}").replica_nodes == [2]
    # A second's worth may go at once, and one answer beyond it.
    assert took_s > (RECORDS * len(VALUE) - 2.2 * RATE) / RATE


def test_a_reassignment_is_cancelled(cluster: ProcessCluster) -> None:
    async def story() -> None:
        await fill(cluster, "cancelled", [1])
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_configs(4, "", [("set", "follower.replication.throttled.rate", "1000")])
            await admin.alter_configs(2, "cancelled", [("set", "follower.replication.throttled.replicas", "0:3")])
            assert await reassign(cluster, "cancelled", [3]) is ErrorCode.NONE
            assert await going_on(cluster) == ["cancelled"]
            assert await reassign(cluster, "cancelled", None) is ErrorCode.NONE
            assert await going_on(cluster) == []
            assert await reassign(cluster, "cancelled", None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            await admin.alter_configs(4, "", [("delete", "follower.replication.throttled.rate", None)])

    asyncio.run(story())
    assert partition_of(cluster, "cancelled").replica_nodes == [1]


@pytest.mark.java
def test_kafkas_tools_reassign_elect_and_unregister(cluster: ProcessCluster, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    asyncio.run(fill(cluster, "tool", [1, 2]))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "tool", "partition": 0, "replicas": [3, 2]}]}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    started = run_tool(tool, *server, "--execute", "--reassignment-json-file", str(plan), "--throttle", "2000000")
    assert "Successfully started partition reassignment for tool-0" in started
    assert "The inter-broker throttle limit was set to 2000000 B/s" in started
    cluster.wait_for(lambda: partition_of(cluster, "tool").replica_nodes == [3, 2], "the reassignment")
    verified = run_tool(tool, *server, "--verify", "--reassignment-json-file", str(plan))
    assert "Reassignment of partition tool-0 is completed." in verified
    assert "Clearing broker-level throttles" in verified
    assert "Clearing topic-level throttles on topic tool" in verified
    assert partition_of(cluster, "tool").leader_id == 3
    cluster.kill(3)
    cluster.wait_for(lambda: partition_of(cluster, "tool").leader_id == 2, "another leader")
    cluster.restart(3)
    cluster.wait_for(lambda: set(partition_of(cluster, "tool").isr_nodes) == {2, 3}, "the broker to catch up")
    elected = run_tool(
        "org.apache.kafka.tools.LeaderElectionCommand", *server, "--election-type", "preferred", "--topic", "tool", "--partition", "0"
    )
    assert "Successfully completed leader election (PREFERRED) for partitions tool-0" in elected
    assert partition_of(cluster, "tool").leader_id == 3
    cluster.kill(3)
    cluster.wait_for(lambda: partition_of(cluster, "tool").isr_nodes == [2], "the dead broker to leave")
    cluster.wait_for(lambda: len(cluster.metadata([]).brokers) == 2, "the dead broker to be forgotten by clients")
    run_tool("org.apache.kafka.tools.ClusterTool", "unregister", *server, "--id", "3")
    cluster.restart(3)
    cluster.wait_for(lambda: set(partition_of(cluster, "tool").isr_nodes) == {2, 3}, "the broker to come back as a new one")
