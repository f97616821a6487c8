"""__consumer_offsets between the kinds: compacted by one, led by the other, with records of a protocol that only one of them speaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from helpers.apache_kafka import run_tool
from helpers.ledger import audit, create_topic, silent
from helpers.mixed_cluster import BROKER, CONTROLLER, KAFKA, MINI, MixedCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(180)]
RECORDS = 1000
#: Segments roll at 1 MiB, and are compacted at once.
COMPACTION = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "300",
}


def test_offsets_survive_compaction_and_moves_of_the_coordinator(tmp_path: Path) -> None:
    nodes = [(1, KAFKA, CONTROLLER), (2, KAFKA, BROKER), (3, MINI, BROKER)]
    with MixedCluster(tmp_path, nodes, properties=COMPACTION) as cluster:
        cluster.format()
        cluster.start(1, 2)
        create_topic(cluster.bootstrap, "t", 2, 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "error_cb": silent, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(20) == 0
        read_and_commit(cluster, "modern", protocol="consumer")
        commit_often(cluster, "classic")
        offsets = cluster.nodes[2].data / "__consumer_offsets-0"
        cluster.wait_for(lambda: (offsets / "00000000000000000000.log").stat().st_size < 500_000, "the compaction of __consumer_offsets")
        cluster.start(3)
        reassign(cluster, tmp_path / "both.json", "__consumer_offsets:0", "t:0", "t:1")
        for topic in ("__consumer_offsets", "t"):
            cluster.wait_for_isr(topic, {2, 3})
        expected = {"classic": {0: 123, 1: 321}, "modern": {0: RECORDS // 2, 1: RECORDS // 2}}
        assert {group: committed(cluster, group) for group in expected} == expected
        cluster.kill(2)
        cluster.wait_for_isr("__consumer_offsets", {3})
        assert {group: committed(cluster, group) for group in expected} == expected
        assert read_and_commit(cluster, "classic") == RECORDS - 123 - 321
        expected["classic"] = expected["modern"]
        cluster.start(2)
        cluster.wait_for_isr("__consumer_offsets", {2, 3})
        cluster.kill(3)
        cluster.wait_for_isr("__consumer_offsets", {2})
        assert {group: committed(cluster, group) for group in expected} == expected
        cluster.start(3)
        for topic in ("__consumer_offsets", "t"):
            cluster.wait_for_isr(topic, {2, 3})
        cluster.check_errors()
        for node_id in (3, 2, 1):
            cluster.stop(node_id)
        audit([cluster.nodes[2].data, cluster.nodes[3].data])


def consumer(cluster: MixedCluster, group: str, protocol: str = "classic") -> Consumer:
    return Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
         "group.protocol": protocol, "error_cb": silent, "log_level": 0, "reconnect.backoff.max.ms": 500}
    )  # fmt: skip


def read_and_commit(cluster: MixedCluster, group: str, protocol: str = "classic") -> int:
    """Read to the end as a member and commit; how many records."""
    member = consumer(cluster, group, protocol)
    member.subscribe(["t"])
    count = 0

    def is_at_end() -> bool:
        nonlocal count
        messages = [message for message in member.consume(500, 0.2) if message.error() is None]
        count += len(messages)
        if messages:
            member.commit(asynchronous=False)
        places = member.position(member.assignment())
        return len(places) == 2 and all(place.offset == RECORDS // 2 for place in places)

    cluster.wait_for(is_at_end, f"{group} to read everything")
    member.close()
    return count


def commit_often(cluster: MixedCluster, group: str) -> None:
    """20,000 commits fill a segment; the last ones are 123 and 321."""
    member = consumer(cluster, group)
    for number in range(20_000):
        member.commit(offsets=[TopicPartition("t", index, number % 500) for index in (0, 1)], asynchronous=number % 1000 > 0)
    member.commit(offsets=[TopicPartition("t", 0, 123), TopicPartition("t", 1, 321)], asynchronous=False)
    member.close()


def committed(cluster: MixedCluster, group: str) -> dict[int, int]:
    member = consumer(cluster, group)
    found = member.committed([TopicPartition("t", index) for index in (0, 1)], timeout=20)
    member.close()
    return {place.partition: place.offset for place in found}


def reassign(cluster: MixedCluster, path: Path, *places: str) -> None:
    """Give every partition of `places` (topic:partition) the replicas 3 and 2."""
    named = [place.split(":") for place in places]
    partitions = [{"topic": topic, "partition": int(partition), "replicas": [3, 2]} for topic, partition in named]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    run_tool(tool, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path), "--execute")
