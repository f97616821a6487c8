"""The largest topology that a streams group may have, on a broker: no turn is long because of it, and quotas bound its internal topics."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
from broker.test_long_requests import with_topic
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import too_long

from minikafka.core.group.streams.checks import TOPOLOGY_ENTRIES_MAX
from minikafka.core.group.streams.model import Status
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

Request = StreamsGroupHeartbeatRequest
SETTINGS = {"offsets.topic.num.partitions": "1", "group.streams.initial.rebalance.delay.ms": "0"}


def join(group_id: str, subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology]) -> StreamsGroupHeartbeatRequest:
    """A member's first heartbeat."""
    return Request(
        group_id=group_id, member_id="m", rebalance_timeout_ms=1000, active_tasks=[], standby_tasks=[], warmup_tasks=[],
        topology=Request.Topology(epoch=0, subtopologies=subtopologies),
    )  # fmt: skip


def chain(count: int) -> list[StreamsGroupHeartbeatRequest.Subtopology]:
    """Each writes the topic that the next one reads, and has state."""
    kind = Request.Subtopology

    def one(number: int) -> StreamsGroupHeartbeatRequest.Subtopology:
        sources = [] if number else ["t"]
        read = [Request.TopicInfo(name=f"repartition-{number}")] if number else []
        kept = [Request.TopicInfo(name=f"changelog-{number}")]
        sinks = [f"repartition-{number + 1}"] if number < count - 1 else []
        return kind(
            subtopology_id=str(number), source_topics=sources, repartition_source_topics=read, repartition_sink_topics=sinks,
            state_changelog_topics=kept,
        )  # fmt: skip

    return [one(number) for number in range(count)]


async def ready(peer: Peer) -> None:
    while (await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
        await asyncio.sleep(0.02)
    while (await peer.ask(join("first", chain(1)), 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0.02)


@pytest.mark.timeout(120)
async def test_the_largest_topology_makes_no_turn_long(tmp_path: Path) -> None:
    async with live_node(tmp_path, SETTINGS) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, 1)
        await ready(peer)
        # Nobody may make its internal topics, which are not what is measured.
        assert node.broker is not None
        groups, codes = iter(range(100)), []
        node.broker.groups._internal_topics = None
        largest = chain(TOPOLOGY_ENTRIES_MAX // 4)

        async def ask() -> None:
            codes.append((await peer.ask(join(f"g{next(groups)}", largest), 1)).error_code)

        with without_coverage():
            found = await too_long(functools.partial(ask))
        assert not found and set(codes) == {ErrorCode.NONE}


def _detail(answer: Any) -> str:
    return "".join(one.status_detail for one in answer.status or () if one.status_code == Status.MISSING_INTERNAL_TOPICS)


@pytest.mark.timeout(120)
async def test_internal_topics_are_made_within_the_quota_of_whose_they_are(tmp_path: Path) -> None:
    kind = AlterClientQuotasRequest
    async with live_node(tmp_path, SETTINGS) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, 20)
        await ready(peer)
        entry = kind.EntryData(
            entity=[kind.EntityData(entity_type="client-id", entity_name="c")], ops=[kind.OpData(key="controller_mutation_rate", value=0.5)]
        )
        assert (await peer.ask(kind(entries=[entry]), 1)).entries[0].error_code == ErrorCode.NONE
        one = Request.Subtopology(
            subtopology_id="0", source_topics=["t"], state_changelog_topics=[Request.TopicInfo(name=f"g-{n}") for n in range(5)]
        )
        answer = await peer.ask(join("g", [one]), 1)
        while "Creation failed" not in _detail(answer):
            await asyncio.sleep(0.02)
            answer = await peer.ask(join("g", [one]), 1)
        assert "Throttling quota exceeded" in _detail(answer)
        assert node.broker is not None
        made = [name for name in node.metadata.image.topics_by_name if name.startswith("g-")]
        assert len(made) < 5
