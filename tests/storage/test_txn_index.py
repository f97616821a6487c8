"""The index of aborted transactions, of which clients may make as many as they like: every look reads a bounded part of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch, marker
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

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
        found = [entry for entry in expected if entry.last_offset >= offset]
        some = generator.randrange(len(found) + 1)
        iterator = index.from_offset(offset)
        assert [next(iterator) for _ in range(some)] == found[:some]
        if generator.random() < 0.5:
            assert list(iterator) == found[some:]
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
        assert next(index.from_offset(offset)).last_offset == offset // 3 * 3 + 2
        assert disk.bytes_read <= (_PAGE_ENTRIES + 2 * count.bit_length()) * _SIZE
    disk.bytes_read = 0
    assert list(index.from_offset(3 * count)) == [] and disk.bytes_read == 0, "behind the last there is nothing to look for"
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
