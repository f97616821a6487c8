"""A share session of many partitions: no turn of the event loop is long because of it, and it is served as a small one is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from broker.test_long_requests import with_topic
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import too_long

from minikafka.broker.node import Node
from minikafka.broker.partitions.fetch_steps import FetchTurns
from minikafka.broker.share.fetch_operation import FIND_COST, STEP_COST
from minikafka.broker.share.leader import RELEASED_AT_ONCE
from minikafka.core.share.sessions import ShareSession
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1", "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}  # fmt: skip
MANY = 5 * RELEASED_AT_ONCE
ACCEPT, RELEASE = 1, 2


class Session:
    """One member's session with all partitions of the topic `t`."""

    def __init__(self, node: Node, peer: Peer) -> None:
        self._peer = peer
        self._topic_id = node.metadata.image.topics_by_name["t"].topic_id
        self.epoch = 0

    def _topics(self, kind: Any, topic: Any, partition: Any, acknowledged: Iterable[int], how: int) -> list[Any]:
        """The first record of each of `acknowledged` is acknowledged."""
        batch = kind.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[how])
        done = set(acknowledged)
        partitions = [partition(partition_index=index, acknowledgement_batches=[batch] if index in done else []) for index in range(MANY)]
        return [topic(topic_id=self._topic_id, partitions=partitions)]

    async def fetch(self, acknowledged: Iterable[int] = (), *, how: int = ACCEPT, wait_ms: int = 0) -> dict[int, Any]:
        kind = ShareFetchRequest
        request = kind(
            group_id="g", member_id="m", share_session_epoch=self.epoch, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 24,
            max_records=10_000, batch_size=500, topics=self._topics(kind, kind.FetchTopic, kind.FetchPartition, acknowledged, how),
        )  # fmt: skip
        answer = await self._peer.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE
        self.epoch += 1
        return {data.partition_index: data for topic in answer.responses for data in topic.partitions}

    async def acknowledge(self, acknowledged: Iterable[int], how: int) -> set[int]:
        kind = ShareAcknowledgeRequest
        topics = self._topics(kind, kind.AcknowledgeTopic, kind.AcknowledgePartition, acknowledged, how)
        answer = await self._peer.ask(kind(group_id="g", member_id="m", share_session_epoch=self.epoch, topics=topics), 1)
        assert answer.error_code == ErrorCode.NONE
        self.epoch += 1
        return {data.error_code for topic in answer.responses for data in topic.partitions}


async def produce(node: Node) -> None:
    """One record to each partition."""
    kind = ProduceRequest
    data = [
        kind.PartitionProduceData(index=index, records=bytes(build_batch([(0, 0, b"k", b"v", ())]))) for index in range(MANY)
    ]  # fmt: skip
    async with Peer(broker_port(node)) as peer:
        await peer.ask(kind(acks=1, timeout_ms=9000, topic_data=[kind.TopicProduceData(name="t", partition_data=data)]), 9)


def acquired(found: dict[int, Any]) -> set[int]:
    return {index for index, data in found.items() if data.acquired_records}


async def begun(node: Node, peer: Peer, session: Session) -> None:
    """The member has joined, and all share partitions have read their state."""
    assert node.broker is not None
    await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    epoch, assigned = 0, 0
    while assigned < MANY:
        heartbeat = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=["t"])
        answer = await peer.ask(heartbeat, 1)
        if answer.error_code == ErrorCode.NONE:
            epoch = answer.member_epoch
            topics = [] if answer.assignment is None else answer.assignment.topic_partitions
            assigned = max(assigned, sum(len(topic.partitions) for topic in topics))
        await asyncio.sleep(0.02)
    held = node.broker.shares.leader._held
    while len(held) < MANY or any(one.core is None for one in held.values()):
        await session.fetch()
        await asyncio.sleep(0.02)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each further step that a fetch takes."""
    taken: list[int] = []
    go_on = FetchTurns.go_on

    def counting(turns: FetchTurns, fetch: Any, left: Any) -> None:
        def counted() -> Any:
            for _ in left:
                taken.append(1)
                yield

        go_on(turns, fetch, counted())

    monkeypatch.setattr(FetchTurns, "go_on", counting)
    return taken


@pytest.mark.timeout(120)
async def test_a_session_of_many_partitions_makes_no_turn_long(tmp_path: Path, steps: list[int]) -> None:
    few = MANY * FIND_COST // STEP_COST - 2
    assert few > 5
    async with live_node(tmp_path, SETTINGS) as node:
        await with_topic(node, MANY)
        assert node.broker is not None
        async with Peer(broker_port(node)) as peer:
            session = Session(node, peer)
            await begun(node, peer, session)
            await produce(node)

            async def taken_and_returned() -> None:
                assert acquired(await session.fetch()) == {*range(MANY)}
                assert await session.acknowledge(range(MANY), RELEASE) == {ErrorCode.NONE}

            with without_coverage():
                found = await too_long(taken_and_returned)
            assert not found
            steps.clear()
            assert acquired(await session.fetch()) == {*range(MANY)} and len(steps) >= few
            answer = await session.fetch(range(MANY))
            assert {data.acknowledge_error_code for data in answer.values()} == {ErrorCode.NONE} and not acquired(answer)
            waiting = asyncio.ensure_future(session.fetch(wait_ms=30_000))
            while len(node.broker.replicas.waiting.fetches) < 1:
                await asyncio.sleep(0.01)
            await produce(node)
            assert acquired(await waiting), "a fetch that waits is answered when there are records"
            assert len(node.broker.shares.leader.sessions) == 1
        # The connection is closed: what its member holds is released, some in a turn, and the group is forgotten.
        leader = node.broker.shares.leader
        while leader._held:
            await asyncio.sleep(0.01)
        assert not leader._by_partition and not len(leader.sessions) and not node.supervisor.unexpected


@pytest.mark.timeout(120)
async def test_sessions_end_in_steps_and_a_member_that_is_back_keeps_what_it_holds(tmp_path: Path) -> None:
    async with live_node(tmp_path, SETTINGS) as node, Peer(broker_port(node)) as peer:
        await with_topic(node, MANY)
        assert node.broker is not None
        session = Session(node, peer)
        await begun(node, peer, session)
        await produce(node)
        assert acquired(await session.fetch()) == {*range(MANY)}
        leader = node.broker.shares.leader
        gone = leader.sessions.remove(("g", "m"))
        assert isinstance(gone, ShareSession)
        leader.release([gone])
        locked = [held for held in leader._held.values() if held.core is not None and not held.core.is_quiet]
        assert len(locked) == RELEASED_AT_ONCE
        session.epoch = 0
        assert acquired(await session.fetch()) <= {held.key.partition for held in locked}
