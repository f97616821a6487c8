"""Fetches of very many partitions: served in steps, they are answered as if they had been served in one turn."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import TURN_UNITS, measured
from helpers.work_unit import unit_s

from minikafka.broker.node import Node
from minikafka.broker.partitions import fetch_operation
from minikafka.client.admin import Admin
from minikafka.core import fetch_session
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.produce import ProduceRequest

PARTITIONS = 30
VERSION = 12
BATCH = bytes(build_batch([(0, 1, b"k", b"v" * 100, ())]))


@asynccontextmanager
async def node_with_topic(directory: Path) -> AsyncIterator[Node]:
    async with live_node(directory, {"auto.create.topics.enable": "false"}) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=PARTITIONS, replication_factor=1)
        yield node


def fetch(indexes: Any, **fields: Any) -> FetchRequest:
    kind = FetchRequest
    partitions = [kind.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in indexes]
    topics = [kind.FetchTopic(topic="t", partitions=partitions)] if partitions else []
    return kind(**{"max_bytes": 1 << 30, "session_epoch": -1, "topics": topics, **fields})


async def produce(peer: Peer, *indexes: int) -> None:
    kind = ProduceRequest
    data = [kind.PartitionProduceData(index=index, records=BATCH) for index in indexes]
    answer = await peer.ask(kind(acks=1, timeout_ms=1000, topic_data=[kind.TopicProduceData(name="t", partition_data=data)]), 8)
    assert {one.error_code for topic in answer.responses for one in topic.partition_responses} == {0}


def partitions_of(answer: FetchResponse) -> dict[int, tuple[int, int]]:
    """Partition -> (error, bytes of records)."""
    return {p.partition_index: (p.error_code, len(p.records or b"")) for topic in answer.responses for p in topic.partitions}  # type: ignore[arg-type]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five partitions are read in a step."""
    monkeypatch.setattr(fetch_operation, "STEP_COST", 5 * fetch_operation.READ_COST)
    monkeypatch.setattr(fetch_session, "STEP_PARTITIONS", 7)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("small_steps")
async def test_a_fetch_in_steps_is_answered_as_one_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_with_topic(tmp_path) as node, Peer(broker_port(node)) as peer, Peer(broker_port(node)) as producer:
        await produce(producer, 3, 12, 29)
        requests = [
            fetch(range(PARTITIONS)),
            fetch(range(PARTITIONS + 40)),
            fetch([*range(PARTITIONS), *range(PARTITIONS)]),
            fetch(range(PARTITIONS), max_bytes=200),
            fetch(range(PARTITIONS), max_wait_ms=50, min_bytes=1 << 20),
        ]
        in_steps = [(await peer.ask(request, VERSION)).encode(VERSION) for request in requests]
        monkeypatch.setattr(fetch_operation, "STEP_COST", 1 << 30)
        assert [(await peer.ask(request, VERSION)).encode(VERSION) for request in requests] == in_steps
        whole = partitions_of(FetchResponse.decode(VERSION, in_steps[0]))
        assert {index for index, (_, size) in whole.items() if size} == {3, 12, 29} and len(whole) == PARTITIONS


@pytest.mark.asyncio
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("small_steps")
async def test_a_fetch_in_steps_waits_for_records_and_for_its_time(tmp_path: Path) -> None:
    async with node_with_topic(tmp_path) as node, Peer(broker_port(node)) as peer, Peer(broker_port(node)) as producer:
        waiting = node.broker.replicas.waiting.fetches
        peer.send(fetch(range(PARTITIONS), max_wait_ms=60_000, min_bytes=1), VERSION)
        while not len(waiting):
            await asyncio.sleep(0)
        await produce(producer, 17)
        answer = partitions_of(await peer.answer(FetchRequest, VERSION))
        assert {index for index, (_, size) in answer.items() if size} == {17} and len(answer) == PARTITIONS
        # What comes while it is still at it is not missed, nor its time.
        for index in range(0, PARTITIONS, 5):
            empty = [n for n in range(PARTITIONS) if n != 17 and (n >= index or n % 5)]
            peer.send(fetch(empty, max_wait_ms=60_000, min_bytes=1), VERSION)
            for _ in range(index):
                await asyncio.sleep(0)
            await produce(producer, index)
            sizes = {n for n, (_, size) in partitions_of(await peer.answer(FetchRequest, VERSION)).items() if size}
            assert sizes == {index}
        began_s = time.monotonic()
        assert len(partitions_of(await peer.ask(fetch(range(PARTITIONS), max_wait_ms=30, min_bytes=1 << 24), VERSION))) == PARTITIONS
        assert time.monotonic() - began_s >= 0.03 and not len(waiting)
        # Nobody is left who holds what has been read.
        assert all(not operation.reads for some in waiting.watched.values() for operation in some)  # type: ignore[attr-defined]


@pytest.mark.asyncio
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("small_steps")
async def test_a_session_in_steps(tmp_path: Path) -> None:
    async with node_with_topic(tmp_path) as node, Peer(broker_port(node)) as peer, Peer(broker_port(node)) as producer:
        first = await peer.ask(fetch(range(PARTITIONS), session_epoch=0), VERSION)
        assert first.session_id and len(partitions_of(first)) == PARTITIONS
        following: dict[str, Any] = {"session_id": first.session_id, "max_wait_ms": 60_000, "min_bytes": 1}
        peer.send(fetch([], session_epoch=1, **following), VERSION)
        await produce(producer, 20)
        assert set(partitions_of(await peer.answer(FetchRequest, VERSION))) == {20}
        # News of the session, from elsewhere while its fetch is parked, completes that one.
        peer.send(fetch([5], session_epoch=2, **{**following, "min_bytes": 1 << 20}), VERSION)
        while not len(node.broker.replicas.waiting.fetches):
            await asyncio.sleep(0)
        async with Peer(broker_port(node)) as other:
            other.send(fetch(range(PARTITIONS + 1), session_epoch=3, **following), VERSION)
            assert set(partitions_of(await peer.answer(FetchRequest, VERSION))) == {20}
            last = partitions_of(await other.answer(FetchRequest, VERSION))
            assert last[PARTITIONS][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await peer.ask(fetch([], session_epoch=2, session_id=first.session_id), VERSION)
        assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.asyncio
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("small_steps")
async def test_a_client_that_goes_amid_its_steps_leaves_nothing_behind(tmp_path: Path) -> None:
    async with node_with_topic(tmp_path) as node, Peer(broker_port(node)) as producer:
        await produce(producer, *range(0, PARTITIONS, 2))
        for turns in range(0, 40, 4):
            async with Peer(broker_port(node)) as peer:
                peer.send(fetch(range(PARTITIONS), max_wait_ms=60_000, min_bytes=1 << 24), VERSION)
                for _ in range(turns):
                    await asyncio.sleep(0)
        async with Peer(broker_port(node)) as peer:
            assert len(partitions_of(await peer.ask(fetch(range(PARTITIONS)), VERSION))) == PARTITIONS
        assert not node.supervisor.unexpected


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_no_turn_is_long_because_a_fetch_names_very_many_partitions(tmp_path: Path) -> None:
    """A consumer's, a follower's, those of a session, and one that waits and is woken."""
    many = [*range(PARTITIONS)] * 30 + [*range(PARTITIONS, 18_000)]
    asked = {
        "a consumer": fetch(many),
        "a follower": fetch(many, replica_id=7),
        "a new session": fetch(many, session_epoch=0),
        "one that waits": fetch([*range(PARTITIONS)] * 600, max_wait_ms=20, min_bytes=1 << 30),
    }
    long = []
    async with node_with_topic(tmp_path) as node, Peer(broker_port(node)) as peer, Peer(broker_port(node)) as producer:
        await produce(producer, *range(0, PARTITIONS, 3))
        session_id = (await peer.ask(asked["a new session"], VERSION)).session_id
        epochs = iter(range(1, 100))
        for name in (*asked, "a session"):
            for _ in range(3):  # what is long by chance is not long each time
                request = asked.get(name) or fetch([], session_id=session_id, session_epoch=next(epochs))
                gc.collect()
                with without_coverage(), measured() as turns:
                    bound_s = TURN_UNITS * unit_s()
                    peer.send(request, VERSION)
                    await peer.frame()
                if turns.longest_s <= bound_s:
                    break
            else:
                long.append(f"{name}: {1000 * turns.longest_s:.1f} ms of {1000 * bound_s:.1f} in {turns.what}")
    assert not long, "\n".join(long)


@pytest.mark.asyncio
@pytest.mark.timeout(60)
async def test_what_happens_to_one_of_very_many_partitions_is_looked_at_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader looked at all partitions of its followers' fetches for each one whose role or records changed."""
    looks = 0
    real = fetch_operation.FetchOperation._change_of

    def counted(*arguments: Any) -> int | None:
        nonlocal looks
        looks += 1
        return real(*arguments)

    monkeypatch.setattr(fetch_operation.FetchOperation, "_change_of", counted)
    async with node_with_topic(tmp_path) as node, Peer(broker_port(node)) as peer, Peer(broker_port(node)) as producer:
        waiting = node.broker.replicas.waiting
        wanted = fetch(range(PARTITIONS), max_wait_ms=50_000, min_bytes=1)
        asked = asyncio.ensure_future(peer.ask(wanted, VERSION))
        while ("t", PARTITIONS - 1) not in waiting.fetches.watched:
            await asyncio.sleep(0.01)
        looks = 0
        for index in range(PARTITIONS):
            waiting.wake(("t", index))
        assert looks == PARTITIONS and not asked.done(), "each looks at one"
        await produce(producer, 7)
        assert partitions_of(await asked)[7] == (0, len(BATCH))
