"""Nothing that a client asks for makes a turn of the loop wait for the disk: records, indexes, searches by time, metadata, moves."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from helpers.batches import T0, batch, marker
from helpers.cold_disk import ColdDisk
from helpers.live_node import broker_port, controller_port, live_node
from helpers.peer import Peer

from minikafka.broker.cold_reads import ColdReads
from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.storage.cold_reads import NotInMemory
from minikafka.storage.log import Log
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1", "group.share.assignment.interval.ms": "0",
}  # fmt: skip
METADATA_TOPIC_ID = bytes(15) + b"\1"
ROUNDS = 60
#: Each round has two batches and a marker; the timestamps of every second batch are those of long ago.
PER_ROUND = 3
TRANSACTIONAL = 0x10


def log_of(node: Node) -> Log:
    assert node.broker is not None
    log: Log = node.broker.replicas.partitions["t", 0].log
    return log


def written(log: Log) -> None:
    """Many segments, of some pages each, with entries in all indexes."""
    log.update_config(dataclasses.replace(log.config, segment_bytes=40_000, index_interval_bytes=400))
    for number in range(ROUNDS):
        data = batch(bytes(3000), timestamp=T0 + 1000 * number, producer=(7, 0, number), attributes=TRANSACTIONAL)
        log.append_as_leader(memoryview(data), 0, T0)
        log.append_as_leader(memoryview(marker(7, 0, abort=number % 2 == 0)), 0, T0, origin="coordinator")
        log.append_as_leader(memoryview(batch(bytes(3000), timestamp=T0 - 1)), 0, T0)


@asynccontextmanager
async def cold_node(directory: Path) -> AsyncIterator[tuple[Node, ColdDisk]]:
    """A node that has not written its log itself, on a disk of which nothing is in memory."""
    async with live_node(directory, PROPERTIES, log_dirs=2) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
        kind = IncrementalAlterConfigsRequest
        earliest = kind.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        request = kind(resources=[kind.AlterConfigsResource(resource_type=32, resource_name="g", configs=[earliest])])
        async with Peer(broker_port(node)) as peer:
            assert (await peer.ask(request, 1)).responses[0].error_code == ErrorCode.NONE
        written(log_of(node))
    disk = ColdDisk()
    async with live_node(directory, PROPERTIES, filesystem=disk, log_dirs=2) as node:
        disk.cool()
        yield node, disk


def fetch(offset: int, *, max_bytes: int = 5_000, isolation: int = 0, min_bytes: int = 1, wait_ms: int = 0) -> FetchRequest:
    kind = FetchRequest
    wanted = [kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)]
    topics = [kind.FetchTopic(topic="t", partitions=wanted)]
    return kind(max_bytes=1 << 20, session_epoch=-1, topics=topics, max_wait_ms=wait_ms, min_bytes=min_bytes, isolation_level=isolation)


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    kind = ListOffsetsRequest
    wanted = [kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    return kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name="t", partitions=wanted)])


async def fetches(node: Node, peer: Peer, **asked: int) -> list[Any]:
    found = []
    for offset in range(0, PER_ROUND * ROUNDS, 7):
        for _ in range(3):  # the third takes the fast path
            (topic,) = (await peer.ask(fetch(offset, **asked), 12)).responses
            (data,) = topic.partitions
            assert data.error_code == ErrorCode.NONE
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
            found.append((bytes(data.records), aborted, data.high_watermark))
    return found


async def uncommitted(node: Node, peer: Peer) -> Any:
    return await fetches(node, peer)


async def committed(node: Node, peer: Peer) -> Any:
    return await fetches(node, peer, isolation=1, max_bytes=60_000)


async def waiting(node: Node, peer: Peer) -> Any:
    """It has to look where the wanted records begin and end, more than once."""
    answer = asyncio.ensure_future(peer.ask(fetch(PER_ROUND * ROUNDS - 2, min_bytes=4_000, max_bytes=1 << 20, wait_ms=20_000), 12))
    assert node.broker is not None
    while not len(node.broker.replicas.waiting.fetches):
        await asyncio.sleep(0.01)
    async with Peer(broker_port(node)) as other:
        await produced(node, other)
    return len((await answer).responses[0].partitions[0].records)


async def produced(node: Node, peer: Peer) -> Any:
    kind = ProduceRequest
    data = [kind.PartitionProduceData(index=0, records=bytes(batch(bytes(2000))))]
    answer = await peer.ask(kind(acks=1, timeout_ms=1000, topic_data=[kind.TopicProduceData(name="t", partition_data=data)]), 8)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NONE
    return partition.base_offset


async def by_time(node: Node, peer: Peer) -> Any:
    found = []
    for timestamp in (T0 - 5, T0 + 1, *(T0 + 1000 * number for number in range(0, ROUNDS, 9)), T0 + 10**9, -3):
        (topic,) = (await peer.ask(list_offsets(timestamp), 7)).topics
        (data,) = topic.partitions
        assert data.error_code == ErrorCode.NONE
        found.append((data.offset, data.timestamp))
    assert found[0] == (0, T0) and found[-2] == (-1, -1)
    return found


async def shared(node: Node, peer: Peer) -> Any:
    """A member's fetches, until it gets records."""
    epoch, assigned = 0, False
    while not assigned:
        names = ["t"] if epoch == 0 else None
        request = ShareGroupHeartbeatRequest(group_id="g", member_id="A" * 22, member_epoch=epoch, subscribed_topic_names=names)
        answer = await peer.ask(request, 1)
        if answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            await peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
        else:
            assert answer.error_code == ErrorCode.NONE, answer
            epoch = answer.member_epoch
            assigned = answer.assignment is not None and bool(answer.assignment.topic_partitions)
        await asyncio.sleep(0.01)
    kind = ShareFetchRequest
    found, session_epoch = list[tuple[int, int]](), 0
    while not found:
        partition = kind.FetchPartition(partition_index=0, acknowledgement_batches=[])
        topics = [kind.FetchTopic(topic_id=node.metadata.image.topics_by_name["t"].topic_id, partitions=[partition])]
        request = kind(
            group_id="g", member_id="A" * 22, share_session_epoch=session_epoch, max_wait_ms=500, min_bytes=1, max_bytes=20_000,
            max_records=9, batch_size=9, topics=topics,
        )  # fmt: skip
        answer = await peer.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        session_epoch += 1
        found = [
            (one.first_offset, one.last_offset) for topic in answer.responses for p in topic.partitions for one in p.acquired_records
        ]
    return found


async def moved(node: Node, peer: Peer) -> Any:
    here = next(directory for directory in node.directories if ("t", 0) in directory.logs)
    there = next(directory for directory in node.directories if directory is not here)
    kind = AlterReplicaLogDirsRequest
    wanted = kind.AlterReplicaLogDirTopic(name="t", partitions=[0])
    await peer.ask(kind(dirs=[kind.AlterReplicaLogDir(path=there.path, topics=[wanted])]), 2)
    while ("t", 0) not in there.logs:
        await asyncio.sleep(0.01)
    return log_of(node).log_end_offset


async def metadata(node: Node, peer: Peer) -> Any:
    """A replica of the metadata log that is far behind."""
    async with Peer(controller_port(node)) as controller:
        kind = FetchRequest
        wanted = kind.FetchPartition(
            partition=0, fetch_offset=1, current_leader_epoch=node.raft.quorum.epoch, last_fetched_epoch=1, partition_max_bytes=1 << 20
        )
        topics = [kind.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])]
        state = kind.ReplicaState(replica_id=9)
        answer = await controller.ask(kind(replica_state=state, max_wait_ms=0, topics=topics), 17)
        return [one.next_offset for one in iterate_batches(bytes(answer.responses[0].partitions[0].records))]


Work = Callable[[Node, Peer], Awaitable[Any]]
#: One inode in a turn may be read still: of the file to which a batch is appended first, and of that which shows that descriptors are left.
OPENED_FIRST = (f"{PER_ROUND * ROUNDS - 18:020d}.log -1']", "meta.properties -1']")


WORKS = (uncommitted, committed, waiting, produced, by_time, shared, moved, metadata)


@pytest.mark.parametrize("work", WORKS, ids=[work.__name__ for work in WORKS])
async def test_no_turn_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    async with cold_node(tmp_path / "cold") as (node, disk), Peer(broker_port(node)) as peer:
        with disk.measured(monkeypatch) as long_turns:
            found = await work(node, peer)
        assert not [turn for turn in long_turns if not turn.endswith(OPENED_FIRST)], long_turns
    async with cold_node(tmp_path / "warm") as (node, disk), Peer(broker_port(node)) as peer:
        disk.is_cold = False
        assert await work(node, peer) == found or work is metadata


def test_a_reading_that_nobody_waits_for_does_nothing(recwarn: pytest.WarningsRecorder) -> None:
    """The connection of a fetch ended between two steps: Python warned of a coroutine that was never awaited."""
    read: list[str] = []

    async def run_blocking(work: Callable[..., object], *arguments: object) -> None:
        work(*arguments)

    async def drop_one_and_await_one() -> None:
        reads = ColdReads(run_blocking, cast(Any, None))
        for name in ("dropped", "awaited"):
            reading = reads.read(NotInMemory(name, 0, partial(read.append, name)))
            if name == "awaited":
                await reading
        reads.read_slices([])
        gc.collect()

    asyncio.run(drop_one_and_await_one())
    assert read == ["awaited"] and not list(recwarn)
