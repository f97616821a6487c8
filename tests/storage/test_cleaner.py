"""Compaction: the files that Apache Kafka's cleaner left (tests/golden/logs/compaction), and what must hold around it."""

from __future__ import annotations

import contextlib
import gc
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import golden_logs
from helpers.cleaning import DEDUPE_BYTES, WALL_MS, clean, read, write
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.steps import at_once
from minikafka.storage.cleaner import ABORTED_AT_ONCE, PINNED_MAX, Cleaning, cleaning_need
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.storage.slice import FileSlice
from minikafka.wire.batch import RecordBatch, build_batch, iterate_batches
from minikafka.wire.errors import CorruptRecord
from minikafka.wire.record import Record

DAY_MS = 86_400_000
#: When Kafka's cleaner ran: the delete horizon that it wrote, less delete.retention.ms.
CLEANED_MS = {"compact-0": 1_795_316_970_415 - DAY_MS, "compact2-0": 1_795_230_574_059}


def batches_of(log: Log) -> list[RecordBatch]:
    return [batch for segment in log.segments for batch in iterate_batches(segment.slice(0, segment.size).read())]


def records_of(log: Log) -> list[Record]:
    return [record for batch in batches_of(log) if not batch.is_control for record in batch.records()]


@pytest.mark.parametrize("name", ["compact-0", "compact2-0"])
def test_records_that_kafka_keeps(name: str, tmp_path: Path) -> None:
    directory = golden_logs.install(f"compaction/before/{name}", tmp_path / name)
    config = LogConfig(
        segment_bytes=3000,
        index_interval_bytes=300 if name == "compact-0" else 4096,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=DAY_MS if name == "compact-0" else 0,
    )
    log = load_log(OsFileSystem(), str(directory), name[:-2], 0, config, wall_ms=CLEANED_MS[name], is_clean=False)
    log.update_high_watermark(log.log_end_offset)
    assert cleaning_need(log, None, CLEANED_MS[name]).ratio == 1.0
    assert clean(log, None, CLEANED_MS[name]) == 38
    after = golden_logs.ROOT / "compaction" / "after" / name
    for base in ("00000000000000000000", "00000000000000000033"):
        ours = list(iterate_batches((directory / f"{base}.log").read_bytes()))
        theirs = list(iterate_batches((after / f"{base}.log").read_bytes()))
        assert [_facts(batch) for batch in ours] == [_facts(batch) for batch in theirs]
        for own, golden in zip(ours, theirs, strict=True):
            # The same bytes, but for what lz4 makes of the same records.
            assert own.crc_valid()
            if not golden.compression or golden.records_count == 0:
                assert bytes(own.view) == bytes(golden.view)
        assert (directory / f"{base}.txnindex").exists() == (after / f"{base}.txnindex").exists()
        for suffix in (".timeindex", ".txnindex"):
            if (after / f"{base}{suffix}").exists():
                assert (directory / f"{base}{suffix}").read_bytes() == (after / f"{base}{suffix}").read_bytes()
    assert sorted(path.name for path in directory.glob("*.deleted")) == sorted(path.name for path in after.glob("*.deleted"))
    log.close()
    again = load_log(OsFileSystem(), str(directory), name[:-2], 0, config, wall_ms=CLEANED_MS[name], is_clean=False)
    assert again.log_end_offset == 43
    assert [r.offset for r in records_of(again)] == [r.offset for r in records_of(log)]


def _facts(batch: RecordBatch) -> tuple[object, ...]:
    return (
        batch.base_offset, batch.last_offset, batch.records_count, batch.attributes, batch.base_timestamp, batch.max_timestamp,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.partition_leader_epoch, list(batch.records()),
    )  # fmt: skip


# -- made-up logs


def put(log: Log, entries: Iterable[tuple[str | None, str | None]], *, timestamp: int = WALL_MS, **options: object) -> None:
    """One batch of (key, value), replicated at once."""
    records = [(0, timestamp, None if k is None else k.encode(), None if v is None else v.encode(), ()) for k, v in entries]
    batch = build_batch(records, **options)  # type: ignore[arg-type]
    log.append_as_leader(memoryview(batch), 0, WALL_MS, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)


def roll(log: Log) -> None:
    log.roll(WALL_MS)


COMPACT = {"cleanup_policy": frozenset({"compact"}), "segment_index_bytes": 1200}


def test_the_last_value_of_each_key_stays_at_its_offset(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT)
    for round_ in range(3):
        put(log, [("a", f"a{round_}"), ("b", f"b{round_}")])
        put(log, [(f"only-{round_}" + "x" * 20, "v")])
        roll(log)
    put(log, [("a", "in the active segment")])
    assert clean(log) == 9
    assert [(r.offset, r.key[:6]) for r in records_of(log)] == [  # type: ignore[index]
        (2, b"only-0"), (5, b"only-1"), (6, b"a"), (7, b"b"), (8, b"only-2"), (9, b"a"),
    ]  # fmt: skip
    assert len(log.segments) == 2  # small neighbours became one
    assert log.read(0, 1000, end_offset=10).slice.read()[:8] == (2).to_bytes(8, "big")


def test_nothing_beyond_the_last_stable_offset_or_within_the_lag_is_touched(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT, min_compaction_lag_ms=1000)
    for timestamp in (WALL_MS - 2000, WALL_MS - 500):
        put(log, [("k", str(timestamp))], timestamp=timestamp)
        put(log, [("k", str(timestamp))], timestamp=timestamp)
        roll(log)
    need = cleaning_need(log, None, WALL_MS)
    assert (need.end_offset, need.is_due) == (2, True)
    assert cleaning_need(log, 2, WALL_MS).dirty_bytes == 0
    assert cleaning_need(log, 2, WALL_MS + 1000).end_offset == 4
    log.watermarks.high_watermark = 3
    assert cleaning_need(log, 2, WALL_MS + 1000).dirty_bytes == 0


def test_ratio_and_max_lag_decide_when(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT, max_compaction_lag_ms=5000)
    for _ in range(4):
        put(log, [("k", "v" * 100)])
        roll(log)
    assert cleaning_need(log, None, WALL_MS).is_due
    half = cleaning_need(log, 2, WALL_MS)
    assert (half.ratio, half.is_due) == (0.5, False)
    assert cleaning_need(log, 2, WALL_MS + 5001).is_due


def test_tombstones_stay_for_their_time_and_then_go(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT, delete_retention_ms=1000)
    put(log, [("a", "1"), ("b", "2")])
    put(log, [("a", None)])
    roll(log)
    put(log, [("end", "x")])
    roll(log)
    clean(log)
    tombstone = next(batch for batch in batches_of(log) if batch.base_offset == 2)
    assert tombstone.delete_horizon_ms == WALL_MS + 1000
    assert [record.timestamp for record in tombstone.records()] == [WALL_MS]
    clean(log, wall_ms=WALL_MS + 999)
    assert [r.key for r in records_of(log)] == [b"b", b"a", b"end"]
    clean(log, wall_ms=WALL_MS + 1000)
    assert [r.key for r in records_of(log)] == [b"b", b"end"]


def test_an_aborted_transaction_goes_and_its_marker_follows(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT, delete_retention_ms=1000)
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    put(log, [("a", "aborted")], base_sequence=0, **producer)
    marker(log, 7, 0)
    put(log, [("a", "kept")])
    roll(log)
    put(log, [("z", "z")], base_sequence=1, **producer)
    marker(log, 7, 0)
    roll(log)
    put(log, [("end", "x")])
    clean(log)
    assert [r.value for r in records_of(log)] == [b"kept", b"x"]
    markers = [batch for batch in batches_of(log) if batch.is_control]
    assert [batch.base_offset for batch in markers] == [1, 4]
    assert log.aborted_transactions(0, 6)[0].last_offset == 1
    clean(log, wall_ms=WALL_MS + 1)  # no batches are left: the first marker gets its horizon
    assert next(batch.delete_horizon_ms for batch in batches_of(log) if batch.is_control) == WALL_MS + 1001
    clean(log, wall_ms=WALL_MS + 1000)
    # Who read the transaction's first batch before it was dropped must still be able to read how it ended.
    assert [batch.base_offset for batch in batches_of(log) if batch.is_control] == [1, 4]
    clean(log, wall_ms=WALL_MS + 1001)
    # The producer's last batch stays, empty, for its sequence number; and as long as it does, its marker.
    assert [(b.base_offset, b.records_count) for b in batches_of(log) if b.has_producer] == [(3, 0), (4, 1)]
    assert log.producer_state.entries[7].last_sequence == 1


def test_aborted_transactions_that_overlap_are_found_some_in_a_step(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT)
    count = ABORTED_AT_ONCE + 3
    for producer_id in range(count + 1):
        if producer_id < count:
            put(log, [(f"k{producer_id}", "aborted")], base_sequence=0, producer_id=producer_id, producer_epoch=0, is_transactional=True)
        if producer_id > 0:
            marker(log, producer_id - 1, 0)
    roll(log)
    put(log, [("end", "x")])
    cleaning = Cleaning(cleaning_need(log, None, WALL_MS), WALL_MS, DEDUPE_BYTES)
    assert sum(1 for _ in cleaning.find_aborted()) == 2
    assert cleaning._aborted == log.aborted_transactions(0, log.log_end_offset) and len(cleaning._aborted) == count
    clean(log)
    assert [r.value for r in records_of(log)] == [b"x"]


def marker(log: Log, producer_id: int, epoch: int) -> None:
    batch = build_batch(
        [(0, WALL_MS, b"\0\0\0\0", b"\0\0\0\0\0\0", ())],
        producer_id=producer_id, producer_epoch=epoch, is_transactional=True, is_control=True,
    )  # fmt: skip
    log.append_as_leader(memoryview(batch), 0, WALL_MS, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)


def test_a_full_map_makes_several_rounds(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT)
    for round_ in range(2):
        for index in range(10):
            put(log, [(f"k{index}", str(round_))])
        roll(log)
    first = clean(log, dedupe_bytes=160 * 4)
    assert 0 < first < 20
    checkpoint, rounds = first, 1
    while checkpoint < 20:
        checkpoint, rounds = clean(log, checkpoint, dedupe_bytes=160 * 4), rounds + 1
    assert rounds > 2
    assert [r.value for r in records_of(log)] == [b"1"] * 10


def test_slices_in_flight_keep_what_they_were_made_for(open_log: Callable[..., Log]) -> None:
    log = open_log(**COMPACT)
    put(log, [("a", "first")])
    put(log, [("a", "second")])
    roll(log)
    in_flight = log.read(0, 10_000, end_offset=2).slice
    before = in_flight.read()
    clean(log)
    log.delete_files(WALL_MS + 10**9)
    assert in_flight.read() == before
    in_flight.release()


def test_a_log_that_changed_meanwhile_is_left_alone(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(**COMPACT)
    for value in ("1", "2", "3"):
        put(log, [("a", value)])
        roll(log)
    cleaning = Cleaning(cleaning_need(log, None, WALL_MS), WALL_MS, DEDUPE_BYTES)
    read(cleaning)
    write(cleaning, cleaning.groups[0])
    log.truncate_to(1, WALL_MS)
    assert not cleaning.swap(cleaning.groups[0], WALL_MS)
    assert [r.value for r in records_of(log)] == [b"1"]
    assert not [name for name in disk.names if name.endswith(".cleaned")]


def test_a_round_opens_a_bounded_number_of_segments_at_a_time(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(**COMPACT)
    for number in range(200):
        put(log, [("a", str(number)), (str(number % 150), str(number))])
        roll(log)
    put(log, [("a", "last")])
    cleaning = Cleaning(cleaning_need(log, None, WALL_MS), WALL_MS, DEDUPE_BYTES)
    most = 0

    @contextlib.contextmanager
    def pinned(sources: Any) -> Iterator[None]:
        nonlocal most
        with cleaning.pinned(sources) as are_there:
            assert are_there
            slices = [found for found in gc.get_objects() if isinstance(found, FileSlice)]
            most = max(most, len(slices))
            yield

    gc.collect()
    at_once(cleaning.find_aborted())
    for window in cleaning.windows():
        with pinned(window):
            cleaning.build_map(window)
    cleaning.plan()
    assert len(cleaning.groups) == 4, "so many are merged into one at most"
    for group in cleaning.groups:
        with pinned(group):
            cleaning.write(group)
            assert cleaning.swap(group, WALL_MS)
    assert most == PINNED_MAX
    kept = {r.key: r.value for r in records_of(log)}
    assert kept == {b"a": b"last", **{str(n % 150).encode(): str(n).encode() for n in range(200)}}
    assert cleaning.end_offset == 400


@pytest.mark.parametrize("at_work", ["mapping", "writing"])
def test_a_log_that_changed_between_two_steps_is_left_alone(open_log: Callable[..., Log], at_work: str) -> None:
    log = open_log(**COMPACT)
    for value in ("1", "2", "3"):
        put(log, [("a", value)])
        roll(log)
    cleaning = Cleaning(cleaning_need(log, None, WALL_MS), WALL_MS, DEDUPE_BYTES)
    if at_work == "writing":
        read(cleaning)
    log.truncate_to(1, WALL_MS)
    sources = next(cleaning.windows()) if at_work == "mapping" else cleaning.groups[0]
    with cleaning.pinned(sources) as are_there:
        assert not are_there
    assert [r.value for r in records_of(log)] == [b"1"]


@pytest.mark.parametrize("renames", range(9))
def test_a_crash_while_segments_are_replaced_loses_nothing(renames: int, tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=1200)
    log = load_log(OsFileSystem(), str(tmp_path / "t-0"), "t", 0, config, wall_ms=WALL_MS)
    for value in ("1", "2", "3"):
        put(log, [("a", value), ("b" + value, value)])
        roll(log)
    cleaning = Cleaning(cleaning_need(log, None, WALL_MS), WALL_MS, DEDUPE_BYTES)
    read(cleaning)
    write(cleaning, cleaning.groups[0])

    class Crash(Exception):
        pass

    done = 0
    real = OsFileSystem.rename

    def rename(source: str, target: str) -> None:
        nonlocal done
        if done == renames:
            raise Crash
        done += 1
        real(log.filesystem, source, target)  # type: ignore[arg-type]

    log.filesystem.rename = rename  # type: ignore[method-assign]
    for segment in log.segments:
        segment._filesystem.rename = rename  # type: ignore[method-assign]
    with pytest.raises(Crash):
        cleaning.swap(cleaning.groups[0], WALL_MS)
    crashed = tmp_path / "crashed" / "t-0"
    shutil.copytree(tmp_path / "t-0", crashed)
    again = load_log(
        OsFileSystem(), str(crashed), "t", 0, config, wall_ms=WALL_MS, is_clean=False, may_have_gaps=True, recovery_point=6
    )
    assert again.log_end_offset == 6
    assert {(r.key, r.value) for r in records_of(again)} >= {(b"a", b"3"), (b"b1", b"1"), (b"b2", b"2"), (b"b3", b"3")}
    offsets = [r.offset for r in records_of(again)]
    assert offsets == sorted(set(offsets))
    again.close()


@pytest.mark.parametrize("is_dirty", [True, False])
def test_a_corrupt_batch_is_not_written_anew(open_log: Callable[..., Log], is_dirty: bool) -> None:
    """With a checksum of its own it would pass for what was written; a round over it ends, and the log stays as it is."""
    log = open_log(**COMPACT)
    put(log, [("a", "1"), ("b", "2")])
    put(log, [("a", "3"), ("c", "4")])
    roll(log)
    checkpoint = None if is_dirty else clean(log)
    put(log, [("b", "5")])
    roll(log)
    segment = log.segments[0]
    data = bytearray(segment.slice(0, segment.size).read())
    data[-2] ^= 1
    segment.file.pwrite(bytes(data), 0)
    with pytest.raises(CorruptRecord):
        clean(log, checkpoint)
    assert log.segments[0].slice(0, segment.size).read() == bytes(data)
