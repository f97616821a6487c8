"""What blocks is handed out, to be run where nobody waits for it: truncations, checkpoints, names."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage import checkpoint
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import StorageError
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.storage.recovery import load_log

SEGMENT = "/data/t-0/00000000000000000000.log"


def append(log: Log, number: int = 0) -> None:
    log.append_as_leader(memoryview(batch(b"%020d" % number, timestamp=T0)), 0, T0)


@pytest.fixture
def log(open_log: Callable[..., Log]) -> Log:
    log = open_log()
    for number in range(6):
        append(log, number)
    log.flush()
    return log


def inode(log: Log) -> int:
    return Path(log.segments[-1].log_path).stat().st_ino


@pytest.fixture
def on_disk(tmp_path: Path) -> Log:
    log = load_log(OsFileSystem(), str(tmp_path / "t-0"), "t", 0, LogConfig(), wall_ms=T0)
    for number in range(50):
        append(log, number)
    return log


def test_a_truncation_copies_nothing_under_a_flush(on_disk: Log) -> None:
    before, task = inode(on_disk), on_disk.prepare_flush()
    assert task is not None
    on_disk.truncate_to(40)
    assert inode(on_disk) == before
    task.run()
    task.finish()


def test_a_truncation_copies_nothing_for_slices_below_the_cut(on_disk: Log) -> None:
    before = inode(on_disk)
    consumers = [on_disk.read(0, 1000, end_offset=end).slice for end in (3, 10, 40)]
    on_disk.truncate_to(40)
    assert inode(on_disk) == before
    whole = [piece.read() for piece in consumers]
    on_disk.truncate_to(20)
    assert inode(on_disk) == before, "all three end below"
    piece = on_disk.read(19, 1000, end_offset=20).slice
    data = piece.read()
    on_disk.truncate_to(19)
    assert inode(on_disk) != before, "this one would have been cut"
    assert piece.read() == data
    append(on_disk, 99)
    assert piece.read() == data and [piece.read() for piece in consumers] == whole
    assert on_disk.log_end_offset == 20


def test_a_slice_may_be_released_after_its_finalizer(on_disk: Log) -> None:
    """In a cycle of garbage the finalizer of a slice may run before that of a coroutine that releases it."""
    piece = on_disk.read(0, 1000, end_offset=50).slice
    piece.__del__()
    piece.release()
    with pytest.raises(ValueError, match="released"):
        piece.read()


def test_a_slice_that_was_released_holds_nothing_up(on_disk: Log) -> None:
    before = inode(on_disk)
    held = on_disk.read(0, 100, end_offset=1).slice
    on_disk.read(49, 1000, end_offset=50).slice.release()
    on_disk.truncate_to(10)
    assert inode(on_disk) == before
    held.release()


def test_a_truncation_is_synced_elsewhere_before_anything_is_appended(log: Log, disk: MemoryFileSystem) -> None:
    disk.syncs.clear()
    log.truncate_to(2)
    assert disk.syncs == [] and log.durability.is_cut
    task = log.prepare_cut_sync()
    assert task is not None
    task.run()
    assert log.durability.is_cut and disk.syncs == [SEGMENT, "/data/t-0"]
    task.finish()
    assert not log.durability.is_cut and log.prepare_cut_sync() is None
    append(log)
    assert disk.syncs == [SEGMENT, "/data/t-0"]


@pytest.mark.parametrize("kind", ["leader", "follower", "close", "roll"])
def test_an_append_before_the_sync_has_finished_waits_for_the_disk(kind: str, log: Log, disk: MemoryFileSystem) -> None:
    disk.syncs.clear()
    log.truncate_to(2)
    if kind == "leader":
        append(log)
    elif kind == "follower":
        log.append_as_follower(memoryview(batch(b"x", base_offset=2, epoch=0)))
    elif kind == "roll":
        log.roll(T0)
    else:
        log.close()
    assert disk.syncs[:2] == [SEGMENT, "/data/t-0"]


def test_a_log_that_is_cut_again_meanwhile_is_synced_again(log: Log, disk: MemoryFileSystem) -> None:
    log.truncate_to(4)
    task = log.prepare_cut_sync()
    assert task is not None
    log.truncate_to(2)
    task.run()
    task.finish()
    assert log.durability.is_cut
    disk.syncs.clear()
    append(log)
    assert SEGMENT in disk.syncs and not log.durability.is_cut


def test_a_truncation_that_cannot_be_synced_ends_the_log(log: Log, disk: MemoryFileSystem) -> None:
    log.truncate_to(2)
    disk.fail("fsync", errno.EIO, ".log")
    with pytest.raises(StorageError):
        append(log)
    disk.heal()
    with pytest.raises(StorageError):
        append(log)
    assert log.log_end_offset == 2


def test_truncated_batches_do_not_reappear_behind_appended_ones(open_log: Callable[..., Log]) -> None:
    for seed in range(40):
        disk = MemoryFileSystem()
        log = open_log(disk, segment_bytes=300)
        for number in range(8):
            append(log, number)
        log.flush()
        disk.fsync_dir("/data")
        log.truncate_to(3)
        log.append_as_leader(memoryview(batch(b"new", timestamp=T0)), 1, T0)
        again = open_log(disk.crash(random.Random(seed)), is_clean=False, recovery_point=3, segment_bytes=300)
        assert again.log_end_offset <= 4, seed
        if again.log_end_offset == 4:
            assert b"new" in again.read(3, 1, end_offset=4).slice.read()


def opened(disk: MemoryFileSystem) -> LogDirectory:
    format_directory(disk, "/d", MetaProperties("x" * 22, 1, bytes(16)), T0)
    directory = LogDirectory(disk, "/d")
    directory.open()
    assert directory.high_watermarks() is None, "nothing is loaded yet, and nothing may be forgotten"
    directory.load(lambda *_: LogConfig(), T0)
    return directory


def test_a_checkpoint_is_of_the_moment_it_was_made_in(disk: MemoryFileSystem) -> None:
    directory = opened(disk)
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    append(log)
    log.update_high_watermark(1)
    disk.syncs.clear()
    made = directory.high_watermarks()
    assert made is not None and disk.syncs == []
    append(log)
    log.update_high_watermark(2)
    made.run()
    assert disk.syncs == ["/d/replication-offset-checkpoint.tmp", "/d"]
    assert checkpoint.read_offset_checkpoint(disk, "/d/replication-offset-checkpoint") == {("t", 0): 1}


def test_epochs_that_ended_before_the_start_go_with_the_next_flush(disk: MemoryFileSystem) -> None:
    directory = opened(disk)
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    for epoch in range(3):
        log.append_as_leader(memoryview(batch(b"x", timestamp=T0)), epoch, T0)
    log.flush()
    log.update_high_watermark(3)
    log.increment_log_start_offset(2)
    disk.syncs.clear()
    assert directory.log_start_offsets() is not None
    assert disk.syncs == [] and log.durability.is_flush_requested
    log.flush()
    assert disk.read("/d/t-0/leader-epoch-checkpoint") == b"0\n1\n2 2\n"
    assert any(path.startswith("/d/t-0/leader-epoch-checkpoint") for path in disk.syncs) and disk.syncs[-1] == "/d/t-0"


def test_names_are_synced_elsewhere(disk: MemoryFileSystem) -> None:
    directory = opened(disk)
    for number in range(3):
        directory.create_log("t", number, b"t" * 16, LogConfig(), T0)
    assert directory.prepare_sync() is None
    disk.syncs.clear()
    for number in range(3):
        directory.remove("t", number, T0)
    assert disk.syncs == []
    task = directory.prepare_sync()
    assert task is not None and directory.prepare_sync() is None
    task.run()
    assert disk.syncs == ["/d"]


def test_a_clock_that_is_set_back_keeps_no_files(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=200, file_delete_delay_ms=1000)
    for number in range(6):
        append(log, number)
    log.update_high_watermark(6)
    log.increment_log_start_offset(4)
    log.delete_old_segments(T0 + 10_000_000)
    scheduled_deletions = len(log.segments.scheduled_deletions)
    assert scheduled_deletions > 2 and log.segments.take_due_deletions(T0 + 10_000_500) == []
    assert len(log.segments.take_due_deletions(T0)) == scheduled_deletions and log.segments.scheduled_deletions == []


def test_the_names_that_compaction_leaves_are_synced_with_the_next_flush(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=200)
    for number in range(6):
        append(log, number)
    log.flush()
    first = log.segments[0]
    disk.write(f"{first.log_path}.cleaned", disk.read(first.log_path))
    for index in (first.offset_index, first.time_index):
        disk.write(f"{index.path}.cleaned", disk.read(index.path))
    disk.syncs.clear()
    log.replace_segments([first], T0)
    assert disk.syncs == [] and log.durability.is_flush_requested
    log.flush()
    assert disk.syncs == [first.log_path.removesuffix(".deleted"), "/data/t-0"]


def test_a_flush_syncs_the_names_of_new_segments_too(open_log: Callable[..., Log]) -> None:
    """Who flushed a log before a roll, which would have synced, found it to sync all the same, for ever. Seed 7080085."""
    append(open_log(cleanup_policy=frozenset({"compact"})))
    again = open_log(cleanup_policy=frozenset({"compact"}), recovery_point=1)
    assert again.log_end_offset == 1 and again.durability.must_sync_for_roll
    again.flush()
    assert not again.durability.must_sync_for_roll and again.prepare_flush() is None


def test_high_watermarks_that_have_not_moved_are_not_written_again(disk: MemoryFileSystem) -> None:
    """At rest, each broker would sync a file and its directory every five seconds."""
    directory = opened(disk)
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    append(log)
    directory.write_checkpoint(directory.high_watermarks())
    assert directory.high_watermarks() is None
    log.update_high_watermark(1)
    failed = directory.high_watermarks()
    assert failed is not None and directory.high_watermarks() is not None, "it was made, but not written"
    directory.write_checkpoint(failed)
    assert directory.high_watermarks() is None
    directory.remove("t", 0, T0)
    directory.write_checkpoint(directory.high_watermarks())
    assert checkpoint.read_offset_checkpoint(disk, "/d/replication-offset-checkpoint") == {}
