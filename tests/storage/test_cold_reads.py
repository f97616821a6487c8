"""Look-ups in a log that do not wait for the disk: what they miss, that they end, and how much of a segment one of them scans."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.broker.coordinators.loader import CommittedReader
from minikafka.storage import timestamp_lookup
from minikafka.storage.cold_reads import Look, NotInMemory, looking, waiting
from minikafka.storage.log import Log
from minikafka.storage.timestamp_lookup import TimestampScan
from minikafka.wire.errors import ApiError, CorruptRecord

BATCHES = 200


@pytest.fixture
def log(open_log: Callable[..., Log]) -> Log:
    """The first batch is the newest but for the last: the time index tells nothing of those in between."""
    made = open_log(segment_bytes=1 << 20, index_interval_bytes=200)
    for number in range(BATCHES):
        timestamp = {0: T0 + 10, BATCHES - 1: T0 + 20}.get(number, T0)
        made.append_as_leader(memoryview(batch(b"v" * 50, timestamp=timestamp)), 0, T0)
    made.roll(T0)
    made.flush()
    for each in made.segments:
        each.synced_size = each.size
        each.close_if_idle()
    return made


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """What was read, by file and page of 512 bytes; nothing else is in memory."""
    known: set[tuple[str, int]] = set()
    pread = MemoryFile.pread

    def pages(file: MemoryFile, position: int, size: int) -> set[tuple[str, int]]:
        return {(file.path, page) for page in range(position // 512, (position + size - 1) // 512 + 1)}

    def read(file: MemoryFile, count: int, position: int, /) -> bytes:
        known.update(pages(file, position, count))
        return pread(file, count, position)

    def if_cached(file: MemoryFile, buffer: memoryview, position: int, /) -> int | None:
        if not pages(file, position, len(buffer)) <= known:
            return None
        return MemoryFile.pread_into(file, buffer, position)

    monkeypatch.setattr(MemoryFile, "pread", read)
    monkeypatch.setattr(MemoryFile, "pread_if_cached", if_cached)
    return known


def found(log: Log, look: Callable[[], Any], cold: set[tuple[str, int]]) -> tuple[Any, int]:
    """The result of a look-up, and how often something was read through for it."""
    steps, missed = looking(look), 0
    while True:
        before = len(cold)
        try:
            missing = next(steps)
        except StopIteration as over:
            return over.value, missed
        assert len(cold) == before, "the look-up itself has read nothing from the disk"
        missing.read_through()
        missed += 1


@pytest.mark.parametrize("offset", [0, 1, 77, BATCHES - 1, BATCHES])
def test_a_read_finds_the_same_and_waits_for_nothing(log: Log, cold: set[tuple[str, int]], offset: int) -> None:
    def read() -> tuple[Any, bytes]:
        result = log.read(offset, 300, end_offset=BATCHES)
        return result.position, result.slice.read()

    (position, data), missed = found(log, read, cold)
    assert (position, data) == read() and (missed >= 2) == (offset < BATCHES)
    assert found(log, read, cold)[1] <= 2, "an index whose file was closed is opened again, nothing is read twice"


def test_what_is_missing_again_is_waited_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is short of memory: it forgets at once what it has read."""
    monkeypatch.setattr(MemoryFile, "pread_if_cached", lambda *_: None)
    steps = looking(lambda: log.offset_position(77))
    with pytest.raises(StopIteration) as over:
        for _ in range(20):
            next(steps).read_through()
    assert over.value.value == log.offset_position(77)


def test_a_disk_that_cannot_be_read_is_found_by_the_look_that_follows(log: Log, disk: MemoryFileSystem, cold: set[tuple[str, int]]) -> None:
    disk.fail("read", errno.EIO, ".log")
    with pytest.raises(Exception, match="cannot read the log"):
        found(log, lambda: log.offset_position(77), cold)
    assert log.failure is not None


def test_what_a_failed_read_leads_to_may_wait(log: Log, cold: set[tuple[str, int]]) -> None:
    with Look():
        with pytest.raises(NotInMemory):
            log.offset_position(77)
        with waiting():
            assert log.offset_position(77)
        with pytest.raises(NotInMemory):
            log.offset_position(3) and log.segments[0].translate(150)


@pytest.mark.parametrize("at_once", [1, 500, 3_000, 1 << 20])
@pytest.mark.parametrize("elsewhere", [100, 1 << 20])
def test_a_search_by_time_scans_little_at_once(
    log: Log, cold: set[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, at_once: int, elsewhere: int
) -> None:
    monkeypatch.setattr(timestamp_lookup, "SCANNED_AT_ONCE_BYTES", at_once)
    monkeypatch.setattr(timestamp_lookup, "SCANNED_ELSEWHERE_BYTES", elsewhere)
    for timestamp, expected in ((T0, 0), (T0 + 10, 0), (T0 + 11, BATCHES - 1), (T0 + 20, BATCHES - 1), (T0 + 21, None)):
        from_offset, scans, result = 0, 0, None
        while result is None:
            candidate, _ = found(log, partial(log.timestamp_candidate, timestamp, from_offset), cold)
            if candidate is None:
                break
            scans += candidate.is_heavy
            result = candidate.find(1 << 20)
            candidate.release()
            assert result is not None or candidate.next_offset > from_offset
            from_offset = candidate.next_offset
        assert (None if result is None else result.offset) == expected
        assert (scans > 0) == (timestamp == T0 + 11 and at_once < 3_001) or timestamp != T0 + 11
        assert not any(segment._shared is not None and segment._shared.is_pinned for segment in log.segments)


def test_of_a_large_segment_a_part_is_scanned_at_once(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=1 << 20)
    for number in range(10):
        data = batch(bytes(60_000), timestamp={0: T0 + 10, 9: T0 + 20}.get(number, T0))
        log.append_as_leader(memoryview(data), 0, T0)
    candidate = log.timestamp_candidate(T0 + 11, 0)
    assert isinstance(candidate, TimestampScan) and candidate.is_heavy
    found = candidate.find(1 << 20)
    assert found is not None and found.offset == 9


def test_a_scan_of_what_are_no_batches_ends(log: Log, disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_lookup, "SCANNED_AT_ONCE_BYTES", 200)
    path = log.segments[0].log_path
    disk.names[path].data[1000:] = bytes(len(disk.names[path].data) - 1000)
    with pytest.raises((CorruptRecord, ApiError)):
        log.lookup_offset_for_timestamp(T0 + 11)


def test_a_coordinators_log_is_read_through_elsewhere(log: Log, cold: set[tuple[str, int]]) -> None:
    reader, values, elsewhere = CommittedReader(log, 1000, "read"), list[int](), 0
    for step in reader.read(BATCHES, lambda record, _: values.append(record.offset), lambda *_: None):
        if step is not None:
            step()
            elsewhere += 1
    assert values == list(range(BATCHES)) and elsewhere >= 2
