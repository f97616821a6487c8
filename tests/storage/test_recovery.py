"""What a start finds after a crash: the longest valid prefix, whatever else is missing or wrong."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.durability import SYNC_AHEAD_BYTES
from minikafka.storage.errors import StorageError
from minikafka.storage.log import Log

LOG = "/data/t-0/00000000000000000000.log"


def fill(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        data = batch(b"%020d" % log.log_end_offset, timestamp=T0 + log.log_end_offset)
        log.append_as_leader(memoryview(data), epoch, T0)
    log.update_high_watermark(log.log_end_offset)


def contents(log: Log) -> list[bytes]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, end_offset=log.log_end_offset).slice.read()
        found.append(data)
        offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
    return found


def test_every_flipped_bit_cuts_at_its_batch(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    fill(log, 10)
    expected, size = contents(log), log.size // 10
    for position in range(log.size):
        damaged = disk.kill()
        damaged.names[LOG].data[position] ^= 1 << (position % 8)
        again = open_log(damaged, is_clean=False)
        whole = position // size
        if 12 <= position % size < 16:
            assert again.log_end_offset == 10, "the epoch is not covered by the CRC"
        elif position % size < 8 and again.log_end_offset > whole:
            assert contents(again)[:whole] == expected[:whole], "a base offset that still ascends is not covered either"
        else:
            assert contents(again) == expected[:whole]


def test_every_cut_leaves_the_whole_batches(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    fill(log, 5)
    expected, size = contents(log), log.size // 5
    for length in range(log.size):
        cut = disk.kill()
        del cut.names[LOG].data[length:]
        again = open_log(cut, is_clean=False)
        assert contents(again) == expected[: length // size]
        assert cut.size(LOG) == length // size * size


def test_everything_after_a_bad_batch_is_removed_with_its_segments(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 20, epoch=1)
    damaged = disk.kill()
    damaged.names[f"/data/t-0/{log.segments.bases[1]:020d}.log"].data[70] ^= 1
    again = open_log(damaged, is_clean=False, segment_bytes=500)
    assert again.log_end_offset == log.segments.bases[1]
    assert again.segments.bases == log.segments.bases[:2]
    fill(again, 3, epoch=2)
    assert again.epochs.entries == [(1, 0), (2, log.segments.bases[1])]


def test_segments_below_the_recovery_point_are_not_read_again(
    open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 20)
    log.flush()
    damaged = disk.kill()
    damaged.names[LOG].data[70] ^= 1
    again = open_log(damaged, is_clean=False, recovery_point=log.segments.bases[-1], segment_bytes=500)
    assert again.log_end_offset == 20


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "odd size", "zeros", "wrong positions", "empty", "foreign"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_are_rebuilt(
    suffix: str, damage: str, is_clean: bool, open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log(segment_bytes=1500, index_interval_bytes=200)
    fill(log, 40)
    expected = [contents(log), [log.lookup_offset_for_timestamp(T0 + i) for i in range(40)]]
    log.close()
    for name in [name for name in disk.names if name.endswith(suffix)]:
        data = disk.names[name].data
        if damage == "missing":
            disk.unlink(name)
        elif damage == "odd size":
            data += b"abc"
        elif damage == "zeros":
            data += bytes(240)
        elif damage == "wrong positions":
            data[-5] ^= 0x55
        elif damage == "empty":
            del data[:]
        else:
            data[:] = random.Random(1).randbytes(len(data))
    again = open_log(is_clean=is_clean, segment_bytes=1500, index_interval_bytes=200)
    assert again.log_end_offset == 40
    assert [contents(again), [again.lookup_offset_for_timestamp(T0 + i) for i in range(40)]] == expected


def test_a_missing_or_wrong_epoch_checkpoint_is_rebuilt(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    for epoch in (0, 3, 4):
        fill(log, 2, epoch)
    log.close()
    for content in (None, b"", b"0\n9\n0 0\n", b"1\n0\n", b"\xff\xfe", b"0\n2\n3 5\n1 2\n", b"0\n1\nx y\n"):
        copy = disk.kill()
        copy.unlink("/data/t-0/leader-epoch-checkpoint")
        if content is not None:
            copy.write("/data/t-0/leader-epoch-checkpoint", content)
        assert open_log(copy).epochs.entries == [(0, 0), (3, 2), (4, 4)]
        assert copy.read("/data/t-0/leader-epoch-checkpoint") == b"0\n3\n0 0\n3 2\n4 4\n"


def test_leftovers_go_and_finished_swaps_are_completed(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 10)
    log.close()
    second = f"/data/t-0/{log.segments.bases[1]:020d}.log"
    disk.rename(second, second + ".swap")
    for name in ("00000000000000000000.log.deleted", "00000000000000000777.log.cleaned", "leader-epoch-checkpoint.tmp"):
        disk.write(f"/data/t-0/{name}", b"left")
    disk.write("/data/t-0/00000000000000000777.index", bytes(8))
    again = open_log(segment_bytes=500)
    assert again.log_end_offset == 10
    assert not [name for name in disk.names if name.endswith((".deleted", ".cleaned", ".tmp", ".swap")) or "777" in name]


STEMS = ["5", "+5", "-5", "", "x", "notes", "\u00b2" * 20, "\u0664" * 20, "0" * 24 + "5", "9" * 20, "9223372036854775808"]
PARTS = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"]
REAL = [f"{offset:020d}" for offset in (0, 6, 7, 18)]
ODD_NAMES = (
    [f"{stem}{part}{end}" for stem in STEMS for part in PARTS for end in ("", ".swap", ".bak")]
    + [f"{stem}{between}{part}{end}" for stem in REAL for between in (".old", "-1", " ", ".log") for part in PARTS for end in ("", ".swap")]
    + [f"{stem}{part}{end}" for stem in REAL for part in PARTS for end in (".bak", ".swap.bak", ".log", "~")]
)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_cleaned", [False, True], ids=["", "beside a .cleaned file"])
@pytest.mark.parametrize("content", ["rubbish", "segment"])
def test_files_with_names_that_no_broker_writes_are_left_alone(
    open_log: Callable[..., Log], disk: MemoryFileSystem, content: str, is_cleaned: bool, is_clean: bool
) -> None:
    """Apache Kafka takes some of them for a segment's, and does not start or cuts its log (tests/spark/test_audit_startup.py)."""
    log = open_log(segment_bytes=500)
    fill(log, 18)
    expected, bases = contents(log), log.segments.bases
    log.close()
    for name in ODD_NAMES:
        disk.write(f"/data/t-0/{name}", disk.read(LOG) if content == "segment" else b"not of the log")
    if is_cleaned:
        disk.write(f"/data/t-0/{0:020d}.log.cleaned", b"")
    again = open_log(disk if is_clean else disk.kill(), is_clean=is_clean, segment_bytes=500)
    assert contents(again) == expected and again.segments.bases == bases
    names = again.filesystem.list("/data/t-0")
    assert not set(ODD_NAMES) - set(names)
    again.close()
    assert contents(open_log(again.filesystem, segment_bytes=500)) == expected


def test_replacements_that_overlap_are_installed(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """The segment in both ranges is removed once; between the first replacement and the end of the last one nothing old is left."""
    log = open_log(segment_bytes=500)
    fill(log, 18)
    log.close()
    first, second, third, last = (disk.read(f"/data/t-0/{base:020d}.log") for base in log.segments.bases)
    end_of_first = log.segments.bases[1]
    disk.write(LOG + ".swap", first + second)
    disk.write(f"/data/t-0/{end_of_first:020d}.log.swap", second + third)
    again = open_log(segment_bytes=500)
    assert again.segments.bases == [0, end_of_first, log.segments.bases[3]]
    assert [disk.read(f"/data/t-0/{base:020d}.log") for base in again.segments.bases] == [first + second, second + third, last]


@pytest.mark.parametrize(("cleaned", "is_installed"), [("before", False), ("at", False), ("behind", True)])
def test_a_replacement_at_or_behind_a_cleaned_file_is_of_a_split_that_did_not_end(
    open_log: Callable[..., Log], disk: MemoryFileSystem, cleaned: str, is_installed: bool
) -> None:
    """Its segment is still there, whole (LogLoader.removeTempFilesAndCollectSwapFiles)."""
    log = open_log(segment_bytes=500)
    fill(log, 12)
    log.close()
    second = f"/data/t-0/{log.segments.bases[1]:020d}"
    old = disk.read(f"{second}.log")
    disk.write(f"{second}.log.swap", old[: len(old) // 5])
    disk.write(f"{second}.index.swap", b"")
    at = log.segments.bases[{"before": 0, "at": 1, "behind": 2}[cleaned]]
    disk.write(f"/data/t-0/{at:020d}.timeindex.cleaned", b"")
    again = open_log(segment_bytes=500)
    assert (disk.read(f"{second}.log") == old) == (not is_installed)
    assert again.log_end_offset == 12
    assert not [name for name in disk.names if name.endswith((".cleaned", ".swap"))]


def test_a_crash_while_leftovers_are_removed_does_not_install_them(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 12)
    log.close()
    old = disk.read(LOG)
    for count in range(4):
        crashed = disk.kill()
        crashed.write(LOG + ".swap", old[: len(old) // 5])
        crashed.write("/data/t-0/00000000000000000000.index.swap", b"")
        crashed.write("/data/t-0/00000000000000000000.timeindex.cleaned", b"")
        crashed.fail("unlink", after=count)
        with contextlib.suppress(StorageError):
            open_log(crashed, segment_bytes=500)
        crashed.heal()
        again = open_log(crashed, segment_bytes=500)
        assert (again.log_end_offset, crashed.read(LOG)) == (12, old)


def test_a_log_start_beyond_what_is_left_starts_an_empty_log(
    open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log()
    fill(log, 5)
    again = open_log(disk.kill(), is_clean=False, log_start_offset=50)
    assert (again.log_start_offset, again.log_end_offset, again.segments.bases) == (50, 50, [50])
    assert again.epochs.entries == []


def test_a_directory_with_nothing_in_it_is_an_empty_log(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    disk.mkdir("/data/t-0")
    log = open_log(is_clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    log.close()
    assert not [name for name in disk.names if name.endswith(".snapshot")]
    again = open_log()
    fill(again, 1)
    assert again.log_end_offset == 1


def test_recovery_twice_changes_nothing(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 20)
    disk.names[log.segments[-1].log_path].data += b"torn"
    states = []
    current = disk
    for _ in range(3):
        current = current.kill()
        again = open_log(current, is_clean=False, segment_bytes=500, index_interval_bytes=100)
        again.flush()
        states.append({name: bytes(inode.data) for name, inode in current.names.items()})
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_gap_between_segments_ends_a_log_that_was_never_compacted(
    policy: str, open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 20)
    second, batch_size = f"/data/t-0/{log.segments.bases[1]:020d}.log", log.size // 20
    left = disk.kill()
    del left.names[second].data[batch_size:]
    again = open_log(left, is_clean=False, segment_bytes=500, cleanup_policy=frozenset({policy}))
    assert again.log_end_offset == (log.segments.bases[1] + 1 if policy == "delete" else 20)


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_leaves_no_gap_in_a_compacted_log(open_log: Callable[..., Log], disk: MemoryFileSystem, seed: int) -> None:
    """Nobody could tell it from one that compaction left: a replica led with it, and committed offsets of a group were gone (found by the
    simulator, seed 10015992)."""
    settings = {"segment_bytes": 500, "cleanup_policy": frozenset({"compact"})}
    log = open_log(**settings)
    for _ in range(20):
        data = batch(b"%020d" % log.log_end_offset, key=b"%d" % log.log_end_offset, timestamp=T0 + log.log_end_offset)
        log.append_as_leader(memoryview(data), 0, T0)
    expected = contents(log)
    again = open_log(disk.crash(random.Random(seed)), is_clean=False, **settings)
    assert contents(again) == expected[: again.log_end_offset]


def test_a_compacted_log_reports_many_unsynced_bytes_before_its_roll(open_log: Callable[..., Log]) -> None:
    big = b"v" * 900_000
    for policy, wanted in (("delete", False), ("compact", True)):
        log = open_log(MemoryFileSystem(), cleanup_policy=frozenset({policy}))
        log.durability.is_flush_requested = False
        for number in range(SYNC_AHEAD_BYTES // len(big) + 1):
            assert not log.durability.should_sync_ahead
            log.append_as_leader(memoryview(batch(big, key=b"%d" % number, timestamp=T0)), 0, T0)
        assert log.durability.should_sync_ahead == wanted
        log.flush()
        assert not log.durability.should_sync_ahead


@pytest.mark.parametrize("left", [1, 27, 60])
def test_a_first_batch_shorter_than_a_header_is_cut(open_log: Callable[..., Log], disk: MemoryFileSystem, left: int) -> None:
    """What a power cut left of the only batch of a segment kept the broker from starting (found by the simulator, seed 1524)."""
    fill(open_log(), 1)
    torn = disk.kill()
    del torn.names[LOG].data[left:]
    for name in [name for name in torn.names if name.endswith("index")]:
        torn.names[name].data.clear()
    again = open_log(torn, is_clean=False)
    assert (again.log_end_offset, again.size) == (0, 0)
    fill(again, 2)
    assert again.log_end_offset == 2


def test_an_epoch_file_cut_within_a_number_is_rebuilt(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """ "1 1" of "1 12" is a number too: believed, it made a leader tell its followers to cut what was committed (simulator, seed 10064)."""
    log = open_log()
    fill(log, 12, epoch=0)
    fill(log, 3, epoch=1)
    path = "/data/t-0/leader-epoch-checkpoint"
    whole = disk.read(path)
    assert whole.endswith(b"1 12\n")
    for cut in range(1, 5):
        torn = disk.kill()
        torn.write(path, whole[:-cut])
        assert open_log(torn, is_clean=False).epochs.entries == [(0, 0), (1, 12)]


def test_an_epoch_that_the_file_puts_over_older_batches_goes(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """A leader of epoch 5 that wrote nothing, then followed one that still had batches of epoch 4: the file may be the older of the two."""
    log = open_log()
    fill(log, 3, epoch=4)
    log.assign_epoch_start(5, 3)
    stale = disk.read("/data/t-0/leader-epoch-checkpoint")
    assert stale == b"0\n2\n4 0\n5 3\n"
    log.truncate_to(3)
    fill(log, 2, epoch=4)
    killed = disk.kill()
    killed.write("/data/t-0/leader-epoch-checkpoint", stale)
    again = open_log(killed, is_clean=False, recovery_point=3)
    assert again.log_end_offset == 5
    assert again.epochs.entries == [(4, 0)]


@pytest.mark.parametrize("start", [0, 3, 5, 7, 10, 11])
@pytest.mark.parametrize("is_clean", [True, False])
def test_epochs_of_records_that_a_crash_brings_back_are_known(
    open_log: Callable[..., Log], disk: MemoryFileSystem, start: int, is_clean: bool
) -> None:
    """The epochs were written when epoch 4 began, the start of the log is written once a minute. Without the epochs before offset 12, a
    leader would tell a follower that epoch 1 ended there, and the follower would keep what it must truncate."""
    log = open_log(segment_bytes=500)
    for epoch in (1, 2, 3):
        fill(log, 5, epoch)
    assert log.increment_log_start_offset(12)
    log.assign_epoch_start(4, 15)
    log.flush()
    assert disk.read("/data/t-0/leader-epoch-checkpoint") == b"0\n2\n3 12\n4 15\n"
    fill(log, 2, epoch=4)
    killed = disk.kill()
    again = open_log(killed, is_clean=is_clean, recovery_point=10, log_start_offset=start, segment_bytes=500)
    assert (again.log_start_offset, again.log_end_offset) == (start, 17)
    known = [(epoch, max(first, start)) for epoch, first in ((1, 0), (2, 5), (3, 10), (4, 15)) if first + 5 > start]
    assert again.epochs.entries == known
    assert killed.read("/data/t-0/leader-epoch-checkpoint").decode().split("\n")[2:-1] == [f"{one} {first}" for one, first in known]


def test_a_small_segment_whose_index_was_preallocated_can_be_read_after_a_power_cut(
    open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    """The last entry of the old index stood on a page that the new one does not have."""
    log = open_log(segment_index_bytes=1 << 20)
    fill(log, 3)
    log.flush()
    preallocated = disk.read("/data/t-0/00000000000000000000.index")
    log.roll(T0)
    fill(log, 1)
    log.flush()
    disk.write("/data/t-0/00000000000000000000.index", preallocated)
    again = open_log(disk.kill(), is_clean=False, recovery_point=3, segment_index_bytes=1 << 20)
    assert len(preallocated) > 4096 and again.read(1, 1000, end_offset=3).slice.size and again.failure is None


def test_an_epoch_without_a_record_does_not_cost_a_start_a_sync(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    fill(log, 3, epoch=4)
    log.assign_epoch_start(5, 3)
    log.close()
    stopped = disk.kill()
    stopped.fail("fsync", path_contains="leader-epoch-checkpoint")
    again = open_log(stopped)
    assert again.epochs.entries == [(4, 0)]
    assert stopped.read("/data/t-0/leader-epoch-checkpoint") == b"0\n1\n4 0\n"
    assert again.durability.is_flush_requested, "the flush that comes next syncs it"
    stopped.heal()
    again.flush()
    assert stopped.crash(random.Random(1)).read("/data/t-0/leader-epoch-checkpoint") == b"0\n1\n4 0\n"


@pytest.mark.parametrize("name", [
    "backup.deleted", "old.cleaned", "x.tmp", f"{7:020d}.log.cleaned", f"{7:020d}.index", f"{7:020d}.log.deleted", f"{0:020d}.snapshot",
    f"{2:020d}.snapshot",
])  # fmt: skip
def test_a_directory_inside_is_none_of_the_logs(disk: MemoryFileSystem, open_log: Callable[..., Log], name: str) -> None:
    """Apache Kafka looks at files alone."""
    log = open_log()
    log.append_as_leader(memoryview(batch(b"a", b"b")), 0, T0)
    log.close()
    disk.mkdir(f"/data/t-0/{name}")
    again = open_log()
    assert again.log_end_offset == 2 and disk.is_dir(f"/data/t-0/{name}")
