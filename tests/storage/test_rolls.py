"""A roll creates one file on the event loop. The indexes get their files, and are trimmed, with the flush that follows it, on any thread;
the log goes on meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.durability import FlushTask
from minikafka.storage.log import Log

SMALL = {"segment_bytes": 700, "index_interval_bytes": 100, "segment_index_bytes": 1200}
#: What may wait for a disk, or for the journal of its file system.
WAITING = ("rename", "unlink", "truncate", "fsync", "fsync_dir", "mkdir", "rmdir")


@pytest.fixture
def calls(disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls to the disk: what may wait, and the names of the files that are created."""
    seen: list[str] = []
    check, opened = disk.check, disk.open

    def noted(operation: str, path: str) -> None:
        if operation in WAITING:
            seen.append(f"{operation} {path.rpartition('/')[2]}")
        check(operation, path)

    def open_file(path: str, *, create: bool = False, read_only: bool = False) -> object:
        if create and not disk.exists(path):
            seen.append(f"create {path.rpartition('/')[2]}")
        return opened(path, create=create, read_only=read_only)

    monkeypatch.setattr(disk, "check", noted)
    monkeypatch.setattr(disk, "open", open_file)
    return seen


def append(log: Log, number: int) -> None:
    log.append_as_leader(memoryview(batch(b"%050d" % number, timestamp=T0 + number, producer=(7, 0, number))), 0, T0)


def test_a_roll_creates_one_file(open_log: Callable[..., Log], calls: list[str]) -> None:
    log = open_log(**SMALL)
    log.assign_epoch_start(0, 0)
    calls.clear()
    append(log, 0)
    assert not calls, "the first record creates no file"
    number = 1
    while len(log.segments) == 1:
        append(log, number)
        number += 1
    assert calls == [f"create {log.segments.active.base_offset:020d}.log"]
    log.flush()
    names = sorted(call.removeprefix("create ") for call in calls if call.startswith("create ") and ".tmp" not in call)
    stems = [f"{base:020d}" for base in log.segments.bases]
    assert names == [f"{stems[0]}.index", f"{stems[0]}.timeindex", f"{stems[1]}.index", f"{stems[1]}.log", f"{stems[1]}.timeindex"]
    assert log.segments[0].offset_index.keys is None, "an inactive index is on disk only"


def test_a_leftover_file_of_an_index_is_emptied(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(**SMALL)
    append(log, 0)
    for ending in (".log", ".index", ".timeindex"):
        disk.write(f"/data/t-0/{1:020d}{ending}", b"\1" * 600)
    log.roll(T0)
    append(log, 1)
    log.flush()
    assert disk.read(f"/data/t-0/{1:020d}.index") == disk.read(f"/data/t-0/{1:020d}.timeindex") == bytes(1200)


class Story:
    """Random appends, rolls, truncations and flushes, which run and end while the log goes on; then a crash or a stop."""

    def __init__(self, log: Log, generator: random.Random) -> None:
        self.log = log
        self.generator = generator
        self.numbers: list[int] = []
        self.sequence = 0
        self.task: FlushTask | None = None
        self.has_run = False

    def step(self) -> None:
        log, generator = self.log, self.generator
        what = generator.choices(["append", "roll", "truncate", "retain", "flush"], [12, 2, 1, 1, 6])[0]
        if what == "append":
            log.append_as_leader(memoryview(batch(b"%050d" % self.sequence, timestamp=T0 + self.sequence)), 0, T0)
            self.numbers.append(self.sequence)
            self.sequence += 1
        elif what == "roll":
            log.roll(T0)
        elif what == "truncate":
            end = generator.randint(log.log_start_offset, log.log_end_offset)
            log.truncate_to(end, T0)
            del self.numbers[end:]
        elif what == "retain":
            log.update_high_watermark(log.log_end_offset)
            log.increment_log_start_offset(generator.randint(log.log_start_offset, log.log_end_offset))
            log.delete_old_segments(T0)
        else:
            self.flush()

    def flush(self) -> None:
        """Begin a flush, run it, or end it."""
        if self.task is None:
            self.task, self.has_run = self.log.prepare_flush(), False
        elif not self.has_run:
            self.task.run()
            self.has_run = True
        else:
            self.task.finish()
            self.task = None

    def finish(self) -> None:
        """End the flush under way."""
        while self.task is not None:
            self.flush()


def check(log: Log, numbers: list[int]) -> None:
    """Every record is found by its offset and by its timestamp."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        found = log.read(offset, 1, end_offset=log.log_end_offset)
        assert b"%050d" % numbers[offset] in bytes(found.slice.read()), offset
        by_time = log.lookup_offset_for_timestamp(T0 + numbers[offset])
        assert by_time is not None and by_time.offset == offset


@pytest.mark.parametrize("seed", range(200))
def test_the_log_goes_on_while_its_indexes_are_written(open_log: Callable[..., Log], disk: MemoryFileSystem, seed: int) -> None:
    generator = random.Random(seed)
    story = Story(open_log(**SMALL), generator)
    for _ in range(generator.randint(20, 120)):
        story.step()
    log = story.log
    check(log, story.numbers)
    end, start, point = log.log_end_offset, log.log_start_offset, log.recovery_point
    if generator.random() < 0.5:
        disk = disk.kill()
        log = open_log(disk, is_clean=False, recovery_point=point, log_start_offset=start, **SMALL)
    else:
        story.finish()
        log.close()
        for segment in log.segments:
            assert disk.size(segment.offset_index.path) == segment.offset_index.entries * 8
            assert disk.size(segment.time_index.path) == segment.time_index.entries * 12
        log = open_log(disk, recovery_point=end, log_start_offset=start, **SMALL)
    assert log.log_end_offset == end
    check(log, story.numbers)
