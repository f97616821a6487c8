"""What a truncation and a roll do on the event loop does not grow with the log: the rest is prepared, or carried out later, elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.log_flush import sync_cut, truncate, truncate_fully
from minikafka.storage import epoch_cache, producer_replay, producer_snapshot_files, truncation
from minikafka.storage.errors import CorruptFile, LogClosed
from minikafka.storage.filesystem import Buffer, File
from minikafka.storage.log import Log
from minikafka.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from minikafka.storage.slice import FileSlice
from minikafka.storage.truncation import DROPPED_AT_ONCE

EPOCHS = "/data/t-0/leader-epoch-checkpoint"
PRODUCERS = 2000


class Turns:
    """Notes what is done on the loop between two pieces that run elsewhere."""

    def __init__(self) -> None:
        self.is_elsewhere = False
        #: How much was done in each turn of the loop, and elsewhere.
        self.here, self.elsewhere = [0], 0

    def note(self) -> None:
        if self.is_elsewhere:
            self.elsewhere += 1
        else:
            self.here[-1] += 1

    async def run_blocking(self, function: Callable[..., object], *arguments: object) -> object:
        self.is_elsewhere = True
        try:
            return function(*arguments)
        finally:
            self.is_elsewhere = False
            self.here.append(0)

    def is_due(self) -> bool:
        """Asked once in each turn."""
        self.here.append(0)
        return True

    def counting(self, function: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            self.note()
            return function(*arguments, **options)

        return counted


@pytest.fixture
def turns() -> Turns:
    return Turns()


async def cut(log: Log, offset: int, turns: Turns) -> bool:
    return await truncate(log, offset, lambda: T0, turns.run_blocking, turns.is_due)


def append(log: Log, batches: int, producers: int = 1, epoch: int = 0) -> None:
    """So many batches of one record, of producers that take turns."""
    first = log.log_end_offset
    data = bytearray()
    for offset in range(first, first + batches):
        data += batch(b"v", producer=(offset % producers, 0, offset // producers), base_offset=offset, epoch=epoch)
    log.append_as_follower(memoryview(data))


@pytest.mark.parametrize(("batches", "producers"), [(3000, 1), (3000, PRODUCERS)], ids=["after a restart", "many producers"])
async def test_a_truncation_replays_nothing_on_the_loop(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, turns: Turns, batches: int, producers: int
) -> None:
    log = open_log(segment_index_bytes=1 << 20)
    append(log, batches, producers)
    log.close()
    log = open_log(segment_index_bytes=1 << 20)
    monkeypatch.setattr(producer_replay, "prepare_producer", turns.counting(producer_replay.prepare_producer))
    encode = turns.counting(producer_snapshot_files.encode_snapshot)
    monkeypatch.setattr(producer_snapshot_files, "encode_snapshot", encode if producers > 1 else producer_snapshot_files.encode_snapshot)
    assert await cut(log, batches - 1, turns)
    assert max(turns.here) == 0 and turns.elsewhere >= batches - 1
    newest = {offset % producers: offset for offset in range(batches - 1)}
    assert {producer_id: entry.last_offset for producer_id, entry in log.producer_state.entries.items()} == newest
    assert (log.log_end_offset, log.producer_state.end_offset) == (batches - 1, batches - 1)
    append(log, 1, producers)


async def test_a_short_replay_needs_no_thread(open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, turns: Turns) -> None:
    monkeypatch.setattr("minikafka.storage.producer_state.COPY_BATCHES", 50)
    log = open_log(segment_index_bytes=1 << 20)
    append(log, 70)
    append(log, 30)
    assert log.prepare_truncation(90, T0) is None
    monkeypatch.setattr(truncation, "REPLAYED_AT_ONCE_BYTES", 500)
    assert log.prepare_truncation(90, T0) is not None
    assert log.prepare_truncation(100, T0) is None and log.prepare_truncation(70, T0) is None


async def test_a_preparation_for_a_log_that_was_cut_meanwhile_has_no_effect(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_index_bytes=1 << 20)
    append(log, 2000, 2)
    prepared = log.prepare_truncation(1990, T0)
    assert prepared is not None
    for piece in prepared.pieces():
        piece()
    log.truncate_to(1000, T0)
    append(log, 2000, 5)
    log.truncate_to(1990, T0, prepared)
    prepared.release()
    assert {n: entry.last_offset for n, entry in log.producer_state.entries.items()} == {n: 1985 + n for n in range(5)}


async def test_a_log_that_is_closed_meanwhile_ends_the_preparation(open_log: Callable[..., Log], turns: Turns) -> None:
    log = open_log(segment_index_bytes=1 << 20)
    append(log, 2000, 2)

    async def run(piece: Callable[[], object]) -> None:
        piece()
        log.close()

    with pytest.raises(LogClosed):
        await truncate(log, 1990, lambda: T0, run, lambda: True)


class Renames(MemoryFileSystem):
    """Tells `turns` of renames and of files that are opened."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns

    def rename(self, source: str, target: str) -> None:
        self.turns.note()
        super().rename(source, target)


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_turn_drops_few_segments(open_log: Callable[..., Log], turns: Turns, is_whole: bool) -> None:
    """Each is a truncation of its own: a process that is killed between two leaves a log without gaps."""
    disk = Renames(turns)
    log = open_log(disk, segment_bytes=300)
    while len(log.segments) < 60:
        append(log, 2)
    ends: list[int] = []

    def is_due() -> bool:
        killed = open_log(disk.kill(), is_clean=False, segment_bytes=300)
        ends.append(killed.log_end_offset)
        assert killed.log_end_offset == log.log_end_offset
        return turns.is_due()

    turns.here = [0]
    if is_whole:
        assert await truncate_fully(log, 5000, lambda: T0, turns.run_blocking, is_due)
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (5000, 5000, 1)
    else:
        assert await truncate(log, 3, lambda: T0, turns.run_blocking, is_due)
        assert (log.log_end_offset, len(log.segments) <= 2) == (3, True)
    assert max(turns.here) <= 5 * DROPPED_AT_ONCE + 1 and len(ends) >= 7
    await sync_cut(log, turns.run_blocking)
    append(log, 1)


async def test_the_file_of_the_epochs_is_written_elsewhere_when_it_shrinks(open_log: Callable[..., Log], turns: Turns) -> None:
    disk = Renames(turns)
    log = open_log(disk)
    for epoch in range(12):
        append(log, 1, epoch=epoch)
    log.flush()
    turns.here = [0]
    before = disk.read(EPOCHS)
    assert await cut(log, 4, turns)
    assert max(turns.here) == 0 and disk.read(EPOCHS) == before
    await sync_cut(log, turns.run_blocking)
    assert disk.read(EPOCHS) == b"0\n4\n0 0\n1 1\n2 2\n3 3\n" and disk.names[EPOCHS].durable == disk.read(EPOCHS)
    assert not [name for name in disk.names if name.endswith(".tmp")] and not log.epochs.is_stale


async def test_epochs_that_were_written_meanwhile_stay(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    for epoch in range(6):
        append(log, 1, epoch=epoch)
    log.truncate_to(4, T0)
    task = log.prepare_cut_sync()
    assert task is not None
    task.run()
    log.assign_epoch_start(9, 4)
    task.finish()
    assert log.durability.is_flush_requested
    log.flush()
    assert disk.read(EPOCHS) == b"0\n5\n0 0\n1 1\n2 2\n3 3\n9 4\n"
    assert not [name for name in disk.names if name.endswith(".tmp")]


@pytest.mark.parametrize("end", ["nothing", "append", "flush"])
async def test_epochs_without_records_go_out_of_the_file(
    open_log: Callable[..., Log], disk: MemoryFileSystem, turns: Turns, end: str
) -> None:
    """A start would take later records of an older epoch for those of the epoch that was truncated."""
    log = open_log()
    append(log, 3, epoch=1)
    log.assign_epoch_start(5, 3)
    log.flush()
    assert await cut(log, 3, turns) and log.epochs.entries == [(1, 0)]
    if end == "nothing":
        await sync_cut(log, turns.run_blocking)
        assert not log.epochs.is_stale and disk.read(EPOCHS) == b"0\n1\n1 0\n"
    append(log, 2, epoch=1)
    if end == "flush":
        log.flush()
    assert open_log(disk.kill(), is_clean=False, recovery_point=log.recovery_point).epochs.entries == [(1, 0)]


def many_producers(open_log: Callable[..., Log]) -> Log:
    log = open_log(segment_index_bytes=1 << 20)
    append(log, PRODUCERS, PRODUCERS)
    return log


def test_a_snapshot_of_many_producers_is_written_with_the_next_flush(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = many_producers(open_log)
    end = log.log_end_offset
    log.roll(T0)
    path = log.producer_state.snapshots.path(end)
    assert not disk.exists(path) and log.durability.is_flush_requested
    for sequence in (1, 2):
        log.append_as_leader(memoryview(batch(b"v", producer=(3, 0, sequence), timestamp=T0)), 0, T0)
    task = log.prepare_flush()
    assert task is not None
    log.append_as_leader(memoryview(batch(b"v", producer=(3, 0, 3), timestamp=T0)), 0, T0)
    task.run()
    assert end not in log.producer_state.snapshots.offsets
    task.finish()
    entries = {entry.producer_id: entry for entry in decode_snapshot(disk.read(path))}
    assert len(entries) == PRODUCERS and entries[3].last_offset == 3 and log.producer_state.snapshots.offsets == [end]
    assert log.producer_state.entries[3].last_sequence == 3
    kept = log.producer_state.entries[3]
    log.append_as_leader(memoryview(batch(b"v", producer=(3, 0, 4), timestamp=T0)), 0, T0)
    assert log.producer_state.entries[3] is kept, "nothing is copied any more"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_snapshot_behind_a_cut_gets_no_name(open_log: Callable[..., Log], disk: MemoryFileSystem, when: str) -> None:
    """What is appended later has other producers at its offset."""
    log = many_producers(open_log)
    end = log.log_end_offset
    log.roll(T0)
    task = log.prepare_flush()
    assert task is not None
    if when == "after":
        task.run()
    log.truncate_to(end - 1, T0)
    if when == "before":
        task.run()
    task.finish()
    assert log.producer_state.snapshots.pending == [] or all(write.offset < end for write in log.producer_state.snapshots.pending)
    assert not disk.exists(log.producer_state.snapshots.path(end)) and end not in log.producer_state.snapshots.offsets
    log.flush()
    assert not [name for name in disk.names if name.endswith(".tmp")]


async def test_a_snapshot_at_a_cut_gets_no_name_after_a_deeper_cut(
    open_log: Callable[..., Log], disk: MemoryFileSystem, turns: Turns
) -> None:
    """No segment begins there, so nothing else would cancel it."""
    log = many_producers(open_log)
    log.close()
    log = open_log(segment_index_bytes=1 << 20)
    end = log.log_end_offset
    assert await cut(log, end - 10, turns)
    assert [write.offset for write in log.producer_state.snapshots.pending] == [end - 10]
    assert await cut(log, end - 20, turns)
    log.flush()
    assert not disk.exists(log.producer_state.snapshots.path(end - 10)) and end - 10 not in log.producer_state.snapshots.offsets


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_snapshot_of_a_segment_that_retention_drops_gets_no_name(open_log: Callable[..., Log], disk: MemoryFileSystem, when: str) -> None:
    """It belonged to no segment, and stayed until the next start."""
    log = many_producers(open_log)
    dropped = log.log_end_offset
    log.roll(T0)
    log.append_as_leader(memoryview(batch(b"v", producer=(3, 0, 1), timestamp=T0)), 0, T0)
    task = log.prepare_flush()
    assert task is not None
    if when == "after":
        task.run()
    log.roll(T0)
    log.append_as_leader(memoryview(batch(b"v", producer=(3, 0, 2), timestamp=T0)), 0, T0)
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(log.log_end_offset)
    log.delete_old_segments(T0)
    assert len(log.segments) == 1
    if when == "before":
        task.run()
    task.finish()
    log.flush()
    bases = {f"{base:020d}.snapshot" for base in (log.segments.active.base_offset, log.log_end_offset)}
    snapshots = {name.rpartition("/")[2] for name in disk.names if name.endswith(".snapshot")}
    assert snapshots <= bases and dropped not in log.producer_state.snapshots.offsets
    assert not [name for name in disk.names if name.endswith(".tmp")]


def test_closing_writes_the_snapshots_that_wait(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = many_producers(open_log)
    log.roll(T0)
    log.close()
    assert len(open_log().producer_state.entries) == PRODUCERS
    assert not [name for name in disk.names if name.endswith(".tmp")]


@pytest.mark.parametrize("field", ["last_offset", "txn_first_offset"])
def test_a_snapshot_of_batches_behind_its_offset_is_not_believed(open_log: Callable[..., Log], disk: MemoryFileSystem, field: str) -> None:
    log = open_log()
    append(log, 10)
    log.close()
    path = log.producer_state.snapshots.path(10)
    entry = ProducerSnapshotEntry(0, 0, 9, 9, 0, T0, -1, -1)
    disk.write(path, encode_snapshot([entry._replace(**{field: 10})]))
    with pytest.raises(CorruptFile):
        log.producer_state.snapshots.read(10)
    found = open_log().producer_state.entries[0]
    assert (found.last_offset, found.txn_first_offset) == (9, -1)


async def test_what_a_reader_still_holds_is_copied_elsewhere(open_log: Callable[..., Log], disk: MemoryFileSystem, turns: Turns) -> None:
    log = open_log(segment_index_bytes=1 << 20)
    log.append_as_follower(memoryview(b"".join(bytes(batch(b"v" * 100, base_offset=n, epoch=0)) for n in range(50))))
    piece = log.read(0, 1 << 20, end_offset=50).slice
    held = piece.read()
    done: list[bool] = []
    real = truncation.CutCopy.run

    def run(copy: truncation.CutCopy) -> None:
        done.append(turns.is_elsewhere)
        real(copy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncation.CutCopy, "run", run)
        assert await cut(log, 20, turns)
    assert done == [True] and piece.read() == held and log.log_end_offset == 20
    assert not [name for name in disk.names if name.endswith(".tmp")]
    piece.release()
    prepared_for_nothing = log.prepare_truncation(10, T0)
    assert prepared_for_nothing is None


@pytest.mark.parametrize("first", ["made", "under way"])
def test_copies_for_two_truncations_have_nothing_in_common(open_log: Callable[..., Log], disk: MemoryFileSystem, first: str) -> None:
    """The leader changed while the first was made. Its thread goes on meanwhile."""
    log = open_log(segment_index_bytes=1 << 20)
    log.append_as_follower(memoryview(b"".join(bytes(batch(b"old", base_offset=n, epoch=0)) for n in range(50))))
    piece = log.read(0, 1 << 20, end_offset=50).slice
    earlier = log.prepare_truncation(40, T0)
    assert earlier is not None
    real, calls = FileSlice.copy_to, 0

    def cut_for_another_leader() -> None:
        later = log.prepare_truncation(20, T0)
        assert later is not None
        for one in later.pieces():
            one()
        if first == "made":
            earlier.release()
        log.truncate_to(20, T0, later)
        later.release()
        log.append_as_follower(memoryview(b"".join(bytes(batch(b"new", base_offset=n, epoch=1)) for n in range(20, 35))))

    def copy_to(slice_: FileSlice, file: File) -> None:
        nonlocal calls
        calls += 1
        if calls == 1 and first == "under way":
            cut_for_another_leader()
        real(slice_, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSlice, "copy_to", copy_to)
        for one in earlier.pieces():
            one()
        if first == "made":
            cut_for_another_leader()
    earlier.release()
    assert log.failure is None
    found = log.read(0, 1 << 20, end_offset=35).slice.read()
    assert (found.count(b"old"), found.count(b"new")) == (20, 15)
    assert not [name for name in disk.names if name.endswith(".tmp")]
    piece.release()


@pytest.mark.parametrize("first", ["written", "under way", "not begun"])
def test_files_of_epochs_of_two_truncations_have_nothing_in_common(
    open_log: Callable[..., Log], disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    log = open_log()
    for epoch in range(40):
        append(log, 1, epoch=epoch)
    log.flush()
    log.truncate_to(30, T0)
    earlier = log.prepare_cut_sync()
    assert earlier is not None
    real = epoch_cache.write_all

    def cut_again() -> None:
        monkeypatch.setattr(epoch_cache, "write_all", real)
        log.truncate_to(20, T0)
        later = log.prepare_cut_sync()
        assert later is not None
        later.run()
        later.finish()

    def write_all(file: File, data: Buffer, position: int) -> None:
        cut_again()
        real(file, data, position)

    if first == "under way":
        monkeypatch.setattr(epoch_cache, "write_all", write_all)
    elif first == "not begun":
        cut_again()
    earlier.run()
    if first == "written":
        cut_again()
    earlier.finish()
    assert log.epochs.is_stale and log.durability.is_flush_requested
    log.flush()
    assert not log.epochs.is_stale and disk.read(EPOCHS).split(b"\n")[1] == b"20"
    assert not [name for name in disk.names if name.endswith(".tmp")]


async def test_a_cancelled_truncation_releases_nothing_that_a_thread_still_uses(
    open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    log = open_log(segment_index_bytes=1 << 20)
    log.append_as_follower(memoryview(b"".join(bytes(batch(b"v" * 100, base_offset=n, epoch=0)) for n in range(50))))
    piece = log.read(0, 1 << 20, end_offset=50).slice
    begun, may_end, done = asyncio.Event(), asyncio.Event(), []

    async def run_in_a_thread(function: Callable[[], None]) -> None:
        begun.set()
        await may_end.wait()
        done.append(function())

    def run_blocking(function: Callable[[], None]) -> asyncio.Future[None]:
        """As that of the broker: who cancels the wait does not end the thread."""
        return asyncio.shield(asyncio.ensure_future(run_in_a_thread(function)))

    task = asyncio.ensure_future(truncate(log, 20, lambda: T0, run_blocking, lambda: True))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait([task])
    assert task.cancelled() and done == [None] and log.log_end_offset == 50
    assert not [name for name in disk.names if name.endswith(".tmp")]
    piece.release()
