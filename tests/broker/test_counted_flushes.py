"""flush.messages: an append is answered, counts and is fetched on behind its sync, and the event loop does not wait for it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.storage.filesystem import OsFile
from minikafka.wire.batch import Record, build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.produce import ProduceRequest

TOPIC = "counted"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


class Disk:
    """Counts the syncs of the topic's log, lets them wait and fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = 0
        self.threads: set[int] = set()
        self.failures: list[OSError] = []
        original = OsFile.fsync

        def fsync(file: OsFile) -> None:
            if f"/{TOPIC}-" in file.path and file.path.endswith(".log"):
                self.threads.add(threading.get_ident())
                self.begun += 1
                assert self.go_on.wait(30)
                if self.failures:
                    raise self.failures.pop()
            original(file)

        monkeypatch.setattr(OsFile, "fsync", fsync)

    async def until_begun(self, count: int) -> None:
        await until(lambda: self.begun >= count)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.go_on.set()


class Client:
    """A connection that produces to the topic."""

    def __init__(self, channel: Channel, topic_id: bytes) -> None:
        self._channel = channel
        self._topic_id = topic_id

    async def produce(self, acks: int, records: int = 1) -> tuple[int, int]:
        """The error and the base offset of the answer."""
        kind = ProduceRequest
        data = kind.PartitionProduceData(
            index=0, records=memoryview(build_batch([Record(number, 0, None, b"v") for number in range(records)]))
        )
        topic = kind.TopicProduceData(name=TOPIC, topic_id=self._topic_id, partition_data=[data])
        answer: Any = await self._channel.request(kind(acks=acks, timeout_ms=20_000, topic_data=[topic]), timeout_ms=30_000)
        partition = answer.responses[0].partition_responses[0]
        return partition.error_code, partition.base_offset

    async def answers(self) -> None:
        """The broker answers another request."""
        await self._channel.request(MetadataRequest(topics=[]))


async def client_of(node: Node) -> Client:
    channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="counted")
    return Client(channel, partition_of(node).topic_id)


async def begun(node: Node, flush_messages: int) -> Client:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs={"flush.messages": str(flush_messages)})
    return await client_of(node)


def partition_of(node: Node) -> Any:
    assert node.broker is not None
    return node.broker.replicas.partitions[(TOPIC, 0)]


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_append_is_answered_behind_its_sync_and_the_loop_goes_on(tmp_path: Path, disk: Disk, acks: int) -> None:
    async with live_node(tmp_path) as node:
        client, other = await begun(node, 1), await client_of(node)
        disk.go_on.clear()
        appended = asyncio.create_task(client.produce(acks))
        await disk.until_begun(1)
        for _ in range(20):
            await other.answers()
        log = partition_of(node).log
        assert (log.log_end_offset, log.high_watermark, appended.done()) == (1, 0, False)
        disk.go_on.set()
        assert await appended == (0, 0)
        assert (log.recovery_point, log.high_watermark) == (1, 1)
        assert disk.threads.isdisjoint({threading.get_ident()})


async def test_appends_during_a_sync_share_the_next_one(tmp_path: Path, disk: Disk) -> None:
    async with live_node(tmp_path) as node:
        clients = [await begun(node, 1), *[await client_of(node) for _ in range(9)]]
        disk.go_on.clear()
        appended = [asyncio.create_task(clients[0].produce(1))]
        await disk.until_begun(1)
        appended += [asyncio.create_task(client.produce(1)) for client in clients[1:]]
        await until(lambda: partition_of(node).log.log_end_offset == 10)
        disk.go_on.set()
        assert sorted(await asyncio.gather(*appended)) == [(0, offset) for offset in range(10)]
        assert disk.begun == 2


async def test_fewer_records_than_flush_messages_wait_for_no_sync(tmp_path: Path, disk: Disk) -> None:
    async with live_node(tmp_path) as node:
        client, other = await begun(node, 6), await client_of(node)
        disk.go_on.clear()
        assert [await client.produce(-1, 2) for _ in range(2)] == [(0, 0), (0, 2)]
        third = asyncio.create_task(client.produce(-1, 3))
        await disk.until_begun(1)
        await other.answers()
        log = partition_of(node).log
        assert (log.log_end_offset, log.high_watermark, third.done()) == (7, 4, False), "no offset within a batch"
        disk.go_on.set()
        assert await third == (0, 4)
        assert log.recovery_point == 7


async def test_a_shortage_is_told_and_the_sync_is_repeated(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.broker.partitions.counted_flushes.RETRY_S", 0.01)
    async with live_node(tmp_path) as node:
        client = await begun(node, 1)
        disk.failures = [OSError(errno.ENOMEM, "injected")]
        assert (await client.produce(-1))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        log = partition_of(node).log
        await until(lambda: log.high_watermark == 1)
        assert (log.failure, log.recovery_point, log.log_end_offset) == (None, 1, 1)
        assert await client.produce(-1) == (0, 1)


async def test_a_disk_that_fails_is_told(tmp_path: Path, disk: Disk) -> None:
    async with live_node(tmp_path, log_dirs=2) as node:
        client = await begun(node, 1)
        disk.failures = [OSError(errno.EIO, "injected")]
        assert (await client.produce(1))[0] == ErrorCode.KAFKA_STORAGE_ERROR


async def test_records_count_when_flush_messages_no_longer_asks_for_a_sync(tmp_path: Path, disk: Disk) -> None:
    async with live_node(tmp_path) as node:
        client = await begun(node, 1)
        disk.go_on.clear()
        appended = asyncio.create_task(client.produce(-1))
        await disk.until_begun(1)
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.alter_configs(2, TOPIC, [("set", "flush.messages", "100")])
        assert await appended == (0, 0)
        disk.go_on.set()
