"""Very many aborted transactions in few bytes: no answer has, and no look walks over, more than a bounded number of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch, marker
from helpers.cold_disk import looked_up
from helpers.replica_world import SilentEvents

from minikafka.broker.partitions import fetch_read
from minikafka.broker.partitions.fetch_read import READ_COMMITTED, FetchParams, PartitionRead, PartitionReader
from minikafka.broker.partitions.partition import LeaderRules, Partition
from minikafka.broker.share import fetch_read as share_fetch_read
from minikafka.core.fetch_session import FetchPartition
from minikafka.core.metadata.image import PartitionRegistration, empty_image
from minikafka.sim.disk import Disk, DiskView
from minikafka.storage.config import LogConfig
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import iterate_batches

TRANSACTIONAL = 0x10
MAX = 5
#: Two transactions at a time: of producer 7, and of producer 8, which begins before and ends behind it.
ROUNDS = 20


@pytest.fixture
def partition() -> Partition:
    disk = DiskView(Disk())
    disk.mkdir("/data/t-0")
    log = load_log(disk, "/data/t-0", "t", 0, LogConfig(index_interval_bytes=100), wall_ms=0)
    rules = LeaderRules(broker_id=1, lag_ms_max=1000, is_eligible=lambda *_: True)
    made = Partition(SilentEvents(), rules, "t", bytes(16), 0, log)
    made.make_leader(PartitionRegistration((1,), (1,), 1, 0, 0), 1, 0)
    for number in range(ROUNDS):
        for producer_id in (8, 7):
            data = batch(b"v", producer=(producer_id, 0, number), attributes=TRANSACTIONAL)
            log.append_as_leader(memoryview(data), 0, T0)
        for producer_id in (7, 8):
            abort = marker(producer_id, 0, abort=producer_id == 7 or number % 3 > 0)
            log.append_as_leader(memoryview(abort), 0, T0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)
    return made


@pytest.fixture
def reader(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> PartitionReader:
    monkeypatch.setattr(fetch_read, "ABORTED_MAX", MAX)
    replicas: Any = SimpleNamespace(require=lambda *_: partition, throttles=SimpleNamespace(leader=SimpleNamespace(is_active=False)))
    return PartitionReader(replicas, is_rack_aware=False)


def read_committed(reader: PartitionReader, offset: int) -> PartitionRead:
    wanted = FetchPartition("t", bytes(16), 0)
    wanted.fetch_offset, wanted.max_bytes = offset, 1 << 20
    params = FetchParams(-1, -1, READ_COMMITTED, "", by_id=False, may_read_follower=True, listener="L")
    return looked_up(lambda look: reader.read(wanted, params, 1 << 20, True, 0, empty_image(), look))


def test_a_read_ends_where_it_has_enough_aborted_transactions_and_the_next_goes_on(partition: Partition, reader: PartitionReader) -> None:
    offset, committed, reads = 0, list[int](), 0
    while offset < partition.log.log_end_offset:
        result = read_committed(reader, offset)
        assert result.slice is not None and result.aborted is not None and len(result.aborted) <= MAX + 2
        for one in iterate_batches(memoryview(result.slice.read())):
            is_aborted = any(
                entry.producer_id == one.producer_id and entry.first_offset <= one.base_offset <= entry.last_offset
                for entry in result.aborted
            )
            if not one.is_control and not is_aborted:
                committed.append(one.base_offset)
            offset = one.next_offset
        result.release()
        reads += 1
    assert committed == [4 * number for number in range(0, ROUNDS, 3)], "nothing aborted is seen, and all that is not"
    assert reads >= 6


@pytest.mark.parametrize("aborted", [MAX, MAX + 1, 3 * MAX])
def test_a_read_with_many_aborted_transactions_ends_before_an_open_one(partition: Partition, reader: PartitionReader, aborted: int) -> None:
    """Their markers are behind the last stable offset, and the read was made to end behind one of them: it gave out what was open."""
    log, start = partition.log, partition.log.log_end_offset
    for number in range(aborted):
        data = batch(b"v", producer=(100 + number, 0, 0), attributes=TRANSACTIONAL)
        log.append_as_leader(memoryview(data), 0, T0)
    stable = log.append_as_leader(memoryview(batch(b"open", producer=(99, 0, 0), attributes=TRANSACTIONAL)), 0, T0).first_offset
    for number in range(aborted):
        log.append_as_leader(memoryview(marker(100 + number, 0, abort=True)), 0, T0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == stable
    result = read_committed(reader, start)
    assert result.slice is not None and result.aborted is not None
    offsets = [one.base_offset for one in iterate_batches(memoryview(result.slice.read()))]
    assert offsets == list(range(start, stable)) and len(result.aborted) == aborted
    result.release()


def test_a_share_fetch_finds_the_transaction_of_each_batch(partition: Partition) -> None:
    log = partition.log
    read = share_fetch_read.read(partition, 0, 1000, 1 << 20, is_read_committed=True)
    entries = log.aborted_transactions(0, log.log_end_offset)
    expected = [
        (one.base_offset, one.last_offset)
        for one in read.batches
        if not one.is_control
        and any(entry.producer_id == one.producer_id and entry.first_offset <= one.base_offset <= entry.last_offset for entry in entries)
    ]
    assert list(read.fetched.aborted) == expected and len(expected) == ROUNDS + sum(number % 3 > 0 for number in range(ROUNDS))
