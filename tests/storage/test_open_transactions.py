"""Open transactions, and completed ones that are not stable: what a step costs if there are many, and a comparison with a plain model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from helpers.batches import batch, marker
from helpers.memory_filesystem import MemoryFile, MemoryFileSystem

from minikafka.storage.log import Log
from minikafka.storage.open_transactions import CompletedTransaction, OpenTransactions
from minikafka.storage.producer_state import ProducerStateManager, ProducerUpdate

TRANSACTIONAL = 0x10


class CountedOffset(int):
    """An offset that counts how often any of them is compared or hashed."""

    looks = 0

    def _counted(name: str) -> Callable[..., object]:  # type: ignore[misc]
        method = getattr(int, name)

        def count(self: int, *others: int) -> object:
            CountedOffset.looks += 1
            return method(self, *others)

        return count

    __lt__, __le__, __gt__, __ge__, __eq__, __hash__ = map(  # type: ignore[assignment]
        _counted, ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__hash__")
    )


def looks_for(transactions: int, *, hanging: bool) -> int:
    """How often offsets are looked at while a log's transactions are replayed one by one, of two producers that take turns, beside one
    that stays open."""
    producers = ProducerStateManager(MemoryFileSystem(), "/data/t-0", "t-0", 1 << 40)
    CountedOffset.looks = 0
    offset = 0
    if hanging:
        update = ProducerUpdate()
        update.started.append((99, CountedOffset(0)))
        producers.complete(update)
        offset = 1
    previous = None
    for number in range(transactions):
        update = ProducerUpdate()
        update.started.append((number % 2, CountedOffset(offset)))
        if previous is not None:
            update.completed.append(CompletedTransaction(1 - number % 2, previous, CountedOffset(offset + 1), is_aborted=True))
        producers.complete(update)
        producers.advance(offset + 2)
        previous, offset = CountedOffset(offset), offset + 2
    producers.on_high_watermark(offset)
    assert len(producers.open_transactions()) == 1 + hanging
    assert producers.transactions.first_unstable() == producers.open_transactions()[0][1]
    return CountedOffset.looks


@pytest.mark.parametrize("hanging", [False, True], ids=["none hangs", "one hangs"])
def test_a_transaction_costs_the_same_however_many_are_not_stable(hanging: bool) -> None:
    """Nothing becomes stable during recovery: 3,000 transactions in each of 24 logs took minutes."""
    few, many = looks_for(100, hanging=hanging), looks_for(1000, hanging=hanging)
    assert many < 15 * few


def test_a_transaction_that_hangs_keeps_few_that_ended_in_memory() -> None:
    transactions = OpenTransactions()
    transactions.begin(99, 0)
    for offset in range(1, 10_001, 2):
        transactions.begin(1, offset)
        transactions.complete(CompletedTransaction(1, offset, offset + 1, is_aborted=False))
        assert transactions.stabilize(offset + 2)
    assert transactions.first_unstable() == transactions.first_open() == 0
    # A number, because a mutant changes ENDED_MAX.
    assert max(len(transactions._begun), len(transactions._first)) <= 2 + 64 + 1


def test_transactions_in_any_order_cost_little_more() -> None:
    """A damaged log may begin each before all others."""
    looks = []
    for count in (100, 1000):
        transactions = OpenTransactions()
        CountedOffset.looks = 0
        for number in range(count):
            transactions.begin(number, CountedOffset(count - number))
            assert transactions.first_unstable() == count - number
        looks.append(CountedOffset.looks)
    assert looks[1] < 20 * looks[0]


class Opens(MemoryFileSystem):
    """A disk that notes which files were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.paths.append(path)
        return super().open(path, create=create, read_only=read_only)

    @contextmanager
    def index_opens(self, most: int) -> Iterator[None]:
        self.paths.clear()
        yield
        assert 0 < sum(path.endswith(".txnindex") for path in self.paths) <= most


def aborted(transactions: int) -> bytearray:
    """Batches of that many transactions of one producer, each with one record and an abort marker."""
    data = bytearray()
    for number in range(transactions):
        data += batch(b"v", producer=(7, 0, number), attributes=TRANSACTIONAL, base_offset=2 * number, epoch=0)
        data += marker(7, 0, abort=True, base_offset=2 * number + 1, epoch=0)
    return data


def test_the_aborted_transactions_of_a_fetch_are_written_together(open_log: Callable[..., Log]) -> None:
    disk = Opens()
    log = open_log(disk)
    with disk.index_opens(2):  # one finds that there is no file yet
        log.append_as_follower(memoryview(aborted(50)))
    entries = log.aborted_transactions(0, 100)
    assert [tuple(entry) for entry in entries] == [(7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(50)]
    assert len(disk.read("/data/t-0/00000000000000000000.txnindex")) == 50 * 34


def test_the_aborted_transactions_of_a_recovered_segment_are_written_together(open_log: Callable[..., Log]) -> None:
    disk = Opens()
    log = open_log(disk)
    log.append_as_follower(memoryview(aborted(50)))
    before = log.aborted_transactions(0, 100)
    with disk.index_opens(1):
        again = open_log(disk, is_clean=False)
    assert again.aborted_transactions(0, 100) == before and len(before) == 50


class Model:
    """What `OpenTransactions` promises, by looking at all transactions each time."""

    def __init__(self) -> None:
        #: first offset -> (producer id, offset of the marker or None)
        self.known: dict[int, tuple[int, int | None]] = {}

    def open(self) -> list[tuple[int, int]]:
        return sorted(((producer, first) for first, (producer, end) in self.known.items() if end is None), key=lambda pair: pair[1])

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        older = [first for producer, first in self.open() if producer != completed.producer_id and first <= completed.last_offset]
        return min(older, default=completed.last_offset + 1)

    def stabilize(self, high_watermark: int) -> None:
        self.known = {first: (producer, end) for first, (producer, end) in self.known.items() if end is None or end >= high_watermark}


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_transactions_agrees_with_a_plain_model(seed: int) -> None:
    generator, model, transactions = random.Random(seed), Model(), OpenTransactions()
    offset = high_watermark = 0
    known = [(first, producer) for producer, first in enumerate(generator.sample(range(100), seed % 5))]
    transactions.load(known)
    model.known = {first: (producer, None) for first, producer in known}
    offset = 100
    for _ in range(200):
        open_now = dict(model.open())
        kind = generator.randrange(3)
        producer = generator.randrange(8)
        if kind == 0 and producer not in open_now:
            # Now and then one that begins before the others, as a damaged log may say.
            first = offset if generator.random() < 0.9 else 1000 + generator.randrange(9000)
            if first not in model.known:
                transactions.begin(producer, first)
                model.known[first] = (producer, None)
        elif kind == 1 and open_now:
            producer = generator.choice(sorted(open_now))
            completed = CompletedTransaction(producer, open_now[producer], offset, is_aborted=True)
            stable = model.last_stable_offset_after(completed)
            transactions.complete(completed)
            assert transactions.last_stable_offset_after(completed) == stable
            model.known[open_now[producer]] = (producer, offset)
        else:
            high_watermark = max(high_watermark, generator.randrange(offset - 20, offset + 1))
            before = len(model.known)
            model.stabilize(high_watermark)
            assert transactions.stabilize(high_watermark) is (len(model.known) < before)
        offset += generator.randrange(1, 4)
        assert transactions.open() == model.open()
        assert transactions.first_open() == min((first for _, first in model.open()), default=None)
        assert transactions.first_unstable() == min(model.known, default=None)
    transactions.clear()
    assert transactions.open() == [] and transactions.first_unstable() is None and not transactions.stabilize(1 << 40)
