"""Truncation goes on from a copy of the producer state in memory. What it arrives at is what a replay of the log from its start gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from helpers.batches import T0, batch, marker
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage import producer_replay, producer_state, truncation
from minikafka.storage.log import Log
from minikafka.storage.producer_copies import COPIED_MAX, COPIED_TOGETHER_MAX, COPIES_MAX, COPY_BATCHES, ProducerCopies
from minikafka.storage.producer_state import ProducerEntry

TRANSACTIONAL = 0x10
#: Producers of leader's batches, which are idempotent; those below take part in transactions.
PLAIN = 100


@dataclass
class Producer:
    """One producer, as the model knows it."""

    epoch: int = -1
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    coordinator_epoch: int = -1
    begun_at: int = -1

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, []


@dataclass(frozen=True)
class Written:
    """A batch of the log. `sequence` is -1 for a marker."""

    first: int
    last: int
    producer_id: int
    epoch: int
    sequence: int
    is_transactional: bool

    def bytes(self) -> bytearray:
        if self.sequence < 0:
            return marker(self.producer_id, self.epoch, abort=True, base_offset=self.first, epoch=0, coordinator_epoch=self.epoch)
        return batch(
            *[b"v"] * (self.last - self.first + 1), producer=(self.producer_id, self.epoch, self.sequence), base_offset=self.first,
            attributes=TRANSACTIONAL * self.is_transactional, epoch=0,
        )  # fmt: skip


def replayed(written: list[Written]) -> dict[int, Producer]:
    """The producers after these batches."""
    producers: dict[int, Producer] = {}
    for each in written:
        producer = producers.setdefault(each.producer_id, Producer())
        producer.set_epoch(each.epoch)
        if each.sequence < 0:
            producer.coordinator_epoch, producer.begun_at = each.epoch, -1
            continue
        delta = each.last - each.first
        producer.batches = [*producer.batches, (each.sequence + delta, each.last, delta, T0)][-5:]
        if each.is_transactional and producer.begun_at < 0:
            producer.begun_at = each.first
    return producers


class Story:
    """A log that is appended to and truncated, beside the list of its batches."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.random = random.Random(seed)
        self.written: list[Written] = []
        self.starts = [0]
        self.restored = self.prepared = 0

    def fetch(self) -> None:
        """A follower's fetch of some batches."""
        data, end, now = bytearray(), self.log.log_end_offset, replayed(self.written)
        for _ in range(self.random.randrange(1, 7)):
            producer_id = self.random.randrange(4)
            known = now.get(producer_id, Producer(0))
            is_end = known.begun_at >= 0 and self.random.random() < 0.4
            epoch = known.epoch + (self.random.random() < 0.1)
            sequence = -1 if is_end else known.batches[-1][0] + 1 if known.batches and epoch == known.epoch else 0
            last = end if is_end else end + self.random.randrange(3)
            is_transactional = not is_end and (known.begun_at >= 0 or self.random.random() < 0.5)
            self.written.append(Written(end, last, producer_id, epoch, sequence, is_transactional))
            data += self.written[-1].bytes()
            now, end = replayed(self.written), last + 1
        self.log.append_as_follower(memoryview(data))

    def produce(self) -> None:
        """A leader's append, which changes a producer's entry in place if it just goes on."""
        producer_id = PLAIN + self.random.randrange(2)
        known = replayed(self.written).get(producer_id, Producer(0))
        sequence, end = known.batches[-1][0] + 1 if known.batches else 0, self.log.log_end_offset
        self.written.append(Written(end, end, producer_id, 0, sequence, is_transactional=False))
        data = self.written[-1].bytes()
        data[:8] = bytes(8)
        self.log.append_as_leader(memoryview(data), 0, T0)

    def truncate(self, *, without_snapshots: bool) -> None:
        log = self.log
        cut = self.random.randrange(log.log_start_offset, log.log_end_offset + 1)
        if without_snapshots:
            log.producer_state.snapshots.clear()
        prepared = log.prepare_truncation(cut, T0)
        if prepared is None:
            log.truncate_to(cut, T0)
        else:
            self.prepared += 1
            for piece in prepared.pieces():
                piece()
                if self.random.random() < 0.3:  # the log stays in use
                    self.produce()
                if self.random.random() < 0.3:
                    log.update_high_watermark(cut)
            assert log.truncate_to(cut, T0, prepared)
            prepared.release()
        self.written = [each for each in self.written if each.last < cut]
        self.restored += any(offset <= cut for offset in log.producer_state.copies.offsets)
        assert log.log_end_offset == cut
        self.check(is_exact=without_snapshots)

    def raise_log_start(self) -> None:
        log = self.log
        log.update_high_watermark(log.log_end_offset)
        log.increment_log_start_offset(self.random.randrange(log.log_start_offset, log.high_watermark + 1))
        log.delete_old_segments(T0)
        self.starts.append(log.log_start_offset)
        assert all(offset > log.log_start_offset for offset in log.producer_state.copies.offsets)

    def check(self, *, is_exact: bool) -> None:
        """Compare with a replay, from the log's start or from what was its start at some time: what was written before may be known or not.
        A state that came from a snapshot may have only the last batch of a producer."""
        log, entries = self.log, self.log.producer_state.entries
        from_starts = [replayed([each for each in self.written if each.last >= start]) for start in self.starts]
        found = {
            producer_id: Producer(entry.epoch, entry.batches, entry.coordinator_epoch, entry.txn_first_offset)
            for producer_id, entry in entries.items()
        }
        if not is_exact:
            for producer in (*found.values(), *(producer for producers in from_starts for producer in producers.values())):
                producer.batches = producer.batches[-1:]
        assert found in from_starts
        begun = [(producer_id, entry.txn_first_offset) for producer_id, entry in entries.items() if entry.txn_first_offset >= 0]
        assert log.producer_state.open_transactions() == sorted(begun, key=lambda pair: pair[1])
        assert all(offset <= log.log_end_offset for offset in log.producer_state.copies.offsets)


@pytest.mark.parametrize("seed", range(40))
def test_a_truncation_arrives_at_what_a_replay_from_the_start_gives(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(producer_state, "COPY_BATCHES", 1 + seed % 7)
    monkeypatch.setattr(truncation, "REPLAYED_AT_ONCE_BYTES", 0)
    story = Story(open_log(segment_bytes=[1000, 1 << 20][seed % 2]), seed)
    for _ in range(120):
        kind = story.random.random()
        if kind < 0.4:
            story.fetch()
        elif kind < 0.75:
            story.produce()
        elif kind < 0.8:
            story.log.roll(T0)
        elif kind < 0.85:
            story.log.update_high_watermark(story.log.log_end_offset)
        elif kind < 0.87 and seed % 4 > 1:
            story.raise_log_start()
        elif kind > 0.9:
            story.truncate(without_snapshots=seed % 3 > 0)
    assert story.restored and story.prepared


def append(log: Log, batches: int, together: int = 7, size: int = 1) -> None:
    """A follower's fetches of so many batches, one record each, of one producer."""
    first = log.log_end_offset
    for start in range(first, first + batches, together):
        data = bytearray()
        for offset in range(start, min(start + together, first + batches)):
            data += batch(b"v" * size, producer=(7, 0, offset), base_offset=offset, epoch=0)
        log.append_as_follower(memoryview(data))


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the batches that truncations replay."""
    seen: list[int] = []
    prepare = producer_replay.prepare_producer

    def count(*arguments: object) -> None:
        seen.append(arguments[4][0])  # type: ignore[index]
        prepare(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(producer_replay, "prepare_producer", count)
    return seen


@pytest.mark.parametrize("restart", ["none", "killed"])
def test_a_truncation_replays_the_batches_after_the_nearest_copy(
    open_log: Callable[..., Log], disk: MemoryFileSystem, replays: list[int], restart: str
) -> None:
    """A follower with 45,000 batches in its active segment read all of them in one turn of the event loop."""
    log = open_log(segment_index_bytes=1 << 20)
    append(log, 9000)
    if restart == "killed":
        log = open_log(disk.kill(), is_clean=False, segment_index_bytes=1 << 20)
    for cut_off in (100, 1, 1000, 3000):
        replays.clear()
        log.truncate_to(log.log_end_offset - cut_off, T0)
        assert log.producer_state.entries[7].last_offset == log.log_end_offset - 1
        assert len(replays) <= max(COPY_BATCHES + 7, 2 * cut_off)
    append(log, 3000)
    replays.clear()
    log.truncate_to(log.log_end_offset - 10, T0)
    assert len(replays) <= COPY_BATCHES + 7


def test_large_batches_are_copied_after_fewer(open_log: Callable[..., Log]) -> None:
    """Replaying them means reading them."""
    log = open_log(segment_index_bytes=1 << 20)
    append(log, 300, together=10, size=64 << 10)
    assert log.producer_state.copies.offsets == [230]


def test_a_copy_is_of_the_end_of_a_fetch(open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "COPY_BATCHES", 5)
    log = open_log()
    append(log, 12, together=12)
    assert log.producer_state.copies.offsets == [12]
    append(log, 12, together=4)
    assert log.producer_state.copies.offsets == [12, 20]
    assert [fields[5:][-4:] for fields in log.producer_state.copies.newest.producers()] == [(19, 19, 0, T0)]  # type: ignore[union-attr]


def test_a_completed_transaction_stays_unstable_over_a_copy(open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marker is in the log, but not replicated."""
    monkeypatch.setattr(producer_state, "COPY_BATCHES", 4)
    log = open_log()
    data = batch(b"v", producer=(7, 0, 0), attributes=TRANSACTIONAL, epoch=0)
    data += marker(7, 0, abort=False, base_offset=1, epoch=0)
    for offset in range(2, 6):
        data += batch(b"v", producer=(8, 0, offset), base_offset=offset, epoch=0)
    log.append_as_follower(memoryview(data))
    append(log, 2)
    log.update_high_watermark(1)
    assert log.producer_state.copies.offsets == [6]
    log.truncate_to(7, T0)
    assert log.last_stable_offset == log.producer_state.first_unstable_offset == 0
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2 and log.producer_state.first_unstable_offset is None


def test_a_producer_that_expired_comes_back_as_of_the_cut_or_not_at_all(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "COPY_BATCHES", 4)
    log = open_log()
    append(log, 11, together=1)
    log.producer_state.entries.clear()
    log.truncate_to(10, T0)
    entry = log.producer_state.entries.get(7)
    assert log.producer_state.copies.offsets == [4, 8] and (entry is None or entry.last_offset == 9)


def test_a_log_that_begins_anew_has_no_copies(open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "COPY_BATCHES", 4)
    log = open_log()
    append(log, 20, together=1)
    assert log.producer_state.copies.offsets
    log.truncate_fully_and_start_at(10, T0)
    assert log.producer_state.copies.newest is None and log.producer_state.entries == {}
    append(log, 2)
    log.truncate_to(11, T0)
    assert log.producer_state.entries[7].batches == [(10, 10, 0, T0)]


def test_a_snapshot_on_disk_is_not_written_again_for_a_copy(
    open_log: Callable[..., Log], disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "COPY_BATCHES", 4)
    log = open_log()
    append(log, 20, together=1)
    log.truncate_to(18, T0)
    assert [int(name[-29:-9]) for name in sorted(disk.names) if name.endswith(".snapshot")] == [18]
    log.close()
    assert open_log().producer_state.entries[7].last_offset == 17


def entries(count: int) -> list[ProducerEntry]:
    made = [ProducerEntry(number) for number in range(count)]
    for entry in made:
        for sequence in range(5):
            entry.add_batch(0, sequence, sequence, 0, T0)
    return made


@pytest.mark.parametrize("producers", [0, 1, 100, COPIED_MAX])
def test_copies_are_bounded_and_close_to_each_other_near_the_end(producers: int) -> None:
    copies, of, interval, last = ProducerCopies(), entries(producers), 2048, 60
    for number in range(1, last + 1):
        copies.add(number * interval, of, ())
        assert len(copies.offsets) <= COPIES_MAX and len(copies.offsets) * producers <= COPIED_TOGETHER_MAX
    offsets = copies.offsets
    assert offsets[-1] == last * interval and offsets == sorted(offsets)
    assert len(offsets) == min(COPIES_MAX, COPIED_TOGETHER_MAX // max(producers, 1))
    for lower, upper in pairwise(offsets):
        assert upper - lower <= max(interval, offsets[-1] - upper)
    if producers <= 100:
        assert offsets[0] <= last * interval // 2


def test_a_state_of_very_many_producers_or_transactions_is_not_copied() -> None:
    copies = ProducerCopies()
    copies.add(10, entries(COPIED_MAX + 1), ())
    copies.add(10, [], tuple((number, number) for number in range(COPIED_MAX + 1)))
    assert copies.newest is None
    copies.add(10, entries(COPIED_MAX), ())
    copies.add(10, [], ())
    copies.add(9, [], ())
    assert copies.offsets == [10]


def test_a_copy_gives_the_entries_back() -> None:
    copies, made = ProducerCopies(), entries(3)
    made[0] = ProducerEntry(1 << 62)
    made[1].epoch, made[1].coordinator_epoch, made[1].txn_first_offset, made[1].last_timestamp = 0x7FFF, 1 << 30, 1 << 62, -(1 << 60)
    made[2].batches = [(-1, 1 << 62, 0x7FFFFFFF, -1)]
    copies.add(10, made, ())
    assert copies.newest is not None
    back = [ProducerEntry.from_copy(fields) for fields in copies.newest.producers()]
    names = [name for name in ProducerEntry.__slots__ if not name.startswith("seen")]
    assert [[getattr(entry, name) for name in names] for entry in back] == [[getattr(entry, name) for name in names] for entry in made]
