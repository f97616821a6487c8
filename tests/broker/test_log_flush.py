"""Syncs of one log beside the loop, whose callers are cancelled while the disk is at work."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.log_flush import flush, sync_cut
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import StorageError
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log


def log_of(disk: MemoryFileSystem) -> Log:
    log = load_log(disk, "/data/t-0", "t", 0, LogConfig(), wall_ms=T0)
    for number in range(4):
        log.append_as_leader(memoryview(batch(b"%d" % number)), 0, T0)
    return log


class Disk:
    """Runs on "a thread" when it is told to."""

    def __init__(self) -> None:
        self.may_run = asyncio.Event()

    async def run(self, function: Callable[[], Any]) -> Any:
        await self.may_run.wait()
        return function()


async def begin_and_cancel(work: Any) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("kind", ["flush", "cut"])
async def test_a_sync_that_fails_after_its_caller_was_cancelled_takes_the_log_offline(kind: str) -> None:
    """The disk reports a lost page once. The sync counted as not done, and the next one succeeded."""
    memory, disk = MemoryFileSystem(), Disk()
    log = log_of(memory)
    if kind == "cut":
        log.flush()
        log.truncate_to(2, T0)
    task = await begin_and_cancel((flush if kind == "flush" else sync_cut)(log, disk.run))
    assert not task.done(), "the thread is at work, and uses the file"
    assert log.segments.active.close_if_idle() is False
    memory.fail("fsync", errno.EIO)
    disk.may_run.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.failure is not None
    with pytest.raises(StorageError):
        log.append_as_leader(memoryview(batch(b"on")), 0, T0)


@pytest.mark.parametrize("kind", ["flush", "cut"])
async def test_a_sync_that_ends_after_its_caller_was_cancelled_counts(kind: str) -> None:
    memory, disk = MemoryFileSystem(), Disk()
    log = log_of(memory)
    if kind == "cut":
        log.flush()
        log.truncate_to(2, T0)
    task = await begin_and_cancel((flush if kind == "flush" else sync_cut)(log, disk.run))
    disk.may_run.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.failure is None and not log.durability.is_cut
    if kind == "flush":
        assert log.recovery_point == 4


async def test_a_thread_that_never_ran_has_synced_nothing() -> None:
    log = log_of(MemoryFileSystem())

    async def refused(function: Callable[[], Any]) -> Any:
        raise RuntimeError("cannot schedule new futures after shutdown")

    with pytest.raises(RuntimeError):
        await flush(log, refused)
    assert log.recovery_point == 0 and log.durability.is_flush_requested
    log.flush()
    assert log.recovery_point == 4
