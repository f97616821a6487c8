"""Nothing that a log does on the event loop waits for the disk. What a power cut leaves is in order all the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.storage.batch_scan import batches
from minikafka.storage.log import Log
from minikafka.wire.batch_header import BASE_OFFSET, LEADER_EPOCH

EPOCHS = "/data/t-0/leader-epoch-checkpoint"


class _SyncedFile(MemoryFile):
    def fsync(self) -> None:
        self._filesystem.note()  # type: ignore[attr-defined]
        super().fsync()


class SyncThreads(MemoryFileSystem):
    """A disk that notes which threads sync anything."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def note(self) -> None:
        self.threads.add(threading.get_ident())

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        return _SyncedFile(self, path, file.inode)

    def fsync_dir(self, path: str) -> None:
        self.note()
        super().fsync_dir(path)


def elsewhere(run: Callable[[], None]) -> None:
    """Run a task as hosts do."""
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def sync(log: Log) -> None:
    """What the host does after a truncation, and now and then."""
    for task in (log.prepare_cut_sync(), log.prepare_flush()):
        if task is not None:
            elsewhere(task.run)
            task.finish()


def fetch(log: Log, epoch: int, count: int = 1) -> None:
    end = log.log_end_offset
    data = b"".join(bytes(batch(b"v", base_offset=offset, epoch=epoch)) for offset in range(end, end + count))
    log.append_as_follower(memoryview(bytearray(data)), epoch)


@pytest.mark.parametrize("epochs", [3, 100])
def test_the_loop_syncs_nothing(open_log: Callable[..., Log], epochs: int) -> None:
    """Under pressure a sync takes a second. The file of the epochs, in which they are one sector or several, is synced by the flush."""
    disk = SyncThreads()
    log = open_log(disk, segment_bytes=2000)
    disk.threads.clear()
    for epoch in range(epochs):
        fetch(log, epoch, 3)
    log.assign_epoch_start(epochs, log.log_end_offset)
    log.update_high_watermark(4)
    log.increment_log_start_offset(2)
    log.roll(T0)
    for cut in (7, 6):
        log.truncate_to(cut, T0)
        sync(log)
        fetch(log, epochs + 1)
    log.truncate_fully_and_start_at(50, T0)
    sync(log)
    fetch(log, epochs + 2)
    log.delete_old_segments(T0)
    log.truncate_to(20, T0)
    sync(log)
    fetch(log, epochs + 3)
    sync(log)
    assert disk.threads and threading.get_ident() not in disk.threads
    assert disk.durable_names[EPOCHS].durable == f"0\n1\n{epochs + 3} 20\n".encode()


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_leaves_no_epoch_that_contradicts_a_batch(open_log: Callable[..., Log], seed: int) -> None:
    generator, disk = random.Random(seed), MemoryFileSystem()
    log, epoch, point = open_log(disk, segment_bytes=900), 0, 0
    for _ in range(generator.randrange(1, 30)):
        kind = generator.randrange(8)
        if kind < 4:
            epoch += generator.randrange(3) == 0
            fetch(log, epoch, generator.randrange(1, 4))
        elif kind == 4:
            log.truncate_to(generator.randrange(log.log_start_offset, log.log_end_offset + 1), T0)
            # What comes next may be of an older epoch than what was cut off.
            epoch = max(log.epochs.latest, 0)
        elif kind == 5 and generator.random() < 0.5:
            log.truncate_fully_and_start_at(generator.randrange(200), T0)
            epoch += generator.randrange(2)
        elif kind == 6:
            log.roll(T0)
        else:
            sync(log)
            if generator.random() < 0.5:
                # The checkpoint of the log directory is written. Until the next time it may be too high, because of a truncation.
                point, log.durability.stale_point = log.recovery_point, 0
    start = log.log_start_offset
    found = open_log(disk.crash(generator), is_clean=False, recovery_point=point, log_start_offset=start, segment_bytes=900)
    for segment in found.segments:
        for _, _, header in batches(segment.file, 0, segment.size):
            if header[BASE_OFFSET] >= found.log_start_offset:
                assert found.epochs.epoch_for_offset(header[BASE_OFFSET]) == header[LEADER_EPOCH]
