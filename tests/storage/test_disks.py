"""One contract for the three disks: the operating system's, the one in memory, and the simulator's."""

from __future__ import annotations

import errno
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.sim.disk import SECTOR_BYTES, Disk, DiskView, mixed_sectors
from minikafka.storage.batch_scan import batches, checked_batches
from minikafka.storage.filesystem import (
    OsFileSystem,
    SyncFailed,
    copy_file,
    is_shortage,
    read_all,
    read_at,
    write_all,
    write_atomically,
)
from minikafka.wire.batch import build_batch

OPERATIONS = ("open", "write", "read", "truncate", "stat", "list", "rename", "unlink", "mkdir", "rmdir", "fsync", "fsync_dir")


class OnOs:
    """The real disk; calls are made to fail in the system call."""

    name = "os"

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._monkeypatch = str(root), monkeypatch
        self.filesystem: Any = OsFileSystem()

    def fail(self, operation: str, error: int) -> None:
        calls = {
            "open": ("open",), "write": ("pwrite",), "read": ("pread", "preadv"), "truncate": ("ftruncate",), "stat": ("fstat", "stat"),
            "list": ("listdir",), "rename": ("replace",), "unlink": ("unlink",), "mkdir": ("mkdir",), "rmdir": ("rmdir",),
            "fsync": ("fdatasync" if hasattr(os, "fdatasync") else "fsync",), "fsync_dir": ("fsync",),
        }  # fmt: skip

        def failing(*_: object, **__: object) -> Any:
            raise OSError(error, "injected")

        for call in calls[operation]:
            self._monkeypatch.setattr(f"minikafka.storage.filesystem.os.{call}", failing)

    def heal(self) -> None:
        self._monkeypatch.undo()

    def shorten_reads(self) -> None:
        pread, preadv = os.pread, os.preadv
        self._monkeypatch.setattr("minikafka.storage.filesystem.os.pread", lambda fd, count, at: pread(fd, -(-count // 2), at))
        self._monkeypatch.setattr(
            "minikafka.storage.filesystem.os.preadv", lambda fd, buffers, at: preadv(fd, [buffers[0][: -(-len(buffers[0]) // 2)]], at)
        )

    def leave_space(self, left: int) -> None:
        pwrite = os.pwrite

        def limited(fd: int, data: Any, at: int) -> int:
            nonlocal left
            if not left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = pwrite(fd, memoryview(data)[:left], at)
            left -= written
            return written

        self._monkeypatch.setattr("minikafka.storage.filesystem.os.pwrite", limited)

    @contextmanager
    def descriptors(self, left: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        plugs = []
        while (plug := os.dup(0)) < highest:
            plugs.append(plug)
        os.close(plug)
        resource.setrlimit(resource.RLIMIT_NOFILE, (plug + left, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for plug in plugs:
                os.close(plug)


class InMemory:
    name = "memory"

    def __init__(self) -> None:
        self.root = "/data"
        self.filesystem: Any = MemoryFileSystem()
        self.filesystem.mkdir(self.root)

    def fail(self, operation: str, error: int) -> None:
        self.filesystem.fail(operation, error)

    def heal(self) -> None:
        self.filesystem.heal()

    def shorten_reads(self) -> None:
        """Every other read is short anyway."""

    def leave_space(self, left: int) -> None:
        self.filesystem.space_left = left

    @contextmanager
    def descriptors(self, left: int) -> Iterator[None]:
        self.filesystem.descriptors_max = self.filesystem.opened + left
        yield
        self.filesystem.descriptors_max = None


class Simulated:
    name = "simulator"

    def __init__(self) -> None:
        self.root = "/data"
        self.disk = Disk()
        self.filesystem: Any = DiskView(self.disk)
        self.filesystem.mkdir(self.root)

    def fail(self, operation: str, error: int) -> None:
        self.disk.failing[operation] = error

    def heal(self) -> None:
        self.disk.heal()

    def shorten_reads(self) -> None:
        self.disk.short_reads_every = 1

    def leave_space(self, left: int) -> None:
        self.disk.space_left = left

    @contextmanager
    def descriptors(self, left: int) -> Iterator[None]:
        self.disk.descriptors_max = len(self.filesystem.numbers) + left
        yield
        self.disk.descriptors_max = None


@pytest.fixture(params=["os", "memory", "simulator"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return {"os": lambda: OnOs(tmp_path, monkeypatch), "memory": InMemory, "simulator": Simulated}[request.param]()


def made(kind: Any, name: str, data: bytes = b"") -> Any:
    file = kind.filesystem.open(f"{kind.root}/{name}", create=True)
    write_all(file, data, 0)
    return file


def test_files_are_addressed_by_position(kind: Any) -> None:
    file = made(kind, "a", b"0123456789")
    file.pwrite(b"AB", 12)
    assert (file.size(), read_all(file, 100, 0)) == (14, b"0123456789\0\0AB")
    assert file.pread(10, 14) == b""
    buffer = memoryview(bytearray(4))
    assert file.pread_into(buffer, 20) == 0
    filled = 0
    while filled < 4:
        filled += file.pread_into(buffer[filled:], 3 + filled)
    assert bytes(buffer) == b"3456"
    file.truncate(4)
    file.truncate(6)
    assert kind.filesystem.read(f"{kind.root}/a") == b"0123\0\0"
    assert read_at(kind.filesystem, f"{kind.root}/a", 3, 1) == b"123"
    file.preallocate(4096)
    assert kind.filesystem.size(f"{kind.root}/a") == 4096
    file.close()
    file.close()


def test_nothing_reaches_a_file_through_one_that_is_closed(kind: Any) -> None:
    """The number of a closed file goes to the next one. Whoever kept a method of it must not write there."""
    stale = made(kind, "stale", b"x" * 100)
    pwrite, pread, truncate, fsync = stale.pwrite, stale.pread, stale.truncate, stale.fsync
    into = stale.pread_into
    stale.close()
    victim = made(kind, "victim", b"victim")
    for call in (
        lambda: pwrite(b"boom", 0),
        lambda: stale.pwrite(b"boom", 0),
        lambda: pread(1, 0),
        lambda: into(memoryview(bytearray(1)), 0),
        lambda: truncate(0),
        fsync,
        stale.fileno,
        stale.size,
    ):
        with pytest.raises(OSError):
            call()
    assert read_all(victim, 100, 0) == b"victim"


def test_reads_that_bring_a_part_are_continued(kind: Any) -> None:
    data = random.Random(1).randbytes(100_000)
    file, target = made(kind, "a", data), made(kind, "b")
    kind.shorten_reads()
    assert file.pread(1000, 0) in (data[:500], data[:1000])
    assert read_all(file, 200_000, 3) == data[3:] and read_at(kind.filesystem, f"{kind.root}/a", 50_000, 7) == data[7:50_007]
    copy_file(file, target, 99_999)
    assert read_all(target, 200_000, 0) == data[:99_999]
    batch = bytes(build_batch([(0, 1, b"k", bytes(5_000), ())]))
    write_all(file, batch * 3, 0)
    assert [len(found[3]) for found in checked_batches(file, 0, 3 * len(batch))] == [len(batch)] * 3


def test_a_disk_that_gets_full_takes_a_part_and_then_nothing(kind: Any) -> None:
    file = made(kind, "a")
    kind.leave_space(40)
    with pytest.raises(OSError) as caught:
        write_all(file, b"x" * 100, 0)
    assert caught.value.errno == errno.ENOSPC and not is_shortage(caught.value)
    assert file.size() == 40
    kind.heal()
    write_all(file, b"y" * 60, 40)
    assert read_all(file, 200, 0) == b"x" * 40 + b"y" * 60


def test_names(kind: Any) -> None:
    filesystem, root = kind.filesystem, kind.root
    made(kind, "b", b"b").close()
    made(kind, "a", b"a").close()
    assert filesystem.mkdir(f"{root}/c/d")
    assert not filesystem.mkdir(f"{root}/c/d") and not filesystem.mkdir(f"{root}/c")
    assert filesystem.list(root) == ["a", "b", "c"]
    assert filesystem.is_dir(f"{root}/c") and not filesystem.is_dir(f"{root}/a") and filesystem.exists(f"{root}/a")
    filesystem.rename(f"{root}/a", f"{root}/b")
    assert filesystem.read(f"{root}/b") == b"a"
    made(kind, "c/d/e", b"e").close()
    filesystem.mkdir(f"{root}/c/d/below")
    filesystem.rename(f"{root}/c/d", f"{root}/moved")
    assert filesystem.list(f"{root}/moved") == ["below", "e"] and not filesystem.is_dir(f"{root}/c/d/below")
    filesystem.rmdir(f"{root}/moved/below")
    assert filesystem.list(f"{root}/moved") == ["e"] and filesystem.list(f"{root}/c") == []
    filesystem.fsync_dir(root)
    for call in (
        lambda: filesystem.open(f"{root}/none"),
        lambda: filesystem.open(f"{root}/none/x", create=True),
        lambda: filesystem.read(f"{root}/none"),
        lambda: filesystem.size(f"{root}/none"),
        lambda: filesystem.modified_ms(f"{root}/none"),
        lambda: filesystem.list(f"{root}/none"),
        lambda: filesystem.unlink(f"{root}/none"),
        lambda: filesystem.rmdir(f"{root}/none"),
        lambda: filesystem.fsync_dir(f"{root}/none"),
        lambda: filesystem.rename(f"{root}/none", f"{root}/x"),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    for call in (
        lambda: filesystem.open(f"{root}/moved"),
        lambda: filesystem.open(f"{root}/moved", create=True),
        lambda: filesystem.read(f"{root}/moved"),
        lambda: filesystem.unlink(f"{root}/moved"),
    ):
        with pytest.raises((IsADirectoryError, PermissionError)):
            call()
    with pytest.raises(OSError) as caught:
        filesystem.rmdir(f"{root}/moved")
    assert caught.value.errno == errno.ENOTEMPTY
    filesystem.unlink(f"{root}/moved/e")
    filesystem.rmdir(f"{root}/moved")
    lock = filesystem.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        filesystem.lock(f"{root}/.lock")
    lock.release()
    filesystem.lock(f"{root}/.lock").release()


def test_an_open_file_outlives_its_name(kind: Any) -> None:
    file = made(kind, "a", b"old")
    kind.filesystem.rename(f"{kind.root}/a", f"{kind.root}/b")
    made(kind, "a", b"new").close()
    kind.filesystem.unlink(f"{kind.root}/b")
    assert read_all(file, 10, 0) == b"old"
    file.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_call_may_fail(kind: Any, operation: str, error: int) -> None:
    filesystem, root = kind.filesystem, kind.root
    file = made(kind, "a", b"content")
    filesystem.mkdir(f"{root}/empty")
    kind.fail(operation, error)
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: filesystem.open(f"{root}/a"),
        "write": lambda: file.pwrite(b"x", 0),
        "read": lambda: (file.pread(1, 0), file.pread_into(memoryview(bytearray(1)), 0)),
        "truncate": lambda: file.truncate(1),
        "stat": lambda: (file.size(), filesystem.size(f"{root}/a")),
        "list": lambda: filesystem.list(root),
        "rename": lambda: filesystem.rename(f"{root}/a", f"{root}/b"),
        "unlink": lambda: filesystem.unlink(f"{root}/a"),
        "mkdir": lambda: filesystem.mkdir(f"{root}/new"),
        "rmdir": lambda: filesystem.rmdir(f"{root}/empty"),
        "fsync": file.fsync,
        "fsync_dir": lambda: filesystem.fsync_dir(root),
    }
    with pytest.raises(OSError) as caught:
        calls[operation]()
    kind.heal()
    # A sync that failed is never a passing shortage: what it covered may be gone.
    is_sync = operation.startswith("fsync")
    assert isinstance(caught.value, SyncFailed) == is_sync
    assert (caught.value.errno, is_shortage(caught.value)) == (error, error == errno.ENOMEM and not is_sync)
    assert kind.filesystem.read(f"{root}/a") == b"content"


def test_without_descriptors_nothing_can_be_opened_and_what_is_open_works(kind: Any) -> None:
    file = made(kind, "a", b"content")
    with kind.descriptors(1):
        second = kind.filesystem.open(f"{kind.root}/a")
        with pytest.raises(OSError) as caught:
            kind.filesystem.open(f"{kind.root}/a")
        assert is_shortage(caught.value)
        with pytest.raises(OSError) as caught:
            kind.filesystem.read(f"{kind.root}/a")
        assert is_shortage(caught.value)
        file.pwrite(b"C", 0)
        assert read_all(file, 7, 0) == b"Content"
        second.close()
        kind.filesystem.open(f"{kind.root}/a").close()
    assert is_shortage(OSError(errno.EMFILE, "")) and is_shortage(OSError(errno.EINTR, ""))
    assert not is_shortage(OSError(errno.EIO, "")) and not is_shortage(OSError(errno.ENOSPC, ""))


def test_a_copy_is_whole_and_a_source_that_got_shorter_is_an_error(kind: Any) -> None:
    data = random.Random(1).randbytes(3_000_000)
    source, target = made(kind, "source", data), made(kind, "target")
    copy_file(source, target, 2_500_001)
    assert kind.filesystem.read(f"{kind.root}/target") == data[:2_500_001]
    with pytest.raises(OSError):
        copy_file(source, target, 3_000_001)


def test_a_copy_without_help_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("minikafka.storage.filesystem.os.copy_file_range", refused, raising=False)
    kind = OnOs(tmp_path, monkeypatch)
    source, target = made(kind, "source", b"x" * 2_000_000), made(kind, "target")
    copy_file(source, target, 1_999_999)
    assert target.size() == 1_999_999


def test_a_file_that_got_shorter_under_a_reader_ends_the_walk(kind: Any) -> None:
    """With a map it would be SIGBUS, as a sector that the disk cannot give would."""
    file = made(kind, "a", bytes(1 << 20))
    kind.filesystem.open(f"{kind.root}/a").truncate(100)
    assert list(batches(file, 0, 1 << 20)) == []
    assert list(checked_batches(file, 4096, 1 << 20)) == []


def test_no_disk_maps_files() -> None:
    for module in [name for name in sys.modules if name.startswith("minikafka.storage")]:
        assert not hasattr(sys.modules[module], "mmap"), module


def test_a_power_cut_tears_between_sectors_in_any_order(tmp_path: Path) -> None:
    """Later sectors may be there and earlier ones not; a sector is old or new."""
    old, new = b"o" * 2048, b"n" * 2048
    for power_cut in (_cut_memory, _cut_simulator):
        seen: set[bytes] = set()
        for seed in range(300):
            seen.add(power_cut(random.Random(seed), old, new))
        assert any(found.find(b"n") > found.find(b"o") >= 0 for found in seen), "a torn front"
        assert any(found.startswith(b"o" * SECTOR_BYTES) and b"n" in found for found in seen), "nothing was reordered"


def _cut_memory(generator: random.Random, old: bytes, new: bytes) -> bytes:
    kind = InMemory()
    write_atomically(kind.filesystem, "/data/a", old)
    kind.filesystem.open("/data/a").pwrite(new, 0)
    return bytes(kind.filesystem.crash(generator).read("/data/a"))


def _cut_simulator(generator: random.Random, old: bytes, new: bytes) -> bytes:
    kind = Simulated()
    write_atomically(kind.filesystem, "/data/a", old)
    kind.filesystem.open("/data/a").pwrite(new, 0)
    kind.disk.power_cut(generator)
    return DiskView(kind.disk).read("/data/a")


def test_sectors_that_were_not_written_are_old_or_zeros() -> None:
    mixed = mixed_sectors(b"o" * 600, b"n" * 1600, random.Random(3))
    assert len(mixed) == 1600
    for start in range(0, 1600, SECTOR_BYTES):
        sector = mixed[start : start + SECTOR_BYTES]
        assert sector.strip(b"n") in (b"", b"o" * 512, b"o" * 88 + b"\0" * 424, b"\0" * len(sector))
