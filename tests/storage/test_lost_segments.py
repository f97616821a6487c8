"""Segments that somebody removed between a clean stop and a start: at the beginning of a log, in its middle, or at its end."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from helpers import golden_logs
from helpers.batches import T0, batch
from helpers.cleaning import clean
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.config import LogConfig
from minikafka.storage.errors import StorageError
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory, MetaProperties, format_directory
from minikafka.storage.lost_files import note_lost_records

META = MetaProperties("golden-static-quorum-A", 1, bytes(range(16)))
TOPIC_ID = bytes(range(16))
KEY = ("t", 0)
PLAIN = LogConfig(segment_bytes=300, segment_index_bytes=1200, file_delete_delay_ms=0)
COMPACTED = dataclasses.replace(PLAIN, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
EPOCH = 42
FIRST = f"{0:020d}.log"
Disk = MemoryFileSystem | OsFileSystem


def opened(disk: Disk, config: LogConfig = PLAIN, path: str = "/data") -> LogDirectory:
    directory = LogDirectory(disk, path)
    directory.open()
    directory.load(lambda *_: config, T0)
    note_lost_records([directory])
    return directory


def append(log: Log, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(memoryview(batch(b"%020d" % log.log_end_offset)), log.epochs.latest if log.epochs.epochs else 0, T0)


@pytest.fixture
def formatted(disk: MemoryFileSystem) -> MemoryFileSystem:
    format_directory(disk, "/data", META, T0)
    return disk


def stopped(disk: MemoryFileSystem, count: int = 12) -> list[int]:
    """A cleanly stopped log of several segments; returns their base offsets."""
    directory = opened(disk)
    log = directory.create_log(*KEY, TOPIC_ID, PLAIN, T0)
    append(log, count)
    bases = list(log.segments.bases)
    directory.close(broker_epoch=EPOCH)
    assert len(bases) >= 4
    return bases


def remove(disk: MemoryFileSystem, *bases: int, rest: bool = False) -> None:
    """Remove the `.log` files of segments; with `rest` all their files."""
    for base in bases:
        for name in [name for name in disk.names if name.startswith(f"/data/t-0/{base:020d}.")]:
            if rest or name.endswith(".log"):
                disk.unlink(name)


def stopped_by_kafka(disk: MemoryFileSystem) -> None:
    """Apache Kafka ran on the directory and stopped cleanly, with another epoch: what minikafka wrote down is out of date."""
    disk.write("/data/.kafka_cleanshutdown", json.dumps({"version": 0, "brokerEpoch": EPOCH + 1}).encode())


@pytest.mark.parametrize("is_kafkas", [False, True])
@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_broker_that_lost_segments_since_has_not_stopped_cleanly(
    formatted: MemoryFileSystem, caplog: pytest.LogCaptureFixture, index: int, rest: bool, is_kafkas: bool
) -> None:
    """Otherwise it may lead, and the other replicas delete the records before its start, or never have a hole that it serves."""
    bases = stopped(formatted)
    remove(formatted, bases[index], rest=rest)
    epoch = EPOCH
    if is_kafkas:
        stopped_by_kafka(formatted)
        epoch += 1
    again = opened(formatted)
    log = again.logs[KEY]
    lost = bases[index], bases[index + 1]
    assert (again.is_clean, again.previous_broker_epoch, log.watermarks.lost) == (True, -1, lost)
    assert f"/data/t-0: records among offsets {lost[0]} to {lost[1]} are missing" in caplog.text
    again.close(broker_epoch=epoch + 1)
    again = opened(formatted)
    log = again.logs[KEY]
    assert (again.previous_broker_epoch, log.watermarks.lost) == (-1, lost), "until it gets them"
    log.truncate_fully_and_start_at(0)
    assert log.watermarks.lost is None
    again.close(broker_epoch=epoch + 2)
    again = opened(formatted)
    assert again.previous_broker_epoch == epoch + 2 and again.logs[KEY].watermarks.lost is None


@pytest.mark.parametrize("index", [0, 1])
def test_what_is_accepted_is_whole(formatted: MemoryFileSystem, index: int) -> None:
    """Nobody else has the records: its leader does not, or it leads."""
    bases = stopped(formatted)
    remove(formatted, bases[index])
    again = opened(formatted)
    log = again.logs[KEY]
    log.accept_loss()
    assert log.watermarks.lost is None and log.epochs.entries[0][1] == log.log_start_offset
    again.close(broker_epoch=43)
    assert opened(formatted).previous_broker_epoch == 43


def test_a_start_of_the_log_behind_the_loss_ends_it(formatted: MemoryFileSystem) -> None:
    bases = stopped(formatted)
    remove(formatted, bases[1])
    again = opened(formatted)
    log = again.logs[KEY]
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(bases[2] - 1)
    assert log.watermarks.lost is not None
    log.increment_log_start_offset(bases[2])
    assert log.watermarks.lost is None
    again.close(broker_epoch=43)
    assert opened(formatted).previous_broker_epoch == 43


@pytest.mark.parametrize("is_retained", [True, False])
def test_retention_and_deleted_records_are_no_loss(formatted: MemoryFileSystem, is_retained: bool) -> None:
    directory = opened(formatted)
    log = directory.create_log(*KEY, TOPIC_ID, PLAIN, T0)
    append(log, 12)
    log.update_high_watermark(12)
    log.increment_log_start_offset(log.segments.bases[-1] if is_retained else 1)
    if is_retained:
        log.delete_old_segments(T0)
    directory.close(broker_epoch=EPOCH)
    again = opened(formatted)
    assert again.previous_broker_epoch == EPOCH and again.logs[KEY].watermarks.lost is None


def test_removed_segments_whose_records_were_deleted_are_no_loss(formatted: MemoryFileSystem) -> None:
    """Retention had not come to them yet."""
    directory = opened(formatted)
    log = directory.create_log(*KEY, TOPIC_ID, PLAIN, T0)
    append(log, 12)
    log.update_high_watermark(12)
    bases = list(log.segments.bases)
    log.increment_log_start_offset(bases[2])
    directory.close(broker_epoch=EPOCH)
    remove(formatted, bases[0], bases[1])
    again = opened(formatted)
    assert again.previous_broker_epoch == EPOCH and again.logs[KEY].watermarks.lost is None


def compacted(disk: MemoryFileSystem) -> list[int]:
    """A cleanly stopped log whose cleaner left gaps between segments; returns their base offsets."""
    directory = opened(disk, COMPACTED)
    log = directory.create_log(*KEY, TOPIC_ID, COMPACTED, T0)
    for number in range(40):
        log.append_as_leader(memoryview(batch(b"%0100d" % number, key=b"k%d" % (number % 3 if number % 8 else number))), 0, T0)
    log.update_high_watermark(log.log_end_offset)
    directory.cleaned[KEY] = clean(log, None, T0)
    directory.write_checkpoint(directory.cleaned_offsets())
    bases, ends = list(log.segments.bases), [segment.next_offset() for segment in log.segments]
    assert len(bases) > 4 and any(end < after for end, after in zip(ends, bases[1:], strict=False))
    directory.close(broker_epoch=EPOCH)
    return bases


@pytest.mark.parametrize("is_kafkas", [False, True])
@pytest.mark.parametrize("policy", [COMPACTED, PLAIN])
def test_gaps_that_compaction_left_are_no_loss(formatted: MemoryFileSystem, policy: LogConfig, is_kafkas: bool) -> None:
    compacted(formatted)
    if is_kafkas:
        stopped_by_kafka(formatted)
    again = opened(formatted, policy)
    assert again.previous_broker_epoch == EPOCH + is_kafkas and again.logs[KEY].watermarks.lost is None


def test_gaps_in_a_replica_of_what_was_compacted_once_are_no_loss(formatted: MemoryFileSystem) -> None:
    """Its own cleaner did not leave them, and the topic's policy has changed since."""
    directory = opened(formatted)
    log = directory.create_log(*KEY, TOPIC_ID, PLAIN, T0)
    for number in range(20):
        log.append_as_follower(memoryview(batch(b"%d" % number, base_offset=number * 3, epoch=0)))
    ends = [segment.next_offset() for segment in log.segments]
    assert len(ends) > 3 and all(end < base for end, base in zip(ends, log.segments.bases[1:], strict=False))
    directory.close(broker_epoch=EPOCH)
    stopped_by_kafka(formatted)
    again = opened(formatted)
    assert again.previous_broker_epoch == EPOCH + 1 and again.logs[KEY].watermarks.lost is None


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_compacted_log_that_lost_a_segment(formatted: MemoryFileSystem, index: int) -> None:
    bases = compacted(formatted)
    remove(formatted, bases[index])
    again = opened(formatted, COMPACTED)
    assert again.previous_broker_epoch == -1 and again.logs[KEY].watermarks.lost == (bases[index], bases[index + 1])


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"version":0,"brokerEpoch":42,"segments":{"t-0":["a"]}}', b'{"version":0}'])
def test_without_the_list_of_segments_a_gap_still_counts(formatted: MemoryFileSystem, junk: bytes) -> None:
    bases = stopped(formatted)
    formatted.write("/data/.segments", junk)
    remove(formatted, bases[1])
    assert opened(formatted).logs[KEY].watermarks.lost == (bases[1], bases[2])


def test_a_log_moved_to_another_directory_by_hand(formatted: MemoryFileSystem) -> None:
    """It is whole, or has a gap that the list of its former directory could have told."""
    bases = stopped(formatted)
    format_directory(formatted, "/other", META, T0)
    opened(formatted, path="/other").close(broker_epoch=EPOCH)
    formatted.rename("/data/t-0", "/other/t-0")
    both = [LogDirectory(formatted, path) for path in ("/data", "/other")]
    for directory in both:
        directory.open()
        directory.load(lambda *_: PLAIN, T0)
    note_lost_records(both)
    assert [directory.previous_broker_epoch for directory in both] == [EPOCH, EPOCH]
    for directory in both:
        directory.close(broker_epoch=EPOCH + 1)
    formatted.unlink(f"/other/t-0/{bases[1]:020d}.log")
    assert opened(formatted, path="/other").logs[KEY].watermarks.lost == (bases[1], bases[2])


@pytest.mark.parametrize("kept", [0, 1])
def test_a_log_that_lost_its_end_is_marked(formatted: MemoryFileSystem, kept: int) -> None:
    """It is a whole beginning, but a controller that takes it for the best log (the last known leader) would let it lead."""
    bases = stopped(formatted)
    remove(formatted, *bases[kept:], rest=True)
    if not kept:
        for name in formatted.list("/data/t-0"):
            formatted.unlink(f"/data/t-0/{name}")
        formatted.rmdir("/data/t-0")
    lost = bases[kept], 12
    for _ in range(2):
        directory = opened(formatted)
        log = directory.logs[KEY]
        assert (directory.previous_broker_epoch, log.watermarks.lost, log.log_end_offset) == (-1, lost, lost[0])
        formatted = formatted.kill()
    directory = opened(formatted)
    log = directory.logs[KEY]
    log.accept_loss()
    directory.close(broker_epoch=43)
    assert opened(formatted).previous_broker_epoch == 43


@pytest.mark.parametrize("seed", range(150))
def test_a_crash_does_not_forget_the_loss(formatted: MemoryFileSystem, seed: int) -> None:
    """Whether the start that noticed it was cut off while it loaded, later, or in the truncation for the records that it lacks. Only a log
    that is truncated durably, or behind whose loss the log durably starts, is whole again."""
    generator = random.Random(seed)
    bases = stopped(formatted)
    gone = sorted(generator.sample(bases[:-1], generator.randint(1, 2)))
    remove(formatted, *gone, rest=generator.random() < 0.5)
    left = [base for base in bases if base not in gone]
    lost = next((gone[0], base) for base in left if base > gone[-1])
    disk = formatted
    disk.fsync_dir("/data/t-0")
    for _ in range(generator.randint(1, 3)):
        kind = generator.choice(["loading", "running", "truncating"])
        if kind == "loading":
            disk.fail(generator.choice(["read", "open", "rename", "fsync_dir", "write", "fsync"]), after=generator.randrange(40))
        try:
            directory = opened(disk)
        except StorageError:
            pass
        else:
            disk.heal()
            log = directory.logs[KEY]
            if log.watermarks.lost is not None and generator.random() < 0.7:
                assert log.watermarks.lost == lost
                append(log, generator.randrange(4))
                directory.write_checkpoint(directory.recovery_points())
                if kind == "truncating":
                    log.truncate_fully_and_start_at(0)
                    if generator.random() < 0.5:
                        log.durability.sync_cut()
        disk.heal()
        disk = disk.crash(generator)
        again = opened(disk.kill())
        log = again.logs[KEY]
        is_whole = all(base in log.segments.bases for base in bases[:1]) and is_continuous(log)
        expected = lost[0], max(lost[1], log.segments.bases[0])
        assert is_whole or log.watermarks.lost == expected, (kind, log.segments.bases, log.watermarks.lost)
        assert log.watermarks.lost is None or again.previous_broker_epoch == -1


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint", None])
def test_what_another_broker_deleted_after_a_start_that_crashed_is_no_loss(tmp_path: Path, name: str | None) -> None:
    """Apache Kafka does not know the file that a start leaves if it crashes while it loads. Its retention deletes segments then, and if it
    crashes as well, the file is still there. Only the time of the checkpoints tells."""
    disk, path = OsFileSystem(), str(tmp_path / "data")
    format_directory(disk, path, META, T0)
    directory = opened(disk, path=path)
    append(directory.create_log(*KEY, TOPIC_ID, PLAIN, T0), 12)
    directory.close(broker_epoch=EPOCH)
    cut_off = LogDirectory(disk, path)
    cut_off.open()
    cut_off.abandon()
    stopped_ns = (tmp_path / "data/.loading").stat().st_mtime_ns
    if name is not None:
        os.utime(tmp_path / "data" / name, ns=(stopped_ns, stopped_ns + 5_000_000_000))
    (tmp_path / "data/t-0" / FIRST).unlink()
    log = opened(disk, path=path).logs[KEY]
    assert (log.watermarks.lost is None) == (name is not None)


def is_continuous(log: Log) -> bool:
    ends = [segment.next_offset() for segment in log.segments]
    return all(end == base for end, base in zip(ends, log.segments.bases[1:], strict=False))


def test_kafkas_directories_have_lost_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that real brokers stopped cleanly, with every policy."""
    root = tmp_path / "data"
    shutil.copytree(golden_logs.ROOT / "single-stopped/root", root)
    for path in sorted((golden_logs.ROOT / "single-stopped").glob("*-[0-9]")):
        shutil.copytree(path, root / path.name)
    directory = opened(OsFileSystem(), LogConfig(), str(root))
    whole = [log for log in directory.logs.values() if not log.topic.startswith("compact")]  # the golden directories are without these
    assert directory.is_clean and len(whole) == 24
    assert all(log.watermarks.lost is None for log in whole) and caplog.text.count("records among") == 2
    directory.close()
