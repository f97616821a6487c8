"""Idempotent producers and transactions: sequences, duplicates, epochs, the last stable offset, snapshots."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.batches import T0, batch, marker
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.errors import CorruptFile
from minikafka.storage.log import Log
from minikafka.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from minikafka.storage.producer_state import INT32_MAX
from minikafka.storage.types import AppendInfo
from minikafka.wire.errors import ApiError, ErrorCode

TRANSACTIONAL = 0x10


def send(log: Log, sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0, **fields: int) -> AppendInfo:
    data = batch(*(values or (b"v",)), producer=(producer_id, epoch, sequence), **fields)
    info = log.append_as_leader(memoryview(data), 0, T0)
    log.update_high_watermark(log.log_end_offset)
    return info


def end(log: Log, *, abort: bool, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> AppendInfo:
    data = marker(producer_id, epoch, abort=abort, coordinator_epoch=coordinator_epoch)
    return log.append_as_leader(memoryview(data), 0, T0, origin="coordinator")


def refused(log: Log, sequence: int, code: ErrorCode, **fields: int) -> None:
    before = (log.log_end_offset, log.size, log.producer_state.entries.get(7) and log.producer_state.entries[7].batches)
    with pytest.raises(ApiError) as error:
        send(log, sequence, **fields)
    assert error.value.code == code
    after = (log.log_end_offset, log.size, log.producer_state.entries.get(7) and log.producer_state.entries[7].batches)
    assert before == after


def test_the_last_five_batches_are_recognised(open_log: Callable[..., Log]) -> None:
    log = open_log()
    for sequence in range(6):
        send(log, sequence)
    for sequence in range(1, 6):
        info = send(log, sequence)
        assert info.is_duplicate and info.first_offset == info.last_offset == sequence
    refused(log, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert log.log_end_offset == 6


def test_gaps_and_overlaps_are_refused(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, b"a", b"b", b"c")
    refused(log, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    refused(log, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert send(log, 3).first_offset == 3


def test_epochs_fence(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, epoch=2)
    refused(log, 1, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=1)
    refused(log, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=3)
    assert send(log, 0, epoch=3).first_offset == 1


def test_sequences_wrap(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, INT32_MAX - 1, b"a", b"b", b"c")
    assert log.producer_state.entries[7].last_sequence == 0
    assert send(log, INT32_MAX - 1, b"a", b"b", b"c").is_duplicate
    assert send(log, 1).first_offset == 3
    other = open_log(MemoryFileSystem())
    send(other, INT32_MAX)
    assert send(other, 0).first_offset == 1


def test_an_unknown_producer_may_start_anywhere(open_log: Callable[..., Log]) -> None:
    log = open_log()
    assert send(log, 5).first_offset == 0
    refused(log, 7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_transactions_bound_the_last_stable_offset(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, attributes=TRANSACTIONAL)
    send(log, 0, producer_id=8, attributes=TRANSACTIONAL)
    log.append_as_leader(memoryview(batch(b"plain")), 0, T0)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0
    end(log, abort=True)
    assert log.last_stable_offset == 0, "the marker is not replicated yet"
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1
    end(log, abort=False, producer_id=8)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert [tuple(entry) for entry in log.aborted_transactions(0, 5)] == [(7, 0, 3, 1)]


def test_a_marker_without_data_aborts_nothing(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log()
    end(log, abort=True, epoch=4)
    assert log.aborted_transactions(0, 10) == []
    assert not any(name.endswith(".txnindex") for name in disk.names)
    refused(log, 0, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=3)


def test_markers_are_fenced_by_producer_and_coordinator_epoch(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, epoch=1, attributes=TRANSACTIONAL)
    with pytest.raises(ApiError) as stale:
        end(log, abort=True, epoch=0)
    assert stale.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, abort=True, epoch=1, coordinator_epoch=5)
    with pytest.raises(ApiError) as fenced:
        end(log, abort=True, epoch=1, coordinator_epoch=4)
    assert fenced.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_bumped_epoch_in_the_marker_starts_sequences_anew(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, attributes=TRANSACTIONAL)
    end(log, abort=False, epoch=1)
    refused(log, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=1, attributes=TRANSACTIONAL)
    assert send(log, 0, epoch=1, attributes=TRANSACTIONAL).first_offset == 2


def test_plain_data_inside_of_a_transaction_is_refused(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, attributes=TRANSACTIONAL)
    refused(log, 1, ErrorCode.INVALID_TXN_STATE)


def test_followers_take_any_sequence(open_log: Callable[..., Log]) -> None:
    log = open_log()
    fetched = batch(b"a", producer=(7, 3, 100), epoch=0) + batch(b"b", producer=(7, 2, 900), epoch=0, base_offset=1)
    info = log.append_as_follower(memoryview(fetched))
    assert (info.batches, log.log_end_offset) == (2, 2)


def test_a_follower_learns_transactions_within_one_fetch(open_log: Callable[..., Log]) -> None:
    leader, follower = open_log(), open_log(MemoryFileSystem())
    send(leader, 0, attributes=TRANSACTIONAL)
    end(leader, abort=True)
    send(leader, 1, attributes=TRANSACTIONAL)
    follower.append_as_follower(memoryview(leader.read(0, 9999, end_offset=3).slice.read()))
    assert follower.aborted_transactions(0, 9) == leader.aborted_transactions(0, 9) != []
    follower.update_high_watermark(3)
    assert follower.last_stable_offset == leader.last_stable_offset == 2


def test_a_follower_indexes_transactions_of_one_fetch_as_the_leader_and_recovery_do(
    open_log: Callable[..., Log], disk: MemoryFileSystem
) -> None:
    """What began behind a marker does not count for its last stable offset, though the follower learns of both at once."""
    leader, follower = open_log(disk), open_log(MemoryFileSystem())
    for sequence in range(2):
        send(leader, sequence, attributes=TRANSACTIONAL)
        end(leader, abort=True)
    send(leader, 0, producer_id=8, attributes=TRANSACTIONAL)
    follower.append_as_follower(memoryview(leader.read(0, 9999, end_offset=5).slice.read()))
    recovered = open_log(disk.kill(), is_clean=False)
    expected = [(7, 0, 1, 2), (7, 2, 3, 4)]
    for log in (leader, follower, recovered):
        assert [tuple(entry) for entry in log.aborted_transactions(0, 9)] == expected
        assert len(log.aborted_transactions(0, 3)) == 2


def test_an_index_of_an_apache_kafka_follower_hides_nothing(open_log: Callable[..., Log]) -> None:
    """Apache Kafka's follower takes a transaction that began behind the marker for one that was open then."""
    log = open_log()
    for sequence in range(2):
        send(log, sequence, attributes=TRANSACTIONAL)
        end(log, abort=True)
    index = log.segments[0].txn_index
    entries = [entry._replace(last_stable_offset=4) for entry in index.entries]
    index.truncate_to(0)
    index.append(entries)
    assert len(log.aborted_transactions(0, 3)) == 2
    assert len(log.aborted_transactions(0, 2)) == 1


@pytest.mark.parametrize("cut_at", [4, 5])
def test_truncation_to_the_high_watermark_leaves_transactions_stable(open_log: Callable[..., Log], cut_at: int) -> None:
    log = open_log()
    for sequence in range(2):
        send(log, sequence, attributes=TRANSACTIONAL)
        end(log, abort=False)
        log.update_high_watermark(log.log_end_offset)
    for sequence in range(2):
        log.append_as_leader(memoryview(batch(b"lost", producer=(8, 0, sequence))), 0, T0)
    assert log.last_stable_offset == log.high_watermark == 4
    assert log.truncate_to(cut_at)
    assert log.last_stable_offset == log.high_watermark == 4


def test_state_survives_recovery_with_and_without_snapshots(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    log = open_log(segment_bytes=300)
    for sequence in range(12):
        send(log, sequence, attributes=TRANSACTIONAL)
    log.flush()
    assert log.producer_state.snapshots.offsets
    for keep in (True, False):
        copy = disk.kill()
        for name in list(copy.names):
            if name.endswith(".snapshot") and not keep:
                copy.unlink(name)
        again = open_log(copy, is_clean=False, segment_bytes=300)
        entry = again.producer_state.entries[7]
        assert (entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset) == (0, 11, 11, 0)
        assert again.producer_state.first_unstable_offset == 0
        assert send(again, 11, attributes=TRANSACTIONAL).is_duplicate


@pytest.mark.parametrize("stop", ["clean", "killed twice", "in another segment"])
def test_the_last_five_batches_are_recognised_after_a_restart_too(
    open_log: Callable[..., Log], disk: MemoryFileSystem, stop: str
) -> None:
    """A snapshot holds one batch of a producer; one whose answers were lost with the broker may repeat five."""
    config = {"segment_bytes": 900 if stop == "in another segment" else 1 << 20, "index_interval_bytes": 100}
    log = open_log(**config)
    for sequence in range(12):
        send(log, sequence)
    log.flush()
    log.close()
    if stop == "killed twice":
        disk = disk.kill()
        open_log(disk, is_clean=False, **config)
        disk = disk.kill()
    again = open_log(disk, is_clean=stop == "clean", **config)
    end = again.log_end_offset
    for sequence in (9, 7, 8, 11, 10):
        info = send(again, sequence)
        assert (info.is_duplicate, info.first_offset) == (True, sequence)
    with pytest.raises(ApiError) as refused:
        send(again, 3)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and again.log_end_offset == end
    assert not send(again, 12).is_duplicate


def test_silent_producers_expire_unless_in_a_transaction(open_log: Callable[..., Log]) -> None:
    log = open_log(producer_id_expiration_ms=1000)
    send(log, 0)
    send(log, 0, producer_id=8, attributes=TRANSACTIONAL)
    log.producer_state.expire(T0 + 10, 10)
    log.producer_state.expire(T0 + 999, 1010)
    assert sorted(log.producer_state.entries) == [7, 8]
    log.producer_state.expire(T0 + 1000, 1009)
    assert sorted(log.producer_state.entries) == [7, 8]
    log.producer_state.expire(T0 + 1000, 1010)
    assert sorted(log.producer_state.entries) == [8]


def test_producers_at_work_do_not_expire_whatever_the_times_say(open_log: Callable[..., Log]) -> None:
    """Their records may have old times, and the wall clock may be set forward."""
    log = open_log(producer_id_expiration_ms=1000)
    ahead = T0 + 1_000_000_000
    for sequence in range(5):
        send(log, sequence)
        log.producer_state.expire(ahead, 900 * sequence)
        assert send(log, sequence).is_duplicate
    log.producer_state.expire(ahead, 900 * 4 + 1000)
    assert not log.producer_state.entries


def test_truncation_takes_producers_back(open_log: Callable[..., Log]) -> None:
    log = open_log(segment_bytes=300)
    for sequence in range(12):
        send(log, sequence)
    log.truncate_to(5)
    assert log.producer_state.entries[7].last_sequence == 4
    assert all(offset <= 5 for offset in log.producer_state.snapshots.offsets)
    assert send(log, 5).first_offset == 5


def test_snapshot_damage_is_noticed() -> None:
    data = encode_snapshot([ProducerSnapshotEntry(1, 0, 5, 50, 2, T0, -1, -1)])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptFile):
            decode_snapshot(bytes(damaged))
    for cut in range(len(data)):
        with pytest.raises(CorruptFile):
            decode_snapshot(data[:cut])


def test_a_partition_remembers_so_many_producers(open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without an open transaction that were silent for longest are forgotten, as if they had expired: they may go on."""
    monkeypatch.setattr("minikafka.storage.producer_state.PRODUCERS_MAX", 32)
    log = open_log()
    send(log, 0, producer_id=1000, attributes=TRANSACTIONAL)
    for producer_id in range(32):
        send(log, 0, producer_id=producer_id, timestamp=T0 + producer_id)
    remembered = log.producer_state.entries
    assert 30 <= len(remembered) <= 32 and 1000 in remembered and 0 not in remembered and 31 in remembered
    send(log, 1, producer_id=31)
    send(log, 1, producer_id=0)
    assert 0 in remembered
