"""A log directory: identity, lock, checkpoints, clean and unclean starts, deletion, going offline."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from helpers import golden_logs
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage import checkpoint
from minikafka.storage.checkpoint import read_properties, uuid_bytes, uuid_text
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import CorruptFile, DirectoryLocked, NotFormatted, StorageError
from minikafka.storage.filesystem import OsFileSystem, write_atomically
from minikafka.storage.log import Log
from minikafka.storage.log_dir import (
    SEGMENTS_AT_ONCE,
    LogDirectory,
    MetaProperties,
    format_directory,
    parse_directory_name,
    read_meta_properties,
)
from minikafka.storage.lost_files import note_lost_records
from minikafka.wire.errors import ApiError, ErrorCode

META = MetaProperties("golden-static-quorum-A", 1, uuid_bytes("ToPOSeJf2aXZc_Mg0b-Pug"))
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=600, segment_index_bytes=1200, file_delete_delay_ms=1000)


def config_of(topic: str, partition: int, topic_id: bytes) -> LogConfig:
    return CONFIG


def opened(disk: MemoryFileSystem | OsFileSystem, path: str = "/data") -> LogDirectory:
    directory = LogDirectory(disk, path)
    directory.open()
    directory.load(config_of, T0)
    note_lost_records([directory])
    return directory


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(memoryview(batch(b"%020d" % log.log_end_offset)), 0, T0)


@pytest.fixture
def formatted(disk: MemoryFileSystem) -> MemoryFileSystem:
    format_directory(disk, "/data", META, T0)
    return disk


def test_meta_properties_are_kafkas(disk: MemoryFileSystem) -> None:
    golden = (golden_logs.ROOT / "single-stopped/root/meta.properties").read_bytes()
    format_directory(disk, "/data", META, 1795230476000)
    lines, expected = disk.read("/data/meta.properties").splitlines(), golden.splitlines()
    assert [lines[0], *lines[2:]] == [expected[0], *expected[2:]]
    assert len(lines[1]) == len(expected[1])
    assert read_meta_properties(disk, "/data") == META
    disk.write("/k/meta.properties", golden)
    assert read_meta_properties(disk, "/k") == META


def test_an_unformatted_directory_is_reported(disk: MemoryFileSystem) -> None:
    with pytest.raises(NotFormatted, match="does not exist"):
        LogDirectory(disk, "/data").open()
    disk.mkdir("/data")
    with pytest.raises(NotFormatted, match="not formatted"):
        LogDirectory(disk, "/data").open()
    for text in (b"version=1\n", b"version=0\nbroker.id=1\n", b"version=1\ncluster.id=a\nnode.id=x\ndirectory.id=b\n"):
        other = MemoryFileSystem()
        other.write("/data/meta.properties", text)
        with pytest.raises(NotFormatted):
            LogDirectory(other, "/data").open()


def test_the_lock_keeps_others_out(tmp_path: Path) -> None:
    disk = OsFileSystem()
    format_directory(disk, str(tmp_path), META, T0)
    first = opened(disk, str(tmp_path))
    with pytest.raises(DirectoryLocked, match="already running"):
        LogDirectory(disk, str(tmp_path)).open()
    first.close()
    opened(disk, str(tmp_path)).close()


def test_a_clean_stop_is_seen_once(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    assert not directory.is_clean
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    directory.close(broker_epoch=42)
    assert formatted.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    again = LogDirectory(formatted, "/data")
    again.open()
    assert (again.is_clean, again.previous_broker_epoch) == (True, 42)
    again.abandon()
    assert not formatted.exists("/data/.kafka_cleanshutdown"), "a crash while loading is not clean"


def test_logs_come_back_with_their_watermarks(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    for partition in range(3):
        log = directory.create_log("with-dash.and_dot", partition, TOPIC_ID, CONFIG, T0)
        append(log, 10 * partition)
        log.update_high_watermark(9 * partition)
    directory.logs["with-dash.and_dot", 2].increment_log_start_offset(3)
    directory.close()
    assert formatted.read("/data/log-start-offset-checkpoint") == b"0\n1\nwith-dash.and_dot 2 3\n"
    again = opened(formatted)
    found = {key: (log.log_start_offset, log.log_end_offset, log.high_watermark) for key, log in again.logs.items()}
    name = "with-dash.and_dot"
    assert found == {(name, 0): (0, 0, 0), (name, 1): (0, 10, 9), (name, 2): (3, 20, 18)}
    assert again.logs[name, 1].topic_id == TOPIC_ID
    assert again.logs[name, 1].recovery_point == 10


@pytest.mark.parametrize("kept", ["everything", "the first segment", "no segment", "nothing"])
def test_a_broker_that_lost_records_since_has_not_stopped_cleanly(
    formatted: MemoryFileSystem, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it may lead with what is left, and the other replicas truncate theirs to it."""
    directory = opened(formatted)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, T0)
    append(log, 10)
    (_, last), end = log.segments.bases, 10
    directory.close(broker_epoch=42)
    for name in [name for name in formatted.names if name.startswith("/data/t-0/")]:
        is_last, is_segment = name.endswith(f"{last:020d}.log"), name.endswith(".log")
        is_lost = {"everything": False, "the first segment": is_last, "no segment": is_segment, "nothing": True}
        if is_lost[kept]:
            formatted.unlink(name)
    if kept == "nothing":
        formatted.rmdir("/data/t-0")
    left = {"everything": end, "the first segment": last}.get(kept, 0)
    again = opened(formatted)
    assert again.is_clean and again.previous_broker_epoch == (42 if left == end else -1)
    said = f"/data/t-0: records among offsets {left} to 10 are missing"
    assert (said in caplog.text) == (left != end)


@pytest.mark.parametrize("left", [None, b"", b"0\n2\nt 0 10\n", b"junk"])
def test_without_its_recovery_points_a_broker_has_not_stopped_cleanly(formatted: MemoryFileSystem, left: bytes | None) -> None:
    """A clean stop writes them: whoever removed the file may have removed segments, too, and nobody can tell."""
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 10)
    directory.close(broker_epoch=42)
    name = "/data/recovery-point-offset-checkpoint"
    formatted.unlink(name)
    if left is not None:
        write_atomically(formatted, name, left)
    assert opened(formatted).previous_broker_epoch == -1


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_log_that_was_moved_to_another_directory_is_not_lost(tmp_path: Path, is_cut: bool) -> None:
    """As Kafka's operators do it by hand while the broker is down."""
    disk, paths = OsFileSystem(), [str(tmp_path / "a"), str(tmp_path / "b")]
    for path in paths:
        format_directory(disk, path, META, T0)
    first, second = (opened(disk, path) for path in paths)
    log = first.create_log("t", 0, TOPIC_ID, CONFIG, T0)
    append(log, 10)
    last = log.segments.bases[-1]
    first.close(broker_epoch=42)
    second.close(broker_epoch=42)
    moved = shutil.move(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    if is_cut:
        (moved / f"{last:020d}.log").unlink()
    both = [LogDirectory(disk, path) for path in paths]
    for directory in both:
        directory.open()
        directory.load(config_of, T0)
    note_lost_records(both)
    assert min(directory.previous_broker_epoch for directory in both) == (-1 if is_cut else 42)
    for directory in both:
        directory.abandon()


def test_kafkas_directory_is_opened_and_written_back(tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden_logs.ROOT / "single-stopped/root", root)
    for path in sorted((golden_logs.ROOT / "single-stopped").glob("*-[0-9]")):
        shutil.copytree(path, root / path.name)
    wanted = {name: (root / name).read_text() for name in ("log-start-offset-checkpoint",)}
    offsets = checkpoint.read_offset_checkpoint(OsFileSystem(), str(root / "recovery-point-offset-checkpoint"))
    directory = LogDirectory(OsFileSystem(), str(root))
    assert directory.open() == META
    assert directory.is_clean and directory.previous_broker_epoch > 0
    directory.load(lambda *_: LogConfig(), 1_795_230_600_000)
    assert len(directory.logs) == 24
    assert {key: log.log_end_offset for key, log in directory.logs.items()} == {key: offsets[key] for key in directory.logs}
    assert {key: log.high_watermark for key, log in directory.logs.items()} == {key: offsets[key] for key in directory.logs}
    directory.close()
    assert {name: (root / name).read_text() for name in wanted} == wanted


def test_deletion_renames_at_once_and_unlinks_later(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    directory.remove("t", 0, T0)
    assert [name for name in formatted.list("/data") if name.endswith("-delete")] == [f"t-0.{TOPIC_ID.hex()}-delete"]
    append(directory.create_log("t", 0, bytes(16), CONFIG, T0), 1)
    directory.maintain(T0 + 999)
    assert any(name.endswith("-delete") for name in formatted.list("/data"))
    directory.maintain(T0 + 1000)
    assert not any(name.endswith("-delete") for name in formatted.list("/data"))
    assert directory.logs["t", 0].log_end_offset == 1


def test_a_log_goes_with_directories_that_others_made_in_it(formatted: MemoryFileSystem) -> None:
    """The log directory counted as dead, because a directory cannot be unlinked."""
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    formatted.mkdir("/data/t-0/backup/old")
    formatted.write("/data/t-0/backup/old/x.log", b"x")
    directory.remove("t", 0, T0)
    directory.maintain(T0 + 1000)
    assert directory.failure is None
    assert not any(name.startswith("t-0") for name in formatted.list("/data"))


def many_segments(directory: LogDirectory, topic: str, count: int) -> Log:
    """A log of so many segments of one record each, all old but the last."""
    log = directory.create_log(topic, 0, TOPIC_ID, LogConfig(segment_bytes=100, retention_ms=1000, file_delete_delay_ms=1000), T0)
    for _ in range(count):
        append(log, 1)
    log.update_high_watermark(count)
    return log


def test_retention_takes_steps_and_ends_as_in_one_go(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    many = 3 * SEGMENTS_AT_ONCE + 5
    first, removed, last = (many_segments(directory, name, many) for name in ("a", "b", "c"))
    steps, most = directory.retaining(T0 + (1 << 30), 0), 0
    before = len(first.segments)
    while next(steps, formatted) is not formatted:
        most, before = max(most, before - len(first.segments)), len(first.segments)
        if ("b", 0) in directory.logs:
            directory.remove("b", 0, T0)
    assert 0 < most <= SEGMENTS_AT_ONCE
    assert len(first.segments) == len(last.segments) == 1 and first.log_start_offset == last.log_start_offset == many
    assert len(removed.segments) > 1 and directory.failure is None
    due = first.segments.take_due_deletions(T0 + (1 << 30))
    assert due == [] and len(first.segments.scheduled_deletions) >= many
    due = first.segments.take_due_deletions(T0 + (1 << 31))
    assert len(due) >= many and first.segments.scheduled_deletions == []


def test_a_deletion_cut_short_is_finished_after_the_restart(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    directory.remove("t", 0, T0)
    directory.abandon()
    again = opened(formatted.kill())
    again.maintain(T0)
    assert again.logs == {}
    assert not any(name.startswith("t-0") for name in again.filesystem.list("/data"))


def test_strays_are_kept_but_not_loaded(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    append(directory.create_log("t" * 249, 0, TOPIC_ID, CONFIG, T0), 3)
    directory.set_aside("t" * 249, 0)
    names = [name for name in formatted.list("/data") if name.endswith("-stray")]
    assert len(names) == 1 and len(names[0]) <= 255
    directory.close()
    assert opened(formatted).logs == {}


def test_a_topic_created_anew_is_not_mixed_up_with_the_old(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    directory.create_log("t", 0, TOPIC_ID, CONFIG, T0)
    assert directory.create_log("t", 0, TOPIC_ID, CONFIG, T0) is directory.logs["t", 0]
    with pytest.raises(ApiError) as error:
        directory.create_log("t", 0, bytes(15) + b"x", CONFIG, T0)
    assert error.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_the_metadata_log_and_other_directories_are_left_alone(formatted: MemoryFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    """Those that Apache Kafka does not start with, or serves, are named."""
    odd = ("lost+found", "no-number", "-1", "t-00")
    for name in ("__cluster_metadata-0", "t-0-future", f"t-0.{'0' * 32}-stray", f"t-0.{'0' * 32}-delete", *odd):
        formatted.mkdir(f"/data/{name}")
    directory = opened(formatted)
    assert directory.logs == {}
    assert [record.args[1] for record in caplog.records if record.args] == sorted(odd)
    directory.close()
    assert formatted.is_dir("/data/lost+found")


def test_names_split_at_the_last_dash() -> None:
    assert parse_directory_name("a-0-1") == ("a-0", 1)
    assert parse_directory_name("t-12") == ("t", 12)
    names = ("t", "-1", "t-", "t-x", "t--1x", "t-\u0664", "t-00", "t-07", "t-2147483648")
    assert [parse_directory_name(name) for name in names] == [None] * len(names)
    assert parse_directory_name("t-2147483647") == ("t", 2147483647)


def test_a_failing_log_takes_its_directory_offline_and_leaves_no_clean_shutdown_file(formatted: MemoryFileSystem) -> None:
    failures: list[StorageError] = []
    directory = LogDirectory(formatted, "/data", on_failure=lambda _, error: failures.append(error))
    directory.open()
    directory.load(config_of, T0)
    one = directory.create_log("t", 0, TOPIC_ID, CONFIG, T0)
    other = directory.create_log("t", 1, TOPIC_ID, CONFIG, T0)
    append(one)
    formatted.fail("write", errno.EIO, "t-0/")
    with pytest.raises(StorageError):
        append(one)
    assert directory.is_offline and failures == [directory.failure]
    for refused in (lambda: append(other), directory.write_checkpoints, lambda: directory.maintain(T0)):
        with pytest.raises(StorageError):
            refused()
    with pytest.raises(StorageError):
        directory.create_log("u", 0, TOPIC_ID, CONFIG, T0)
    directory.close()
    formatted.heal()
    assert not formatted.exists("/data/.kafka_cleanshutdown")
    again = opened(formatted.kill())
    assert again.logs["t", 0].log_end_offset == 1


def test_a_failure_while_loading_leaves_no_clean_shutdown_file(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    directory.close()
    before = formatted.read("/data/recovery-point-offset-checkpoint")
    formatted.fail("truncate", errno.ENOSPC)
    failing = LogDirectory(formatted, "/data")
    failing.open()
    with pytest.raises(StorageError):
        failing.load(config_of, T0)
    failing.close()
    formatted.heal()
    assert not formatted.exists("/data/.kafka_cleanshutdown")
    assert formatted.read("/data/recovery-point-offset-checkpoint") == before


def test_a_checkpoint_that_is_not_valid_is_done_without(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    directory.close()
    for name in ("recovery-point", "replication", "log-start"):
        formatted.write(f"/data/{name}-offset-checkpoint", b"garbage\n")
    again = opened(formatted)
    assert again.logs["t", 0].log_end_offset == 3
    assert not again.is_clean


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n", b"0\nx\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt 0 x\n", b"\xff"]
)
def test_checkpoints_that_are_not_valid(data: bytes, disk: MemoryFileSystem) -> None:
    disk.write("/c", data)
    with pytest.raises(CorruptFile):
        checkpoint.read_offset_checkpoint(disk, "/c")


def test_checkpoints_are_read_with_any_white_space_and_written_atomically(disk: MemoryFileSystem) -> None:
    disk.write("/d/c", b"0\n2\na  1\t5\nb 2 6\n\n")
    assert checkpoint.read_offset_checkpoint(disk, "/d/c") == {("a", 1): 5, ("b", 2): 6}
    disk.fail("rename")
    with pytest.raises(OSError, match="injected"):
        write_atomically(disk, "/d/c", checkpoint.encode_offsets({("z", 0): 1}))
    assert checkpoint.read_offset_checkpoint(disk, "/d/c") == {("a", 1): 5, ("b", 2): 6}
    disk.heal()
    write_atomically(disk, "/d/c", checkpoint.encode_offsets({("z", 0): 1}))
    assert disk.durable_names["/d/c"].durable == b"0\n1\nz 0 1\n"


def test_partition_metadata_and_properties(disk: MemoryFileSystem) -> None:
    golden = (golden_logs.ROOT / "single-stopped/plain-0/partition.metadata").read_bytes()
    disk.write("/d/p", golden)
    topic_id = checkpoint.read_partition_metadata(disk, "/d/p")
    assert topic_id is not None and uuid_text(topic_id) == "S1y-lWQaQJ6_5sLpuSRUUQ"
    checkpoint.write_partition_metadata(disk, "/d/q", topic_id)
    assert disk.read("/d/q") == golden
    for text in (b"", b"version: 1\ntopic_id: " + golden[-22:], b"version: 0\n", b"version: 0\ntopic_id: short", b"x"):
        disk.write("/d/p", text)
        with pytest.raises(CorruptFile):
            checkpoint.read_partition_metadata(disk, "/d/p")
    disk.write("/d/x", b"# c\n! d\n\na=b\nc : d=e\nk\\=1=v\\:w\n")
    assert read_properties(disk, "/d/x") == {"a": "b", "c": "d=e", "k=1": "v:w"}


def test_a_disk_that_fails_while_closing_leaves_no_clean_shutdown_file(formatted: MemoryFileSystem) -> None:
    directory = opened(formatted)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, T0), 3)
    formatted.fail("fsync", errno.EIO, "t-0/")
    with pytest.raises(StorageError):
        directory.close()
    assert not formatted.exists("/data/.kafka_cleanshutdown")
    assert formatted.locks == set()


def test_a_copy_replaces_the_log_in_another_directory(formatted: MemoryFileSystem) -> None:
    """It is the same log under another name. Nothing of it counts as durable before the old name is durably gone."""
    disk = formatted
    format_directory(disk, "/other", MetaProperties(META.cluster_id, META.node_id, bytes(range(16))), T0)
    source, target = opened(disk), opened(disk, "/other")
    old = source.create_log("t", 0, TOPIC_ID, CONFIG, T0)
    append(old, 12)
    old.update_high_watermark(9)
    old.increment_log_start_offset(2)
    future = target.create_future("t", 0, TOPIC_ID, CONFIG, T0)
    for segment in old.segments:
        future.append_as_follower(memoryview(bytearray(segment.slice(0, segment.size).read())))
    old.delete_old_segments(T0, 1)
    future.durability.flush()
    promotion = target.prepare_promotion(future)
    promotion.run()
    future.relocate(promotion.path)
    target.serve_future(future, old)
    source.remove("t", 0, T0)
    assert (future.directory, future.high_watermark, future.log_start_offset) == ("/other/t-0", 9, 2)
    append(future, 12)
    disk.syncs.clear()
    future.durability.flush()
    assert disk.syncs[0] == "/data" and disk.durable_names[future.epochs.path].durable and len(future.segments) > 2
    disk.syncs.clear()
    append(future)
    future.durability.flush()
    assert "/data" not in disk.syncs, "once is enough"
    source.close()
    target.close()
    again = opened(disk, "/other")
    assert again.logs["t", 0].log_end_offset == 25 and again.is_clean
    assert not [name for name in disk.names if "-future" in name]
    again.close()
