"""A file of more epochs than one sector holds is written and renamed beside the event loop, where both take 0.2 s behind other writers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.storage import epoch_cache
from minikafka.storage.batch_scan import batches
from minikafka.storage.config import LogConfig
from minikafka.storage.durability import CutSync, FlushTask
from minikafka.storage.filesystem import Buffer, File
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.wire.batch_header import BASE_OFFSET, LEADER_EPOCH

NAME = "leader-epoch-checkpoint"
EPOCHS = f"/data/t-0/{NAME}"


class LoopDisk(MemoryFileSystem):
    """Notes what the test's own thread, the event loop, does with files of epochs that takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = threading.get_ident()
        self.on_loop: list[str] = []

    def _note(self, path: str, what: str) -> None:
        if NAME in path and threading.get_ident() == self.loop:
            self.on_loop.append(what)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path.endswith(".tmp"):
            self._note(path, "write")
        return super().open(path, create=create, read_only=read_only)

    def rename(self, source: str, target: str) -> None:
        self._note(target, "rename")
        super().rename(source, target)


def elsewhere(run: Callable[[], None]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def lead(log: Log, epochs: int) -> None:
    """Begin many leader epochs, each with a record."""
    for _ in range(epochs):
        epoch = log.latest_epoch + 1
        log.assign_epoch_start(epoch, log.log_end_offset)
        log.append_as_leader(memoryview(batch(b"v")), epoch, T0)


def flush(log: Log) -> FlushTask:
    task = log.prepare_flush()
    assert task is not None
    elsewhere(task.run)
    task.finish()
    return task


def no_temporary(disk: MemoryFileSystem) -> bool:
    return not [name for name in disk.names if name.endswith(".tmp")]


def test_the_loop_neither_writes_nor_renames_a_long_file(open_log: Callable[..., Log]) -> None:
    disk = LoopDisk()
    log = open_log(disk)
    disk.on_loop.clear()
    lead(log, 100)
    data = batch(b"v", base_offset=100, epoch=100)
    log.append_as_follower(memoryview(data), 100)
    log.truncate_to(90, T0)
    log.assign_epoch_start(101, 90)
    cut = log.prepare_cut_sync()
    assert cut is not None
    elsewhere(cut.run)
    cut.finish()
    flush(log)
    assert disk.on_loop == []
    assert disk.durable_names[EPOCHS].durable.split(b"\n")[1] == b"91"
    assert not log.epochs.is_dirty and not log.epochs.is_stale and no_temporary(disk)


def test_every_epoch_of_a_batch_asks_for_a_flush(open_log: Callable[..., Log]) -> None:
    log = open_log()
    for epoch in range(100):
        log.append_as_follower(memoryview(batch(b"v", base_offset=epoch, epoch=epoch)), epoch)
    log.flush()
    assert not log.durability.is_flush_requested
    log.append_as_follower(memoryview(batch(b"v", base_offset=100, epoch=100)), 100)
    assert log.durability.is_flush_requested and log.epochs.is_dirty


def test_a_killed_process_has_lost_no_epoch_of_a_record(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    lead(log, 60)
    log.flush()
    lead(log, 20)
    entries = log.epochs.entries
    task = log.prepare_flush()
    assert task is not None
    for _ in range(2):
        again = open_log(disk.kill(), is_clean=False, recovery_point=log.recovery_point)
        assert again.epochs.entries == entries and again.log_end_offset == 80
        task.run()
    task.finish()
    assert open_log(disk.kill(), is_clean=False, recovery_point=80).epochs.entries == entries


@pytest.mark.parametrize("when", ["before the write", "during the write"])
def test_a_log_that_is_made_again_gets_no_epochs_of_the_deleted_one(
    disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    format_directory(disk, "/d", MetaProperties("x" * 22, 1, bytes(16)), T0)
    directory = LogDirectory(disk, "/d")
    directory.open()
    directory.load(lambda *_: LogConfig(), T0)
    log = directory.create_log("t", 0, b"1" * 16, LogConfig(), T0)
    lead(log, 100)
    task = log.prepare_flush()
    assert task is not None
    real = epoch_cache.write_all

    def make_again() -> None:
        monkeypatch.setattr(epoch_cache, "write_all", real)
        directory.remove("t", 0, T0)
        made = directory.create_log("t", 0, b"2" * 16, LogConfig(), T0)
        lead(made, 1)

    def write_all(file: File, data: Buffer, position: int) -> None:
        real(file, data, position)
        make_again()

    if when == "before the write":
        make_again()
    else:
        monkeypatch.setattr(epoch_cache, "write_all", write_all)
    task.run()
    task.finish()
    assert disk.read(f"/d/t-0/{NAME}") == b"0\n1\n0 0\n"
    assert [name for name in disk.list("/d/t-0") if name.endswith(".tmp")] == []


def test_a_log_that_has_moved_counts_as_synced_only_when_its_epochs_are_there(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    lead(log, 100)
    task = log.prepare_flush()
    assert task is not None
    disk.rename("/data/t-0", "/data/u-0")
    log.relocate("/data/u-0")
    task.run()
    task.finish()
    assert log.recovery_point == 0 and log.epochs.is_dirty and log.durability.is_flush_requested
    flush(log)
    assert log.recovery_point == 100 and disk.read(f"/data/u-0/{NAME}").split(b"\n")[1] == b"100"


def test_what_changes_during_a_write_is_written_by_the_next_flush(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    lead(log, 100)
    first = log.prepare_flush()
    assert first is not None
    log.truncate_to(3, T0)
    log.assign_epoch_start(9, 3)
    first.run()
    first.finish()
    assert log.recovery_point == 0 and log.epochs.is_dirty and log.durability.is_flush_requested
    flush(log)
    assert disk.read(EPOCHS) == b"0\n4\n0 0\n1 1\n2 2\n9 3\n" and not log.durability.is_flush_requested


@pytest.mark.parametrize("way", ["on another thread", "blocking"])
def test_what_the_file_lacks_does_not_count_as_durable(open_log: Callable[..., Log], disk: MemoryFileSystem, way: str) -> None:
    """A flush that begins while another one writes older epochs waits for the next."""
    log = open_log()
    lead(log, 100)
    first = log.prepare_flush()
    assert first is not None
    lead(log, 1)
    second = log.prepare_flush()
    assert second is not None
    if way == "blocking":
        log.flush()
        assert log.recovery_point == 101
    for task in (second, first):
        task.run()
        task.finish()
    if way == "on another thread":
        assert log.recovery_point == 100 and log.durability.is_flush_requested
        flush(log)
    assert log.recovery_point == 101 and not log.epochs.is_dirty
    assert disk.durable_names[EPOCHS].durable.split(b"\n")[1] == b"101" and no_temporary(disk)


def test_a_failed_write_takes_the_log_offline(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    lead(log, 100)
    task = log.prepare_flush()
    assert task is not None
    disk.fail("rename", path_contains=NAME)
    with pytest.raises(OSError, match="injected") as raised:
        task.run()
    log.durability.flush_failed(task, raised.value)
    assert log.failure is not None and log.recovery_point == 0


@pytest.mark.parametrize("seed", range(80))
def test_a_power_cut_at_any_step_leaves_no_epoch_that_contradicts_a_batch(open_log: Callable[..., Log], seed: int) -> None:
    """Tasks are prepared, run and finished between changes of the log, as threads do it."""
    generator, disk = random.Random(seed), MemoryFileSystem()
    log, point = open_log(disk, segment_bytes=3000), 0
    lead(log, generator.choice((10, 60)))
    prepared: list[FlushTask | CutSync] = []
    run: list[FlushTask | CutSync] = []
    for _ in range(generator.randrange(1, 60)):
        kind = generator.randrange(7)
        if kind == 0:
            lead(log, generator.randrange(1, 12))
        elif kind == 1:
            log.append_as_leader(memoryview(batch(b"v")), log.latest_epoch, T0)
        elif kind == 2 and generator.random() < 0.5:
            log.truncate_to(generator.randrange(max(log.log_end_offset - 8, 1), log.log_end_offset + 1), T0)
        elif kind == 3:
            task = generator.choice((log.prepare_flush, log.prepare_cut_sync))()
            prepared += [] if task is None else [task]
        elif kind == 4 and prepared:
            run.append(prepared.pop(generator.randrange(len(prepared))))
            run[-1].run()
        elif kind == 5 and run:
            run.pop(generator.randrange(len(run))).finish()
        else:
            point, log.durability.stale_point = log.recovery_point, 0
        if not log.epochs.is_dirty and not log.epochs.is_stale and log.epochs.epochs:
            on_disk = disk.read(EPOCHS).decode().splitlines()[2:]
            assert on_disk == [f"{epoch} {start}" for epoch, start in log.epochs.entries]
    found = open_log(disk.crash(generator), is_clean=False, recovery_point=point, segment_bytes=3000)
    for segment in found.segments:
        for _, _, header in batches(segment.file, 0, segment.size):
            assert found.epochs.epoch_for_offset(header[BASE_OFFSET]) == header[LEADER_EPOCH]
