"""The bundled consumer of share groups when answers are lost."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka

from minikafka.client.admin import Admin
from minikafka.client.group import find_coordinator
from minikafka.client.share_consumer import ShareConsumer
from minikafka.testing import EmbeddedCluster
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest

GROUP_RESOURCE = 32


async def has_assignment(consumer: ShareConsumer) -> bool:
    """Whether the coordinator has given partitions to the group's member."""
    coordinator = await find_coordinator(consumer._cluster, "g", 10_000)
    channel = await consumer._cluster.channel_to(coordinator.node_id, "describing")
    answer: Any = await channel.request(ShareGroupDescribeRequest(group_ids=["g"]), None, 10_000)
    return any(member.assignment.topic_partitions for member in answer.groups[0].members)


def test_an_assignment_whose_answer_is_lost_is_told_again() -> None:
    """Seed 7010933: the coordinator had told it, and the member read nothing for ever."""
    with EmbeddedCluster(1, topics=["t"]) as cluster:
        producer = confluent_kafka.Producer(cluster.client_config("confluent"))
        producer.produce("t", value=b"x")
        assert producer.flush(10) == 0

        async def story() -> list[bytes | None]:
            async with Admin(cluster.bootstrap_servers) as admin:
                await admin.alter_configs(GROUP_RESOURCE, "g", [("set", "share.auto.offset.reset", "earliest")])
            async with ShareConsumer(cluster.bootstrap_servers, "g") as consumer:
                await consumer.subscribe(["t"])
                with cluster.fault("ShareGroupHeartbeat", action="disconnect", after_work=True, count=0) as fault:
                    while not fault.hits or not await has_assignment(consumer):
                        await consumer.poll(50)
                    answered = fault.hits
                    while fault.hits < answered + 2:
                        await consumer.poll(50)
                found: list[bytes | None] = []
                while not found:
                    found = [record.value for record in await consumer.poll(200)]
                return found

        assert asyncio.run(asyncio.wait_for(story(), 30)) == [b"x"]
