"""The bundled consumer of share groups when answers are lost or batches are corrupt."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import pytest

from minikafka.client.admin import Admin
from minikafka.client.group import find_coordinator
from minikafka.client.share_consumer import ACCEPT, GAP, REJECT, Acknowledged, ShareConsumer, _Session
from minikafka.core.share.state_batches import BATCHES_AT_ONCE
from minikafka.testing import EmbeddedCluster
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import CorruptRecord, ErrorCode
from minikafka.wire.messages.share_fetch import ShareFetchResponse
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest

GROUP_RESOURCE = 32
TOPIC_ID = bytes(range(16))
#: The most records of a partition that a group may hold (group.share.max.partition.max.record.locks).
LOCKS_MAX = 10_000


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


@pytest.mark.timeout(120)
def test_every_second_of_as_many_records_as_may_be_locked_is_accepted() -> None:
    """The leader of one partition is not the share coordinator, which closed the connection: the state had a range for each record. The
    records were delivered again."""
    locks = dict.fromkeys(("group.share.max.partition.max.record.locks", "group.share.partition.max.record.locks"), LOCKS_MAX)
    config = {**locks, "share.coordinator.state.topic.num.partitions": 1}
    with EmbeddedCluster(2, topics={"t": 2}, config=config) as cluster:
        producer = confluent_kafka.Producer(cluster.client_config("confluent", **{"queue.buffering.max.messages": 3 * LOCKS_MAX}))
        for number in range(2 * LOCKS_MAX):
            producer.produce("t", value=b"x", partition=number % 2)
        assert producer.flush(30) == 0
        assert {cluster.leader("t", 0), cluster.leader("t", 1)} == {1, 2}
        results: list[Acknowledged] = []

        async def story() -> None:
            async with Admin(cluster.bootstrap_servers) as admin:
                await admin.alter_configs(GROUP_RESOURCE, "g", [("set", "share.auto.offset.reset", "earliest")])
            async with ShareConsumer(cluster.bootstrap_servers, "g", on_acknowledged=results.extend) as consumer:
                await consumer.subscribe(["t"])
                records = []
                while len(records) < 2 * LOCKS_MAX:
                    records += await consumer.poll(100, 2 * LOCKS_MAX)
                for record in records:
                    consumer.acknowledge(record, (ACCEPT, REJECT)[record.offset % 2])
                await consumer.commit()

        asyncio.run(story())
        assert [one.code for one in results] == [ErrorCode.NONE, ErrorCode.NONE]
        assert sum(len(one.offsets) for one in results) == 2 * LOCKS_MAX > BATCHES_AT_ONCE


async def test_a_batch_with_flipped_bits_is_rejected_and_reported() -> None:
    """Its records were delivered, and offsets that a flipped bit had moved elsewhere were acknowledged as gaps."""
    kind = ShareFetchResponse
    batches = [bytearray(build_batch([(n, 1, None, b"value", ()) for n in range(2)], base_offset=base)) for base in (0, 2, 4)]
    batches[1][-3] ^= 1
    acquired = [kind.AcquiredRecords(first_offset=0, last_offset=6, delivery_count=1)]
    data = kind.PartitionData(partition_index=3, records=b"".join(batches), acquired_records=acquired)
    consumer, session = ShareConsumer("localhost:9", "g"), _Session()
    consumer._names[TOPIC_ID] = "t"
    assert [record.offset for record in await consumer._records(session, TOPIC_ID, data)] == [0, 1, 4, 5]
    assert session.acknowledged == {(TOPIC_ID, 3): [(2, REJECT), (3, REJECT), (6, GAP)]}
    with pytest.raises(CorruptRecord, match=r"t-3, offsets 2 to 3: .* fails its checksum"):
        await consumer.poll(0)
