"""AlterReplicaLogDirs: a replica moves to another disk of its broker while it is written to; a restart does not end the move."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.broker.partitions import directory_moves, log_placement
from minikafka.broker.partitions.partition import Partition
from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.storage.directory_files import Promotion
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import LogDirectory
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest

SLOW = {"replica.alter.log.dirs.io.max.bytes.per.second": "1"}


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


def copied(node: Node) -> int:
    """How many records the only move has copied. The first chunk has all that are there when it is read, however slow the throttle."""
    (moving,) = node.broker.replicas.moves._moves.values()
    return moving.future.log_end_offset


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
        await until(lambda: copied(node) == 50)
        await fill(node, 10, 50)
        described = await ask(node, DescribeLogDirsRequest(topics=None))
        shown = [(r.log_dir, p.is_future_key, p.offset_lag > 0) for r in described.results for t in r.topics for p in t.partitions]
        assert sorted(shown) == sorted([(source.path, False, False), (target.path, True, True)])
    async with live_node(tmp_path, log_dirs=2) as node:
        await until(lambda: places(node)[0].path == target.path)
        assert len(await values(node)) == 60
        node.config.replica_alter_log_dirs_io_max_bytes_per_second = 1
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
            await until(lambda: copied(node) == 50)
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


class WatchedFileSystem(OsFileSystem):
    """Notes renames and syncs in two log directories, and whether the event loop waited for them. `keep` is called after each."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = str(root)
        self.done: list[tuple[str, str, bool]] = []
        self.keep: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def _note(self, operation: str, path: str) -> None:
        on_loop = threading.current_thread() is threading.main_thread()
        with self._lock:
            if self.keep is not None:
                self.done.append((operation, path.removeprefix(self.root), on_loop))
                self.keep()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if source.rpartition("/")[2].startswith("t-0"):
            self._note("rename", target)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        if path.rpartition("/")[2].startswith("data-"):
            self._note("sync", path)


async def after_a_crash(path: Path, acknowledged: list[bytes], target: str) -> None:
    """A node on these files serves what was acknowledged, from one log, and the move ends."""
    async with live_node(path, log_dirs=2) as node:
        found = await values(node)
        assert found[: len(acknowledged)] == acknowledged
        assert len([directory for directory in node.directories if ("t", 0) in directory.logs]) == 1
        assert not list(path.glob("*/*-stray")), "a copy whose move did not end is no stray"
        moved_to = next(directory for directory in node.directories if directory.path.endswith(target))
        await until(lambda: ("t", 0) in moved_to.logs)
        assert await values(node) == found
        assert not list(path.glob("*/t-0/.copy"))


async def test_names_change_in_an_order_in_which_a_crash_loses_nothing(tmp_path: Path) -> None:
    """A copy of all files is kept after each step, as a killed process would leave them."""
    disk, crashes, kept = WatchedFileSystem(tmp_path), 0, list[int]()
    acknowledged = 0
    async with live_node(tmp_path, filesystem=disk, log_dirs=2) as node:
        await create(node)
        await fill(node, 30)
        source, target = places(node)

        def keep() -> None:
            kept.append(acknowledged)
            copied = False
            while not copied:  # a checkpoint may be renamed meanwhile
                with contextlib.suppress(OSError, shutil.Error):
                    shutil.rmtree(tmp_path / f"crash-{len(kept) - 1}", ignore_errors=True)
                    for number in range(2):
                        shutil.copytree(tmp_path / f"data-{number}", tmp_path / f"crash-{len(kept) - 1}" / f"data-{number}")
                    copied = True

        async def write() -> None:
            nonlocal acknowledged
            for number in range(30, 60):
                await fill(node, 1, number)
                acknowledged = number + 1

        disk.keep = keep
        writing = asyncio.ensure_future(write())
        assert await move(node, target.path) is ErrorCode.NONE
        assert node.broker is not None
        moved = asyncio.Event()
        real = node.broker.replicas.moved
        node.broker.replicas.moved = lambda partition: (real(partition), moved.set())  # type: ignore[method-assign, func-returns-value]
        await moved.wait()
        await writing
        disk.keep = None
        here, there = target.path.removeprefix(str(tmp_path)), source.path.removeprefix(str(tmp_path))
    done = [(what, path.partition(".")[0]) for what, path, _ in disk.done]
    named, removed = done.index(("rename", f"{here}/t-0")), done.index(("rename", f"{there}/t-0"))
    assert ("sync", here) in done[named:removed], "the copy's name is durable before it is served"
    assert ("sync", there) in done[removed:]
    assert [what for what, path, on_loop in disk.done if on_loop] == ["rename"], "the old name goes in the turn in which the copy is served"
    while (tmp_path / f"crash-{crashes}").exists():
        await after_a_crash(tmp_path / f"crash-{crashes}", [b"%d" % number * 50 for number in range(kept[crashes])], here)
        crashes += 1
    assert crashes >= 4


async def test_a_move_that_is_cancelled_while_the_copy_gets_its_name_leaves_no_copy(tmp_path: Path) -> None:
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 30)
        source, target = places(node)
        assert node.broker is not None
        moves, real = node.broker.replicas.moves, Promotion.run
        named = threading.Event()

        def slowly(promotion: Promotion) -> None:
            asyncio.run_coroutine_threadsafe(cancel(), loop).result()
            real(promotion)
            named.set()

        async def cancel() -> None:
            moves.cancel(node.broker.replicas.partitions["t", 0])  # type: ignore[union-attr]

        loop = asyncio.get_running_loop()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Promotion, "run", slowly)
            assert await move(node, target.path) is ErrorCode.NONE
            await until(named.is_set)
            await until(lambda: not any(path.name.startswith("t-0") for path in Path(target.path).iterdir()))
        assert ("t", 0) in source.logs and len(await values(node)) == 30
        assert await move(node, target.path) is ErrorCode.NONE
        await until(lambda: ("t", 0) in target.logs)
        assert len(await values(node)) == 30


class ShortFileSystem(OsFileSystem):
    """The next call of `operation` for a path with this end finds no descriptor, or no memory."""

    def __init__(self, operation: str, end: str) -> None:
        self.wanted: tuple[str, str] | None = (operation, end)
        self.is_moving = False

    def _check(self, operation: str, path: str) -> None:
        if self.is_moving and self.wanted is not None and operation == self.wanted[0] and path.endswith(self.wanted[1]):
            self.wanted = None
            raise OSError(errno.ENOMEM if operation == "unlink" else errno.EMFILE, "injected", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        self._check("open", path)
        return super().open(path, create=create, read_only=read_only)

    def fsync_dir(self, path: str) -> None:
        self._check("fsync_dir", path)
        super().fsync_dir(path)

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        super().unlink(path)


@pytest.mark.parametrize(
    ("operation", "end"),
    [("open", "-future/00000000000000000000.log"), ("open", "-future/partition.metadata"), ("open", "/.copy"), ("fsync_dir", "-future"),
     ("fsync_dir", "TARGET"), ("unlink", "/.copy"), ("fsync_dir", "SOURCE")],
)  # fmt: skip
async def test_a_move_that_lacks_descriptors_or_memory_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, end: str
) -> None:
    """It was given up, with all that was copied; or the copy, which had its name, was neither served nor removed."""
    monkeypatch.setattr(directory_moves, "SHORTAGE_RETRY_S", 0.01)
    disk = ShortFileSystem(operation, end)
    async with live_node(tmp_path, filesystem=disk, log_dirs=2) as node:
        await create(node)
        await fill(node, 30)
        source, target = places(node)
        disk.wanted = (operation, {"TARGET": target.path, "SOURCE": source.path}.get(end, end))
        disk.is_moving = True
        while await move(node, target.path) is ErrorCode.KAFKA_STORAGE_ERROR:
            assert disk.wanted is None, "what cannot begin is refused, and the client asks again"
        await until(lambda: ("t", 0) in target.logs and not source.has_unsynced_names)
        assert disk.wanted is None, "the shortage was met"
        assert not node.broker.replicas.moves._moves and not source.is_offline and not target.is_offline  # type: ignore[union-attr]
        assert len(await values(node)) == 30
    assert not list(tmp_path.glob("*/*-future")) and not list(tmp_path.glob("*/t-0/.copy"))


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
async def test_a_copy_that_cannot_get_its_name_does_not_end_the_log(tmp_path: Path, code: int) -> None:
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 30)
        source, target = places(node)

        def fails(promotion: Promotion) -> None:
            raise OSError(code, "injected")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Promotion, "run", fails)
            assert await move(node, target.path) is ErrorCode.NONE
            await until(lambda: not node.broker.replicas.moves._moves)  # type: ignore[union-attr]
        assert target.is_offline and not source.is_offline
        assert len(await values(node)) == 30


async def test_a_copy_of_a_log_whose_last_records_were_compacted_away_does_not_replace_it(tmp_path: Path) -> None:
    """Nothing is left to copy, but the copy ends before the log: served, it would give out offsets a second time."""
    async with live_node(tmp_path, log_dirs=2) as node:
        await create(node)
        await fill(node, 30)
        source, target = places(node)
        log = source.logs["t", 0]
        log.roll(0)
        for segment in log.segments[:-1]:  # as compaction leaves it when tombstones were last
            segment.truncate_to(20, 0, None)
        assert (log.log_end_offset, log.read(20, 1 << 20, end_offset=30).slice.size) == (30, 0)
        assert await move(node, target.path) is ErrorCode.NONE
        assert node.broker is not None
        moves, looks = node.broker.replicas.moves, 0
        real = moves._copy_chunk

        def look(going_on: Any) -> int:
            nonlocal looks
            looks += going_on.future.log_end_offset == 20
            return real(going_on)

        moves._copy_chunk = look  # type: ignore[method-assign]
        await until(lambda: looks > 5 or ("t", 0) in target.logs)
        assert ("t", 0) in source.logs and log.log_end_offset == 30
        await fill(node, 1, 30)
        await until(lambda: ("t", 0) in target.logs)
        assert target.logs["t", 0].log_end_offset == 31
        assert await values(node) == [b"%d" % number * 50 for number in (*range(20), 30)]
