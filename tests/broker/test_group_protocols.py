"""`group.coordinator.rebalance.protocols`: a broker answers for the protocols that it names, as Apache Kafka 4.4 (KafkaApis)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

UNSUPPORTED, MISSING, NONE = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE


async def answers_of(peer: Peer) -> dict[str, list[int]]:
    """What a broker says to members and to who asks of groups, by protocol."""
    while (await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
        await asyncio.sleep(0.02)
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
    classic = JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols, session_timeout_ms=6000, rebalance_timeout_ms=1)
    while (joined := await peer.ask(classic, 3)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0.02)
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    streams = StreamsGroupHeartbeatRequest(
        group_id="s", member_id="m", rebalance_timeout_ms=1000, active_tasks=[], standby_tasks=[], warmup_tasks=[],
        topology=StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[]),
    )  # fmt: skip
    return {
        "classic": [joined.error_code],
        "consumer": [
            (await peer.ask(ConsumerGroupDescribeRequest(group_ids=["none"]), 1)).groups[0].error_code,
            (await peer.ask(consumer, 1)).error_code,
        ],
        "streams": [
            (await peer.ask(StreamsGroupDescribeRequest(group_ids=["none"]), 1)).groups[0].error_code,
            (await peer.ask(streams, 1)).error_code,
        ],
        "share": [(await peer.ask(ShareGroupDescribeRequest(group_ids=["none"]), 1)).groups[0].error_code],
    }


@pytest.mark.parametrize(
    ("protocols", "refused"),
    [("classic", {"consumer", "streams"}), ("classic,streams", {"consumer"}), ("consumer,classic,share", {"streams"}), (None, set())],
)
async def test_a_broker_serves_the_protocols_that_it_names(tmp_path: Path, protocols: str | None, refused: set[str]) -> None:
    """Classic ones always, share groups whatever it names: the feature `share.version` decides on them."""
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    if protocols is not None:
        settings["group.coordinator.rebalance.protocols"] = protocols
    async with live_node(tmp_path, settings) as node, Peer(broker_port(node)) as peer:
        found = await answers_of(peer)
    assert found == {
        "classic": [NONE],
        "consumer": [UNSUPPORTED, UNSUPPORTED] if "consumer" in refused else [MISSING, NONE],
        "streams": [UNSUPPORTED, UNSUPPORTED] if "streams" in refused else [MISSING, NONE],
        "share": [MISSING],
    }


async def test_an_error_that_says_no_more_than_its_code_has_no_message(tmp_path: Path) -> None:
    streams = StreamsGroupHeartbeatRequest(
        group_id="s", member_id="m", rebalance_timeout_ms=1000, active_tasks=[], standby_tasks=[], warmup_tasks=[],
        topology=StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[]),
    )  # fmt: skip
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    share = ShareGroupHeartbeatRequest(group_id="h", member_id="m", subscribed_topic_names=["t"])
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as peer:
        answers = [await peer.ask(request, 1) for request in (streams, consumer, share)]
    assert [(answer.error_code, answer.error_message) for answer in answers] == [(ErrorCode.NOT_COORDINATOR, None)] * 3
