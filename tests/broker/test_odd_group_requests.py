"""Odd requests of members of share and streams groups: what Apache Kafka 4.4 answers to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.test_share_fetch import ACCEPT, PROPERTIES, Member, member_of, prepare, produce
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import too_long

from minikafka.broker.config.group_rules import _DIGITS_MAX, _SECONDS_MAX, duration_ms
from minikafka.broker.front.large_requests import FETCH_ENTRIES_MAX
from minikafka.broker.front.request_parts import PART_ENTRIES
from minikafka.broker.node import Node
from minikafka.core.group.streams.model import Status
from minikafka.net.channel import Channel
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

SETTINGS = {**PROPERTIES, "offsets.topic.num.partitions": "1", "group.streams.initial.rebalance.delay.ms": "0"}
#: Records of each partition: as many as may be locked by default.
PARTITIONS, LOCKED, REJECT = 6, 2000, 3
INT64_MAX = (1 << 63) - 1
UNHEARD = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_a_lag_overflows_as_in_java(tmp_path: Path) -> None:
    """A group may be set to any offset. A lag that did not fit into its field closed the connection of whoever asked."""
    async with live_node(tmp_path, SETTINGS) as node:
        member = await _prepared(node)
        await produce(member.channel, member.topic_id, 10)
        for group_id, start, lag in (
            ("none", -INT64_MAX - 1, -INT64_MAX + 9), ("least", -INT64_MAX, -INT64_MAX + 8), ("before", -2, 12), ("behind", 1000, -990),
            ("most", INT64_MAX, 10 - INT64_MAX),
        ):  # fmt: skip
            await _alter(member.channel, group_id, start)
            kind = DescribeShareGroupOffsetsRequest
            answer: Any = await member.channel.request(
                kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)])
            )
            found = answer.groups[0].topics[0].partitions[0]
            assert (found.error_code, found.start_offset, found.lag) == (ErrorCode.NONE, start, lag), group_id
        member.channel.close()


async def test_an_unknown_acquire_mode_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    async with live_node(tmp_path, SETTINGS) as node:
        member = await _prepared(node)
        await member.join()
        await produce(member.channel, member.topic_id, 10)
        assert await member.take() == [(0, 9, 1)]
        for mode in (2, -1, 127):
            refused = await member.fetch((0, 3, ACCEPT), wait_ms=1, share_acquire_mode=mode)
            assert (refused.error_code, refused.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
            member.epoch += 1
        assert (await member.acknowledge(0, 9, ACCEPT)).responses[0].partitions[0].error_code == ErrorCode.NONE
        fresh = Member(node, member.channel, "fresh")
        assert (await fresh.fetch(wait_ms=1, share_acquire_mode=9)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        fresh.epoch += 1
        assert (await fresh.fetch(wait_ms=1)).error_code == ErrorCode.NONE
        final = await member.fetch(wait_ms=1, share_session_epoch=-1, share_acquire_mode=9)
        assert final.error_code == ErrorCode.NONE, "nothing is acquired"
        member.channel.close()


async def test_a_member_acknowledges_each_of_many_records_by_itself(tmp_path: Path) -> None:
    """A consumer that fetches many records and accepts every second one. Some clients send a batch for each; the connection was closed."""
    async with live_node(tmp_path, SETTINGS) as node:
        member = await _prepared(node)
        made = CreateTopicsRequest.CreatableTopic(name="many", num_partitions=PARTITIONS, replication_factor=1)
        answer: Any = await member.channel.request(CreateTopicsRequest(topics=[made], timeout_ms=5000))
        member.topic_id = topic_id = answer.topics[0].topic_id
        while "many" not in node.metadata.image.topics_by_name:
            await asyncio.sleep(0.01)
        for index in range(PARTITIONS):
            await produce(member.channel, topic_id, LOCKED, index)
        await _heard_by_all(member)
        found: dict[int, int] = {}
        fetched = [ShareFetchRequest.FetchPartition(partition_index=index, acknowledgement_batches=[]) for index in range(PARTITIONS)]
        while sum(found.values()) < PARTITIONS * LOCKED:
            topic = ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=fetched)
            data = await member.fetch(topics=[topic], max_records=PARTITIONS * LOCKED, max_bytes=1 << 30)
            for part in (part for one in data.responses for part in one.partitions):
                taken = sum(one.last_offset - one.first_offset + 1 for one in part.acquired_records)
                found[part.partition_index] = found.get(part.partition_index, 0) + taken
        kind = ShareAcknowledgeRequest
        batches = [
            kind.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[(ACCEPT, REJECT)[offset % 2]])
            for offset in range(LOCKED)
        ]
        parts = [kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches) for index in range(PARTITIONS)]
        topics = [kind.AcknowledgeTopic(topic_id=topic_id, partitions=parts)]
        answer = await member.channel.request(kind(group_id="g", member_id="a", share_session_epoch=member.epoch, topics=topics))
        assert [part.error_code for one in answer.responses for part in one.partitions] == [ErrorCode.NONE] * PARTITIONS
        member.channel.close()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000), ("p1dt1h", 90_000_000), ("PT1.5S", 1500), ("PT0.0000001S", 0), ("PT0.999999999S", 999), ("P2D", 172_800_000),
        (f"PT{_SECONDS_MAX}S", 1000 * _SECONDS_MAX), (f"PT{_SECONDS_MAX + 1}S", None), ("P106751991167301D", None),
        (f"PT{'1'.zfill(_DIGITS_MAX)}S", 1000), (f"PT{'1'.zfill(_DIGITS_MAX + 1)}S", None), (f"PT{'9' * 5000}S", None),
        ("P", None), ("PT", None), ("P1Y", None), ("-PT1H", None), ("PT\u0663H", None),
    ],
)  # fmt: skip
def test_durations_are_read_as_in_java(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


async def test_a_group_that_begins_long_before_the_first_record_begins_with_it(tmp_path: Path) -> None:
    """Python's timedelta holds a billion days."""
    async with live_node(tmp_path, SETTINGS) as node:
        member = await _prepared(node)
        await produce(member.channel, member.topic_id, 10)
        kind = IncrementalAlterConfigsRequest
        value = "by_duration:PT9223372036854775807S"
        config = kind.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value=value)
        resource = kind.AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
        answer: Any = await member.channel.request(kind(resources=[resource]))
        assert answer.responses[0].error_code == ErrorCode.NONE
        while node.metadata.image.config(32, "g").get("share.auto.offset.reset") != value:
            await asyncio.sleep(0.01)
        await member.join()
        assert await member.take() == [(0, 9, 1)]
        member.channel.close()
        assert not node.supervisor.unexpected


@pytest.mark.timeout(120)
async def test_acknowledgements_are_bounded_and_make_no_turn_long(tmp_path: Path) -> None:
    """Batches of records that nobody holds."""
    kind = ShareAcknowledgeRequest
    async with live_node(tmp_path, SETTINGS) as node:
        member = await _prepared(node)

        def acknowledging(epoch: int, count: int) -> ShareAcknowledgeRequest:
            batches = [kind.AcknowledgementBatch(first_offset=one, last_offset=one, acknowledge_types=[ACCEPT]) for one in range(count)]
            part = kind.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
            topic = kind.AcknowledgeTopic(topic_id=member.topic_id, partitions=[part])
            return kind(group_id="g", member_id="a", share_session_epoch=epoch, topics=[topic])

        async with Peer(broker_port(node)) as peer:
            fetched = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])
            topic = ShareFetchRequest.FetchTopic(topic_id=member.topic_id, partitions=[fetched])
            request = ShareFetchRequest(group_id="g", member_id="a", share_session_epoch=0, max_records=1, topics=[topic])
            assert (await peer.ask(request, 2)).error_code == ErrorCode.NONE
            epochs = iter(range(1, 100))

            async def refused() -> None:
                answer = await peer.ask(acknowledging(next(epochs), FETCH_ENTRIES_MAX - 3), 2)
                assert answer.responses[0].partitions[0].error_code

            with without_coverage():
                found = await too_long(refused)
            assert not found
            peer.send(acknowledging(next(epochs), FETCH_ENTRIES_MAX + 2 * PART_ENTRIES), 2)
            assert await peer.is_closed()
        member.channel.close()


@pytest.mark.parametrize(
    ("subtopologies", "code", "status"),
    [
        ([{}], ErrorCode.STREAMS_INVALID_TOPOLOGY, None),
        ([{"source_topics": ["t"]}, {}], ErrorCode.STREAMS_INVALID_TOPOLOGY, None),
        ([{"repartition_sink_topics": ["t"]}], ErrorCode.STREAMS_INVALID_TOPOLOGY, None),
        ([{"source_topics": ["none"]}, {}], ErrorCode.NONE, Status.MISSING_SOURCE_TOPICS),
        ([{"source_topics": ["t"]}], ErrorCode.NONE, None),
    ],
)
async def test_a_subtopology_without_source_topics_is_invalid_when_the_others_have_theirs(
    tmp_path: Path, subtopologies: list[dict[str, Any]], code: ErrorCode, status: Status | None
) -> None:
    async with live_node(tmp_path, SETTINGS) as node:
        member = await _prepared(node)
        kind = StreamsGroupHeartbeatRequest
        request = kind(
            group_id="s", member_id="m", rebalance_timeout_ms=1000, active_tasks=[], standby_tasks=[], warmup_tasks=[],
            topology=kind.Topology(
                epoch=0, subtopologies=[kind.Subtopology(subtopology_id=str(place), **one) for place, one in enumerate(subtopologies)]
            ),
        )  # fmt: skip
        answer = await _answered(member.channel, "s", request)
        assert answer.error_code == code, answer
        assert [one.status_code for one in answer.status or ()] == ([] if status is None else [status])
        member.channel.close()


async def _heard_by_all(member: Member) -> None:
    """Until the member of the group g has all partitions of the topic `many`."""
    kind, epoch, count = ShareGroupHeartbeatRequest, 0, 0
    while count < PARTITIONS:
        names = None if epoch else ["many"]
        request = kind(group_id="g", member_id=member.member_id, member_epoch=epoch, subscribed_topic_names=names)
        answer = await _answered(member.channel, "g", request)
        assert answer.error_code == ErrorCode.NONE, answer
        epoch = answer.member_epoch
        if answer.assignment is not None:
            count = sum(len(one.partitions) for one in answer.assignment.topic_partitions)
        await asyncio.sleep(0.01)


async def _prepared(node: Node) -> Member:
    member = await member_of(node, "a")
    await prepare(node, member.channel)
    member.topic_id = node.metadata.image.topics_by_name["t"].topic_id
    return member


async def _answered(channel: Channel, group_id: str, request: Any) -> Any:
    """The answer of the coordinator, once it has loaded."""
    while True:
        answer: Any = await channel.request(request)
        if answer.error_code not in UNHEARD:
            return answer
        await channel.request(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]))
        await asyncio.sleep(0.01)


async def _alter(channel: Channel, group_id: str, start_offset: int) -> None:
    kind = AlterShareGroupOffsetsRequest
    partition = kind.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=start_offset)
    topic = kind.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    answer = await _answered(channel, group_id, kind(group_id=group_id, topics=[topic]))
    assert [p.error_code for one in answer.responses for p in one.partitions] == [ErrorCode.NONE]
