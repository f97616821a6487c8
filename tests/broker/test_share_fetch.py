"""Share groups of a node, through real frames: join, fetch, acknowledge, hold, release; and what is left after the node has died."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.broker.share.fetch_operation import finder
from minikafka.broker.share.state_host import SHARE_STATE_TOPIC
from minikafka.core.share.state import SharePartitionKey, ShareState, update_record
from minikafka.core.share.state_batches import StateBatch
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from minikafka.wire.record import Record
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2", "group.share.assignment.interval.ms": "0",
    "group.share.max.share.sessions": "2",
}  # fmt: skip
ACCEPT, RELEASE = 1, 2


class Member:
    """One connection, one member of the group g, one partition."""

    def __init__(self, node: Node, channel: Channel, member_id: str) -> None:
        self.node = node
        self.channel = channel
        self.member_id = member_id
        self.epoch = 0
        self.topic_id = node.metadata.image.topics_by_name["t"].topic_id if "t" in node.metadata.image.topics_by_name else b""

    async def join(self) -> None:
        """Until the partition is assigned."""
        epoch, assigned = 0, False
        while not assigned:
            names = ["t"] if epoch == 0 else None
            request = ShareGroupHeartbeatRequest(
                group_id="g", member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=names
            )
            answer: Any = await self.channel.request(request)
            if answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                await self.channel.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
            else:
                assert answer.error_code == ErrorCode.NONE, answer
                epoch = answer.member_epoch
                assigned = answer.assignment is not None and bool(answer.assignment.topic_partitions)
            await asyncio.sleep(0.01)

    async def fetch(self, *acknowledgements: tuple[int, int, int], wait_ms: int = 500, **fields: Any) -> Any:
        """The whole answer; `acknowledgements`: (first, last, type)."""
        kind = ShareFetchRequest
        batches = [
            kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[how])
            for first, last, how in acknowledgements
        ]
        partition = kind.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        request = kind(
            **{
                "group_id": "g", "member_id": self.member_id, "share_session_epoch": self.epoch, "max_wait_ms": wait_ms, "min_bytes": 1,
                "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "share_acquire_mode": 0,
                "topics": [kind.FetchTopic(topic_id=self.topic_id, partitions=[partition])], "forgotten_topics_data": [], **fields,
            }
        )  # fmt: skip
        answer: Any = await self.channel.request(request)
        self.epoch += answer.error_code == ErrorCode.NONE
        return answer

    async def take(self, *acknowledgements: tuple[int, int, int], **fields: Any) -> list[tuple[int, int, int]]:
        """What is acquired, when something is."""
        for _ in range(20):
            answer = await self.fetch(*acknowledgements, **fields)
            acknowledgements = ()
            assert answer.error_code == ErrorCode.NONE, answer
            found = [p for topic in answer.responses for p in topic.partitions]
            assert all(p.acknowledge_error_code == ErrorCode.NONE for p in found), found
            if any(p.acquired_records for p in found):
                return [(a.first_offset, a.last_offset, a.delivery_count) for p in found for a in p.acquired_records]
        return []

    async def acknowledge(self, first: int, last: int, how: int, epoch: int | None = None, index: int = 0) -> Any:
        kind = ShareAcknowledgeRequest
        batch = kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[how])
        topic = kind.AcknowledgeTopic(
            topic_id=self.topic_id, partitions=[kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])]
        )
        asked = self.epoch if epoch is None else epoch
        answer: Any = await self.channel.request(
            kind(group_id="g", member_id=self.member_id, share_session_epoch=asked, topics=[topic])
        )
        self.epoch += epoch is None and answer.error_code == ErrorCode.NONE
        return answer


async def member_of(node: Node, member_id: str) -> Member:
    network = SocketNetwork(asyncio.get_running_loop())
    channel = await Channel.open(network, "127.0.0.1", broker_port(node), client_id="test")
    return Member(node, channel, member_id)


async def prepare(node: Node, channel: Channel) -> None:
    """The topic t, and a group that begins with its first record."""
    made = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await channel.request(CreateTopicsRequest(topics=[made], timeout_ms=5000))
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    answer: Any = await channel.request(kind(resources=[kind.AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])]))
    assert answer.responses[0].error_code == ErrorCode.NONE
    while "t" not in node.metadata.image.topics_by_name:
        await asyncio.sleep(0.01)


async def produce(channel: Channel, topic_id: bytes, count: int, index: int = 0) -> None:
    records = [Record(offset=number, timestamp=1, key=None, value=b"x", headers=()) for number in range(count)]
    kind = ProduceRequest
    data = kind.PartitionProduceData(index=index, records=bytes(build_batch(records)))
    topic = kind.TopicProduceData(topic_id=topic_id, partition_data=[data])
    answer: Any = await channel.request(kind(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=[topic]))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def offsets(channel: Channel) -> tuple[int, int]:
    """Start offset and lag of the group."""
    kind = DescribeShareGroupOffsetsRequest
    answer: Any = await channel.request(kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]))
    found = answer.groups[0].topics[0].partitions[0]
    return found.start_offset, found.lag


async def first_life(node: Node) -> None:
    a, b = await member_of(node, "a"), await member_of(node, "b")
    await prepare(node, a.channel)
    a.topic_id = b.topic_id = node.metadata.image.topics_by_name["t"].topic_id
    await a.join()
    await b.join()
    waiting = asyncio.create_task(a.take())
    assert node.broker is not None
    while not len(node.broker.replicas.waiting.fetches):
        await asyncio.sleep(0.01)
    await produce(a.channel, a.topic_id, 10)
    assert await waiting == [(0, 9, 1)]
    assert await b.fetch(wait_ms=1) is not None
    response = await a.acknowledge(0, 3, ACCEPT)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    again = await a.acknowledge(0, 3, ACCEPT)
    assert again.responses[0].partitions[0].error_code == ErrorCode.NONE, "it is done already"
    waiting = asyncio.create_task(b.take())
    await a.fetch((4, 5, RELEASE), wait_ms=1, max_records=0)
    assert await waiting == [(4, 5, 2)]
    a.channel.close()
    assert await b.take() == [(6, 9, 2)], "who hangs up gives back what he holds"
    assert await offsets(b.channel) == (4, 6)
    described: Any = await b.channel.request(ShareGroupDescribeRequest(group_ids=["g", "x"]))
    assert [group.error_code for group in described.groups] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert sorted(member.member_id for member in described.groups[0].members) == ["a", "b"]
    for kind, name in ((ConsumerGroupDescribeRequest, "consumer"), (StreamsGroupDescribeRequest, "streams")):
        other: Any = await b.channel.request(kind(group_ids=["g", "x"]))
        assert {group.error_code for group in other.groups} == {ErrorCode.GROUP_ID_NOT_FOUND}
        assert [group.error_message for group in other.groups] == [f"Group g is not a {name} group.", "Group x not found."]
    b.channel.close()


@contextmanager
def coordinator_that_does_not_answer(node: Node) -> Iterator[asyncio.Event]:
    """Until the event is set, so that the verification of a share partition lasts longer than a fetch."""
    assert node.broker is not None
    persister, go_on = node.broker.shares.persister, asyncio.Event()
    ask_all = persister.ask_all

    async def late(*asked: Any) -> Any:
        await go_on.wait()
        return await ask_all(*asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persister, "ask_all", late)
        yield go_on


async def second_life(node: Node) -> None:
    c = await member_of(node, "c")
    c.topic_id = node.metadata.image.topics_by_name["t"].topic_id
    while not (taken := await c.take()):
        await asyncio.sleep(0.01)
    assert [(first, last) for first, last, _ in taken] == [(4, 9)]
    await c.acknowledge(4, 9, ACCEPT)
    await produce(c.channel, c.topic_id, 1)
    assert await c.take() == [(10, 10, 1)]
    order = [(await c.acknowledge(10, last, ACCEPT, index=7)).responses[0].partitions[0].error_code for last in (9, 10)]
    assert order == [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "as in Apache Kafka"
    wrong = await c.acknowledge(10, 10, ACCEPT, epoch=99)
    assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    newcomer = Member(node, c.channel, "newcomer")
    newcomer.topic_id = c.topic_id
    with coordinator_that_does_not_answer(node) as go_on:
        named = [
            [(p.partition_index, p.acquired_records) for topic in (await newcomer.fetch(wait_ms=1)).responses for p in topic.partitions]
            for _ in range(2)
        ]
        go_on.set()
    assert named == [[(0, [])], []], "the first answer of a session names what could give records and has none; later ones do not"
    await newcomer.acknowledge(0, 0, ACCEPT, epoch=-1)
    final = await c.acknowledge(10, 10, ACCEPT, epoch=-1)
    assert final.error_code == ErrorCode.NONE
    assert (await c.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    others = [Member(node, c.channel, name) for name in ("d", "e", "f")]
    codes = []
    for other in others:
        other.topic_id = c.topic_id
        codes.append((await other.fetch(wait_ms=1)).error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
    c.channel.close()


class Counted(list[Any]):
    walks = 0

    def __iter__(self) -> Any:
        Counted.walks += 1
        return super().__iter__()


def test_an_answer_is_not_searched_through_for_each_of_its_partitions() -> None:
    kind = ShareFetchResponse
    topics = [kind.ShareFetchableTopicResponse(topic_id=bytes([number] * 16), partitions=Counted()) for number in range(50)]
    response = kind(responses=Counted(topics))
    find = finder(response)
    walks = Counted.walks
    found = [find((bytes([number] * 16), index)) for number in range(100) for index in range(3)]
    assert Counted.walks == walks
    assert [find((bytes([number] * 16), index)) for number in range(100) for index in range(3)] == found
    assert [len(topic.partitions) for topic in response.responses] == [3] * 100


async def with_a_state_that_cannot_be(node: Node) -> None:
    """A writer of invalid state into the state topic only keeps that share partition from loading."""
    member = await member_of(node, "x")
    key = SharePartitionKey("g", member.topic_id, 0)
    state = ShareState(0, 0, 0, 0, 0, [StateBatch(11, 20, 5, 1)])
    found = update_record(key, state)
    record = Record(
        offset=0, timestamp=1, key=encode_coordinator_key(found.key), value=encode_coordinator_value(found.value, found.version), headers=()
    )
    assert node.broker is not None
    assert found.value is not None
    index = node.broker.shares.states.topic.partition_of(key.text)
    led = node.broker.replicas.partition(SHARE_STATE_TOPIC, index)
    led.append(memoryview(build_batch([record])), -1, 0, 0, origin="coordinator")
    answer = await member.fetch()
    codes = [p.error_code for topic in answer.responses for p in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not node.supervisor.unexpected
    member.channel.close()


@pytest.mark.timeout(60)
async def test_acknowledged_records_are_not_delivered_again_after_the_node_has_died(tmp_path: Path) -> None:
    async with live_node(tmp_path, PROPERTIES) as node:
        await first_life(node)
    async with live_node(tmp_path, PROPERTIES) as node:
        await second_life(node)
        await with_a_state_that_cannot_be(node)


@pytest.mark.timeout(60)
async def test_who_joins_reads_from_altered_offsets_though_a_former_member_still_fetches(tmp_path: Path) -> None:
    """The former member keeps the old state at the leader, which has nothing more to deliver."""
    async with live_node(tmp_path, PROPERTIES) as node:
        former, new = await member_of(node, "a"), await member_of(node, "b")
        await prepare(node, former.channel)
        former.topic_id = new.topic_id = node.metadata.image.topics_by_name["t"].topic_id
        await former.join()
        await produce(former.channel, former.topic_id, 10)
        assert await former.take() == [(0, 9, 1)]
        await former.acknowledge(0, 9, ACCEPT)
        await former.channel.request(ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1))
        kind = AlterShareGroupOffsetsRequest
        partition = kind.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)
        topic = kind.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
        altered: Any = await former.channel.request(kind(group_id="g", topics=[topic]))
        assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
        await new.join()
        codes = [p.error_code for topic in (await new.fetch(wait_ms=30_000)).responses for p in topic.partitions]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "the state that the leader had is replaced"
        assert await new.take() == [(4, 9, 1)]
        former.channel.close()
        new.channel.close()
