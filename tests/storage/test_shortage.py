"""No descriptors, no memory, a signal: an error to who asked, and nothing else. The disk is well."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.config import LogConfig
from minikafka.storage.errors import ResourceShortage, StorageError
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.storage.open_files import OpenFiles
from minikafka.wire.batch import build_batch
from minikafka.wire.control import ControlType, end_transaction_batch

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR]
CONFIG = {"segment_bytes": 300, "retention_bytes": 900, "index_interval_bytes": 50, "file_delete_delay_ms": 0}


def append(log: Log, number: int) -> None:
    log.append_as_leader(memoryview(batch(b"%020d" % number, timestamp=T0)), 0, T0)


def begin(log: Log, number: int) -> None:
    records = [(0, T0, b"k", b"v", ())]
    data = build_batch(records, producer_id=1000 + number, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(memoryview(data), 0, T0)


def abort(log: Log, number: int) -> None:
    marker = end_transaction_batch(ControlType.ABORT, producer_id=1000 + number, producer_epoch=0, coordinator_epoch=0, timestamp=T0)
    log.append_as_leader(memoryview(bytearray(marker)), 0, T0, origin="coordinator")


def until_done(log: Log, work: Callable[[], object]) -> None:
    """Again after each shortage, as a client does."""
    for _ in range(10):
        before = (log.log_end_offset, log.log_start_offset, log.size, list(log.segments.bases))
        try:
            work()
        except ResourceShortage:
            assert log.failure is None
            if len(log.segments.bases) >= len(before[3]):
                assert (log.log_end_offset, log.log_start_offset, log.size) == before[:3], "half of it was done"
            continue
        return
    raise AssertionError("it never comes to an end")


def test_a_roll_without_descriptors_changes_nothing(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(**CONFIG)
    append(log, 0)
    append(log, 1)
    names = disk.list("/data/t-0")
    disk.descriptors_max = disk.opened + 1
    while len(log.segments) == 1:
        try:
            append(log, 2)
        except ResourceShortage:
            break
    assert (len(log.segments), log.failure) == (1, None)
    assert disk.list("/data/t-0") == names
    end = log.log_end_offset
    disk.heal()
    append(log, 3)
    assert (len(log.segments), log.log_end_offset) == (2, end + 1)


class Calls:
    """One call in `period` of the operation on the partition's files fails, until `may_fail` is false."""

    def __init__(self, operation: str, period: int, error: int) -> None:
        self.operation, self.period, self.error = operation, period, error
        self.number = 0
        self.may_fail = True

    def check(self, called: str, path: str) -> None:
        """For MemoryFileSystem.check."""
        if called != self.operation or "/data/t-0/" not in path:
            return
        self.number += 1
        # What was found to be there for a change is there until its end: nothing else takes it in these tests.
        if self.number % self.period == 0 and self.may_fail:
            raise OSError(self.error, "injected", path)

    def again(self, log: Log, work: Callable[[], object]) -> None:
        """Until it is done; the fifth try cannot fail."""
        tries = 0

        def run() -> None:
            nonlocal tries
            tries += 1
            self.may_fail = tries < 5
            work()

        until_done(log, run)


@pytest.mark.parametrize("error", SHORTAGES)
@pytest.mark.parametrize("operation", ["open", "write", "read"])
def test_every_call_may_find_too_little_of_something(
    operation: str, error: int, open_log: Callable[..., Log], disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call in so many fails, for every step of the work; a second try goes on where the first was."""
    for period in (4, 5, 7, 11, 16):
        disk = MemoryFileSystem()
        log = open_log(disk, **CONFIG)
        calls = Calls(operation, period, error)
        real = OpenFiles.require

        def required(*arguments: object, real: Callable[..., None] = real, calls: Calls = calls) -> None:
            real(*arguments)
            calls.may_fail = False

        monkeypatch.setattr(OpenFiles, "require", lambda *arguments, required=required: required(*arguments))
        monkeypatch.setattr(disk, "check", calls.check)
        again = partial(calls.again, log)
        for number in range(24):
            again(lambda number=number, log=log: append(log, number))
            log.update_high_watermark(log.log_end_offset)
            if number % 6 == 5:
                again(lambda number=number, log=log: begin(log, number))
                again(lambda number=number, log=log: abort(log, number))
                again(log.flush)
                again(lambda log=log: log.read(log.log_start_offset, 100, end_offset=log.log_end_offset).slice.release())
                again(lambda log=log: log.delete_old_segments(T0))
                again(lambda log=log: log.truncate_to(log.log_end_offset - 1))
        assert log.failure is None and calls.number > 3
        monkeypatch.undo()
        end = log.log_end_offset
        kept = [log.read(offset, 1, end_offset=end).slice.read() for offset in range(log.log_start_offset, end)]
        again_opened = open_log(disk.kill(), is_clean=False, log_start_offset=log.log_start_offset, **CONFIG)
        assert again_opened.log_end_offset == end
        found = [again_opened.read(offset, 1, end_offset=end).slice.read() for offset in range(log.log_start_offset, end)]
        assert found == kept
        assert again_opened.aborted_transactions(0, end) == log.aborted_transactions(0, end)


def test_a_shortage_half_way_through_a_change_is_final(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """What was done is neither the old log nor the new one."""
    log = open_log(**CONFIG)
    for number in range(6):
        append(log, number)
    disk.fail("open", errno.EMFILE, after=4)
    with pytest.raises(StorageError) as caught:
        log.truncate_to(2)
    assert not isinstance(caught.value, ResourceShortage) and log.failure is not None


def test_a_sync_that_fails_for_want_of_memory_is_final(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    append(log, 0)
    disk.fail("fsync", errno.ENOMEM)
    with pytest.raises(StorageError):
        log.flush()
    assert log.failure is not None


def test_a_flush_elsewhere_that_could_not_open_files_is_done_again(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=200)
    log.assign_topic_id(bytes(range(16)))
    for number in range(4):
        append(log, number)
    task = log.prepare_flush()
    assert task is not None
    disk.fail("open", errno.EMFILE)
    with pytest.raises(OSError) as caught:
        task.run()
    assert isinstance(log.durability.flush_failed(task, caught.value), ResourceShortage)
    assert (log.failure, log.durability.is_flush_requested, log.recovery_point) == (None, True, 0)
    disk.heal()
    disk.syncs.clear()
    log.flush()
    assert log.recovery_point == 4
    assert any(path.endswith("partition.metadata") for path in disk.syncs)
    assert any(".snapshot" in path for path in disk.syncs) and log.producer_state.snapshots.offsets
    assert any(path.endswith("leader-epoch-checkpoint") for path in disk.syncs)
    assert not any(segment._shared is not None and segment._shared.is_pinned for segment in log.segments)


def test_a_leader_begins_without_descriptors_and_its_epoch_is_written_later(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    append(log, 0)
    log.flush()
    disk.fail("open", errno.EMFILE)
    log.assign_epoch_start(5, 1)
    disk.heal()
    log.flush()
    assert disk.names["/data/t-0/leader-epoch-checkpoint"].durable == b"0\n2\n0 0\n5 1\n"


def opened(disk: MemoryFileSystem) -> LogDirectory:
    format_directory(disk, "/d", MetaProperties("x" * 22, 1, bytes(16)), T0)
    directory = LogDirectory(disk, "/d")
    directory.open()
    directory.load(lambda *_: LogConfig(), T0)
    return directory


def test_a_directory_stays_online(disk: MemoryFileSystem) -> None:
    directory = opened(disk)
    config = LogConfig(file_delete_delay_ms=0)
    log = directory.create_log("t", 0, b"t" * 16, config, T0)
    append(log, 0)
    disk.descriptors_max = disk.opened
    for work in (
        lambda: directory.create_log("u", 0, b"u" * 16, config, T0),
        lambda: directory.remove("t", 0, T0),
        lambda: directory.set_aside("t", 0),
        directory.write_checkpoints,
    ):
        with pytest.raises(ResourceShortage):
            work()
        assert directory.failure is None and log.failure is None and list(directory.logs) == [("t", 0)]
    append(log, 1)
    disk.heal()
    assert directory.create_log("u", 0, b"u" * 16, config, T0).log_end_offset == 0
    directory.remove("t", 0, T0)
    paths = directory.take_due_deletions(T0)
    assert isinstance(directory.unlink_failed(paths, OSError(errno.ENOMEM, "")), ResourceShortage)
    directory.delete_files(T0)
    assert [name for name in disk.list("/d") if name.startswith("t-0")] == []
    directory.close()
