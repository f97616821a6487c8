"""What is wrong with acknowledgements of a share group is found in the same order by Apache Kafka 4.4 and by minikafka. Drawn sequences
seldom hold a session with records in flight."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from differential.run import brokers
from helpers import apache_kafka

from minikafka.addresses import split_host_port
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.record import Record

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
GROUP, MEMBER, OTHER = "sharers", "a" * 22, "b" * 22
GAP, ACCEPT, RELEASE, RENEW, UNKNOWN = 0, 1, 2, 4, 9
#: Batches of ten.
RECORDS, BATCH = 40, 10
#: Partition -> (first offset, last offset, types) of each batch. Partition 0 has the records, 1 none, and 7 does not exist.
STEPS: tuple[dict[int, list[tuple[int, int, list[int]]]], ...] = (
    {1: [(0, 0, [ACCEPT])]},
    {7: [(0, 0, [ACCEPT])]},
    {7: [(1, 0, [ACCEPT])], 1: [(1, 0, [ACCEPT])]},
    {7: [(0, 0, [])], 0: [(0, 0, [])]},
    {7: [(0, 0, [UNKNOWN])], 0: [(0, 0, [UNKNOWN])]},
    {7: [], 0: []},
    {7: [], 1: [], 0: [(0, 0, [RELEASE])]},
    {0: [(0, 1, [RENEW])]},
    {0: [(0, 2, [ACCEPT, ACCEPT])]},
    {0: [(5, 6, [ACCEPT]), (3, 4, [ACCEPT])]},
    {0: [(5, 6, [ACCEPT]), (6, 7, [ACCEPT])]},
    {0: [(RECORDS, RECORDS, [ACCEPT])]},
    {0: [(RECORDS - 1, RECORDS, [ACCEPT])]},
    {0: [(2, 3, [ACCEPT])]},
    {0: [(2, 2, [ACCEPT])]},
    {0: [(0, 4, [ACCEPT])]},
    {0: [(0, 1, [ACCEPT])]},
    {0: [(0, 1, [ACCEPT]), (50, 60, [ACCEPT])]},
    {0: [(1, 4, [RELEASE])]},
    {0: [(4, RECORDS - 1, [GAP])]},
    {0: [(5, RECORDS - 1, [ACCEPT])]},
    {0: [(RECORDS, RECORDS, [ACCEPT])]},
)


class Sharer:
    """A member of the group with one session."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.topic_id = b""
        self.epoch = 0

    async def ask(self, request: Any) -> Any:
        return await self._channel.request(request)

    async def until(self, request: Any, is_done: Any) -> Any:
        """Ask again until the answer is as it should be."""
        while not is_done(answer := await self.ask(request)):
            await asyncio.sleep(0.05)
        return answer

    async def prepare(self) -> None:
        """A topic, its records, and a group that has them."""
        topic = CreateTopicsRequest.CreatableTopic(name="shared", num_partitions=2, replication_factor=1)
        self.topic_id = (await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics[0].topic_id
        config = IncrementalAlterConfigsRequest.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        group = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[config])
        await self.ask(IncrementalAlterConfigsRequest(resources=[group]))
        for _ in range(RECORDS // BATCH):
            records = bytes(build_batch([Record(number, 1, None, b"x", ()) for number in range(BATCH)]))
            data = ProduceRequest.PartitionProduceData(index=0, records=records)
            topics = [ProduceRequest.TopicProduceData(topic_id=self.topic_id, partition_data=[data])]
            request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
            await self.until(request, lambda answer: answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE)
        await self.until(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), lambda answer: not answer.coordinators[0].error_code)
        beat = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=MEMBER, member_epoch=0, subscribed_topic_names=["shared"])
        await self.until(beat, lambda answer: answer.assignment is not None and answer.assignment.topic_partitions)

    async def fetch(self, member: str = MEMBER) -> Any:
        kind = ShareFetchRequest
        partitions = [kind.FetchPartition(partition_index=index, acknowledgement_batches=[]) for index in (0, 1)]
        request = kind(
            group_id=GROUP, member_id=member, share_session_epoch=self.epoch, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
            max_records=500, batch_size=500, topics=[kind.FetchTopic(topic_id=self.topic_id, partitions=partitions)],
            forgotten_topics_data=[],
        )  # fmt: skip
        answer = await self.ask(request)
        self.epoch += answer.error_code == ErrorCode.NONE
        return answer

    async def acknowledge(self, wanted: dict[int, list[tuple[int, int, list[int]]]], member: str = MEMBER, epoch: int | None = None) -> Any:
        """The error of the whole, and that of each partition."""
        kind = ShareAcknowledgeRequest
        partitions = []
        for index, batches in wanted.items():
            made = [
                kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types) for first, last, types in batches
            ]
            partitions.append(kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=made))
        topics = [kind.AcknowledgeTopic(topic_id=self.topic_id, partitions=partitions)]
        asked = self.epoch if epoch is None else epoch
        answer = await self.ask(kind(group_id=GROUP, member_id=member, share_session_epoch=asked, topics=topics))
        self.epoch += epoch is None and answer.error_code == ErrorCode.NONE
        found = {data.partition_index: data.error_code for topic in answer.responses for data in topic.partitions}
        return ErrorCode(answer.error_code).name, {index: ErrorCode(code).name for index, code in sorted(found.items())}


async def told(address: str) -> list[Any]:
    """What one broker answers."""
    host, port = split_host_port(address)
    channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), host, port, client_id="test")
    sharer = Sharer(channel)
    await sharer.prepare()
    heard = [await sharer.acknowledge(STEPS[0], epoch=epoch) for epoch in (0, 1, -1)]
    heard.append(await sharer.acknowledge(STEPS[2], member="x" * 37, epoch=0))
    acquired = 0
    while acquired < RECORDS:
        answer = await sharer.fetch()
        assert answer.error_code == ErrorCode.NONE, answer
        runs = [run for topic in answer.responses for data in topic.partitions for run in data.acquired_records]
        acquired += sum(run.last_offset - run.first_offset + 1 for run in runs)
    heard.append(await sharer.acknowledge(STEPS[2], epoch=99))
    heard += [(step, await sharer.acknowledge(step)) for step in STEPS]
    channel.close()
    return heard


async def test_what_is_wrong_with_acknowledgements_is_found_in_the_same_order(tmp_path: Path) -> None:
    with brokers(tmp_path, apache_kafka.NEXT) as (kafka, ours):
        differing = [pair for pair in zip(await told(ours), await told(kafka), strict=True) if pair[0] != pair[1]]
        assert differing == []
