"""aiokafka against embedded brokers."""

import asyncio

import aiokafka

from minikafka.testing import EmbeddedCluster


async def exchange(bootstrap, topic, group):
    """Write two records and read them as a member of a group."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in (b"one", b"two"):
            await producer.send_and_wait(topic, value)
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(2)]
    finally:
        await consumer.stop()


def test_with_the_fixtures(kafka, kafka_topic):
    assert asyncio.run(exchange(kafka.bootstrap_servers, kafka_topic, kafka.group())) == [b"one", b"two"]


def test_a_cluster_of_ones_own():
    async def story():
        async with EmbeddedCluster(3, topics=["events"]) as cluster:
            values = await exchange(cluster.bootstrap_servers, "events", "readers")
            await cluster.aio.wait_healthy()
            return values, await cluster.aio.topics()

    assert asyncio.run(story()) == ([b"one", b"two"], ["events"])
