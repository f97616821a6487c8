"""The index of aborted transactions, of which clients may make as many as they like: every look reads a bounded part of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch, marker
from helpers.cleaning import clean
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.storage import txn_index
from minikafka.storage.config import INT64_MAX
from minikafka.storage.log import Log
from minikafka.storage.txn_index import _PAGE_ENTRIES, _SIZE, TransactionIndex
from minikafka.storage.types import AbortedTransaction

PATH = "/data/t-0/00000000000000000000.txnindex"
TRANSACTIONAL = 0x10


class Counting(MemoryFileSystem):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.mkdir("/data/t-0")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        pread = file.pread

        def counted(count: int, position: int, /) -> bytes:
            data = pread(count, position)
            self.bytes_read += len(data)
            return data

        file.pread = counted  # type: ignore[method-assign]
        return file

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.bytes_read += len(data)
        return data


def entries_of(count: int, start: int = 0) -> list[AbortedTransaction]:
    """Transactions of three offsets each, one after the other."""
    return [AbortedTransaction(7 + n % 3, 3 * n, 3 * n + 2, 3 * n + 3) for n in range(start, start + count)]


def filled(disk: MemoryFileSystem, count: int) -> TransactionIndex:
    index = TransactionIndex(disk, PATH)
    index.append(entries_of(count))
    return index


@pytest.mark.parametrize("count", [0, 1, 2, _PAGE_ENTRIES - 1, _PAGE_ENTRIES, _PAGE_ENTRIES + 1, 5 * _PAGE_ENTRIES + 7])
def test_entries_are_found_from_any_offset_after_any_change(count: int) -> None:
    """Compared with a list, with a page of any place in memory, or none."""
    disk, generator = Counting(), random.Random(count)
    index, expected = filled(disk, count), entries_of(count)
    for _ in range(60):
        offset = generator.randrange(-1, 3 * len(expected) + 3)
        end = generator.choice((INT64_MAX, offset + generator.randrange(1, 3 * _PAGE_ENTRIES)))
        found = [entry for entry in expected if entry.last_offset >= offset and entry.first_offset < end]
        some = generator.randrange(1, len(found) + 2)
        assert index.search(offset, end, some)[0] == found[:some]
        if generator.random() < 0.5:
            assert index.search(offset, end)[0] == found
        change = generator.random()
        if change < 0.15:
            added = entries_of(generator.choice((1, 3, _PAGE_ENTRIES)), len(expected))
            index.append(added)
            expected += added
        elif change < 0.3:
            cut = max(generator.randrange(-5, 3 * len(expected) + 3), 0)
            index.truncate_to(cut)
            expected = [entry for entry in expected if entry.last_offset < cut]
        elif change < 0.4:
            index.forget()
        elif change < 0.5:
            index = TransactionIndex(disk, PATH)
    assert index.entries == expected
    TransactionIndex(disk, PATH).check(0)


def test_a_look_reads_a_page_at_most_however_many_there_are() -> None:
    """The whole file was read on the loop, and kept: a million were a second and 200 MB."""
    disk = Counting()
    count = 40 * _PAGE_ENTRIES
    filled(disk, count)
    index = TransactionIndex(disk, PATH)
    for offset in (0, 3 * count // 2, 3 * count - 1):
        disk.bytes_read = 0
        ((found,), _) = index.search(offset, INT64_MAX, 1)
        assert found.last_offset == offset // 3 * 3 + 2
        assert disk.bytes_read <= (_PAGE_ENTRIES + 2 * count.bit_length()) * _SIZE
    disk.bytes_read = 0
    assert index.search(3 * count, INT64_MAX) == ([], False) and disk.bytes_read == 0, "behind the last there is nothing to look for"
    assert (
        sum(len(getattr(index, name)) for name in index.__slots__ if isinstance(getattr(index, name, None), bytes)) <= _PAGE_ENTRIES * _SIZE
    )


def test_aborted_transactions_can_be_asked_for_some_at_a_time(open_log: Callable[..., Log]) -> None:
    log = open_log()
    for number in range(9):
        data = batch(b"v", producer=(7, 0, number), attributes=TRANSACTIONAL, epoch=0)
        log.append_as_leader(memoryview(data), 0, T0)
        log.append_as_leader(memoryview(marker(7, 0, abort=True)), 0, T0, origin="coordinator")
        if number % 4 == 3:
            log.roll(T0)
    log.update_high_watermark(log.log_end_offset)
    whole = log.aborted_transactions(0, 18)
    assert len(whole) == 9
    found, start = [], 0
    while some := log.aborted_transactions(start, 18, 2):
        assert len(some) <= 2
        found += some
        start = some[-1].last_offset + 1
    assert found == whole


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_look_passes_over_pages_of_what_began_too_late(is_loaded: bool) -> None:
    """While one transaction was open, others began and ended: each fetch of records between its begin and its end looked at all of them,
    and who kept it open decided how many they were."""
    disk = Counting()
    count = 40 * _PAGE_ENTRIES
    index = TransactionIndex(disk, PATH)
    late = [AbortedTransaction(7, 2 * n + 10, 2 * n + 11, 3) for n in range(count)]
    open_long = AbortedTransaction(8, 3, 2 * count + 20, 2 * count + 21)
    index.append(late)
    index.append([open_long])
    if is_loaded:
        index = TransactionIndex(disk, PATH)
        index.check(0)
    for start, end, expected in ((0, 5, [open_long]), (0, 12, [late[0], open_long]), (0, 3, []), (1010, 1012, [late[500], open_long])):
        index.forget()
        disk.bytes_read = 0
        assert index.search(start, end)[0] == expected
        assert disk.bytes_read <= (3 * _PAGE_ENTRIES + 2 * count.bit_length()) * _SIZE


def test_a_compacted_segment_knows_where_its_aborted_transactions_began(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be found out by reading all of its index, on the loop."""
    monkeypatch.setattr(txn_index, "_PAGE_ENTRIES", 4)
    disk = Counting()
    log = open_log(disk, cleanup_policy=frozenset({"compact"}))
    world = Transactions(log, random.Random(1), rolls=False)
    log.append_as_leader(memoryview(batch(b"v", producer=(99, 0, 0), attributes=TRANSACTIONAL)), 0, T0)
    for _ in range(800):
        world.change()
    for producer_id in (*world.open, 99):
        log.append_as_leader(memoryview(marker(producer_id, 0, abort=True)), 0, T0, origin="coordinator")
    log.roll(T0)
    log.update_high_watermark(log.log_end_offset)
    clean(log, wall_ms=T0)
    assert disk.size(log.segments[0].txn_index.path) > 100 * _SIZE
    disk.bytes_read = 0
    assert [one.producer_id for one in log.aborted_transactions(0, 1)] == [99]
    assert disk.bytes_read < 40 * _SIZE


class Transactions:
    """A log of transactions of several producers, and what is known of the aborted ones without any index."""

    def __init__(self, log: Log, generator: random.Random, *, rolls: bool = True) -> None:
        self.log, self.generator, self.roll_below = log, generator, 0.95 if rolls else 0.0
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}
        #: (producer id, first offset, offset of the marker, whether it was aborted)
        self.ended: list[tuple[int, int, int, bool]] = []

    def change(self) -> None:
        generator, log = self.generator, self.log
        producer_id, kind, offset = generator.randrange(5), generator.random(), log.log_end_offset
        if kind < 0.5:
            sequence = self.sequences.get(producer_id, 0)
            data = batch(*[b"v"] * generator.randrange(1, 3), producer=(producer_id, 0, sequence), attributes=TRANSACTIONAL)
            info = log.append_as_leader(memoryview(data), 0, T0, requires_sequence_checks=False)
            self.sequences[producer_id] = sequence + info.last_offset - info.first_offset + 1
            self.open.setdefault(producer_id, offset)
        elif kind < 0.9:
            is_abort = generator.random() < 0.8
            log.append_as_leader(memoryview(marker(producer_id, 0, abort=is_abort)), 0, T0, origin="coordinator")
            first_offset = self.open.pop(producer_id, None)
            if first_offset is not None:
                self.ended.append((producer_id, first_offset, offset, is_abort))
        elif log.segments.active.size and kind < self.roll_below:
            log.roll(T0)

    def truncate(self, offset: int) -> None:
        """To an offset at which a batch begins or ends."""
        self.log.truncate_to(offset)
        self.open = {producer_id: first for producer_id, first in self.open.items() if first < offset}
        self.open.update((producer_id, first) for producer_id, first, last, _ in self.ended if first < offset <= last)
        self.ended = [one for one in self.ended if one[2] < offset]

    def aborted(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Those that overlap [start, end)."""
        return [one[:3] for one in self.ended if one[3] and one[2] >= start and one[1] < end]


@pytest.mark.parametrize("seed", range(60))
def test_all_that_were_aborted_in_a_range_are_found(open_log: Callable[..., Log], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any range of any log, over pages and segments, as loaded or as written."""
    monkeypatch.setattr(txn_index, "_PAGE_ENTRIES", 3)
    generator = random.Random(seed)
    log = open_log()
    world = Transactions(log, generator)
    for _ in range(generator.randrange(20, 200)):
        world.change()
        if generator.random() < 0.02 and world.ended:
            world.truncate(generator.choice(world.ended)[2])
        if generator.random() < 0.02:
            world.log.close()
            world.log = open_log(is_clean=generator.random() < 0.5)
        for _ in range(4):
            start = generator.randrange(world.log.log_end_offset + 1)
            end = start + generator.choice((1, 2, 5, 1000))
            expected = world.aborted(start, end)
            assert [one[:3] for one in world.log.aborted_transactions(start, end)] == expected
            assert [one[:3] for one in world.log.aborted_transactions(start, end, 2)] == expected[:2]
