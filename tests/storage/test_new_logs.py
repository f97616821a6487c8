"""What a new log costs: few calls of the file system, none of them a sync, and files only when there is something to write."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFile, OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.storage.recovery import load_log

#: Calls of the FileSystem protocol for a log that gets a topic id and a leader epoch: its directory, and three files.
CALLS_OF_A_NEW_LOG = 10


class CountingFile(OsFile):
    """Counts what is asked of it."""

    __slots__ = ("calls",)

    calls: Counter[str]

    def __getattribute__(self, name: str) -> Any:
        if name in ("pwrite", "pread", "truncate", "fsync", "close", "size", "preallocate"):
            object.__getattribute__(self, "calls")[name] += 1
        return object.__getattribute__(self, name)


class CountingFileSystem(OsFileSystem):
    """Counts every call, those of its files, too."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in ("calls", "open"):
            self.calls[name] += 1
        return object.__getattribute__(self, name)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        self.calls["open"] += 1
        found = OsFileSystem.open(self, path, create=create, read_only=read_only)
        file = CountingFile(path, found.fileno())
        file.calls = self.calls
        return file


def opened(filesystem: Any, path: str) -> LogDirectory:
    format_directory(filesystem, path, MetaProperties("x" * 22, 1, bytes(16)), T0)
    directory = LogDirectory(filesystem, path)
    directory.open()
    directory.load(lambda *_: LogConfig(), T0)
    return directory


def append(log: Log, number: int = 0) -> None:
    log.append_as_leader(memoryview(batch(b"%020d" % number, timestamp=T0)), 0, T0)


def files(log: Log) -> list[str]:
    return sorted(path.name for path in Path(log.directory).iterdir())


def test_a_new_log_takes_few_calls(tmp_path: Path) -> None:
    filesystem = CountingFileSystem()
    directory = opened(filesystem, str(tmp_path / "d"))
    filesystem.calls.clear()
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    log.assign_epoch_start(0, 0)
    calls = filesystem.calls
    assert sum(calls.values()) <= CALLS_OF_A_NEW_LOG, calls
    assert not calls["fsync"] and not calls["fsync_dir"] and not log.durability.is_flush_requested
    assert files(log) == [f"{0:020d}.log", "leader-epoch-checkpoint", "partition.metadata"]


def test_the_first_record_makes_its_files_and_asks_for_a_sync(tmp_path: Path) -> None:
    directory = opened(OsFileSystem(), str(tmp_path / "d"))
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    log.assign_epoch_start(0, 0)
    append(log)
    stem = "0" * 20
    assert log.durability.is_flush_requested, "whose records these are must be as durable as they are"
    log.flush()
    assert files(log) == [f"{stem}.index", f"{stem}.log", f"{stem}.timeindex", "leader-epoch-checkpoint", "partition.metadata"]
    assert not log.durability.unsynced_files and log.recovery_point == 1


def test_a_followers_first_record_asks_for_a_sync_too(tmp_path: Path) -> None:
    log = opened(OsFileSystem(), str(tmp_path / "d")).create_log("t", 0, b"t" * 16, LogConfig(), T0)
    log.append_as_follower(memoryview(batch(b"x", base_offset=0, epoch=0)))
    assert log.durability.is_flush_requested


@pytest.mark.parametrize("what", ["read", "roll", "truncate", "begin anew", "retain", "close", "remove", "look up"])
def test_an_empty_log_does_everything(what: str, tmp_path: Path) -> None:
    directory = opened(OsFileSystem(), str(tmp_path / "d"))
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    if what == "read":
        assert log.read(0, 1, end_offset=0).slice.size == 0
    elif what == "roll":
        log.roll(T0)
    elif what == "truncate":
        log.truncate_to(0)
    elif what == "begin anew":
        log.truncate_fully_and_start_at(70)
    elif what == "retain":
        assert log.delete_old_segments(T0 + (1 << 40)) == 0
    elif what == "close":
        directory.close()
        again = LogDirectory(OsFileSystem(), directory.path)
        again.open()
        again.load(lambda *_: LogConfig(), T0)
        log = again.logs["t", 0]
    elif what == "remove":
        directory.remove("t", 0, T0)
        log = directory.create_log("t", 0, b"u" * 16, LogConfig(), T0)
    else:
        assert log.max_timestamp_offset() is None and log.lookup_offset_for_timestamp(0) is None
    append(log)
    assert log.log_end_offset == (71 if what == "begin anew" else 1) and log.failure is None


def test_a_power_cut_leaves_an_empty_log_or_one_with_its_id() -> None:
    for seed in range(30):
        disk = MemoryFileSystem()
        log = opened(disk, "/d").create_log("t", 0, b"t" * 16, LogConfig(), T0)
        log.assign_epoch_start(3, 0)
        disk.fsync_dir("/d")
        if seed % 2:
            append(log)
            log.flush()
        after = disk.crash(random.Random(seed))
        again = LogDirectory(after, "/d")
        again.open()
        again.load(lambda *_: LogConfig(), T0)
        found = again.logs.get(("t", 0))
        if seed % 2:
            assert found is not None and (found.log_end_offset, found.topic_id) == (1, b"t" * 16)
        elif found is not None:
            assert found.log_end_offset == 0 and found.topic_id in (b"t" * 16, bytes(16))


def test_segment_names_are_synced_by_a_flush_where_recovery_detects_gaps(
    open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log(segment_bytes=200)
    append(log)
    disk.syncs.clear()
    for number in range(6):
        append(log, number)
    assert len(log.segments) > 3 and disk.syncs == [], "a roll syncs nothing"
    task = log.prepare_flush(log.active_segment_base_offset)
    assert task is not None
    task.run()
    task.finish()
    assert "/data/t-0" in disk.syncs and not log.durability.has_unsynced_names


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_name_ends_the_log_before_it(lost: int, open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=200)
    for number in range(8):
        append(log, number)
    gone = log.segments[lost]
    disk.unlink(gone.log_path)
    again = load_log(disk, "/data/t-0", "t", 0, LogConfig(segment_bytes=200), wall_ms=T0, is_clean=False)
    assert again.log_end_offset == gone.base_offset
