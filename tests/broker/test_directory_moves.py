"""AlterReplicaLogDirs: a replica moves to another disk of its broker while it is written to; a restart does not end the move."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.broker.partitions import log_placement
from minikafka.broker.partitions.partition import Partition
from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.storage.log_dir import LogDirectory
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest

SLOW = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}


async def ask(node: Node, request: Any) -> Any:
    network = SocketNetwork(asyncio.get_running_loop())
    channel = await Channel.open(network, "127.0.0.1", broker_port(node), client_id="t")
    try:
        return await channel.request(request)
    finally:
        channel.close()


async def move(node: Node, path: str, topic: str = "t") -> ErrorCode:
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[wanted])])
    return ErrorCode((await ask(node, request)).results[0].partitions[0].error_code)


def places(node: Node, topic: str = "t") -> tuple[LogDirectory, LogDirectory]:
    """(where the replica is, where it is not)."""
    here = next(d for d in node.directories if (topic, 0) in d.logs)
    return here, next(d for d in node.directories if d is not here)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def fill(node: Node, count: int, start: int = 0) -> None:
    async with Producer(f"127.0.0.1:{broker_port(node)}", linger_ms=0) as producer:
        for number in range(start, start + count):
            await (await producer.send("t", b"%d" % number * 50, partition=0))


async def values(node: Node) -> list[bytes | None]:
    async with Consumer(f"127.0.0.1:{broker_port(node)}", auto_offset_reset="earliest") as consumer:
        await consumer.assign([("t", 0)])
        found: list[bytes | None] = []
        while records := await consumer.poll(300):
            found += [record.value for record in records]
        return found


async def create(node: Node) -> None:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)


async def test_a_replica_moves_while_it_is_written_to(tmp_path: Path) -> None:
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 30)
        source, target = places(node)
        end_before = source.logs["t", 0].epochs.entries
        writing = asyncio.ensure_future(fill(node, 60, 30))
        assert await move(node, target.path) is ErrorCode.NONE
        await until(lambda: ("t", 0) in target.logs)
        await writing
        assert ("t", 0) not in source.logs
        assert await values(node) == [b"%d" % number * 50 for number in range(90)]
        assert target.logs["t", 0].epochs.entries[: len(end_before)] == end_before
        await until(lambda: node.metadata.image.topics_by_name["t"].partitions[0].directories == (target.directory_id,))
        assert await move(node, target.path) is ErrorCode.NONE, "it is there already"
        assert await move(node, str(tmp_path / "elsewhere")) is ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(node, source.path, "unknown") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(node, str(tmp_path / "elsewhere"), "unknown") is ErrorCode.LOG_DIR_NOT_FOUND
    async with live_node(tmp_path, log_dirs=2) as node:
        assert places(node)[0].path == target.path
        assert len(await values(node)) == 90


async def test_a_replica_that_does_not_exist_yet_is_created_in_the_directory_that_was_chosen_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_placement, "PREFERENCES_MAX", 2)
    async with live_node(tmp_path, log_dirs=2) as node:
        first, second = node.directories
        assert await move(node, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        longest = "l" * (255 - len(f"-0.{bytes(16).hex()}-future"))
        assert await move(node, first.path, longest) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(node, first.path, f"{longest}l") == ErrorCode.INVALID_TOPIC_EXCEPTION, "there is no room for the copy's name"
        for topic, directory in (("forgotten", second), ("t", first), ("u", second), ("t", second)):
            assert await move(node, directory.path, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            for topic in ("t", "u", "forgotten"):
                await admin.create_topic(topic, partitions=1, replication_factor=1)
        assert [places(node, topic)[0] for topic in ("t", "u")] == [second, second]
        assert places(node, "forgotten")[0] is first, "only the newest choices are kept, and this is the emptier directory"


async def test_a_relative_log_directory_is_reported_under_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DescribeLogDirs names directories from the root."""
    async with live_node(tmp_path, log_dirs=2):
        pass
    monkeypatch.chdir(tmp_path)
    async with live_node(tmp_path, {"log.dirs": "data-0,data-1"}) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        reported = [directory.log_dir for directory in (await ask(node, DescribeLogDirsRequest(topics=None))).results]
        assert reported == [str(tmp_path / "data-0"), str(tmp_path / "data-1")]
        paths = (*reported, "data-0", str(tmp_path / "data-2"))
        assert [await move(node, path) for path in paths] == [0, 0, 0, ErrorCode.LOG_DIR_NOT_FOUND]
        assert await move(node, reported[0], "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_slow_move_is_shown_goes_on_after_a_restart_and_ends_with_its_topic(tmp_path: Path) -> None:
    async with live_node(tmp_path, SLOW, log_dirs=2) as node:
        await create(node)
        await fill(node, 50)
        source, target = places(node)
        assert await move(node, target.path) is ErrorCode.NONE
        await fill(node, 10, 50)
        described = await ask(node, DescribeLogDirsRequest(topics=None))
        shown = [(r.log_dir, p.is_future_key, p.offset_lag > 0) for r in described.results for t in r.topics for p in t.partitions]
        assert sorted(shown) == sorted([(source.path, False, False), (target.path, True, True)])
    async with live_node(tmp_path, log_dirs=2) as node:
        await until(lambda: places(node)[0].path == target.path)
        assert len(await values(node)) == 60
        node.config.replica_alter_log_dirs_io_max_bytes_per_second = 1000
        await fill(node, 30, 60)
        source, target = places(node)
        assert await move(node, target.path) is ErrorCode.NONE
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.delete_topic("t")
        await until(lambda: not any(path.name.endswith("-future") for path in Path(target.path).iterdir()))


async def test_a_move_goes_on_when_its_throttle_is_taken_away(tmp_path: Path) -> None:
    """It slept as long as the old throttle asked for (ReassignPartitionsCommandTest of Apache Kafka)."""
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 50)
        source, target = places(node)
        throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.alter_configs(4, "1", [("set", throttle, "1")])
            assert await move(node, target.path) is ErrorCode.NONE
            await until(lambda: any(move.future.log_end_offset for move in node.broker.replicas.moves._moves.values()))
            assert ("t", 0) in source.logs
            await admin.alter_configs(4, "1", [("delete", throttle, None)])
            await asyncio.wait_for(until(lambda: ("t", 0) in target.logs), 20)
        assert len(await values(node)) == 50


@pytest.mark.parametrize("number", [0, 1])
async def test_of_two_copies_the_one_that_the_controller_registers_is_served(tmp_path: Path, number: int) -> None:
    """A broker that stopped between the renames of a move finds the log in both directories; the other one is set aside."""
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 10)
        if places(node)[0] is not node.directories[number]:
            assert await move(node, node.directories[number].path) is ErrorCode.NONE
            await until(lambda: ("t", 0) in node.directories[number].logs)
        wanted = node.directories[number].directory_id
        await until(lambda: node.metadata.image.topics_by_name["t"].partitions[0].directories == (wanted,))
        here, there = places(node)
    shutil.copytree(f"{here.path}/t-0", tmp_path / "before")
    async with live_node(tmp_path, log_dirs=2) as node:
        await fill(node, 20, 10)
    shutil.copytree(tmp_path / "before", f"{there.path}/t-0")
    async with live_node(tmp_path, log_dirs=2) as node:
        assert places(node)[0].path == here.path
        assert await values(node) == [b"%d" % n * 50 for n in range(30)]
        assert node.broker is not None and node.broker.replicas.placement.strays == 1
        assert ("t", 0) not in next(d for d in node.directories if d.path == there.path).logs
    (aside,) = Path(there.path).glob("t-0.*-stray")
    assert next(aside.glob("*.log")).stat().st_size == (tmp_path / "before" / f"{0:020d}.log").stat().st_size


async def test_the_old_name_is_durably_removed_before_the_copy_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut it would bring back a log that lacks what was appended since."""
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 10)
        source, target = places(node)
        unsynced: list[bool] = []
        assert node.broker is not None
        replicas, moved = node.broker.replicas, node.broker.replicas.moved

        def moved_now(partition: Partition) -> None:
            unsynced.append(source.prepare_sync() is not None)
            moved(partition)

        monkeypatch.setattr(replicas, "moved", moved_now)
        assert await move(node, target.path) is ErrorCode.NONE
        await until(lambda: bool(unsynced))
        assert unsynced == [False]
