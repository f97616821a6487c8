"""Small files that a crash tore or that rotted: rebuilt, set aside or refused, never believed and never fatal."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.storage import checkpoint
from minikafka.storage.config import LogConfig
from minikafka.storage.epoch_cache import EpochCache, EpochWrite
from minikafka.storage.errors import CorruptFile, StorageError
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.storage.recovery import load_log
from minikafka.storage.segment import Segment
from minikafka.storage.types import AbortedTransaction
from minikafka.wire.batch import build_batch
from minikafka.wire.control import ControlType, end_transaction_batch

INDEX = "/data/t-0/00000000000000000000.txnindex"
TOPIC_ID = bytes(range(16))


def transaction(log: Log, sequence: int, kind: ControlType = ControlType.ABORT) -> None:
    data = build_batch([(0, T0, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    log.append_as_leader(memoryview(data), 0, T0)
    marker = end_transaction_batch(kind, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=T0)
    log.append_as_leader(memoryview(marker), 0, T0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)


ABORTED = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 2, 3, 4)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[:-34] + bytes(34),
        lambda data: b"\0\1" + data[2:],
        lambda data: data[34:] + data[:34],
        lambda data: data + data[-34:],
    ],
    ids=["cut", "zeros", "version", "order", "twice"],
)
def test_a_transaction_index_that_is_not_valid_is_rebuilt(
    damage: Callable[[bytes], bytes], open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log()
    transaction(log, 0)
    transaction(log, 1)
    log.close()
    disk.write(INDEX, damage(disk.read(INDEX)))
    log = open_log()
    log.update_high_watermark(4)
    assert log.aborted_transactions(0, 10) == ABORTED
    transaction(log, 2)
    assert log.aborted_transactions(4, 10) == [AbortedTransaction(7, 4, 5, 6)]
    log.close()
    assert open_log().aborted_transactions(0, 10) == [*ABORTED, AbortedTransaction(7, 4, 5, 6)]


def test_an_index_that_changed_under_a_running_log_is_an_error_of_the_disk(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """CorruptFile never leaves storage."""
    open_log().close()
    log = open_log()
    transaction(log, 0)
    log.close()
    log = open_log()
    disk.write(INDEX, disk.read(INDEX)[:-5])
    with pytest.raises(StorageError):
        log.aborted_transactions(0, 10)
    assert log.failure is not None


def test_a_bug_between_write_and_publish_is_reported(disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host must move the leadership away: what is in memory may not be true any more."""
    failures: list[StorageError] = []
    log = load_log(disk, "/data/t-0", "t", 0, LogConfig(), wall_ms=T0, on_failure=failures.append)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Segment, "append", broken)
    with pytest.raises(RuntimeError):
        log.append_as_leader(memoryview(batch(b"x")), 0, T0)
    assert failures == [log.failure]


def test_an_epoch_file_that_a_power_cut_tore_is_never_believed() -> None:
    """Torn between two sectors "9 1000" may become "10 1000": overwritten in place is only what is one sector."""
    seen = set()
    for seed in range(400):
        generator = random.Random(seed)
        disk = MemoryFileSystem()
        disk.mkdir("/data")
        disk.fsync_dir("/data")
        cache = EpochCache(disk, "/data/leader-epoch-checkpoint")
        offset = 0
        for epoch in range(generator.randrange(40, 75)):
            offset += generator.choice((1, 7, 900))
            cache.assign(epoch, offset, write=False)
        cache.write()
        written = [cache.entries]
        for epoch in range(generator.randrange(1, 8)):
            cache.truncate_from_end(offset - generator.randrange(3000))
            offset += generator.choice((1, 900))
            cache.assign(100 + epoch, offset)
            written.append(cache.entries)
            if cache.is_dirty:
                write = cache.begin_write()
                assert write is not None
                write.run()
                assert write.finish()
        found = EpochCache(disk.crash(generator), "/data/leader-epoch-checkpoint")
        try:
            found.load()
        except CorruptFile:
            continue
        seen.add(found.entries == cache.entries)
        assert set(found.entries) <= {entry for entries in written for entry in entries}, seed
        assert found.entries in (*written, []) or len(disk.read("/data/leader-epoch-checkpoint")) <= 512, seed
    assert seen == {True, False}


def test_a_process_that_is_killed_leaves_no_epoch_file_that_apache_kafka_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each step of a write the file is whole: what is cut is written anew, as cutting it would be a second step."""
    path, disk, found = "/data/leader-epoch-checkpoint", MemoryFileSystem(), set()

    def followed(step: Callable[..., int | None]) -> Callable[..., int | None]:
        def done(*arguments: object) -> int | None:
            result = step(*arguments)
            found.add(disk.read(path))
            return result

        return done

    disk.mkdir("/data")
    cache = EpochCache(disk, path)
    cache.assign(0, 0)
    for name in ("pwrite", "truncate"):
        monkeypatch.setattr(MemoryFile, name, followed(getattr(MemoryFile, name)))
    for epoch in range(1, 12):
        cache.assign(epoch, 100 * epoch)
    for offset in (1000, 450, 0):
        cache.truncate_from_end(offset)
        write = cache.begin_write()
        assert write is not None
        write.run()
        write.finish()
    cache.clear()
    cache.write()
    assert len(found) >= 12
    for data in found:
        count, *rows = data.decode().splitlines()[1:]
        assert int(count) == len(rows)


def test_only_an_epoch_file_of_one_sector_is_overwritten() -> None:
    disk = MemoryFileSystem()
    disk.mkdir("/data")
    cache = EpochCache(disk, "/data/e")
    sizes = []
    for epoch in range(200):
        before = disk.names.get("/data/e")
        cache.assign(epoch, epoch * 1000)
        if before is not None and disk.names["/data/e"] is before:
            sizes.append(disk.size("/data/e"))
    assert sizes and 480 < max(sizes) <= 512


def opened(disk: MemoryFileSystem) -> LogDirectory:
    if not disk.exists("/d/meta.properties"):
        format_directory(disk, "/d", MetaProperties("x" * 22, 1, bytes(16)), T0)
    directory = LogDirectory(disk, "/d")
    directory.open()
    directory.load(lambda *_: LogConfig(), T0)
    return directory


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("content", [b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: !", b"\xff" * 40, b"x"])
def test_a_log_whose_topic_is_not_known_any_more_is_set_aside(content: bytes, is_clean: bool, disk: MemoryFileSystem) -> None:
    """Taken for one without an id, any new topic of its name would get its records."""
    directory = opened(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), T0)
    directory.create_log("u", 0, b"u" * 16, LogConfig(), T0)
    log.append_as_leader(memoryview(batch(b"x")), 0, T0)
    (directory.close if is_clean else directory.abandon)()
    disk.write("/d/t-0/partition.metadata", content)
    directory = opened(disk)
    assert list(directory.logs) == [("u", 0)] and directory.failure is None
    assert [name for name in disk.list("/d") if name.endswith("-stray")] == [f"t-0.{'0' * 32}-stray"]
    assert disk.size(f"/d/t-0.{'0' * 32}-stray/00000000000000000000.log") > 0
    assert directory.create_log("t", 0, b"n" * 16, LogConfig(), T0).log_end_offset == 0


@pytest.mark.parametrize("kept", [0, 5, 20, 30])
@pytest.mark.parametrize("zeros", [0, 12])
def test_an_id_that_a_crash_tore_is_one_that_was_not_written(kept: int, zeros: int, disk: MemoryFileSystem) -> None:
    directory = opened(disk)
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), T0).append_as_leader(memoryview(batch(b"x")), 0, T0)
    whole = disk.read("/d/t-0/partition.metadata")
    directory.abandon()
    disk.write("/d/t-0/partition.metadata", whole[:kept] + bytes(zeros))
    assert opened(disk).create_log("t", 0, TOPIC_ID, LogConfig(), T0).log_end_offset == 1
    assert disk.read("/d/t-0/partition.metadata") == whole


def test_torn_ids(disk: MemoryFileSystem) -> None:
    disk.write("/d/p", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert not checkpoint.is_torn_metadata(disk, "/d/p")
    disk.write("/d/p", b"version: 0\ntopic_id: A-_C")
    assert checkpoint.is_torn_metadata(disk, "/d/p")


def test_a_disk_that_cannot_read_the_id_goes_offline(disk: MemoryFileSystem) -> None:
    directory = opened(disk)
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), T0)
    directory.close()
    disk.fail("read", errno.EIO, "partition.metadata")
    with pytest.raises(StorageError):
        opened(disk)


@pytest.mark.parametrize("seed", range(40))
def test_the_file_of_the_epochs_says_what_it_lacks_whatever_is_written_beside_the_loop(seed: int) -> None:
    """A change after a write had begun was taken for written: the file kept epochs that ended before the log's start, or that were of
    another log, until something else changed."""
    generator, disk = random.Random(seed), MemoryFileSystem()
    disk.mkdir("/d")
    path = "/d/leader-epoch-checkpoint"
    cache, other = EpochCache(disk, path), EpochCache(disk, "/d/other")
    begun: list[tuple[EpochWrite, bool]] = []
    epoch = 0
    for _ in range(60):
        kind = generator.choice(("assign", "assign", "end", "start", "copy", "write", "begin", "begin", "run", "finish"))
        last = cache.entries[-1][1] if cache.entries else 0
        if kind == "assign":
            epoch += 1
            cache.assign(epoch, last + generator.randrange(1, 9))
        elif kind == "end":
            cache.truncate_from_end(generator.randrange(last + 2))
        elif kind == "start":
            cache.truncate_from_start(generator.randrange(last + 2), write=generator.random() < 0.3)
        elif kind == "copy":
            other.assign(epoch + 1, last + 1, write=False)
            cache.copy_from(other)
        elif kind == "write" and (cache.is_dirty or cache.is_stale):
            cache.write(sync=generator.random() < 0.5)
        elif kind == "begin":
            write = cache.begin_write()
            begun += [] if write is None else [(write, False)]
        elif kind == "run" and begun:
            place = generator.randrange(len(begun))
            begun[place][0].run()
            begun[place] = begun[place][0], True
        elif kind == "finish" and begun and begun[0][1]:
            begun.pop(0)[0].finish()
        epoch = max(epoch, cache.latest)
        if not cache.is_dirty and not cache.is_stale:
            on_disk = EpochCache(disk, path)
            on_disk.load()
            assert on_disk.entries == cache.entries, kind
