"""TxnOffsetCommit by topic ids (version 6, KIP-1319) and by names. Apache Kafka 4.4.0 was asked the same, and answered the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.coordinators.transaction_verification import TransactionVerifier
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest

TOPIC, PARTITION = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
RETRIED = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
UNKNOWN = b"\7" * 16


class Story:
    """A producer with a transaction, a topic `t` of two partitions, and the member of a consumer group."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.topic_id = bytes(16)
        self.producer: Any = None
        self.member_epoch = 0

    async def until(self, request: Any, version: int) -> Any:
        answer: Any = await self.channel.request(request, version)
        while answer.error_code in RETRIED:
            await asyncio.sleep(0.02)
            answer = await self.channel.request(request, version)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    async def begin(self) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        made: Any = await self.channel.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        self.topic_id = made.topics[0].topic_id
        for kind, key in ((0, "new"), (1, "x")):
            await self.channel.request(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        joining = ConsumerGroupHeartbeatRequest(
            group_id="new", member_id=MEMBER, member_epoch=0, rebalance_timeout_ms=5000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        self.member_epoch = (await self.until(joining, 1)).member_epoch
        self.producer = await self.until(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5)

    async def commit(
        self,
        version: int,
        topics: list[tuple[Any, list[int]]],
        group: str = "g",
        epoch: int = -1,
        member: str = "",
        transactional_id: str = "x",
    ) -> Any:
        """(topic id or name, partitions) -> the same with errors."""
        named = "topic_id" if version >= 6 else "name"
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id, group_id=group,
            producer_id=self.producer.producer_id, producer_epoch=self.producer.producer_epoch,
            generation_id_or_member_epoch=epoch, member_id=member,
            topics=[
                TOPIC(**{named: key}, partitions=[PARTITION(partition_index=index, committed_offset=7) for index in many])
                for key, many in topics
            ],
        )  # fmt: skip
        while True:
            answer: Any = await self.channel.request(request, version)
            found = [
                (getattr(topic, named), [(p.partition_index, ErrorCode(p.error_code)) for p in topic.partitions]) for topic in answer.topics
            ]
            if not {code for _, many in found for _, code in many} & RETRIED:
                return found
            await asyncio.sleep(0.02)


async def test_topics_by_id_and_the_errors_of_the_consumer_protocol(tmp_path: Path) -> None:
    e = ErrorCode
    async with live_node(tmp_path) as node:
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="test")
        story = Story(channel)
        await story.begin()
        existing_id, both = story.topic_id, [0, 1]
        assert await story.commit(6, [(existing_id, both)]) == [(existing_id, [(0, e.NONE), (1, e.NONE)])]
        unknown_first = [(UNKNOWN, [(0, e.UNKNOWN_TOPIC_ID)]), (bytes(16), [(0, e.UNKNOWN_TOPIC_ID)]), (existing_id, [(0, e.NONE)])]
        assert await story.commit(6, [(UNKNOWN, [0]), (existing_id, [0]), (bytes(16), [0])]) == unknown_first
        assert await story.commit(6, [(UNKNOWN, [0])]) == [(UNKNOWN, [(0, e.UNKNOWN_TOPIC_ID)])]
        assert await story.commit(6, [(existing_id, [9, 0])]) == [(existing_id, [(9, e.UNKNOWN_TOPIC_OR_PARTITION), (0, e.NONE)])]
        assert await story.commit(5, [("none", [0])]) == [("none", [(0, e.UNKNOWN_TOPIC_OR_PARTITION)])]
        refused = await story.commit(6, [(UNKNOWN, [0]), (existing_id, [0])], group="")
        assert refused == [(UNKNOWN, [(0, e.UNKNOWN_TOPIC_ID)]), (existing_id, [(0, e.INVALID_GROUP_ID)])]
        now = story.member_epoch
        for group, epoch, member, by_id, by_name in (
            ("new", now, MEMBER, e.NONE, e.NONE),
            ("new", now + 3, MEMBER, e.STALE_MEMBER_EPOCH, e.ILLEGAL_GENERATION),
            ("new", now, "who", e.UNKNOWN_MEMBER_ID, e.UNKNOWN_MEMBER_ID),
            ("nogroup", 3, "m", e.GROUP_ID_NOT_FOUND, e.ILLEGAL_GENERATION),
        ):
            assert await story.commit(6, [(existing_id, [0])], group, epoch, member) == [(existing_id, [(0, by_id)])]
            assert await story.commit(5, [("t", [0])], group, epoch, member) == [("t", [(0, by_name)])]
        channel.close()


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (4, ErrorCode.INVALID_TXN_STATE)])
async def test_the_marker_of_the_transaction_before_comes_while_the_coordinator_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, code: ErrorCode
) -> None:
    """A marker of version 2 has the epoch of the next transaction, whose first commit it leaves alone. In version 1 the commit would be
    one of the transaction that has ended."""
    asked, release = asyncio.Event(), asyncio.Event()
    verify = TransactionVerifier.verify

    def held(self: TransactionVerifier, *arguments: Any) -> None:
        async def later() -> None:
            asked.set()
            await release.wait()
            verify(self, *arguments)

        waiting.append(asyncio.get_running_loop().create_task(later()))

    waiting: list[asyncio.Task[None]] = []
    async with live_node(tmp_path) as node:
        network = SocketNetwork(asyncio.get_running_loop())
        channel, other = [await Channel.open(network, "127.0.0.1", broker_port(node), client_id="test") for _ in range(2)]
        story = Story(channel)
        await story.begin()
        if version < 5:
            partitions = AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=story.producer.producer_id, producer_epoch=story.producer.producer_epoch, group_id="g"
            )
            await story.until(partitions, 3)
        monkeypatch.setattr(TransactionVerifier, "verify", held)
        commit = asyncio.create_task(story.commit(version, [("t", [0])]))
        await asked.wait()
        assert node.broker is not None
        index = node.broker.groups.topic.partition_of("g")
        kind = WriteTxnMarkersRequest
        marker = kind.WritableTxnMarker(
            producer_id=story.producer.producer_id, producer_epoch=story.producer.producer_epoch, transaction_result=True,
            topics=[kind.WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[index])], coordinator_epoch=0,
        )  # fmt: skip
        answer: Any = await other.request(kind(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
        release.set()
        assert await commit == [("t", [(0, code)])]
        await asyncio.gather(*waiting)
        channel.close()
        other.close()


@pytest.mark.parametrize("version", [3, 5])
async def test_an_older_epoch_than_the_groups_log_knows_is_refused_before_the_transactional_id(tmp_path: Path, version: int) -> None:
    async with live_node(tmp_path) as node:
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="test")
        story = Story(channel)
        await story.begin()
        assert node.broker is not None
        kind, index = WriteTxnMarkersRequest, node.broker.groups.topic.partition_of("g")
        topics = [kind.WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[index])]
        own = {"producer_id": story.producer.producer_id, "producer_epoch": story.producer.producer_epoch + 1}
        answer: Any = await channel.request(kind(markers=[kind.WritableTxnMarker(transaction_result=True, topics=topics, **own)]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await story.commit(version, [("t", [0])], transactional_id="other") == [("t", [(0, ErrorCode.INVALID_PRODUCER_EPOCH)])]
        channel.close()
