"""Which files stay open, what a closed log may still do, and look-ups in indexes that nobody keeps open."""

from __future__ import annotations

import errno
import os
import random
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.steps import at_once
from minikafka.storage import sparse_index
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError
from minikafka.storage.filesystem import FileSystem, OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.storage.open_files import _CLOSED_AT_ONCE, OpenFiles
from minikafka.storage.sparse_index import OffsetIndex, TimeIndex

META = MetaProperties("x" * 22, 1, bytes(range(16)))
SMALL = LogConfig(segment_bytes=400, segment_index_bytes=1200, index_interval_bytes=50)


def append(log: Log, number: int = 0) -> None:
    log.append_as_leader(memoryview(batch(b"%020d" % number, timestamp=T0 + number)), 0, T0 + number)


def opened(filesystem: FileSystem, path: str, *, open_files_max: int = 8, config: LogConfig = SMALL) -> LogDirectory:
    if not filesystem.exists(f"{path}/meta.properties"):
        format_directory(filesystem, path, META, 0)
    directory = LogDirectory(filesystem, path, open_files_max=open_files_max)
    directory.open()
    directory.load(lambda *_: config, T0)
    return directory


def descriptors(path: Path) -> int:
    """Of this process, on files below a path."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(f"{path}/")
        except FileNotFoundError:
            continue
    return found


def test_a_log_that_was_removed_writes_nothing_any_more(tmp_path: Path) -> None:
    """The numbers of its descriptors belong to other files now."""
    directory = opened(OsFileSystem(), str(tmp_path / "d"))
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), T0)
    append(log)
    held = log.segments[-1].file
    directory.remove("t", 0, T0)
    victims = []
    for number in range(8):
        victims.append(os.open(tmp_path / f"victim-{number}", os.O_RDWR | os.O_CREAT))
        os.write(victims[-1], b"victim" * 100)
    with pytest.raises(LogClosed):
        append(log)
    with pytest.raises(LogClosed):
        log.read(0, 100, end_offset=1)
    with pytest.raises(OSError):
        held.pwrite(b"boom", 0)
    for number, victim in enumerate(victims):
        os.close(victim)
        assert (tmp_path / f"victim-{number}").read_bytes() == b"victim" * 100
    assert directory.failure is None
    directory.close()


def test_a_start_opens_nothing_and_reading_opens_a_bounded_number(tmp_path: Path) -> None:
    directory = opened(OsFileSystem(), str(tmp_path / "d"))
    log = directory.create_log("t", 0, b"t" * 16, SMALL, T0)
    for number in range(200):
        append(log, number)
    log.flush()
    assert len(log.segments) > 40
    for offset in range(log.log_end_offset):
        log.read(offset, 1, end_offset=log.log_end_offset).slice.release()
    assert descriptors(tmp_path) <= 8 + 1
    directory.close()
    assert descriptors(tmp_path) == 0
    directory = opened(OsFileSystem(), str(tmp_path / "d"))
    assert descriptors(tmp_path) == 1, "the lock, and no segment"
    log = directory.logs["t", 0]
    held = [log.read(offset, 1, end_offset=log.log_end_offset).slice for offset in range(0, 200, 5)]
    assert descriptors(tmp_path) > 30, "what is being sent stays open"
    assert [piece.read()[61:] != b"" for piece in held] == [True] * len(held)
    for piece in held:
        piece.release()
    for offset in range(log.log_end_offset):
        assert log.read(offset, 1, end_offset=log.log_end_offset).slice.read()
    assert descriptors(tmp_path) <= 8 + 2
    directory.close()


def test_ten_thousand_partitions_of_four_segments_cost_no_descriptor_at_rest() -> None:
    """By count, on 200 of them: none for what is loaded, none for an index, one for a log that is written to."""
    filesystem, config = MemoryFileSystem(), LogConfig(segment_bytes=200, segment_index_bytes=240)
    format_directory(filesystem, "/d", META, 0)
    directory = LogDirectory(filesystem, "/d", open_files_max=50)
    directory.open()
    directory.load(lambda *_: config, T0)
    for index in range(200):
        log = directory.create_log("t", index, b"t" * 16, config, T0)
        for number in range(8):
            append(log, number)
        assert len(log.segments) >= 4
        log.flush()
    assert filesystem.opened <= 50
    directory.close()
    assert filesystem.opened == 0
    directory = LogDirectory(filesystem, "/d", open_files_max=50)
    directory.open()
    directory.load(lambda *_: config, T0)
    assert filesystem.opened == 0
    for log in directory.logs.values():
        log.read(0, 100, end_offset=log.log_end_offset).slice.release()
        append(log, 8)
    # What is written and not synced must hear of a write-back that fails; nothing else stays open.
    assert 200 <= filesystem.opened <= 250
    for log in directory.logs.values():
        log.flush()
    reader = directory.logs["t", 0]
    for offset in range(8):
        reader.read(offset, 1, end_offset=9).slice.release()
    for log in list(directory.logs.values())[:100]:
        log.read(0, 1, end_offset=9).slice.release()
    assert filesystem.opened <= 50


def test_unsynced_files_stay_open(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """A write-back that failed is told to those only who had the file open."""
    log = open_log(segment_bytes=200)
    for number in range(20):
        append(log, number)
    segments = log.segments
    assert all(segment.is_open and not segment.close_if_idle() for segment in segments)
    log.flush()
    assert all(segment.close_if_idle() for segment in segments[:-1])
    piece = segments[0].slice(0, 10)
    assert not segments[0].close_if_idle()
    piece.release()
    assert segments[0].close_if_idle() and not segments[0].close_if_idle()
    append(log, 20)
    assert not log.segments[-1].close_if_idle()


def test_used_files_stay_open_longer(disk: MemoryFileSystem) -> None:
    class Opened:
        def __init__(self) -> None:
            self.is_open = self.was_used = True

        def test_and_clear_used(self) -> bool:
            was_used, self.was_used = self.was_used, False
            return was_used

        def close_if_idle(self) -> bool:
            self.is_open = False
            return True

    files = OpenFiles(3)
    segments = [Opened() for _ in range(6)]
    for segment in segments[:4]:
        files.admit(segment)
    segments[1].was_used = True
    files.admit(segments[4])
    files.admit(segments[5])
    assert len(files) <= 4
    assert segments[1].is_open and segments[5].is_open and not segments[0].is_open


def test_a_disk_that_fails_under_a_slice_takes_the_log_offline(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    append(log)
    piece = log.read(0, 100, end_offset=1).slice
    disk.fail("read", errno.EIO)
    with pytest.raises(OSError):
        piece.pread(10, 0)
    assert isinstance(log.failure, StorageError)
    piece.release()


@pytest.mark.parametrize("lost", [1, 60])
def test_a_disk_that_loses_the_end_of_a_file_takes_the_log_offline(open_log: Callable[..., Log], disk: MemoryFileSystem, lost: int) -> None:
    """An answer announced more bytes than were sent, and what came next on the connection was taken for records; a coordinator took its
    state for loaded."""
    log = open_log()
    append(log)
    piece = log.read(0, 1000, end_offset=1).slice
    del disk.names[log.segments[0].log_path].data[-lost:]
    with pytest.raises(OSError, match="shorter than before"):
        piece.read()
    assert isinstance(log.failure, StorageError)
    piece.release()


def test_an_error_of_sendfile_takes_the_log_offline(open_log: Callable[..., Log]) -> None:
    log = open_log()
    append(log)
    piece = log.read(0, 100, end_offset=1).slice
    piece.failed(OSError(errno.EIO, "Input/output error"))
    assert log.failure is not None
    piece.release()
    piece.failed(OSError(errno.EIO, "released: nobody is concerned"))


@pytest.mark.parametrize("entries", [0, 1, 2, 7, 8, 9, 64, 201])
def test_an_index_at_rest_finds_what_the_same_index_in_memory_does(
    entries: int, disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_index, "_PAGE_ENTRIES", 8)
    disk.mkdir("/data")
    generator = random.Random(entries)
    keys = sorted(generator.sample(range(1, 2000), entries))
    values = sorted(generator.randrange(1, 600) for _ in range(entries))
    for kind, path in ((OffsetIndex, "/data/a.index"), (TimeIndex, "/data/a.timeindex")):
        index = kind(disk, path, 0, 1 << 20)
        index.reset()
        for key, value in zip(keys, values, strict=True):
            index.append(key, value)
        index.trim()
        at_rest = kind(disk, path, 0, 1 << 20, OpenFiles(pages_max=5))
        at_rest.open_at_rest()
        assert disk.opened == 0
        targets = [*range(0, 2010, 13), *keys, *(key - 1 for key in keys)]
        generator.shuffle(targets)
        for target in targets:
            assert at_rest.floor(target) == bisect_right(keys, target) - 1
            if isinstance(at_rest, OffsetIndex):
                found = bisect_right(values, target - 1)
                assert at_rest.offset_at_or_after(target) == (keys[found] if found < entries else None)
        assert at_rest.all_entries() == list(zip(keys, values, strict=True))
        assert disk.opened == 0


def test_pages_of_indexes_are_bounded(disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_index, "_PAGE_ENTRIES", 8)
    disk.mkdir("/data")
    files = OpenFiles(pages_max=4)
    indexes = []
    for number in range(3):
        index = OffsetIndex(disk, f"/data/{number}.index", 0, 4000, files)
        index.reset()
        for key in range(1, 101):
            index.append(key, key)
        index.trim()
        indexes.append(index)
    for key in range(1, 101):
        for index in indexes:
            assert index.floor(key) == key - 1
    assert sum(len(index._pages) for index in indexes) <= 4
    for index in indexes:
        index.forget()
        assert index.floor(50) == 49


def test_entries_of_an_active_index_are_written_in_groups(disk: MemoryFileSystem) -> None:
    disk.mkdir("/d")
    index = OffsetIndex(disk, "/d/0.index", 0, 1 << 20)
    index.begin()
    for number in range(1, sparse_index._WRITE_BEHIND_ENTRIES + 2):
        index.append(number, number)
    assert not disk.exists("/d/0.index"), "files are created beside the loop"
    write = index.begin_write()
    assert write is not None
    write.run()
    write.finish()
    for _ in range(sparse_index._WRITE_BEHIND_ENTRIES - 1):
        number += 1
        index.append(number, number)
    assert disk.size("/d/0.index") == 1 << 20 and disk.read("/d/0.index")[8 * number - 8 :][:8] == bytes(8), "not written yet"
    index.append(number + 1, number + 1)
    again = OffsetIndex(disk, "/d/0.index", 0, 1 << 20)
    again.open_at_rest()
    assert [again.entry(at) for at in (0, number)] == [(1, 1), (number + 1, number + 1)] and again.entry(number + 1) == (0, 0)


def test_an_index_that_got_shorter_since_it_was_opened_is_an_error(disk: MemoryFileSystem) -> None:
    disk.mkdir("/data")
    index = OffsetIndex(disk, "/data/a.index", 0, 800)
    index.reset()
    for number in range(1, 50):
        index.append(number, number * 100)
    index.trim()
    disk.open("/data/a.index").truncate(16)
    with pytest.raises(OSError):
        index.floor(40)


def test_logs_that_were_written_lately_are_synced_so_that_their_files_can_be_closed(tmp_path: Path) -> None:
    """Else as many partitions as there are descriptors could be written to, and no more."""
    directory = opened(OsFileSystem(), str(tmp_path / "d"), open_files_max=8)
    logs = [directory.create_log("t", number, b"t" * 16, LogConfig(), T0) for number in range(30)]
    for number, log in enumerate(logs):
        append(log, number)
    assert descriptors(tmp_path) >= 30
    for _ in range(2):  # a sync counts as use, and what was just used stays open for a round
        at_once(directory.due_work(T0))
        for log in logs:
            if log.durability.should_sync_ahead:
                log.flush()
    assert descriptors(tmp_path) <= 10
    at_once(directory.due_work(T0))
    assert not any(log.durability.should_sync_ahead for log in logs), "nothing more than is needed is synced"
    for number, log in enumerate(logs):
        append(log, number)
        assert log.log_end_offset == 2
    directory.close()


def test_files_that_are_closed_already_are_none_too_many(tmp_path: Path) -> None:
    directory = opened(OsFileSystem(), str(tmp_path / "d"), open_files_max=8)
    logs = [directory.create_log("t", number, b"t" * 16, LogConfig(), T0) for number in range(30)]
    for log in logs:
        append(log)
    for number in range(1, 30):
        directory.remove("t", number, T0)
    at_once(directory.due_work(T0))
    assert not logs[0].durability.should_sync_ahead
    directory.close()


def test_a_shortage_of_descriptors_closes_some_files_not_all() -> None:
    """Closing 4,000 at once took 200 ms."""

    class Held:
        is_open = True

        def test_and_clear_used(self) -> bool:
            return True

        def close_if_idle(self) -> bool:
            self.is_open = False
            return True

    class Short:
        """Has one descriptor more than are in use."""

        def open(self, path: str, *, create: bool = False) -> str:
            if all(file.is_open for file in held):
                raise OSError(errno.EMFILE, "too many")
            return path

    held, files = [Held() for _ in range(1000)], OpenFiles(limit=2000)
    for file in held:
        files.admit(file)
    assert files.open(Short(), "x") == "x"  # type: ignore[arg-type, comparison-overlap]
    assert sum(not file.is_open for file in held) == _CLOSED_AT_ONCE


def test_log_files_leave_descriptors_for_other_things(tmp_path: Path) -> None:
    """10,000 logs that were written to took all of them, and the broker could not even connect to the controller."""
    format_directory(OsFileSystem(), str(tmp_path / "d"), META, 0)
    directory = LogDirectory(OsFileSystem(), str(tmp_path / "d"), open_files_max=4, unsynced_files_max=10)
    directory.open()
    directory.load(lambda *_: SMALL, T0)
    logs = [directory.create_log("t", index, b"t" * 16, SMALL, T0) for index in range(20)]
    refused = 0
    for log in logs:
        try:
            append(log)
        except ResourceShortage:
            refused += 1
    assert refused == 10 and descriptors(tmp_path / "d") == 10 + 1, "one is the lock"
    logs[0].flush()
    append(logs[-1])
    with pytest.raises(ResourceShortage):
        append(logs[-2])
    for log in logs:
        log.flush()
        if not log.size:
            append(log)
            log.flush()
    assert all(log.log_end_offset == 1 for log in logs) and descriptors(tmp_path / "d") <= 5
    directory.close()
