"""The simulated disk: what survives SIGKILL and a power cut, and how it fails."""

from __future__ import annotations

import errno
import random

import pytest

from minikafka.sim.disk import Disk, DiskView
from minikafka.sim.replicas import durable_log
from minikafka.storage.filesystem import SyncFailed, write_atomically
from minikafka.wire.batch import build_batch
from minikafka.wire.record import Record


@pytest.fixture
def disk() -> Disk:
    disk = Disk()
    DiskView(disk).mkdir("/data/log")
    return disk


def write(view: DiskView, path: str, data: bytes, position: int = 0) -> None:
    view.open(path, create=True).pwrite(data, position)


def test_sigkill_loses_nothing_and_closes_everything(disk: Disk) -> None:
    view = DiskView(disk)
    file = view.open("/data/log/a", create=True)
    file.pwrite(b"hello", 0)
    view.lock("/data/.lock")
    view.kill()
    with pytest.raises(OSError, match="closed"):
        file.pwrite(b"late", 0)
    after = DiskView(disk)
    assert after.read("/data/log/a") == b"hello"
    after.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        after.lock("/data/.lock")


@pytest.mark.parametrize("every", [0, 1, 3])
def test_who_does_not_wait_finds_some_bytes_missing(disk: Disk, every: int) -> None:
    disk.short_reads_every, disk.misses_every = 0, every
    write(DiskView(disk), "/data/log/a", b"hello")
    file, buffer = DiskView(disk).open("/data/log/a"), memoryview(bytearray(5))
    found = [file.pread_if_cached(buffer, 0) for _ in range(6)]
    assert found == [None if every and number % every == 0 else 5 for number in range(1, 7)]
    assert sum(not file.is_cached(0, 5) for _ in range(6)) == found.count(None)
    assert file.pread_into(buffer, 0) == 5 and bytes(buffer) == b"hello", "who waits gets them"
    with disk.healthy():
        assert all(file.is_cached(0, 5) for _ in range(3))


def test_a_power_cut_keeps_what_was_synced_and_perhaps_more() -> None:
    kept = set()
    for seed in range(60):
        disk = Disk()
        view = DiskView(disk)
        view.mkdir("/data")
        file = view.open("/data/a", create=True)
        file.pwrite(b"synced|", 0)
        file.fsync()
        view.fsync_dir("/data")
        file.pwrite(b"volatile", 7)
        view.kill()
        disk.power_cut(random.Random(seed))
        found = DiskView(disk).read("/data/a")
        assert found.startswith(b"synced|")
        assert len(found) <= 15
        kept.add(found)
    assert b"synced|" in kept and b"synced|volatile" in kept
    assert any(entry not in (b"synced|", b"synced|volatile") for entry in kept), "nothing was ever torn"


def test_a_power_cut_may_undo_a_truncation_and_an_overwrite(disk: Disk) -> None:
    view = DiskView(disk)
    file = view.open("/data/log/a", create=True)
    file.pwrite(b"0123456789", 0)
    file.fsync()
    view.fsync_dir("/data/log")
    file.truncate(4)
    file.pwrite(b"ABC", 2)
    assert view.read("/data/log/a") == b"01ABC"
    assert disk.find("/data/log/a").durable() == (b"0123456789", 10)


def test_a_name_is_durable_after_fsync_dir_only() -> None:
    found = set()
    for seed in range(40):
        disk = Disk()
        view = DiskView(disk)
        view.mkdir("/data")
        write(view, "/data/a", b"x")
        disk.power_cut(random.Random(seed))
        found.add(DiskView(disk).exists("/data/a"))
    assert found == {True, False}


def test_a_log_whose_name_could_not_be_synced_need_not_survive_a_power_cut(disk: Disk) -> None:
    view = DiskView(disk)
    view.fsync_dir("/data/log")
    file = view.open("/data/log/00000000000000000000.log", create=True)
    file.pwrite(bytes(build_batch([Record(offset=0, timestamp=1, key=None, value=b"x", headers=())])), 0)
    file.fsync()
    assert len(durable_log(disk, "/data/log")) == 1, "whoever syncs a file syncs its name"
    disk.failing = {"fsync_dir": errno.EIO}
    with pytest.raises(SyncFailed):
        view.fsync_dir("/data/log")
    assert durable_log(disk, "/data/log") == []
    disk.failing = {}
    view.fsync_dir("/data/log")
    assert len(durable_log(disk, "/data/log")) == 1


def test_an_atomic_write_is_old_or_new(disk: Disk) -> None:
    found = set()
    for seed in range(40):
        disk = Disk()
        view = DiskView(disk)
        view.mkdir("/data")
        write_atomically(view, "/data/a", b"old")
        for operation in ("rename", "fsync_dir", ""):
            disk.failing = {operation: errno.EIO} if operation else {}
            try:
                write_atomically(view, "/data/a", b"new")
            except OSError:
                disk.failing = {}
            else:
                assert not operation
        disk.power_cut(random.Random(seed))
        found.add(DiskView(disk).read("/data/a"))
    assert found == {b"new"}


def test_a_full_disk_takes_a_part(disk: Disk) -> None:
    view = DiskView(disk)
    disk.space_left = 3
    file = view.open("/data/log/a", create=True)
    assert file.pwrite(b"hello", 0) == 3
    with pytest.raises(OSError) as raised:
        file.pwrite(b"lo", 3)
    assert raised.value.errno == errno.ENOSPC
    disk.heal()
    assert file.pwrite(b"lo", 3) == 2


def test_zeros_behind_the_end_take_no_room(disk: Disk) -> None:
    view = DiskView(disk)
    file = view.open("/data/log/index", create=True)
    file.truncate(10_000_000)
    assert file.size() == view.size("/data/log/index") == 10_000_000
    assert len(disk.find("/data/log/index").data) == 0
    assert file.pread(4, 9_999_998) == bytes(2)
    file.pwrite(b"x", 5)
    assert file.pread(3, 4) == b"\0x\0"


def test_directories_are_renamed_with_their_files(disk: Disk) -> None:
    view = DiskView(disk)
    write(view, "/data/log/a", b"1")
    view.rename("/data/log", "/data/log-delete")
    assert view.list("/data") == ["log-delete"]
    assert view.list("/data/log-delete") == ["a"]
    view.unlink("/data/log-delete/a")
    view.rmdir("/data/log-delete")
    assert view.list("/data") == []
