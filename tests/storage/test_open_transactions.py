"""Transactions that hold the last stable offset back, against a model; a log with very many of them comes back in good time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.storage.batch_scan import _plain_marker_of, marker_of
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.open_transactions import OpenTransactions
from minikafka.storage.producer_state import ProducerStateManager, ProducerUpdate
from minikafka.wire.batch import HEADER, LOG_APPEND_TIME, RecordBatch, build_batch, set_max_timestamp
from minikafka.wire.compression import CompressionType
from minikafka.wire.control import ControlType, end_transaction_batch

PRODUCERS = 6


class Model:
    """The same by looking at everything."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.ended: dict[int, int] = {}

    @property
    def first_offset(self) -> int | None:
        return min((*self.open, *self.ended), default=None)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_offset_is_that_of_looking_at_everything(seed: int) -> None:
    chance = random.Random(seed)
    tried, model, high_watermark = OpenTransactions(), Model(), 0
    for offset in range(1, 300):
        act = chance.random()
        if act < 0.4:
            tried.begin(offset, offset % PRODUCERS)
            model.open[offset] = offset % PRODUCERS
        elif act < 0.75 and model.open:
            first = chance.choice(list(model.open))
            tried.end(first, offset)
            del model.open[first]
            model.ended[first] = offset
        elif act < 0.97:
            high_watermark = chance.randint(high_watermark, offset)
            gone = [first for first, marker in model.ended.items() if marker < high_watermark]
            for first in gone:
                del model.ended[first]
            assert tried.replicated(high_watermark) is bool(gone)
        else:
            tried.restore(dict(chance.sample(list(model.open.items()), len(model.open))))
            model.ended.clear()
        assert tried.first_offset == model.first_offset
        assert tried.first_open == min(model.open, default=None)
        assert list(tried) == sorted(model.open.items())
        assert bool(tried) is bool(model.open or model.ended)


def test_an_end_without_a_beginning_is_none() -> None:
    """Its beginning lies before the log's start."""
    tried = OpenTransactions()
    tried.end(5, 9)
    assert not tried and tried.first_offset is None


def _spent_s(work: Callable[[], None]) -> float:
    best = 1e9
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def test_many_that_are_not_replicated_cost_no_more_each_than_few() -> None:
    """A recovery knows no high watermark: each transaction of the log waits until it ends. Looked at one by one, 200,000 took minutes."""

    def replay(count: int) -> Callable[[], None]:
        def work() -> None:
            tried = OpenTransactions()
            for number in range(count):
                tried.begin(2 * number, 1)
                tried.end(2 * number, 2 * number + 1)
                assert tried.first_offset == 0
            tried.replicated(2 * count)
            assert not tried

        return work

    assert _spent_s(replay(20_000)) < 40 * _spent_s(replay(1000))


def _manager(directory: Path, name: str) -> ProducerStateManager:
    return ProducerStateManager(OsFileSystem(), str(directory), name, 1 << 40)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_replayed_is_what_was_appended(tmp_path: Path, seed: int) -> None:
    """Checks apart, a batch that stands in the log changes what a new one changes."""
    chance = random.Random(seed)
    appended, replayed = _manager(tmp_path, "a"), _manager(tmp_path, "b")
    offset, epochs = 0, [0] * PRODUCERS
    for _ in range(300):
        producer_id, update = chance.randrange(PRODUCERS), ProducerUpdate()
        epoch = epochs[producer_id]
        if chance.random() < 0.6:
            last, transactional = offset + chance.randrange(3), producer_id > 1
            sequence = chance.choice((-1, chance.randrange(1 << 31)))
            appended.prepare_batch(
                update, producer_id, epoch, sequence, offset, last, offset, transactional, check_epoch=False, check_sequence=False
            )
            replayed.replay_batch(producer_id, epoch, sequence, offset, last, offset, transactional)
            completed = None
        else:
            last, is_abort = offset, chance.random() < 0.5
            epochs[producer_id] += chance.randrange(2)
            epoch = epochs[producer_id]
            appended.prepare_marker(update, producer_id, epoch, is_abort, 3, offset, offset, check_epoch=False)
            completed = replayed.replay_marker(producer_id, epoch, is_abort, 3, offset, offset)
        appended.publish(update)
        assert update.completed == ([] if completed is None else [completed])
        if completed is not None:
            assert appended.last_stable_offset_after(completed) == replayed.last_stable_offset_after(completed)
            appended.complete(completed)
            replayed.complete(completed)
        offset = last + 1
        for manager in (appended, replayed):
            manager.advance(offset)
        assert appended.first_unstable_offset == replayed.first_unstable_offset
        assert appended.open_transactions() == replayed.open_transactions()
        assert [entry.snapshot() for entry in appended.entries.values()] == [entry.snapshot() for entry in replayed.entries.values()]


def test_a_plain_marker_is_read_in_a_short_way_and_everything_else_in_the_ordinary_one() -> None:
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        batch = memoryview(end_transaction_batch(kind, producer_id=7, producer_epoch=3, coordinator_epoch=11, timestamp=1_700_000_000_000))
        short = _plain_marker_of(batch, HEADER.unpack_from(batch))
        assert short == (kind is ControlType.ABORT, 11, 1_700_000_000_000) == marker_of(RecordBatch(batch))
    key, value = b"\0\0\0\1", b"\0\0\0\0\0\5"
    others = [
        [(0, 9, b"\0\0\0\2", value, ())],
        [(0, 9, key, value, (("h", b""),))],
        [(0, 9, key, value, ()), (1, 9, key, value, ())],
        [(0, 9, key, value + b"\0", ())],
        [(0, 9, key, None, ())],
    ]
    for records in others:
        batch = memoryview(build_batch(records, is_control=True, is_transactional=True, producer_id=1, producer_epoch=1, base_sequence=-1))
        assert _plain_marker_of(batch, HEADER.unpack_from(batch)) is None
    appended = bytearray(end_transaction_batch(ControlType.ABORT, producer_id=7, producer_epoch=3, coordinator_epoch=1, timestamp=5))
    set_max_timestamp(appended, 0, LOG_APPEND_TIME, 9)
    assert _plain_marker_of(memoryview(appended), HEADER.unpack_from(appended)) is None
    packed = memoryview(build_batch(others[1], compression=CompressionType.GZIP, is_control=True, producer_id=1, producer_epoch=1))
    assert _plain_marker_of(packed, HEADER.unpack_from(packed)) is None
