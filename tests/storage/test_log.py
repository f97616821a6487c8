"""Reading, rolling, truncation, retention and look-ups of one log."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage import segment as segment_module
from minikafka.storage.batch_scan import batches
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import UnexpectedAppendOffset
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.storage.types import EpochEnd
from minikafka.wire.batch_header import Header
from minikafka.wire.errors import ApiError, ErrorCode

DAY_MS = 86_400_000


def fill(log: Log, count: int, size: int = 20, *, epoch: int = 0, step_ms: int = 1, commit: bool = True) -> None:
    for number in range(count):
        data = batch(b"%0*d" % (size, number), timestamp=T0 + (log.log_end_offset) * step_ms)
        log.append_as_leader(memoryview(data), epoch, T0)
    if commit:
        log.update_high_watermark(log.log_end_offset)


# -- reading


def test_reads_are_bounded_by_bytes_and_end_offset(open_log: Callable[..., Log]) -> None:
    log = open_log()
    fill(log, 10)
    size = log.size // 10
    assert log.read(3, 3 * size, end_offset=10).slice.size == 3 * size
    assert log.read(3, 10**6, end_offset=5).slice.size == 2 * size
    assert log.read(3, 0, end_offset=10).slice.size == size, "at least one batch"
    assert log.read(3, size - 1, end_offset=10, at_least_one=False).slice.size == 0, "no part of a batch"
    assert log.read(3, size, end_offset=10, at_least_one=False).slice.size == size
    assert log.read(3, 0, end_offset=10, at_least_one=False).slice.size == 0
    assert log.read(5, 10**6, end_offset=5).slice.size == 0
    assert log.read(10, 10**6, end_offset=10).slice.size == 0


def test_offsets_outside_of_the_log_are_out_of_range(open_log: Callable[..., Log]) -> None:
    log = open_log()
    fill(log, 10)
    log.increment_log_start_offset(4)
    for offset in (-1, 3, 11):
        with pytest.raises(ApiError) as error:
            log.read(offset, 100, end_offset=10)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slice_never_spans_segments_and_positions_tell_distances(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 20)
    assert len(log.segments) > 2
    result = log.read(0, 10**6, end_offset=20)
    assert result.slice.size == log.segments[0].size
    first, last = log.offset_position(0), log.offset_position(19)
    assert first.is_on_older_segment(last) and not first.is_on_same_segment(last)
    inside = log.offset_position(1)
    assert inside.bytes_from(first) == log.size // 20
    assert log.offset_position(20) == (20, log.active_segment_base_offset, log.segments[-1].size)


def test_gaps_left_by_compaction_are_skipped(open_log: Callable[..., Log]) -> None:
    log = open_log()
    for base in (5, 9, 30):
        log.append_as_follower(memoryview(batch(b"x", base_offset=base, epoch=0)))
    for offset, expected in ((0, 5), (6, 9), (10, 30), (30, 30)):
        data = log.read(offset, 1, end_offset=31).slice.read()
        assert int.from_bytes(data[:8], "big") == expected


def test_positions_from_memory_index_and_scan_agree(tmp_path: Path) -> None:
    generator = random.Random(3)
    config = LogConfig(segment_bytes=200_000, index_interval_bytes=700, segment_index_bytes=12_000)
    log = load_log(OsFileSystem(), str(tmp_path / "t-0"), "t", 0, config, wall_ms=T0)
    for _ in range(4000):
        values = [b"v" * generator.randrange(60) for _ in range(generator.randrange(1, 4))]
        log.append_as_leader(memoryview(batch(*values)), 0, T0)
    starts = {}
    for offset in range(0, log.log_end_offset):
        result = log.read(offset, 1, end_offset=log.log_end_offset)
        base = int.from_bytes(result.slice.pread(8, 0), "big")
        assert base <= offset
        starts[offset] = (result.position.segment_base_offset, result.slice.position)
    log.close()
    again = load_log(OsFileSystem(), str(tmp_path / "t-0"), "t", 0, config, wall_ms=T0)
    for offset, expected in starts.items():
        result = again.read(offset, 1, end_offset=again.log_end_offset)
        assert (result.position.segment_base_offset, result.slice.position) == expected


def test_timestamps_are_found_as_a_linear_scan_finds_them(open_log: Callable[..., Log]) -> None:
    generator = random.Random(5)
    log = open_log(segment_bytes=1500, index_interval_bytes=200)
    stamps = [generator.choice([-1, 0, T0 + generator.randrange(400)]) for _ in range(150)]
    for stamp in stamps:
        log.append_as_leader(memoryview(batch(b"x", timestamp=stamp)), 0, T0)
    log.update_high_watermark(150)
    log.increment_log_start_offset(17)
    for target in [0, 1, T0 - 1, *(T0 + i for i in range(0, 410, 7))]:
        expected = next(((stamp, i) for i, stamp in enumerate(stamps) if i >= 17 and stamp >= target), None)
        found = log.lookup_offset_for_timestamp(target)
        assert (found and (found.timestamp, found.offset)) == expected
    largest = log.max_timestamp_offset()
    assert largest is not None and largest.timestamp == max(stamps) and stamps[largest.offset] == max(stamps)


# -- rolling


def test_rolls_by_size_time_and_offset(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=500)
    fill(log, 7)
    assert [segment.size <= 500 for segment in log.segments] == [True] * len(log.segments)
    timed = open_log(MemoryFileSystem(), segment_ms=1000)
    for stamp in (T0, T0 + 1000, T0 + 1001, T0 + 5):
        timed.append_as_leader(memoryview(batch(b"x", timestamp=stamp)), 0, T0)
    assert timed.segments.bases == [0, 2]
    sparse = open_log(MemoryFileSystem())
    sparse.append_as_follower(memoryview(batch(b"x", epoch=0)))
    sparse.append_as_follower(memoryview(batch(b"x", epoch=0, base_offset=2**31)))
    assert sparse.segments.bases == [0, 2**31]


def test_rolls_when_an_index_is_full(open_log: Callable[..., Log]) -> None:
    log = open_log(index_interval_bytes=1, segment_index_bytes=80)
    fill(log, 40)
    assert all(segment.offset_index.entries <= 10 and segment.time_index.entries <= 6 for segment in log.segments)
    assert len(log.segments) > 4
    fill(log, 1)
    assert log.read(0, 1, end_offset=41).slice.size > 0


def test_a_roll_takes_a_snapshot_and_cuts_the_indexes(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(index_interval_bytes=50)
    fill(log, 6)
    active = log.segments[0]
    log.flush()
    assert disk.size(active.offset_index.path) == 1200
    log.roll(T0)
    assert log.durability.is_flush_requested
    assert disk.size(active.offset_index.path) == 1200, "this is a matter of the flush"
    log.flush()
    assert disk.size(active.offset_index.path) == active.offset_index.entries * 8
    assert disk.size(active.time_index.path) == active.time_index.entries * 12
    assert active.time_index.last_offset == 5
    assert disk.exists("/data/t-0/00000000000000000006.snapshot")
    assert disk.size(log.segments[1].offset_index.path) == 1200


def test_rolling_an_empty_segment_keeps_one(open_log: Callable[..., Log]) -> None:
    log = open_log()
    log.roll(T0)
    log.roll(T0)
    assert log.segments.bases == [0]
    fill(log, 2)
    log.roll(T0)
    log.roll(T0)
    assert log.segments.bases == [0, 2]
    fill(log, 1)
    assert log.log_end_offset == 3


# -- following


def test_a_follower_appends_what_it_fetched_byte_for_byte(open_log: Callable[..., Log]) -> None:
    leader, follower = open_log(), open_log(MemoryFileSystem())
    fill(leader, 3, epoch=1)
    fill(leader, 3, epoch=2)
    data = leader.read(0, 10**6, end_offset=6).slice.read()
    info = follower.append_as_follower(memoryview(data + data[:40]))
    assert (info.first_offset, info.last_offset, info.batches, info.leader_epoch) == (0, 5, 6, 2)
    assert follower.read(0, 10**6, end_offset=6).slice.read() == data
    assert follower.epochs.entries == leader.epochs.entries == [(1, 0), (2, 3)]
    assert follower.append_as_follower(memoryview(data[:40])).batches == 0


def test_a_follower_stops_at_a_newer_epoch_than_it_fetched_in(open_log: Callable[..., Log]) -> None:
    log = open_log()
    data = batch(b"a", epoch=1) + batch(b"b", epoch=3, base_offset=1) + batch(b"c", epoch=1, base_offset=2)
    log.append_as_follower(memoryview(data), leader_epoch=2)
    assert log.log_end_offset == 1


def test_a_follower_refuses_what_does_not_continue_its_log_or_is_corrupt(open_log: Callable[..., Log]) -> None:
    log = open_log()
    fill(log, 5)
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(memoryview(batch(b"x", base_offset=4, epoch=0)))
    back = batch(b"x", base_offset=9, epoch=0) + batch(b"x", base_offset=7, epoch=0)
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(memoryview(back))
    damaged = batch(b"x", base_offset=5, epoch=0)
    damaged[-1] ^= 1
    with pytest.raises(ApiError) as error:
        log.append_as_follower(memoryview(damaged))
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 5


def test_an_empty_follower_that_starts_inside_of_a_batch_takes_it_whole(open_log: Callable[..., Log]) -> None:
    log = open_log()
    log.truncate_fully_and_start_at(12)
    log.append_as_follower(memoryview(batch(*b"abcde", base_offset=10, epoch=3, payload=bytes(batch(b"")[61:]), count=5)))
    assert (log.log_start_offset, log.log_end_offset) == (10, 15)


# -- truncation


@pytest.mark.parametrize("offset", range(0, 21))
def test_truncation_cuts_log_epochs_and_watermark(offset: int, open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 7, epoch=1)
    fill(log, 7, epoch=2)
    fill(log, 6, epoch=5)
    before = [log.read(i, 1, end_offset=20).slice.read() for i in range(20)]
    assert log.truncate_to(offset) == (offset < 20)
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert log.epochs.entries == [entry for entry in [(1, 0), (2, 7), (5, 14)] if entry[1] < offset]
    assert [log.read(i, 1, end_offset=offset).slice.read() for i in range(offset)] == before[:offset]
    fill(log, 3, epoch=6)
    assert log.log_end_offset == offset + 3
    assert log.end_offset_for_epoch(6) == (6, offset + 3)
    assert log.lookup_offset_for_timestamp(T0 + offset + 2) == (T0 + offset + 2, offset + 2, 6)


def test_truncation_beyond_the_end_cuts_the_epochs_only(open_log: Callable[..., Log]) -> None:
    log = open_log()
    fill(log, 5, epoch=1)
    log.assign_epoch_start(4, 5)
    assert not log.truncate_to(5)
    assert log.epochs.entries == [(1, 0)]


@pytest.mark.parametrize("filesystem", ["memory", "os"])
def test_slices_in_flight_keep_their_bytes(filesystem: str, tmp_path: Path) -> None:
    disk = MemoryFileSystem() if filesystem == "memory" else OsFileSystem()
    directory = "/data/t-0" if filesystem == "memory" else str(tmp_path / "t-0")
    log = load_log(disk, directory, "t", 0, LogConfig(), wall_ms=T0)
    fill(log, 10)
    pieces = [log.read(offset, 10**6, end_offset=10).slice for offset in range(10)]
    expected = [piece.read() for piece in pieces]
    log.truncate_to(3)
    for number in range(7):
        log.append_as_leader(memoryview(batch(b"%020d" % (number + 500), timestamp=T0)), 1, T0)
    assert [piece.read() for piece in pieces] == expected
    log.truncate_fully_and_start_at(0)
    assert [piece.read() for piece in pieces] == expected
    for piece in pieces:
        piece.release()
        piece.release()
        with pytest.raises(ValueError, match="released"):
            piece.read()
    log.close()
    again = load_log(disk, directory, "t", 0, LogConfig(), wall_ms=T0)
    assert (again.log_end_offset, again.size) == (0, 0)


def test_slices_survive_retention(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=300, retention_bytes=300, file_delete_delay_ms=0)
    fill(log, 10)
    piece = log.read(0, 10**6, end_offset=10).slice
    expected = piece.read()
    assert log.delete_old_segments(T0) > 0
    log.delete_files(T0 + 1)
    assert log.log_start_offset > 0
    assert piece.read() == expected


# -- retention


def test_retention_by_size_keeps_at_least_that_much(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=300, retention_bytes=700, retention_ms=-1, file_delete_delay_ms=1000)
    fill(log, 20)
    assert log.delete_old_segments(T0) > 0
    assert 700 <= log.size < 700 + 300
    assert log.log_start_offset == log.segments.bases[0] > 0
    assert any(name.endswith(".log.deleted") for name in disk.names)
    log.delete_files(T0 + 999)
    assert any(name.endswith(".deleted") for name in disk.names)
    log.delete_files(T0 + 1000)
    assert not any(name.endswith(".deleted") for name in disk.names)


def test_retention_by_time_uses_record_timestamps_and_may_roll_the_active_segment(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=300, retention_ms=1000)
    fill(log, 10, step_ms=100)
    assert log.delete_old_segments(T0 + 1000) == 0
    log.delete_old_segments(T0 + 1500)
    assert 0 < log.log_start_offset < 10
    log.delete_old_segments(T0 + DAY_MS)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
    fill(log, 1)
    assert log.log_end_offset == 11


def test_retention_stops_at_the_high_watermark(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=300, retention_ms=0)
    fill(log, 10, commit=False)
    log.update_high_watermark(5)
    log.delete_old_segments(T0 + DAY_MS)
    assert log.log_start_offset <= 5


def test_deleted_records_go_with_their_segments_even_if_compacted(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=300, cleanup_policy=frozenset({"compact"}))
    fill(log, 10)
    assert log.increment_log_start_offset(7)
    assert not log.increment_log_start_offset(6)
    with pytest.raises(ApiError):
        log.increment_log_start_offset(11)
    log.delete_old_segments(T0 + DAY_MS)
    assert log.segments.bases[0] <= 7 < log.segments.bases[1]
    assert log.log_start_offset == 7
    assert log.epochs.entries == [(0, 7)]


def test_an_empty_log_may_start_anywhere(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    fill(log, 3)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    fill(log, 2, epoch=4)
    log.close()
    again = open_log()
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1002)
    assert again.epochs.entries == [(4, 1000)]


# -- epochs


def test_epoch_ends() -> None:
    log = load_log(MemoryFileSystem(), "/d/t-0", "t", 0, LogConfig(), wall_ms=T0)
    assert log.end_offset_for_epoch(0) == (-1, -1)
    assert log.latest_epoch == -1
    for epoch, count in ((2, 3), (4, 2), (7, 1)):
        fill(log, count, epoch=epoch)
    assert log.latest_epoch == 7
    expected = {-1: (-1, -1), 0: (0, 0), 1: (1, 0), 2: (2, 3), 3: (2, 3), 4: (4, 5), 6: (4, 5), 7: (7, 6), 8: (-1, -1)}
    assert {epoch: tuple(log.end_offset_for_epoch(epoch)) for epoch in expected} == expected
    assert isinstance(log.end_offset_for_epoch(2), EpochEnd)


def test_an_epoch_that_contradicts_older_entries_replaces_them(open_log: Callable[..., Log]) -> None:
    log = open_log()
    for epoch, start in ((1, 0), (2, 10), (3, 20)):
        log.assign_epoch_start(epoch, start)
    log.assign_epoch_start(4, 15)
    assert log.epochs.entries == [(1, 0), (2, 10), (4, 15)]
    log.assign_epoch_start(2, 12)
    assert log.epochs.entries == [(1, 0), (2, 12)]
    assert [log.epochs.epoch_for_offset(offset) for offset in (0, 11, 12, 99)] == [1, 1, 2, 2]


# -- the largest timestamp after a truncation


@pytest.mark.parametrize("seed", range(12))
def test_a_truncation_finds_the_largest_timestamp_that_is_left(open_log: Callable[..., Log], seed: int) -> None:
    generator = random.Random(seed)
    log = open_log(index_interval_bytes=[0, 200, 4096][seed % 3])
    times: list[int] = []
    for _ in range(15):
        for _ in range(generator.randrange(1, 12)):
            times.append(T0 + generator.randrange([5, 1000][seed % 2]))
            log.append_as_leader(memoryview(batch(b"v" * 50, timestamp=times[-1])), 0, T0)
        if generator.random() < 0.2:
            log.close()
            log = open_log(index_interval_bytes=[0, 200, 4096][seed % 3])
        cut = generator.randrange(max(len(times) - 20, 0), len(times) + 1)
        del times[cut:]
        log.truncate_to(cut, T0)
        found = log.max_timestamp_offset()
        if times:
            assert found is not None and (found.timestamp, found.offset) == (max(times), times.index(max(times)))


def test_a_truncation_does_not_search_for_the_largest_timestamp_from_where_it_was(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records of a burst may have the same: then that is the whole segment."""
    seen: list[int] = []

    def counted(*arguments: object) -> Iterator[tuple[int, int, Header]]:
        for found in batches(*arguments):  # type: ignore[arg-type]
            seen.append(found[0])
            yield found

    log = open_log()
    fill(log, 2000, step_ms=0)
    monkeypatch.setattr(segment_module, "batches", counted)
    log.truncate_to(1990, T0)
    assert len(seen) <= 4096 // 90 + 2
