"""The share coordinator in a node: its topic, its APIs as a broker asks them, and the log that does not grow for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import too_long

from minikafka.broker.front.request_parts import STATE_BATCHES_MAX
from minikafka.broker.node import Node
from minikafka.core.share.state import SharePartitionKey
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from minikafka.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest


async def made_topic(node: Node) -> bytes:
    """A topic of one partition; its id."""
    assert node.broker is not None
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await node.broker.controller_channel.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    while "t" not in node.metadata.image.topics_by_name:
        await asyncio.sleep(0.01)
    return node.metadata.image.topics_by_name["t"].topic_id


async def write_and_prune(node: Node, topic_id: bytes) -> None:
    assert node.broker is not None
    parts = node.broker.shares
    key, ask = SharePartitionKey("g", topic_id, 0), parts.persister.ask
    empty = await ask(ReadShareGroupStateSummaryRequest, key, leader_epoch=0)
    assert (empty.error_code, empty.start_offset) == (ErrorCode.NONE, -1)
    begun = await ask(InitializeShareGroupStateRequest, key, state_epoch=1, start_offset=-1)
    assert begun.error_code == ErrorCode.NONE
    batch = WriteShareGroupStateRequest.StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)
    for start in (0, 1, 2):
        written = await ask(
            WriteShareGroupStateRequest, key,
            state_epoch=1, leader_epoch=0, start_offset=start, delivery_complete_count=2, state_batches=[batch],
        )  # fmt: skip
        assert written.error_code == ErrorCode.NONE
    read = await ask(ReadShareGroupStateRequest, key, leader_epoch=0)
    assert (read.start_offset, read.state_epoch, [(b.first_offset, b.last_offset) for b in read.state_batches]) == (2, 1, [(3, 4)])
    refused = await ask(WriteShareGroupStateRequest, key, state_epoch=0, leader_epoch=0, start_offset=9, state_batches=[])
    assert refused.error_code == ErrorCode.FENCED_STATE_EPOCH
    index = parts.states.partition_of(key.text)
    assert index is not None
    partition = node.broker.replicas.partition("__share_group_state", index)
    assert partition is not None
    for _ in range(200):
        if partition.log.log_start_offset == 2:
            break
        await asyncio.sleep(0.01)
    assert partition.log.log_start_offset == 2


async def test_states_are_written_read_and_pruned(tmp_path: Path) -> None:
    properties = {
        "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2", "share.coordinator.snapshot.update.records.per.snapshot": "1",
        "share.coordinator.state.topic.prune.interval.ms": "20",
    }  # fmt: skip
    async with live_node(tmp_path, properties) as node:
        assert node.broker is not None
        topic_id = await made_topic(node)
        await write_and_prune(node, topic_id)


@pytest.mark.timeout(120)
async def test_a_state_may_have_a_batch_for_each_record_that_is_locked(tmp_path: Path) -> None:
    """A leader of Apache Kafka writes them in one request."""
    properties = {
        "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }  # fmt: skip
    kind = WriteShareGroupStateRequest
    async with live_node(tmp_path, properties) as node, Peer(broker_port(node)) as peer:
        assert node.broker is not None
        topic_id = await made_topic(node)
        key, ask = SharePartitionKey("g", topic_id, 0), node.broker.shares.persister.ask
        assert (await ask(InitializeShareGroupStateRequest, key, state_epoch=1, start_offset=0)).error_code == ErrorCode.NONE

        def writing(count: int) -> WriteShareGroupStateRequest:
            batches = [kind.StateBatch(first_offset=n, last_offset=n, delivery_state=n % 2 * 2, delivery_count=1) for n in range(count)]
            part = kind.PartitionData(partition=0, state_epoch=1, leader_epoch=0, start_offset=0, state_batches=batches)
            return kind(group_id="g", topics=[kind.WriteStateData(topic_id=topic_id, partitions=[part])])

        frame = b"".join(bytes(piece) for piece in encode_request(writing(STATE_BATCHES_MAX), 1, 1, "c"))

        async def written() -> None:
            peer.send_bytes(frame)
            answer = await peer.answer(kind, 1)
            assert answer.results[0].partitions[0].error_code == ErrorCode.NONE

        with without_coverage():
            found = await too_long(written)
        assert not found
        read = await ask(ReadShareGroupStateRequest, key, leader_epoch=0)
        assert len(read.state_batches) == STATE_BATCHES_MAX
        peer.send(writing(STATE_BATCHES_MAX + 1), 1)
        assert await peer.is_closed()
