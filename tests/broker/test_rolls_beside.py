"""Before a compacted log begins a segment, it is synced: after a power cut, a gap of lost records would look like one that compaction left.
The event loop does not wait for that."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.live_node import broker_port, live_node
from helpers.replica_world import SilentEvents

from minikafka.broker.node import Node
from minikafka.broker.partitions import counted_flushes
from minikafka.broker.partitions.fetcher import Fetcher
from minikafka.broker.partitions.partition import LeaderRules, Partition
from minikafka.broker.supervise import Supervisor
from minikafka.client.admin import Admin
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.core.replication_quota import ReplicationQuota
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.net.turn_share import TurnShares
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFile, OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.wire.messages.fetch import FetchResponse
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.produce import ProduceRequest

HOUR_MS = 3_600_000


@pytest.fixture
def synced_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Paths that this thread, which runs the event loop, has synced."""
    here, found = threading.get_ident(), list[str]()
    sync_file, sync_directory = OsFile.fsync, OsFileSystem.fsync_dir

    def file(self: OsFile) -> None:
        if threading.get_ident() == here:
            found.append(self.path)
        sync_file(self)

    def directory(self: OsFileSystem, path: str) -> None:
        if threading.get_ident() == here:
            found.append(path)
        sync_directory(self, path)

    monkeypatch.setattr(OsFile, "fsync", file)
    monkeypatch.setattr(OsFileSystem, "fsync_dir", directory)
    yield found


def log_of(node: Node, topic: str, index: int = 0) -> Log:
    assert node.broker is not None
    return node.broker.replicas.partitions[topic, index].log


async def opened(node: Node) -> Channel:
    return await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="c")


def produce(hour: int, *partitions: int) -> ProduceRequest:
    kind = ProduceRequest
    data = [kind.PartitionProduceData(index=index, records=memoryview(batch(b"v", timestamp=T0 + hour * HOUR_MS))) for index in partitions]
    return kind(acks=-1, timeout_ms=5000, topic_data=[kind.TopicProduceData(name="t", partition_data=data)])


async def test_records_of_clients(tmp_path: Path, synced_here: list[str]) -> None:
    async with live_node(tmp_path) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            configs = {"cleanup.policy": "compact", "segment.ms": "1000", "message.timestamp.after.max.ms": "9223372036854775807"}
            await admin.create_topic("t", partitions=2, replication_factor=1, configs=configs)
        channel = await opened(node)
        synced_here.clear()
        for hour in range(6):
            # Single ones, which take the fast path once it knows them, and several at a time from two clients.
            await asyncio.gather(*(channel.request(produce(3 * hour + n, 0), version=12) for n in range(2)))
            answer: Any = await channel.request(produce(3 * hour + 2, 0, 1), version=12)
            assert not any(part.error_code for part in answer.responses[0].partition_responses)
        rolls, found = len(log_of(node, "t").segments) - 1, [path for path in synced_here if "/t-" in path]
        assert log_of(node, "t").log_end_offset == 18 and rolls == 17 and not found
        channel.close()


async def test_records_of_coordinators(tmp_path: Path, synced_here: list[str]) -> None:
    kind = OffsetCommitRequest
    async with live_node(tmp_path, {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "1048576"}) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=16, replication_factor=1)
            channel = await opened(node)
            await channel.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g0"]))

            async def commit(number: int) -> int:
                one = kind.OffsetCommitRequestPartition
                partitions = [one(partition_index=index, committed_offset=number, committed_metadata="m" * 3000) for index in range(16)]
                request = kind(group_id=f"g{number}", topics=[kind.OffsetCommitRequestTopic(name="t", partitions=partitions)])
                answer: Any = await channel.request(request, version=8)
                return sum(int(partition.error_code) for partition in answer.topics[0].partitions)

            while await commit(0):
                await asyncio.sleep(0)
            synced_here.clear()
            for number in range(0, 72, 8):
                assert not any(await asyncio.gather(*(commit(number + n) for n in range(8))))
        log = log_of(node, "__consumer_offsets")
        assert len(log.segments) > 3 and log.log_end_offset == 16 * 73
        assert not [path for path in synced_here if "__consumer_offsets" in path]
        channel.close()


Sent = asyncio.Queue[tuple[Any, Any]]


def following(log: Log, run_blocking: Any) -> tuple[Fetcher, Partition, Sent]:
    """A follower of broker 2, its replica, and the requests that it sends."""
    loop = asyncio.get_running_loop()
    partition = Partition(SilentEvents(), LeaderRules(1, 1000, lambda *_: True), "t", bytes(15) + b"\x01", 0, log)
    partition.make_follower(PartitionRegistration((1, 2), (1, 2), 2, 0, 0))
    sent: Sent = asyncio.Queue()
    config = SimpleNamespace(
        replica_fetch_max_bytes=1, replica_fetch_wait_max_ms=1, replica_fetch_min_bytes=1, replica_fetch_response_max_bytes=1,
        replica_socket_timeout_ms=1, replica_fetch_backoff_ms=1,
    )  # fmt: skip
    environment = SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: 0, wall_ms=lambda: T0), supervisor=Supervisor(loop), shares=TurnShares(lambda: 0.0),
        run_blocking=run_blocking,
    )  # fmt: skip
    replication: Any = SimpleNamespace(
        environment=environment, config=config, broker_epoch=lambda: 7, broker_id=1, throttles=SimpleNamespace(follower=ReplicationQuota())
    )
    fetcher = Fetcher(replication, SilentEvents(), lambda *_: None, 2, 0)
    fetcher._channel = SimpleNamespace(  # type: ignore[assignment]
        closed=False, send=lambda request, version, answered, timeout_ms: sent.put_nowait((request, answered)), close=lambda reason: None
    )
    fetcher.add(partition)
    fetcher.wake()
    return fetcher, partition, sent


def compacted(path: Path) -> Log:
    return load_log(OsFileSystem(), f"{path}/t-0", "t", 0, LogConfig(cleanup_policy="compact", segment_ms=1000), wall_ms=T0)


def hourly(offset: int) -> memoryview:
    return memoryview(batch(b"v", base_offset=offset, epoch=0, timestamp=T0 + offset * HOUR_MS))


async def answer_one(partition: Partition, sent: Sent) -> None:
    _, answered = await sent.get()
    data = FetchResponse.PartitionData(partition_index=0, high_watermark=0, records=hourly(partition.log.log_end_offset))
    topic = FetchResponse.FetchableTopicResponse(topic_id=partition.topic_id, partitions=[data])
    answered(FetchResponse(session_id=9, responses=[topic]), None)


async def beside(function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def test_records_of_a_leader(tmp_path: Path, synced_here: list[str]) -> None:
    log = compacted(tmp_path)
    fetcher, partition, sent = following(log, beside)
    synced_here.clear()
    while log.log_end_offset < 8:
        await answer_one(partition, sent)
    assert len(log.segments) == 8 and not synced_here
    fetcher.close("the test is over")


@pytest.mark.parametrize("is_moved", [True, False])
async def test_a_log_that_is_replaced_before_it_is_synced(tmp_path: Path, caplog: pytest.LogCaptureFixture, is_moved: bool) -> None:
    """A move between directories ends before the sync begins. Following stopped for good, because the old log is closed."""
    log, copy = compacted(tmp_path / "from"), compacted(tmp_path / "to")
    fetcher, partition, sent = following(log, beside)
    async with asyncio.timeout(60):
        await answer_one(partition, sent)
        assert log.log_end_offset == 1 and log.must_sync_first(hourly(1), -1)
        await answer_one(partition, sent)
        copy.append_as_follower(hourly(0))
        if is_moved:
            partition.log = copy
        log.close_files()
        if is_moved:
            while copy.log_end_offset < 4:
                await answer_one(partition, sent)
        else:
            while "stopped following" not in caplog.text:
                await asyncio.sleep(0)
    assert ("stopped following" in caplog.text) is not is_moved
    fetcher.close("the test is over")


@pytest.mark.parametrize("is_followed_anew", [False, True])
async def test_a_follower_says_that_it_has_records_when_flush_messages_has_let_them_be_synced(
    tmp_path: Path, synced_here: list[str], is_followed_anew: bool
) -> None:
    log = load_log(OsFileSystem(), f"{tmp_path}/t-0", "t", 0, LogConfig(flush_messages=1), wall_ms=T0)
    go_on = asyncio.Event()

    async def later(function: Any, *arguments: Any) -> Any:
        await go_on.wait()
        return await beside(function, *arguments)

    fetcher, partition, sent = following(log, later)
    synced_here.clear()
    async with asyncio.timeout(60):
        await answer_one(partition, sent)
        if is_followed_anew:
            fetcher.remove(partition)
            fetcher.add(partition)
            fetcher.wake()
        for _ in range(50):
            await asyncio.sleep(0)
        # Not even one that leaves the partition out: it would be parked, and Apache Kafka answers the next one after it.
        assert log.log_end_offset == 1 and sent.empty()
        go_on.set()
        request, _ = await sent.get()
        assert request.topics[0].partitions[0].fetch_offset == log.recovery_point == 1
    assert not synced_here
    fetcher.close("the test is over")


async def test_other_partitions_do_not_wait_for_a_sync_that_lacks_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_flushes, "RETRY_S", 0)
    log = load_log(OsFileSystem(), f"{tmp_path}/t-0", "t", 0, LogConfig(flush_messages=1), wall_ms=T0)
    failures = [OSError(errno.EMFILE, "Too many open files")]

    async def short(function: Any, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await beside(function, *arguments)

    fetcher, partition, sent = following(log, short)
    async with asyncio.timeout(60):
        await answer_one(partition, sent)
        others, answered = await sent.get()
        assert not others.topics and others.forgotten_topics_data
        answered(FetchResponse(session_id=9), None)
        while True:
            request, answered = await sent.get()
            if request.topics:
                break
            answered(FetchResponse(session_id=9), None)
    assert not failures and request.topics[0].partitions[0].fetch_offset == log.recovery_point == 1
    fetcher.close("the test is over")
