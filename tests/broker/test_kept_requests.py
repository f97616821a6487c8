"""What requests keep in memory after their frame was read counts for the memory budget, and what is made of Produces has a bound."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import batch
from helpers.live_node import broker_port, live_node
from helpers.pipelined_client import PipelinedClient
from helpers.produce_frames import led

from minikafka.broker.coordinators.transaction_verification import TransactionVerifier
from minikafka.broker.front.heavy_work import HeavyWork
from minikafka.broker.front.large_requests import BYTES_AT_ONCE, ELEMENT_BYTES
from minikafka.broker.node import Node
from minikafka.broker.partitions import prepared_memory
from minikafka.broker.partitions.prepared_memory import PreparedMemory
from minikafka.broker.partitions.produce_preparation import Ready
from minikafka.client.admin import Admin
from minikafka.storage.config import LogConfig
from minikafka.storage.validation import Fitting
from minikafka.wire.batch import TRANSACTIONAL_BIT, assemble_batch
from minikafka.wire.compression import CompressionType, compress
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.record import encode_record

MIB = 1 << 20
VALUE = 200_000
#: What a partition of a fetch that waits was seen to take, at least.
MEASURED_BYTES = 300


class Client(PipelinedClient):
    def produce(self, records: list[bytes], transactional_id: str | None = None) -> None:
        """Send records for the partitions 0, 1 and so on of topic t."""
        data = [ProduceRequest.PartitionProduceData(index=index, records=one) for index, one in enumerate(records)]
        topics = [ProduceRequest.TopicProduceData(name="t", partition_data=data)]
        self.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics, transactional_id=transactional_id), 9)

    async def codes(self) -> set[int]:
        answer = await self.receive(ProduceResponse, 9)
        return {part.error_code for topic in answer.responses for part in topic.partition_responses}


def zeros(size: int, key: bytes | None = b"k") -> bytes:
    """A hundred bytes or so that become `size`."""
    body = compress(CompressionType.ZSTD, encode_record(0, 0, key, bytes(size), ()))
    return bytes(assemble_batch(body, count=1, base_timestamp=0, max_timestamp=0, attributes=int(CompressionType.ZSTD)))


async def topic(node: Node, partitions: int = 1, **configs: str) -> None:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=partitions, replication_factor=1, configs=configs)
    await led(node, ("t",), partitions)


def kept(node: Node) -> int:
    """Bytes that requests of clients keep, as the memory budget counts them."""
    connections = [connection for listener in node.listeners.values() for connection in listener.connections.values()]
    found = sum(connection._pending_bytes for connection in connections)
    assert node.budget.used >= found
    return found


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


class Gate:
    """Holds heavy work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.waiting = asyncio.Event(), 0
        run = HeavyWork.run

        async def held(work: HeavyWork, function: Any, *arguments: Any) -> Any:
            self.waiting += 1
            await self.opened.wait()
            return await run(work, function, *arguments)

        monkeypatch.setattr(HeavyWork, "run", held)


@pytest.mark.asyncio
async def test_a_frame_that_is_kept_while_its_batches_are_prepared_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node, **{"compression.type": "gzip"})
        gate = Gate(monkeypatch)
        client.produce([bytes(batch(bytes(VALUE)))])
        await until(lambda: gate.waiting)
        assert kept(node) >= VALUE
        gate.opened.set()
        assert await client.codes() == {0}
        await until(lambda: not kept(node))


@pytest.mark.asyncio
async def test_transactional_requests_that_wait_for_the_coordinator_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection had 256 of them wait, of any size: gigabytes."""
    asked: list[Any] = []

    def verify(self: Any, name: str, producer_id: int, epoch: int, partitions: Any, support: Any, done: Any) -> None:
        asked.append(lambda: done(dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)))

    monkeypatch.setattr(TransactionVerifier, "verify", verify)
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node)
        for number in range(3):
            records = batch(bytes(VALUE), producer=(7, 0, number), attributes=TRANSACTIONAL_BIT)
            client.produce([bytes(records)], "id")
            await until(lambda number=number: kept(node) >= (number + 1) * VALUE)
        for _ in range(3):
            await until(lambda: asked)
            asked.pop()()
            await client.codes()
        await until(lambda: not kept(node))


@pytest.mark.asyncio
async def test_a_long_request_that_waits_for_its_turn_counts(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node)
        assert node.broker is not None
        large = node.broker.dispatcher.large
        await large.admitted(BYTES_AT_ONCE)
        client.produce([bytes(batch(bytes(VALUE)))] + [bytes(batch(b"v"))] * 600)
        await until(lambda: kept(node) >= VALUE)
        large.left(BYTES_AT_ONCE)
        assert await client.codes() == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await until(lambda: not kept(node))


@pytest.mark.asyncio
async def test_a_fetch_of_many_partitions_that_waits_counts_as_what_is_made_of_it(tmp_path: Path) -> None:
    """It takes ten times as much memory as its frame: 256 of them on each of a hundred connections took all of a machine."""
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node, 40)
        topics = [FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition(partition=index) for index in range(40)])]
        client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=MIB, topics=topics), 12)
        await until(lambda: kept(node) >= 40 * MEASURED_BYTES)
        async with Client(node) as other:
            other.produce([bytes(batch(b"v"))])
            assert await other.codes() == {0}
        await until(lambda: not kept(node))


@pytest.mark.asyncio
async def test_the_elements_of_a_long_request_count(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node, Client(node) as client:
        assert node.broker is not None
        entry: Any = node.broker.dispatcher.entry(DescribeGroupsRequest.API_KEY)
        asked, go_on = asyncio.Event(), asyncio.Event()

        def around(handler: Any) -> Any:
            async def held(context: Any, request: Any) -> Any:
                asked.set()
                await go_on.wait()
                answer = handler(context, request)
                return await answer if asyncio.iscoroutine(answer) else answer

            return held

        entry.intercept(around)
        entry.is_async = True
        client.send(DescribeGroupsRequest(groups=[f"group-{number}" for number in range(2000)]), 5)
        await asked.wait()
        assert kept(node) >= 1500 * ELEMENT_BYTES, "but for the last step"
        go_on.set()
        await until(lambda: not kept(node))


@pytest.mark.asyncio
async def test_what_is_made_of_small_batches_counts_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of ten kilobytes became a hundred megabytes, one for each connection."""
    partitions, clients, size = 6, 4, 900_000
    used: list[tuple[int, int]] = []
    add = PreparedMemory.add

    def noted(memory: PreparedMemory, request: object, made: int) -> int:
        held = add(memory, request, made)
        used.append((memory._used, kept(node)))
        return held

    monkeypatch.setattr(prepared_memory, "PREPARED_BYTES_MAX", 2 * MIB)
    monkeypatch.setattr(PreparedMemory, "add", noted)
    async with live_node(tmp_path) as node:
        await topic(node, partitions, **{"compression.type": "uncompressed"})
        connections = [await Client(node).__aenter__() for _ in range(clients)]
        for client in connections:
            client.produce([zeros(size)] * partitions)
        for client in connections:
            assert await client.codes() == {0}
            await client.__aexit__()
    assert len(used) == partitions * clients
    assert max(made for made, _ in used) <= 2 * MIB + (partitions + 1) * MIB
    assert max(counted for _, counted in used) >= (partitions - 1) * size


async def test_the_oldest_request_goes_on_beyond_the_bound_and_then_the_next() -> None:
    memory, story = PreparedMemory(100), list[str]()

    async def prepare(name: str, batches: int) -> None:
        memory.begin(name)
        try:
            for number in range(batches):
                async with memory.turn(name):
                    await asyncio.sleep(0)
                    memory.add(name, 60)
                    story.append(f"{name}{number}")
        finally:
            await asyncio.sleep(0)
            memory.end(name)

    tasks = [asyncio.ensure_future(prepare(name, 4)) for name in ("a", "b", "c", "d")]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [line for line in story if line[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert story.index("b3") < story.index("d3") and story.index("a3") < story.index("b3")
    assert len(story) == 12 and not memory._held and not memory._waiting and memory._used == 0


def test_a_prepared_batch_is_for_the_configuration_for_which_it_was_prepared() -> None:
    config = LogConfig()
    partition: Any = SimpleNamespace(log=SimpleNamespace(config=config))
    ready = Ready(partition, config)
    assert ready.fitting(partition) is Fitting.DONE
    partition.log.config = dataclasses.replace(config)
    assert ready.fitting(partition) is Fitting.DONE, "nothing has changed"
    partition.log.config = dataclasses.replace(config, max_message_bytes=7)
    assert ready.fitting(partition) is Fitting.ELSEWHERE
    again: Any = SimpleNamespace(log=SimpleNamespace(config=config))
    assert ready.fitting(again) is Fitting.ELSEWHERE, "a topic that was made again"


@pytest.mark.asyncio
async def test_a_batch_prepared_before_the_topic_was_compacted_is_not_appended_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node, **{"compression.type": "gzip"})
        assert node.broker is not None
        log, run = node.broker.replicas.partitions["t", 0].log, HeavyWork.run

        async def changed_meanwhile(work: HeavyWork, function: Any, *arguments: Any) -> Any:
            made = await run(work, function, *arguments)
            log.update_config(dataclasses.replace(log.config, cleanup_policy=frozenset({"compact"})))
            return made

        monkeypatch.setattr(HeavyWork, "run", changed_meanwhile)
        client.produce([zeros(MIB - 1000, key=None)])
        assert await client.codes() <= {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_RECORD}
        assert log.log_end_offset == 0
        client.produce([zeros(MIB - 1000, key=None)])
        assert await client.codes() == {ErrorCode.INVALID_RECORD}
