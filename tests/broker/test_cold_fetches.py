"""Records that are not in memory are read beside the event loop before they are sent: only those wait who ask for them."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer

from minikafka.broker.cold_reads import READ_THROUGH_AT_ONCE
from minikafka.client.admin import Admin
from minikafka.storage import portable
from minikafka.storage.filesystem import OsFile
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.produce import ProduceRequest

VERSION = 12
BATCH = bytes(build_batch([(0, 1, b"k", os.urandom(20_000), ())]))
BATCHES = 3


class ColdDisk:
    """Segments of topic `t` are in memory only when they have been read from their beginning to their end on another thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.reading = 0
        self.most = 0
        self.is_warm = False
        #: False while a node starts, which reads the end of each log.
        self.is_on = False
        self.may_read = threading.Event()
        self.fails = False
        loop_thread, pread_into = threading.get_ident(), OsFile.pread_into

        def is_cached(file: OsFile, position: int, size: int) -> bool:
            self.asked += 1
            return self.is_warm or "/t-" not in file.path

        def slow(file: OsFile, buffer: memoryview, position: int) -> int:
            if self.is_on and threading.get_ident() != loop_thread and "/t-" in file.path and file.path.endswith(".log"):
                self.reading += 1
                self.most = max(self.most, self.reading)
                self.may_read.wait(30)
                self.reading -= 1
                if self.fails:
                    raise OSError(errno.EIO, "injected")
                self.is_warm = True
            return pread_into(file, buffer, position)

        monkeypatch.setattr(OsFile, "is_cached", is_cached)
        monkeypatch.setattr(OsFile, "pread_into", slow)


def fetch(offset: int, max_bytes: int = 1 << 20, wait_ms: int = 0) -> FetchRequest:
    kind = FetchRequest
    topics = [kind.FetchTopic(topic="t", partitions=[kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)])]
    return kind(max_bytes=1 << 30, session_epoch=-1, topics=topics, max_wait_ms=wait_ms, min_bytes=1)


def records_of(answer: Any) -> bytes:
    (topic,) = answer.responses
    assert topic.partitions[0].error_code == ErrorCode.NONE
    return bytes(topic.partitions[0].records or b"")


async def prepared(directory: Path) -> bytes:
    """Write records, and end the node, so that the next one has not appended them itself."""
    async with live_node(directory) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        async with Peer(broker_port(node)) as peer:
            kind = ProduceRequest
            for _ in range(BATCHES):
                data = [kind.PartitionProduceData(index=0, records=BATCH)]
                request = kind(acks=1, timeout_ms=1000, topic_data=[kind.TopicProduceData(name="t", partition_data=data)])
                answer = await peer.ask(request, 8)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            return records_of(await peer.ask(fetch(0), VERSION))


@pytest.mark.parametrize("max_bytes", [1 << 20, 1])
async def test_a_cold_read_keeps_nobody_else_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int) -> None:
    written = await prepared(tmp_path)
    disk = ColdDisk(monkeypatch)
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as one, Peer(broker_port(node)) as other:
        disk.is_on = True
        asked = asyncio.ensure_future(one.ask(fetch(0, max_bytes), VERSION))
        while not disk.reading:
            await asyncio.sleep(0.01)
        kind = ListOffsetsRequest
        latest = kind.ListOffsetsPartition(partition_index=0, timestamp=-1)
        answer = await other.ask(kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name="t", partitions=[latest])]), 7)
        assert answer.topics[0].partitions[0].offset == BATCHES and not asked.done()
        disk.may_read.set()
        got = records_of(await asked)
        assert got and written.startswith(got) and (max_bytes == 1 or got == written)
        for _ in range(3):  # templates of the fast path are learned meanwhile
            assert records_of(await one.ask(fetch(0, max_bytes), VERSION)) == got
        disk.is_warm = False
        disk.may_read.clear()
        asked = asyncio.ensure_future(one.ask(fetch(0, max_bytes), VERSION))
        while not disk.reading:
            await asyncio.sleep(0.01)
        disk.may_read.set()
        assert records_of(await asked) == got


async def test_few_cold_reads_run_at_once_and_recent_records_are_not_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepared(tmp_path)
    disk = ColdDisk(monkeypatch)
    async with live_node(tmp_path) as node:
        disk.is_on = True
        peers = [Peer(broker_port(node)) for _ in range(READ_THROUGH_AT_ONCE + 2)]
        async with peers[0], peers[1], peers[2], peers[3]:
            asked = [asyncio.ensure_future(peer.ask(fetch(0), VERSION)) for peer in peers]
            while disk.reading < READ_THROUGH_AT_ONCE:
                await asyncio.sleep(0.01)
            disk.may_read.set()
            assert len({records_of(answer) for answer in await asyncio.gather(*asked)}) == 1
            assert disk.most == READ_THROUGH_AT_ONCE
            waiting = asyncio.ensure_future(peers[0].ask(fetch(BATCHES, wait_ms=20_000), VERSION))
            kind = ProduceRequest
            data = [kind.PartitionProduceData(index=0, records=BATCH)]
            disk.asked, disk.is_warm = 0, False
            await peers[1].ask(kind(acks=1, timeout_ms=1000, topic_data=[kind.TopicProduceData(name="t", partition_data=data)]), 8)
            assert len(records_of(await waiting)) == len(BATCH) and not disk.asked


async def test_a_disk_that_fails_while_it_is_read_through_is_found_by_the_read_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = await prepared(tmp_path)
    disk = ColdDisk(monkeypatch)
    disk.fails = True
    disk.may_read.set()
    async with live_node(tmp_path) as node, Peer(broker_port(node)) as one:
        disk.is_on = True
        assert records_of(await one.ask(fetch(0), VERSION)) == written, "this disk can read after all"
        assert isinstance(await one.ask(fetch(BATCHES), VERSION), FetchResponse)


def test_what_the_system_says_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFile(str(tmp_path / "f"), os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT))
    file.pwrite(bytes(400_000), 0)
    assert file.is_cached(0, 400_000) and file.is_cached(399_999, 1)
    asked: list[int] = []

    def preadv(fd: int, buffers: Any, position: int, flags: int) -> int:
        asked.append(position)
        if position in failing:
            raise failing[position]
        return 1

    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    monkeypatch.setattr(os, "preadv", preadv)
    failing: dict[int, OSError] = {}
    assert file.is_cached(10, 300_000) and asked == [10, 10 + 131_072, 10 + 262_144, 300_009]
    failing[300_009] = BlockingIOError(errno.EAGAIN, "")
    assert not file.is_cached(10, 300_000)
    failing[300_009] = OSError(errno.EOPNOTSUPP, "")
    assert file.is_cached(10, 300_000), "this file system does not tell"
    monkeypatch.delattr(os, "RWF_NOWAIT")
    failing[10] = BlockingIOError(errno.EAGAIN, "")
    assert portable.is_cached(file.fileno(), 10, 300_000), "this system does not tell"
    file.close()
