"""Elections that lose records on purpose, and those that bring leaders home, with clients that see it happen.

    pytest tests/system -m long        # about a minute
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from helpers.apache_kafka import run_tool
from helpers.shell import minikafka

from minikafka.client.admin import Admin
from minikafka.client.maintenance import Maintenance
from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.probe import exchange
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.metadata import MetadataResponse
from minikafka.wire.messages.produce import ProduceRequest

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]


def partition_of(cluster: ProcessCluster, topic: str, index: int = 0) -> MetadataResponse.MetadataResponsePartition:
    return next(p for p in cluster.metadata([topic]).topics[0].partitions if p.partition_index == index)


def create(cluster: ProcessCluster, topic: str, assignments: dict[int, list[int]], **configs: str) -> None:
    async def work() -> None:
        async with Admin(cluster.bootstrap) as admin:
            named = {name.replace("_", "."): value for name, value in configs.items()}
            await admin.create_topic(topic, assignments=assignments, configs=named)

    asyncio.run(work())


def write(cluster: ProcessCluster, topic: str, values: list[str], acks: str = "all") -> list[int]:
    """The offsets that librdkafka was told."""
    offsets: list[int] = []

    def reported(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "enable.idempotence": False})
    for value in values:
        producer.produce(topic, value.encode(), partition=0, on_delivery=reported)
    assert producer.flush(30) == 0
    return offsets


def read(cluster: ProcessCluster, topic: str, count: int) -> list[str]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        found.append(message.value().decode())
    assert consumer.poll(0.3) is None, "nothing else is there"
    consumer.close()
    return found


def in_sync(cluster: ProcessCluster, topic: str, brokers: set[int]) -> None:
    cluster.wait_for(lambda: set(partition_of(cluster, topic).isr_nodes) == brokers, f"{topic} to be in sync on {brokers}")


def elect(cluster: ProcessCluster, tool: str, topic: str) -> str:
    arguments = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    if tool == "java":
        return run_tool("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", cluster.bootstrap, *arguments)
    done = minikafka("leader-election", "-b", cluster.bootstrap, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "by",
    ["operator", pytest.param("java", marks=pytest.mark.java), "configuration"],
)
def test_an_unclean_leader_and_the_truncation_of_the_old_one(by: str, tmp_path: Path) -> None:
    """The last in-sync replica dies with records that the other never had. Whoever asks for it gets the other as leader; the dead one
    comes back, is cut to what that leader has, and follows."""
    with ProcessCluster(3, directory=tmp_path / "c", controllers=1) as cluster:
        create(cluster, "t", {0: [2, 3]}, min_insync_replicas="1", unclean_leader_election_enable="false")
        assert write(cluster, "t", [f"both-{n}" for n in range(10)]) == list(range(10))
        cluster.kill(3)
        in_sync(cluster, "t", {2})
        assert write(cluster, "t", [f"lost-{n}" for n in range(20)]) == list(range(10, 30))
        cluster.kill(2)
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == -1, "nobody to lead")
        cluster.restart(3)
        before = partition_of(cluster, "t")
        assert before.leader_id == -1, "a replica that is not in sync does not lead by itself"
        if by == "configuration":
            # It holds from the next election on: the broker comes once more.
            done = minikafka(
                "configs", "-b", cluster.bootstrap, "--alter", "--entity-type", "topics", "--entity-name", "t",
                "--add-config", "unclean.leader.election.enable=true",
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            cluster.kill(3)
            cluster.restart(3)
        else:
            assert "Successfully completed leader election" in elect(cluster, by, "t")
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == 3, "the other replica to lead")
        after = partition_of(cluster, "t")
        assert after.leader_epoch > before.leader_epoch and after.isr_nodes == [3]
        assert write(cluster, "t", [f"after-{n}" for n in range(5)]) == list(range(10, 15))
        cluster.restart(2)
        in_sync(cluster, "t", {2, 3})
        assert "truncated from 30 to 10" in cluster.nodes[2].output_path.read_text()
        assert write(cluster, "t", ["last"]) == [15]
        expected = [f"both-{n}" for n in range(10)] + [f"after-{n}" for n in range(5)] + ["last"]
        assert read(cluster, "t", 16) == expected
        # The one that was cut leads, with the same records.
        cluster.kill(3)
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == 2, "the old leader to lead again")
        assert read(cluster, "t", 16) == expected
        cluster.restart(3)
        in_sync(cluster, "t", {2, 3})
        directories = [str(node.log_dir) for node in cluster.nodes.values()]
        assert [cluster.terminate(node_id) for node_id in (3, 2, 1)] == [0, 0, 0]
    done = minikafka("audit", *directories, "--level", "records", "--engine", "local")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_balancer_brings_leaders_home() -> None:
    """auto.leader.rebalance.enable: nobody asks, and a broker that came back leads what it should."""
    balanced = {"leader.imbalance.check.interval.seconds": "1", "leader.imbalance.per.broker.percentage": "10"}
    with ProcessCluster(3, controllers=1, properties=balanced) as cluster:
        create(cluster, "t", {index: [2, 3] if index % 2 else [3, 2] for index in range(6)})

        def leaders() -> list[int]:
            return [partition_of(cluster, "t", index).leader_id for index in range(6)]

        assert leaders() == [3, 2] * 3
        for kind in ("kill", "stop"):
            if kind == "kill":
                cluster.kill(2)
            else:
                assert cluster.terminate(2) == 0
            cluster.wait_for(lambda: leaders() == [3] * 6, "the other broker to lead everything")
            cluster.restart(2)
            cluster.wait_for(lambda: leaders() == [3, 2] * 3, "the leaders to be where they belong")
    with ProcessCluster(3, controllers=1, properties={**balanced, "auto.leader.rebalance.enable": "false"}) as cluster:
        create(cluster, "t", {0: [2, 3]})
        cluster.kill(2)
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == 3, "another leader")
        cluster.restart(2)
        in_sync(cluster, "t", {2, 3})
        assert partition_of(cluster, "t").leader_id == 3
        done = minikafka("leader-election", "-b", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
        assert done.returncode == 0, done.stderr
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == 2, "an operator's word")


def list_latest(cluster: ProcessCluster, node_id: int, version: int, epoch: int = -1) -> tuple[ErrorCode, int]:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    answer: Any = exchange("127.0.0.1", cluster.nodes[node_id].port, ListOffsetsRequest(replica_id=-1, topics=[topic]), version)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset


def test_a_new_leader_does_not_tell_an_end_that_it_does_not_know_yet() -> None:
    """KIP-207: its high watermark may be behind what the dead leader told; until it has caught up, the latest offset is not available."""
    with ProcessCluster(4, controllers=1, dedicated=True) as cluster:
        create(cluster, "t", {0: [2, 3, 4]}, min_insync_replicas="2")
        write(cluster, "t", [f"{n}" for n in range(10)])
        cluster.wait_for(lambda: list_latest(cluster, 2, 9) == (ErrorCode.NONE, 10), "the leader's end")
        # The third fetches no more: what the leader and the second have beyond is not committed.
        cluster.pause(4)
        assert write(cluster, "t", ["uncommitted"], acks="1") == [10]
        cluster.kill(2)
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == 3, "the second to lead")
        epoch = partition_of(cluster, "t").leader_epoch
        assert list_latest(cluster, 3, 9, epoch) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert list_latest(cluster, 3, 4, epoch)[0] is ErrorCode.LEADER_NOT_AVAILABLE
        cluster.resume(4)
        cluster.wait_for(lambda: list_latest(cluster, 3, 9) == (ErrorCode.NONE, 11), "the third to fetch what was not committed")
        assert read(cluster, "t", 11)[-1] == "uncommitted"
        cluster.restart(2)
        in_sync(cluster, "t", {2, 3, 4})


def test_acks_all_waits_for_a_silent_replica_until_it_is_out_of_sync() -> None:
    """A parked produce is answered when the in-sync set has shrunk to replicas that have the record. Where too few are left, the high
    watermark stands still (KIP-966), and the produce waits for its own timeout."""
    with ProcessCluster(4, controllers=1, dedicated=True) as cluster:
        create(cluster, "two", {0: [2, 3, 4]}, min_insync_replicas="2")
        create(cluster, "three", {0: [2, 3, 4]}, min_insync_replicas="3")
        write(cluster, "two", ["before"])
        write(cluster, "three", ["before"])
        cluster.pause(4)
        results: dict[str, Any] = {}
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0, "linger.ms": 0, "request.timeout.ms": 4000}
        )
        for topic in ("two", "three"):
            reported = lambda error, message: results.__setitem__(message.topic(), None if error is None else error.name())  # noqa: E731
            producer.produce(topic, b"during", partition=0, on_delivery=reported)
        assert producer.poll(0.4) == 0 and results == {}, "both wait"
        cluster.wait_for(lambda: (producer.poll(0.05), "two" in results)[1], "an answer without the silent one")
        assert "three" not in results
        producer.flush(10)
        assert results == {"two": None, "three": "REQUEST_TIMED_OUT"}
        assert set(partition_of(cluster, "two").isr_nodes) == {2, 3}
        producer.produce("three", b"refused", partition=0, on_delivery=reported)
        results.clear()
        producer.flush(10)
        assert results == {"three": "NOT_ENOUGH_REPLICAS"}
        cluster.resume(4)
        for topic in ("two", "three"):
            in_sync(cluster, topic, {2, 3, 4})
        assert read(cluster, "two", 2) == ["before", "during"]
        assert read(cluster, "three", 2) == ["before", "during"], "what was refused before it was appended is not there"


def test_a_client_of_the_wrong_broker_learns_the_right_one() -> None:
    """KIP-951: Produce and Fetch name the leader and where it is, and librdkafka takes it from there."""
    with ProcessCluster(3, controllers=1) as cluster:
        create(cluster, "t", {0: [2, 3]})
        (topic,) = cluster.metadata(["t"]).topics
        produce = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[ProduceRequest.PartitionProduceData(records=b"")])],
        )  # fmt: skip
        fetch = FetchRequest(
            max_wait_ms=0, max_bytes=1000,
            topics=[FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=[FetchRequest.FetchPartition(partition_max_bytes=1000)])],
        )  # fmt: skip
        for request, version in ((produce, 11), (fetch, 17)):
            answer: Any = exchange("127.0.0.1", cluster.nodes[1].port, request, version)
            entry = answer.responses[0]
            found = entry.partition_responses[0] if version == 11 else entry.partitions[0]
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, topic.partitions[0].leader_epoch)
            assert [(n.node_id, n.host, n.port) for n in answer.node_endpoints] == [(2, "127.0.0.1", cluster.nodes[2].port)]

        hints: list[str] = []
        log = logging.Logger("librdkafka")
        log.addHandler(handler := logging.Handler())
        handler.emit = lambda record: hints.append(record.getMessage()) if "METADATAUPDATE" in record.getMessage() else None  # type: ignore[method-assign]
        acknowledged: list[int] = []
        settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "debug": "metadata", "topic.metadata.refresh.interval.ms": -1}
        producer = confluent_kafka.Producer(settings, logger=log)

        def send() -> None:
            producer.produce("t", b"x", partition=0, on_delivery=lambda error, message: acknowledged.append(message.offset()))
            producer.flush(10)

        async def transfer() -> None:
            async with Maintenance(cluster.bootstrap) as admin:
                await admin.alter_reassignments({("t", 0): [3, 2]})
                await admin.elect([("t", 0)], unclean=False)

        send()
        assert not hints
        asyncio.run(transfer())
        cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == 3, "another leader")
        send()
        assert acknowledged == [0, 1]
        assert any("leader 3" in line for line in hints), hints


def test_deleted_records_stay_deleted_under_every_leader(tmp_path: Path) -> None:
    """DeleteRecords moves the start of every replica's log, and it stays there over elections and restarts of either kind."""
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 40}]}')
    with ProcessCluster(3, controllers=1) as cluster:
        create(cluster, "t", {0: [2, 3]}, min_insync_replicas="1")
        write(cluster, "t", [f"{n}" for n in range(100)])
        done = minikafka("delete-records", "-b", cluster.bootstrap, "--offset-json-file", str(plan))
        assert done.returncode == 0 and "low_watermark: 40" in done.stdout, done.stdout + done.stderr

        def earliest() -> int:
            done = minikafka("get-offsets", "-b", cluster.bootstrap, "--topic", "t", "--time", "earliest")
            return int(done.stdout.strip().rsplit(":", 1)[1])

        assert earliest() == 40
        for victim, survivor, stop in ((2, 3, cluster.kill), (3, 2, cluster.kill), (2, 3, cluster.terminate)):
            stop(victim)
            cluster.wait_for(lambda: partition_of(cluster, "t").leader_id == survivor, f"{survivor} to lead")  # noqa: B023
            assert earliest() == 40
            cluster.restart(victim)
            in_sync(cluster, "t", {2, 3})
        assert earliest() == 40
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([confluent_kafka.TopicPartition("t", 0, confluent_kafka.OFFSET_BEGINNING)])
        first = consumer.poll(20)
        assert first is not None and first.error() is None and first.offset() == 40
        consumer.close()
