"""A disk that is full or fails takes its log directory offline, says so, and loses nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.errors import DeliveryFailed
from minikafka.client.producer import Producer
from minikafka.storage.filesystem import OsFileSystem


class FaultyFile:
    """An open file whose writes fail once its disk has."""

    def __init__(self, file: Any, fails: Callable[[], int]) -> None:
        self._file = file
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Any, offset: int) -> int:
        self._check()
        return int(self._file.pwrite(data, offset))

    def fsync(self) -> None:
        self._check()
        self._file.fsync()

    def _check(self) -> None:
        number = self._fails()
        if number and number != errno.EMFILE:
            raise OSError(number, os.strerror(number), self._file.path)


class FaultyFileSystem(OsFileSystem):
    """`failures` maps a path's beginning to the errno with which its writes fail."""

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        number = self._failure(path)
        if number == errno.EIO:
            raise OSError(number, os.strerror(number), path)
        return super().read(path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        if self._failure(path) == errno.EMFILE:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return FaultyFile(super().open(path, create=create, read_only=read_only), lambda: self._failure(path))

    def _failure(self, path: str) -> int:
        return next((number for start, number in self.failures.items() if path.startswith(start)), 0)


class SlowFile(FaultyFile):
    """A file whose syncs wait until the disk has time."""

    def __init__(self, file: Any, has_time: threading.Event) -> None:
        super().__init__(file, lambda: 0)
        self._has_time = has_time

    def fsync(self) -> None:
        assert self._has_time.wait(60)
        self._file.fsync()


class SlowFileSystem(OsFileSystem):
    """`has_time`: whether syncs end."""

    def __init__(self) -> None:
        self.has_time = threading.Event()
        self.has_time.set()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        return SlowFile(super().open(path, create=create, read_only=read_only), self.has_time)


async def produce(bootstrap: str, topic: str, values: list[bytes], **options: Any) -> None:
    async with Producer(bootstrap, linger_ms=0, **options) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


async def consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < count and (records := await consumer.poll(5000)):
            found += [record.value for record in records]
    return found


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
async def test_one_directory_of_two_fails_and_the_other_goes_on(tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyFileSystem()
    async with live_node(tmp_path, filesystem=disk, log_dirs=2) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            for topic in ("a", "b"):
                await admin.create_topic(topic, partitions=1, replication_factor=1)
        assert node.broker is not None
        places = {name: directory for directory in node.directories for name, _ in directory.logs}
        second = node.directories[1].path
        hit, spared = sorted(places, key=lambda name: places[name].path != second)[:2]
        assert places[spared].path != second == places[hit].path, "the topics lie on different disks"
        for topic in ("a", "b"):
            await produce(bootstrap, topic, [b"%d" % n for n in range(20)])
        disk.failures[second] = number
        with pytest.raises(DeliveryFailed, match=r"KAFKA_STORAGE_ERROR|LEADER_NOT_AVAILABLE|REQUEST_TIMED_OUT"):
            await produce(bootstrap, hit, [b"lost"], delivery_timeout_ms=1500)
        await produce(bootstrap, spared, [b"still"])
        assert (await consume(bootstrap, spared, 21))[-1] == b"still"
        assert node.directories[1].is_offline
        assert not node.failed.done(), "the node serves what is left"
    assert any("is offline" in record.getMessage() and second in record.getMessage() for record in caplog.records)
    async with live_node(tmp_path, filesystem=disk, log_dirs=2) as node:
        assert node.directories[1].is_offline, "the disk still fails: the node starts without it"
        assert node.broker is not None
        assert (await consume(f"127.0.0.1:{broker_port(node)}", spared, 21))[-1] == b"still"
        assert node.broker.replicas.partition(hit, 0) is None, "no empty log takes the place of what lies on the failed disk"
        assert node.metadata.image.topics_by_name[hit].partitions[0].leader == -1
    disk.failures.clear()
    async with live_node(tmp_path, filesystem=disk, log_dirs=2) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        found = await consume(bootstrap, hit, 20)
        assert found[:20] == [b"%d" % n for n in range(20)], "what was acknowledged is there"


async def test_too_few_descriptors_are_not_a_dead_disk(tmp_path: Path) -> None:
    """A topic that is created meanwhile is made when there are some again, and no directory goes offline."""
    disk = FaultyFileSystem()
    async with live_node(tmp_path, filesystem=disk) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("a", partitions=1, replication_factor=1)
            await produce(bootstrap, "a", [b"1"])
            place = node.directories[0].path
            disk.failures[f"{place}/a-0"] = disk.failures[f"{place}/b-0"] = errno.EMFILE
            await admin.create_topic("b", partitions=1, replication_factor=1)
            assert node.broker is not None
            await produce(bootstrap, "a", [b"2"])
            assert node.broker.replicas.partition("b", 0) is None
            disk.failures.clear()
            await produce(bootstrap, "b", [b"3"])
        assert not node.failed.done() and not node.directories[0].is_offline
        assert await consume(bootstrap, "a", 2) == [b"1", b"2"]
        assert await consume(bootstrap, "b", 1) == [b"3"]


async def test_a_node_whose_only_directory_fails_says_that_it_cannot_go_on(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    async with live_node(tmp_path, filesystem=disk) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("a", partitions=1, replication_factor=1)
        await produce(bootstrap, "a", [b"1", b"2"])
        disk.failures[str(tmp_path)] = errno.ENOSPC
        with pytest.raises(DeliveryFailed):
            await produce(bootstrap, "a", [b"lost"], enable_idempotence=False, delivery_timeout_ms=500)
        assert "No space left" in str(await node.failed)
    disk.failures.clear()
    async with live_node(tmp_path, filesystem=disk) as node:
        assert (await consume(f"127.0.0.1:{broker_port(node)}", "a", 2))[:2] == [b"1", b"2"]


async def test_a_disk_that_takes_its_time_delays_what_waits_for_it_and_nobody_else(tmp_path: Path) -> None:
    disk = SlowFileSystem()
    async with live_node(tmp_path, filesystem=disk) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("a", partitions=1, replication_factor=1)
            await produce(bootstrap, "a", [b"first"])
            disk.has_time.clear()
            creating = asyncio.ensure_future(admin.create_topic("b", partitions=1, replication_factor=1))
            while node.raft.quorum.log.end_offset == node.raft.quorum.high_watermark:
                await asyncio.sleep(0.01)
            values = [b"%d" % number for number in range(20)]
            await produce(bootstrap, "a", values)
            assert await consume(bootstrap, "a", 21) == [b"first", *values]
            assert not creating.done(), "nothing is said to be decided that is not on disk"
            disk.has_time.set()
            await creating
            await produce(bootstrap, "b", [b"last"])
        assert not node.failed.done() and not node.directories[0].is_offline
