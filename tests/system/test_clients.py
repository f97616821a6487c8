"""Clients that others wrote, as black boxes, against real broker processes: what one of them writes, all of them read. What they bear when
leaders die is in test_failover.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType
from kafka.admin import KafkaAdminClient

from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.wait import LoadAdjustedDeadline

COUNT = 300
DEADLINE_S = 30.0
pytestmark = pytest.mark.timeout(120)


class Got(NamedTuple):
    """One record as a client hands it out."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def records() -> list[Got]:
    rows = [Got(b"key-%d" % (n % 7), b"value-%d" % n * (n % 40), [("n", b"%d" % n), ("n", b"again")]) for n in range(COUNT)]
    return [*rows, Got(None, b"no key", []), Got(b"no value", None, []), Got(b"", b"", [("empty", b"")])]


def produce_confluent(bootstrap: str, topic: str, codec: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "partitioner": "murmur2_random"}
    )
    for record in records():
        producer.produce(topic, record.value, record.key, headers=record.headers, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert len(errors) == len(records()) and not any(errors), errors[:3]


def produce_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", compression_type=None if codec == "none" else codec)
    futures = [producer.send(topic, value=r.value, key=r.key, headers=r.headers) for r in records()]
    producer.flush(DEADLINE_S)
    assert {future.get(DEADLINE_S).topic for future in futures} == {topic}
    producer.close()


def produce_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def run() -> None:
        kind = None if codec == "none" else codec
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=kind) as producer:
            futures = [await producer.send(topic, r.value, key=r.key, headers=r.headers) for r in records()]
            await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)

    asyncio.run(run())


def consume_confluent(bootstrap: str, topic: str, group: str) -> list[Got]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Got] = []
    deadline = LoadAdjustedDeadline(DEADLINE_S)
    while len(found) < len(records()) and not deadline.is_over:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            found.append(Got(message.key(), message.value(), message.headers() or []))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def consume_kafka_python(bootstrap: str, topic: str, group: str) -> list[Got]:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    # It may take what it knew before a metadata update for what it knew after it, and assign itself nothing for good.
    assert consumer.partitions_for_topic(topic)
    found: list[Got] = []
    deadline = LoadAdjustedDeadline(DEADLINE_S)
    while len(found) < len(records()) and not deadline.is_over:
        for batch in consumer.poll(timeout_ms=200).values():
            found += [Got(message.key, message.value, list(message.headers)) for message in batch]
    consumer.commit()
    consumer.close()
    return found


def consume_aiokafka(bootstrap: str, topic: str, group: str) -> list[Got]:
    async def run() -> list[Got]:
        found: list[Got] = []
        settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **settings) as consumer, asyncio.timeout(DEADLINE_S):
            while len(found) < len(records()):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(Got(message.key, message.value, list(message.headers)) for message in batch)
            await consumer.commit()
        return found

    return asyncio.run(run())


PRODUCERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: dict[str, Callable[[str, str, str], list[Got]]] = {
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result(DEADLINE_S)


@pytest.fixture(scope="module", params=[1, 3], ids=["one-broker", "three-brokers"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(request.param, directory=tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_all_clients_read_the_records_of_each_client(cluster: ProcessCluster, producer: str, codec: str) -> None:
    topic = f"{producer}.{codec}"
    create(cluster.bootstrap, topic, 3)
    PRODUCERS[producer](cluster.bootstrap, topic, codec)
    for name, consume in CONSUMERS.items():
        found = consume(cluster.bootstrap, topic, f"{name}-reads-{topic}")
        assert sorted(map(str, found)) == sorted(map(str, records())), f"{name} read {len(found)} of {len(records())}"


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_group_goes_on_where_it_committed(cluster: ProcessCluster, consumer: str) -> None:
    topic, group = f"resumed-by-{consumer}", f"group-of-{consumer}"
    create(cluster.bootstrap, topic, 2)
    produce_confluent(cluster.bootstrap, topic, "none")
    assert len(CONSUMERS[consumer](cluster.bootstrap, topic, group)) == len(records())
    produce_confluent(cluster.bootstrap, topic, "none")
    assert len(CONSUMERS[consumer](cluster.bootstrap, topic, group)) == len(records()), "the second round begins after the first"


def test_administration_by_confluent_kafka(cluster: ProcessCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    brokers = admin.describe_cluster().result(DEADLINE_S)
    assert {node.id for node in brokers.nodes} == set(cluster.nodes)
    assert brokers.cluster_id == cluster.cluster_id
    admin.create_topics([NewTopic("managed", 1, -1, config={"retention.ms": "60000"})])["managed"].result(DEADLINE_S)
    admin.create_partitions([NewPartitions("managed", 4)])["managed"].result(DEADLINE_S)
    resource = ConfigResource(ResourceType.TOPIC, "managed")
    resource.add_incremental_config(ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    asked = ConfigResource(ResourceType.TOPIC, "managed")

    def values() -> dict[str, str]:
        entries = admin.describe_configs([asked])[asked].result(DEADLINE_S)
        return {name: entry.value for name, entry in entries.items()}

    cluster.wait_for(lambda: values()["max.message.bytes"] == "2000", "the new configuration to be known to the broker")
    assert values()["retention.ms"] == "60000"
    cluster.wait_for(lambda: len(admin.list_topics("managed").topics["managed"].partitions) == 4, "four partitions")
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 100_000})
    producer.produce("managed", b"x" * 10_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(DEADLINE_S)
    assert errors[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    admin.delete_topics(["managed"])["managed"].result(DEADLINE_S)
    cluster.wait_for(lambda: "managed" not in admin.list_topics().topics, "the topic to be gone")


def test_administration_by_kafka_python(cluster: ProcessCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    replicas = min(len(cluster.nodes), 3)
    admin.create_topics([kafka.admin.NewTopic("python-managed", 2, replicas, topic_configs={"retention.ms": "60000"})])
    assert "python-managed" in admin.list_topics()
    partitions = admin.describe_topics(["python-managed"])[0]["partitions"]
    assert [len(partition["replica_nodes"]) for partition in partitions] == [replicas] * 2
    produce_kafka_python(cluster.bootstrap, "python-managed", "none")
    assert len(consume_kafka_python(cluster.bootstrap, "python-managed", "python-managers")) == len(records())
    offsets = admin.list_group_offsets("python-managers")
    assert sum(entry.offset for entry in offsets["python-managers"].values()) == len(records())
    assert "python-managers" in {group["group_id"] for group in admin.list_groups()}
    admin.delete_topics(["python-managed"])
    cluster.wait_for(lambda: "python-managed" not in admin.list_topics(), "the topic to be gone")
    admin.close()


def test_administration_by_aiokafka(cluster: ProcessCluster) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([aiokafka.admin.NewTopic("aio-managed", 2, min(len(cluster.nodes), 3))])
            found = await admin.describe_topics(["aio-managed"])
            assert len(found[0]["partitions"]) == 2
            assert {broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]} == set(cluster.nodes)
            await admin.delete_topics(["aio-managed"])
        finally:
            await admin.close()

    asyncio.run(run())
