"""Kafka Connect in distributed mode and MirrorMaker 2, from Maven: internal topics, sources exactly once, REST, both directions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from helpers.apache_kafka import KafkaBroker, free_ports, wait_until
from helpers.java_programs import CONNECT, JavaProgram, ask, properties

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(290)]
LINES = 1000
EVERY_SECOND = ("refresh.topics", "refresh.groups", "emit.heartbeats", "emit.checkpoints", "sync.topic.configs", "sync.group.offsets")
ONE_REPLICA = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage", "config.storage")


def values(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of a topic to its end, without what was aborted."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_committed",
                         "enable.partition.eof": True, "auto.offset.reset": "earliest"})  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
        found, ended = [], set()
        while len(ended) < len(partitions):
            message = consumer.poll(20)
            assert message is not None
            if message.error():
                ended.add(message.partition())
            else:
                found.append((message.key(), message.value()))
        return found
    finally:
        consumer.close()


def create(bootstrap: str, topic: str, partitions: int, replicas: int, **config: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, partitions, replicas, config=config)]).values()
    made.result(30)


def write(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    written = [(b"k%d" % (number % 7), b"%s-%d" % (topic.encode(), number)) for number in range(count)]
    for key, value in written:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0
    return written


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> int:
    """Sum of a group's committed offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return sum(max(one.offset, 0) for one in consumer.committed([TopicPartition(topic, n) for n in range(partitions)], 20))
    finally:
        consumer.close()


def words(path: Path) -> Counter[str]:
    """Of a file that may not be there yet."""
    return Counter(path.read_text().split()) if path.exists() else Counter()


def test_files_through_connect_exactly_once_while_worker_and_broker_die(tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line-{number}" for number in range(2 * LINES)]
    source.write_text("".join(f"{line}\n" for line in lines[:LINES]))
    [port] = free_ports(1)
    text = "org.apache.kafka.connect.storage.StringConverter"
    with ProcessCluster() as cluster:
        create(cluster.bootstrap, "lines", 1, 3)
        worker = JavaProgram("kafka-connect", CONNECT, "org.apache.kafka.connect.cli.ConnectDistributed", tmp_path / "worker.txt")
        settings = properties(tmp_path / "worker.properties", {
            "bootstrap.servers": cluster.bootstrap, "group.id": "connect", "key.converter": text, "value.converter": text,
            "offset.storage.topic": "connect-offsets", "config.storage.topic": "connect-configs", "status.storage.topic": "connect-status",
            "listeners": f"http://127.0.0.1:{port}", "offset.flush.interval.ms": "500", "exactly.once.source.support": "enabled",
            "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000", "scheduled.rebalance.max.delay.ms": "0",
        })  # fmt: skip
        rest = f"http://127.0.0.1:{port}/connectors"

        def runs(name: str) -> bool:
            status = ask(f"{rest}/{name}/status")
            return [one["state"] for one in (status["connector"], *status["tasks"])] == ["RUNNING", "RUNNING"]

        with worker.running(settings):
            wait_until(lambda: worker.answers(rest), 90, "the worker's REST interface")
            ask(rest, "POST", {"name": "from-file", "config": {
                "connector.class": "FileStreamSource", "file": str(source), "topic": "lines", "tasks.max": "1",
                "exactly.once.support": "required", "transaction.boundary": "poll",
            }})  # fmt: skip
            ask(rest, "POST", {"name": "to-file", "config": {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"}})
            wait_until(lambda: set(lines[:LINES]) <= set(words(sink)), 60, "the first half")
            worker.kill()
        with source.open("a") as more:
            more.writelines(f"{line}\n" for line in lines[LINES:])
        cluster.kill(2)
        cluster.spawn(2)
        with worker.running(settings):
            wait_until(lambda: worker.answers(rest), 90, "the worker's REST interface")
            wait_until(lambda: set(lines) <= set(words(sink)), 90, "the second half")
            assert Counter(value.decode() for _, value in values(cluster.bootstrap, "lines") if value) == Counter(lines)
            wait_until(lambda: runs("from-file") and runs("to-file"), 30, "both to run")
            [place] = ask(f"{rest}/from-file/offsets")["offsets"]
            assert place["offset"]["position"] == source.stat().st_size
            ask(f"{rest}/to-file/stop", "PUT")
            wait_until(lambda: ask(f"{rest}/to-file/status")["connector"]["state"] == "STOPPED", 30, "the stop")
            wait_until(lambda: not ask(f"{rest}/to-file/status")["tasks"], 30, "the end of its task")
            assert "reset successfully" in ask(f"{rest}/to-file/offsets", "DELETE")["message"]
            before = words(sink)
            ask(f"{rest}/to-file/resume", "PUT")
            wait_until(lambda: all(words(sink)[line] == before[line] + 1 for line in lines), 60, "everything once more")


def test_mirror_maker_both_ways_with_groups(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka = KafkaBroker(tmp_path / "kafka", {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"})
    kafka.format()
    with ProcessCluster() as cluster, kafka.running():
        create(cluster.bootstrap, "orders", 3, 3, **{"retention.ms": "86400123"})
        create(kafka.bootstrap, "paid", 2, 1)
        orders, paid = write(cluster.bootstrap, "orders", 3000), write(kafka.bootstrap, "paid", 2000)
        shop = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "shop"})
        _, end = shop.get_watermark_offsets(TopicPartition("orders", 0), 10)
        shop.commit(offsets=[TopicPartition("orders", 0, end)], asynchronous=False)
        shop.close()
        mirror = JavaProgram("kafka-connect", CONNECT, "org.apache.kafka.connect.mirror.MirrorMaker", tmp_path / "mirror.txt")
        settings = properties(tmp_path / "mirror.properties", {
            "clusters": "ours, kafka", "ours.bootstrap.servers": cluster.bootstrap, "kafka.bootstrap.servers": kafka.bootstrap,
            "ours->kafka.enabled": "true", "ours->kafka.topics": "orders", "kafka->ours.enabled": "true", "kafka->ours.topics": "paid",
            "kafka.exactly.once.source.support": "enabled", "ours.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true", "listeners": "http://127.0.0.1:0",
            "sync.group.offsets.enabled": "true", "sync.topic.acls.enabled": "false", "replication.factor": "1",
            "offset.flush.interval.ms": "1000", **{f"{name}.interval.seconds": "1" for name in EVERY_SECOND},
            **{f"{name}.replication.factor": "1" for name in ONE_REPLICA},
        })  # fmt: skip
        with mirror.running(settings):
            for bootstrap, topic, wanted in ((kafka.bootstrap, "ours.orders", orders), (cluster.bootstrap, "kafka.paid", paid)):
                wait_until(lambda: topic in topics(bootstrap), 90, topic)  # noqa: B023
                wait_until(lambda: len(values(bootstrap, topic)) >= len(wanted), 60, f"all of {topic}")  # noqa: B023
                assert Counter(values(bootstrap, topic)) == Counter(wanted)
            more = write(cluster.bootstrap, "orders", 300)
            wait_until(lambda: len(values(kafka.bootstrap, "ours.orders")) >= len(orders) + len(more), 60, "later records")
            wait_until(lambda: committed(kafka.bootstrap, "shop", "ours.orders", 3) > 0, 60, "the group's offset, translated")
            wait_until(lambda: retention(kafka.bootstrap, "ours.orders") == "86400123", 30, "the topic's configuration")
        assert "ERROR" not in mirror.output(), [line for line in mirror.output().splitlines() if "ERROR" in line][:5]


def topics(bootstrap: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics)


def retention(bootstrap: str, topic: str) -> str | None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return future.result(20)["retention.ms"].value
