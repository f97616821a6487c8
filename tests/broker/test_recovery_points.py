"""The checkpoints of a log directory never say more of a log than is true: a start after a crash believes them (LogManager.truncateTo,
asyncDelete). And no two threads write one of them: they would share its temporary file."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import random
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.partitions.cleaner import LogCleaner
from minikafka.broker.partitions.log_upkeep import LogUpkeep
from minikafka.broker.supervise import Supervisor
from minikafka.net.turn_share import TurnShares
from minikafka.storage import checkpoint
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import StorageError
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory

POINTS, STARTS = "/d/recovery-point-offset-checkpoint", "/d/log-start-offset-checkpoint"
CLEANED = "/d/cleaner-offset-checkpoint"
CONFIG = LogConfig(segment_bytes=4096)


def opened(disk: MemoryFileSystem) -> LogDirectory:
    if not disk.is_dir("/d"):
        format_directory(disk, "/d", MetaProperties("x" * 22, 1, bytes(16)), T0)
    directory = LogDirectory(disk, "/d")
    directory.open()
    directory.load(lambda *_: CONFIG, T0)
    return directory


def environment_of(turns: int = 1) -> Any:
    """A blocking call takes some turns of the loop."""
    written = set[str]()

    async def run_blocking(function: Any, *arguments: Any) -> Any:
        paths = set(getattr(getattr(function, "__self__", None), "paths", ()))
        assert not paths & written, "two threads write one file"
        written.update(paths)
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            return function(*arguments)
        finally:
            written.difference_update(paths)

    loop = asyncio.get_running_loop()
    return SimpleNamespace(
        clock=SimpleNamespace(wall_ms=lambda: T0, now_ms=lambda: 0), supervisor=Supervisor(loop), monotonic_s=lambda: 0.0,
        shares=TurnShares(lambda: 0.0), run_blocking=run_blocking, loop=loop,
    )  # fmt: skip


def upkeep_of(directory: LogDirectory, environment: Any = None) -> LogUpkeep:
    config: Any = None
    return LogUpkeep(config, environment or environment_of(), [directory])


def append(log: Log, count: int, value: bytes = b"x" * 200) -> None:
    for _ in range(count):
        log.append_as_leader(memoryview(batch(value, timestamp=T0)), 0, T0)


def points(disk: MemoryFileSystem) -> dict[tuple[str, int], int]:
    return checkpoint.read_offset_checkpoint(disk, POINTS)


def flushed(directory: LogDirectory, number: int = 0, count: int = 60) -> Log:
    """A log whose recovery point is in the file."""
    log = directory.create_log("t", number, bytes(15) + b"\x01", CONFIG, T0)
    append(log, count)
    log.flush()
    directory.write_checkpoint(directory.recovery_points())
    return log


async def test_a_truncation_lowers_the_recovery_point_on_disk() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = flushed(directory)
    log.truncate_to(70, T0)
    assert not log.durability.has_stale_point, "nothing above the point was cut"
    log.truncate_to(20, T0)
    log.durability.sync_cut()
    assert points(disk) == {("t", 0): 60} and log.durability.has_stale_point
    await upkeep_of(directory).lower_recovery_point(log)
    assert points(disk) == {("t", 0): 20} and not log.durability.stale_point


async def test_truncated_logs_share_a_write() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    logs = [flushed(directory, number, 5) for number in range(9)]
    upkeep = upkeep_of(directory)
    for log in logs:
        log.truncate_to(2, T0)
    writes: list[None] = []
    made = directory.recovery_points
    directory.recovery_points = lambda: writes.append(None) or made()  # type: ignore[method-assign,func-returns-value]
    await asyncio.gather(*(upkeep.lower_recovery_point(log) for log in logs))
    assert set(points(disk).values()) == {2} and len(writes) == 1


async def test_a_cut_meanwhile_needs_a_write_of_its_own() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = flushed(directory)
    log.truncate_to(40, T0)
    written = directory.recovery_points()
    assert written is not None
    log.truncate_to(20, T0)
    written.run()
    written.finish()
    assert points(disk) == {("t", 0): 40} and log.durability.has_stale_point


async def test_who_waits_hears_of_a_disk_that_fails() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = flushed(directory)
    log.truncate_to(20, T0)
    disk.fail("rename", errno.EIO, "recovery-point")
    with pytest.raises(StorageError):
        await upkeep_of(directory).lower_recovery_point(log)
    assert directory.is_offline and log.failure is not None


async def test_the_next_flush_lowers_what_nobody_waited_for() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = flushed(directory)
    log.truncate_to(20, T0)
    upkeep = upkeep_of(directory)
    upkeep._look()
    await upkeep.finish()
    assert points(disk)["t", 0] == 20


@pytest.mark.parametrize("seed", range(20))
def test_what_lies_below_a_point_that_is_too_high_is_synced_before_a_roll(seed: int) -> None:
    """A leader does not wait for the file. After a power cut the closed segments are not read again."""
    disk = MemoryFileSystem()
    log = flushed(opened(disk), count=300)
    log.truncate_to(2, T0)
    base = log.segments.active.base_offset
    while log.segments.active.base_offset == base:
        append(log, 1, b"new" * 70)
    closed = f"{log.directory}/{base:020d}.log"
    held = disk.read(closed)
    after = disk.crash(random.Random(seed))
    assert opened(after).logs["t", 0].log_end_offset >= log.segments.active.base_offset
    assert after.read(closed) == held


@pytest.mark.parametrize("is_written", [True, False])
async def test_a_topic_made_again_inherits_no_lines(is_written: bool) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    log = flushed(directory)
    log.update_high_watermark(60)
    log.increment_log_start_offset(35)
    directory.write_checkpoint(directory.log_start_offsets())
    upkeep = upkeep_of(directory)
    directory.remove("t", 0, T0)
    if is_written:
        upkeep.forget_removed()
        await upkeep.finish()
        assert points(disk) == {} == checkpoint.read_offset_checkpoint(disk, STARTS) and not directory.has_removed_lines
    again = directory.create_log("t", 0, bytes(15) + b"\x02", CONFIG, T0)
    assert again.durability.has_stale_point is not is_written
    append(again, 10)
    upkeep.forget_removed()
    await upkeep.finish()
    assert not again.durability.has_stale_point
    loaded = opened(disk.kill()).logs["t", 0]
    assert (loaded.log_start_offset, loaded.log_end_offset) == (0, 10)


async def test_a_checkpoint_that_waits_does_not_bring_lines_of_a_removed_log_back() -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    flushed(directory)
    upkeep = upkeep_of(directory)
    upkeep._checkpoint_recovery_points()
    upkeep._checkpoint_high_watermarks()
    directory.remove("t", 0, T0)
    upkeep.forget_removed()
    await upkeep.finish()
    assert points(disk) == {} and not directory.has_removed_lines


async def test_the_checkpoints_are_not_written_for_each_of_very_many_removed_logs() -> None:
    """Each takes as long as there are logs: a topic of 9,000 partitions that was deleted took a tenth of a second of each of ten."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    for number in range(40):
        flushed(directory, number, 1)
    upkeep = upkeep_of(directory)
    writes: list[None] = []
    made = directory.prepare_removal
    directory.prepare_removal = lambda: writes.append(None) or made()  # type: ignore[method-assign,func-returns-value]
    for number in range(40):
        directory.remove("t", number, T0)
        if number in (0, 20, 39):
            upkeep.forget_removed()
        for _ in range(4):
            await asyncio.sleep(0)
    await upkeep.finish()
    assert len(writes) <= 3 and points(disk) == {} and not directory.has_removed_lines


async def test_the_cleaner_and_a_deleted_topic_do_not_write_one_file_at_a_time() -> None:
    """A broker ended itself: the one's thread had renamed the temporary file that the other's had just written."""
    disk = MemoryFileSystem()
    directory = opened(disk)
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log = directory.create_log("c", 0, bytes(15) + b"\x03", config, T0)
    for number in range(60):
        log.append_as_leader(memoryview(batch(b"x" * 200, key=b"%d" % (number % 3), timestamp=T0)), 0, T0)
    log.update_high_watermark(60)
    environment = environment_of(turns=3)
    upkeep = upkeep_of(directory, environment)
    settings: Any = SimpleNamespace(
        watch=lambda callback: None, log_cleaner_backoff_ms=15_000, log_cleaner_dedupe_buffer_size=1 << 20,
        log_cleaner_io_max_bytes_per_second=1e18,
    )  # fmt: skip
    cleaner = LogCleaner(settings, environment, [directory], upkeep.write)
    cleaning = asyncio.create_task(cleaner._attempt(directory, cleaner._need(directory, log, T0)))
    number = 0
    while not cleaning.done() or ("c", 0) not in checkpoint.read_offset_checkpoint(disk, CLEANED):
        number += 1
        directory.create_log("gone", number, bytes(14) + number.to_bytes(2, "big"), CONFIG, T0)
        directory.remove("gone", number, T0)
        upkeep.forget_removed()
        await asyncio.sleep(0)
    await upkeep.finish()
    assert not directory.is_offline and cleaner.rounds == 1 and number > 3


def test_a_checkpoint_is_encoded_where_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    directory = opened(disk)
    flushed(directory)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "encode_offsets", lambda offsets: pytest.fail("on the loop"))
        made = [directory.recovery_points(), directory.high_watermarks(), directory.log_start_offsets(), directory.cleaned_offsets()]
    directory.cleaned["t", 0] = 7
    for one in made:
        directory.write_checkpoint(one)
    assert points(disk) == {("t", 0): 60} and checkpoint.read_offset_checkpoint(disk, CLEANED) == {}, "as of when it was made"
