"""The disk says no: nothing half-written is ever read, the log goes offline, nothing is retried."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.storage.errors import StorageError
from minikafka.storage.log import Log
from minikafka.storage.sparse_index import OffsetIndex

LOG = "/data/t-0/00000000000000000000.log"


def append(log: Log, number: int = 0) -> None:
    log.append_as_leader(memoryview(batch(b"%020d" % number, timestamp=T0)), 0, T0)


@pytest.fixture
def log(open_log: Callable[..., Log]) -> Log:
    log = open_log()
    for number in range(3):
        append(log, number)
    return log


def test_a_full_disk_cuts_the_torn_batch_off_and_takes_the_log_offline(log: Log, disk: MemoryFileSystem) -> None:
    size = log.size
    disk.space_left = 30
    with pytest.raises(StorageError, match="No space left"):
        append(log)
    assert (log.log_end_offset, log.size, disk.size(LOG)) == (3, size, size)
    disk.heal()
    with pytest.raises(StorageError):
        append(log)
    with pytest.raises(StorageError):
        log.append_as_follower(memoryview(batch(b"x", base_offset=3, epoch=0)))
    with pytest.raises(StorageError):
        log.read(0, 100, end_offset=3)


def test_a_partial_write_is_finished(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MemoryFile.pwrite
    monkeypatch.setattr(MemoryFile, "pwrite", lambda file, data, position: whole(file, bytes(data)[:10], position))
    append(log, 7)
    assert log.read(3, 1, end_offset=4).slice.read() == batch(b"%020d" % 7, base_offset=3, epoch=0, timestamp=T0)


def test_a_failed_fsync_is_never_retried(log: Log, disk: MemoryFileSystem) -> None:
    disk.fail("fsync", errno.EIO, ".log")
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0
    disk.heal()
    with pytest.raises(StorageError):
        log.flush()
    log.close()
    assert log.recovery_point == 0


def test_a_flush_elsewhere_moves_the_recovery_point_when_it_is_finished(log: Log, disk: MemoryFileSystem) -> None:
    task = log.prepare_flush()
    assert task is not None
    append(log)
    task.run()
    assert log.recovery_point == 0
    task.finish()
    assert log.recovery_point == 3
    assert len(disk.names[LOG].durable) == log.size
    log.flush()
    assert (log.recovery_point, log.prepare_flush()) == (4, None)


def test_a_truncation_during_a_flush_voids_it(log: Log) -> None:
    task = log.prepare_flush()
    assert task is not None
    log.truncate_to(1)
    append(log)
    append(log)
    task.run()
    task.finish()
    assert log.recovery_point <= 1


def test_flush_messages_says_when_a_sync_is_due_and_what_counts_before_it(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(flush_messages=2)
    append(log)
    assert (log.is_sync_due, log.counted_end, log.recovery_point) == (False, 1, 0)
    append(log)
    assert (log.is_sync_due, log.counted_end, log.recovery_point) == (True, 1, 0)
    log.flush()
    assert (log.is_sync_due, log.counted_end, log.recovery_point) == (False, 3, 2)
    assert len(disk.names[LOG].durable) == log.size


@pytest.mark.parametrize("operation", ["open", "rename", "fsync", "truncate", "write", "fsync_dir", "unlink", "mkdir"])
@pytest.mark.parametrize("after", range(0, 12, 3))
def test_any_failing_call_is_a_storage_error_and_the_rest_recovers(
    operation: str, after: int, open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log(segment_bytes=300, retention_bytes=300, index_interval_bytes=50, file_delete_delay_ms=0)
    acknowledged = 0
    disk.fail(operation, errno.EIO, after=after)
    try:
        for number in range(40):
            append(log, number)
            acknowledged += 1
            log.update_high_watermark(log.log_end_offset)
            if number % 10 == 9:
                log.flush()
                log.delete_old_segments(T0)
                log.delete_files(T0)
                acknowledged -= 1
                log.truncate_to(log.log_end_offset - 1)
    except StorageError:
        assert log.failure is not None
    assert log.log_end_offset >= acknowledged
    disk.heal()
    again = open_log(disk.kill(), is_clean=False, segment_bytes=300)
    assert again.log_end_offset >= acknowledged
    for offset in range(again.log_start_offset, again.log_end_offset):
        assert again.read(offset, 1, end_offset=again.log_end_offset).slice.size > 0


def test_an_exception_between_write_and_publish_leaves_no_bytes(
    log: Log, disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = disk.size(LOG)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(OffsetIndex, "append", broken)
    log.segments[-1].bytes_since_index_entry = 10**6
    with pytest.raises(RuntimeError):
        append(log)
    assert (log.log_end_offset, disk.size(LOG)) == (3, size)
    with pytest.raises(StorageError):
        append(log)


@pytest.mark.parametrize("ask", [lambda log: log.must_sync_soon(T0), lambda log: log.begin_run(T0)], ids=["must_sync_soon", "begin_run"])
def test_a_look_at_the_first_batch_that_fails_takes_the_log_offline_and_the_append_says_so(
    ask: Callable[[Log], object], open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    """A follower that asked whether an append begins a segment ended its connection with an OSError (simulator, seed 8005530)."""
    log = open_log(cleanup_policy="compact")
    append(log)
    log.segments.active.first_timestamp = None
    disk.fail("read", errno.EIO, ".log")
    ask(log)
    with pytest.raises(StorageError):
        append(log, 1)
    assert log.log_end_offset == 1
