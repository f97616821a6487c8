"""What a read_committed reader is given, against what the batches say: whatever is appended, replicated, rolled, compacted, truncated,
deleted or recovered, and however few bytes each fetch asks for, the records of committed transactions below the last stable offset, and no
byte from there on."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch, marker
from helpers.cleaning import clean
from helpers.cold_disk import looked_up
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.partitions import fetch_read
from minikafka.broker.partitions.fetch_read import READ_COMMITTED, FetchParams, PartitionRead, PartitionReader
from minikafka.broker.share import fetch_read as share_fetch_read
from minikafka.core.fetch_session import FetchPartition
from minikafka.core.metadata.image import empty_image
from minikafka.storage import txn_index
from minikafka.storage.cleaner import cleaning_need
from minikafka.storage.config import LogConfig
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.wire.errors import ErrorCode

TRANSACTIONAL, CONTROL = 0x10, 0x20
PRODUCERS = 4
ROUNDS = 60


class Written:
    """A batch of one record, as it was written. `marker`: the offset of the marker that ended its transaction."""

    def __init__(self, offset: int, *, is_transactional: bool) -> None:
        self.offset, self.is_transactional = offset, is_transactional
        self.marker: int | None = None
        self.is_aborted = False


class Found:
    """A batch in the bytes of an answer, which may have only a part of it."""

    def __init__(self, data: bytes) -> None:
        self.base = int.from_bytes(data[:8], "big")
        self.size = 12 + int.from_bytes(data[8:12], "big") if len(data) >= 61 else len(data)
        self.is_whole = 61 <= self.size <= len(data)
        self.attributes = int.from_bytes(data[21:23], "big")
        self.last = self.base + int.from_bytes(data[23:27], "big", signed=True)
        self.producer_id = int.from_bytes(data[43:51], "big", signed=True)
        self.has_record = int.from_bytes(data[57:61], "big") > 0
        #: Of a control batch: its record's key ends with the kind, before a value of six bytes and no header.
        self.is_abort = bool(self.attributes & CONTROL) and data[: self.size][-10:-8] == b"\0\0"


def split(data: bytes) -> list[Found]:
    found, position = [], 0
    while position < len(data):
        found.append(Found(data[position:]))
        position += found[-1].size
    return found


def delivered(batches: list[Found], aborted: list[tuple[int, int]]) -> list[int]:
    """The offsets of the records that a consumer takes from one answer (CompletedFetch of Apache Kafka's client)."""
    waiting, ignored, taken = sorted((first, producer_id) for producer_id, first in aborted), set[int](), list[int]()
    for one in batches:
        while waiting and waiting[0][0] <= one.last:
            ignored.add(waiting.pop(0)[1])
        if one.attributes & CONTROL:
            if one.is_abort:
                ignored.discard(one.producer_id)
        elif one.has_record and not (one.attributes & TRANSACTIONAL and one.producer_id in ignored):
            taken.append(one.base)
    return taken


class Replica:
    """A log, on a disk of its own."""

    def __init__(self, config: LogConfig) -> None:
        self.disk, self.config, self.checkpoint = MemoryFileSystem(), config, 0
        #: Markers below count as replicated: a snapshot of producers, from which a start or a truncation goes on, does not have those
        #: that are not. What they decide is safe with the coordinator. So it is with Apache Kafka.
        self.decided_to = 0
        self.log = self._load(is_clean=True, recovery_point=0, log_start_offset=0, high_watermark=0)

    def _load(self, **found: Any) -> Log:
        return load_log(self.disk, "/data/t-0", "t", 0, self.config, wall_ms=T0, **found)

    def restart(self, *, is_killed: bool) -> None:
        log = self.log
        if is_killed:
            self.disk = self.disk.kill()
        else:
            log.close()
        self.log = self._load(
            is_clean=not is_killed,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
        self.decided_to = self.log.log_end_offset

    def compact(self) -> None:
        need = cleaning_need(self.log, self.checkpoint, T0)
        if not self.config.is_compacted or not need.dirty_bytes:
            return
        self.checkpoint = clean(self.log, self.checkpoint, T0)

    def batches(self) -> list[Found]:
        return [one for segment in self.log.segments for one in split(segment.slice(0, segment.size).read())]


class World:
    """A leader and a follower."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        policy = generator.choice(("delete", "compact"))
        config = LogConfig(
            segment_bytes=generator.choice((400, 1000, 5000)), index_interval_bytes=generator.choice((1, 100, 400)),
            segment_index_bytes=1200, retention_ms=-1, cleanup_policy=frozenset({policy}), delete_retention_ms=generator.choice((0, 1)),
            min_cleanable_dirty_ratio=0.0, producer_id_expiration_ms=1 << 60, file_delete_delay_ms=0,
        )  # fmt: skip
        self.leader, self.follower = Replica(config), Replica(config)
        self.written: list[Written] = []
        self.open: dict[int, list[Written]] = {}
        self.sequence = 0

    def change(self) -> None:
        actions = (self.append, 10), (self.end, 5), (self.commit, 4), (self.replicate, 5), (self.roll, 1), (self.delete, 1), (
            self.restart, 1), (self.compact, 1), (self.truncate, 1)  # fmt: skip
        self.generator.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()

    def append(self) -> None:
        """Mostly of a transaction."""
        kind, log = self.generator.random(), self.leader.log
        producer_id = self.generator.randrange(PRODUCERS) if kind < 0.8 else 90
        one = Written(log.log_end_offset, is_transactional=kind < 0.8)
        producer = (producer_id, 0, self.sequence) if kind < 0.9 else (-1, -1, -1)
        data = batch(
            b"v" * self.generator.choice((1, 1, 150)), key=b"%d" % one.offset, producer=producer,
            attributes=TRANSACTIONAL if one.is_transactional else 0,
        )  # fmt: skip
        log.append_as_leader(memoryview(data), 0, T0, requires_sequence_checks=False)
        self.sequence += 1
        self.written.append(one)
        if one.is_transactional:
            self.open.setdefault(producer_id, []).append(one)

    def end(self) -> None:
        """Sometimes there is no transaction."""
        producer_id, is_abort, log = self.generator.randrange(PRODUCERS), self.generator.random() < 0.6, self.leader.log
        for one in self.open.pop(producer_id, []):
            one.marker, one.is_aborted = log.log_end_offset, is_abort
        log.append_as_leader(memoryview(marker(producer_id, 0, abort=is_abort)), 0, T0, origin="coordinator")

    def commit(self) -> None:
        log = self.leader.log
        log.update_high_watermark(self.generator.randint(log.high_watermark, log.log_end_offset))

    def replicate(self) -> None:
        leader, follower = self.leader.log, self.follower.log
        if follower.log_end_offset < leader.log_start_offset:
            follower.truncate_fully_and_start_at(leader.log_start_offset)
        size = self.generator.choice((1, 200, 1000, 5000))
        follower.append_as_follower(memoryview(bytearray(
            leader.read(follower.log_end_offset, size, end_offset=leader.log_end_offset).slice.read()
        )))  # fmt: skip
        follower.update_high_watermark(min(leader.high_watermark, follower.log_end_offset))
        follower.increment_log_start_offset(min(leader.log_start_offset, follower.high_watermark))

    def any(self) -> Replica:
        return self.generator.choice((self.leader, self.follower))

    def roll(self) -> None:
        log = self.any().log
        if log.segments.active.size:
            log.roll(T0)

    def delete(self) -> None:
        """DeleteRecords."""
        log = self.leader.log
        log.increment_log_start_offset(self.generator.randint(log.log_start_offset, (log.log_start_offset + log.high_watermark) // 2))
        log.delete_old_segments(T0)
        log.delete_files(T0)

    def restart(self) -> None:
        self.any().restart(is_killed=self.generator.random() < 0.7)

    def compact(self) -> None:
        self.any().compact()

    def truncate(self) -> None:
        """What the follower has above its high watermark."""
        log = self.follower.log
        ends = [one.last + 1 for one in self.follower.batches() if one.last >= log.high_watermark]
        if ends:
            log.truncate_to(self.generator.choice([log.high_watermark, *ends]))
            self.follower.decided_to = log.log_end_offset

    # -- what must hold

    def check_stable(self, replica: Replica) -> None:
        """Records that were deleted, or compacted away before the follower got them, count or do not: not every replica knows of them."""
        log, known = replica.log, {one.base for one in replica.batches() if one.base >= replica.log.log_start_offset}
        undecided = [
            (one.offset, one.marker is None or one.marker >= max(log.high_watermark, replica.decided_to)) for one in self.written
            if one.is_transactional and one.offset < log.log_end_offset and (one.marker is None or one.marker >= log.high_watermark)
        ]  # fmt: skip
        least = max(min([offset for offset, _ in undecided] + [log.high_watermark]), log.log_start_offset)
        most = min([offset for offset, is_open in undecided if is_open and offset in known] + [log.high_watermark])
        assert least <= log.last_stable_offset <= most

    def check_all(self, replica: Replica) -> None:
        """Read from an offset to the end, as one consumer, and as a share group."""
        generator, log = self.generator, replica.log
        self.check_stable(replica)
        offset = generator.randint(log.log_start_offset, log.last_stable_offset)
        expected = [
            one.offset for one in self.written
            if offset <= one.offset < log.last_stable_offset and not one.is_aborted
        ]  # fmt: skip
        assert self.shared(replica, offset) == expected
        taken: list[int] = []
        while offset < log.last_stable_offset:
            result = self.read(log, offset)
            batches = [] if result.slice is None else split(result.slice.read())
            assert all(one.base < log.last_stable_offset for one in batches), "not even a part of a batch"
            whole = [one for one in batches if one.is_whole]
            assert result.aborted is not None
            taken += delivered(whole, [(entry.producer_id, entry.first_offset) for entry in result.aborted])
            result.release()
            if not whole:
                assert not [one for one in replica.batches() if one.last >= offset and one.base < log.last_stable_offset]
                break
            offset = whole[-1].last + 1
        assert taken == expected

    def read(self, log: Log, offset: int) -> PartitionRead:
        partition: Any = SimpleNamespace(leader=True, leader_epoch=0, log=log, fetches=0, check_epoch=lambda _: None)
        replicas: Any = SimpleNamespace(require=lambda *_: partition, throttles=SimpleNamespace(leader=SimpleNamespace(is_active=False)))
        params = FetchParams(-1, -1, READ_COMMITTED, "", by_id=False, may_read_follower=True, listener="L")
        wanted = FetchPartition("t", bytes(16), 0)
        wanted.fetch_offset, wanted.max_bytes = offset, self.generator.choice((1, 300, 2000, 1 << 20))
        reader = PartitionReader(replicas, is_rack_aware=False)
        result = looked_up(lambda look: reader.read(wanted, params, 1 << 20, True, 0, empty_image(), look))
        assert result.code is ErrorCode.NONE
        return result

    def shared(self, replica: Replica, offset: int) -> list[int]:
        """What a share group gets of the same records."""
        log, taken = replica.log, list[int]()
        partition: Any = SimpleNamespace(log=log)
        while True:
            read = share_fetch_read.read(partition, offset, 1 << 20, self.generator.choice((1, 2000)), is_read_committed=True)
            aborted = {base for base, _ in read.fetched.aborted}
            batches = [one for one in split(bytes(read.data)) if one.is_whole]
            taken += [one.base for one in batches if not one.attributes & CONTROL and one.has_record and one.base not in aborted]
            if not batches:
                return taken
            offset = batches[-1].last + 1


@pytest.mark.parametrize("seed", range(30))
def test_a_reader_gets_what_was_committed_and_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(seed)
    monkeypatch.setattr(fetch_read, "ABORTED_MAX", generator.choice((1, 2, 5, 1000)))
    monkeypatch.setattr(txn_index, "_PAGE_ENTRIES", generator.choice((2, 512)))
    world = World(generator)
    for _ in range(ROUNDS):
        for _ in range(generator.randrange(1, 6)):
            world.change()
        world.check_all(world.any())
