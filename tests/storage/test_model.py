"""A log against a list: whatever is appended, truncated, rolled, deleted, recovered or lost in a power cut, the log
holds what the list holds - after a crash some prefix of it, at least what had been synced."""

from __future__ import annotations

import random
from itertools import pairwise

from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.storage.config import LogConfig
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

TRANSACTIONAL = 0x10


class Entry:
    """A batch as the model knows it."""

    def __init__(self, base: int, data: bytes, epoch: int, timestamp: int) -> None:
        self.base, self.data, self.epoch, self.timestamp = base, data, epoch, timestamp
        self.last = base + int.from_bytes(data[23:27], "big")


class LogMachine(RuleBasedStateMachine):
    @initialize(
        segment=st.integers(300, 900),
        interval=st.integers(1, 400),
        index=st.sampled_from([64, 240, 1200]),
        is_compacted=st.booleans(),
    )
    def start(self, segment: int, interval: int, index: int, is_compacted: bool) -> None:
        self.disk = MemoryFileSystem()
        self.config = LogConfig(
            segment_bytes=segment,
            index_interval_bytes=interval,
            segment_index_bytes=index,
            retention_ms=-1,
            retention_bytes=600,
            file_delete_delay_ms=0,
            producer_id_expiration_ms=1 << 60,
            cleanup_policy=frozenset({"compact", "delete"} if is_compacted else {"delete"}),
        )
        self.batches: list[Entry] = []
        self.log_start, self.log_end, self.watermark, self.synced = 0, 0, 0, 0
        self.epoch = 0
        self.sequence = 0
        self.open(is_clean=True, recovery_point=0)

    def open(self, *, is_clean: bool, recovery_point: int) -> None:
        self.log: Log = load_log(
            self.disk,
            "/data/t-0",
            "t",
            0,
            self.config,
            wall_ms=T0,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=self.log_start,
            high_watermark=self.watermark,
        )

    # -- what can happen

    @rule(count=st.integers(1, 4), size=st.integers(0, 40), stamp=st.integers(-1, 50), idempotent=st.booleans())
    def append(self, count: int, size: int, stamp: int, idempotent: bool) -> None:
        producer = (9, 0, self.sequence) if idempotent else (-1, -1, -1)
        timestamp = T0 + stamp if stamp >= 0 else -1
        data = batch(*[b"v" * size] * count, timestamp=timestamp, producer=producer)
        info = self.log.append_as_leader(memoryview(data), self.epoch, T0, requires_sequence_checks=False)
        assert (info.first_offset, info.last_offset) == (self.log_end, self.log_end + count - 1)
        assert not info.is_duplicate
        self.sequence += count if idempotent else 0
        self.batches.append(Entry(self.log_end, bytes(data), self.epoch, timestamp))
        self.log_end += count

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=4), tail=st.integers(0, 60))
    def follow(self, gaps: list[int], tail: int) -> None:
        data = bytearray()
        for gap in gaps:
            base = self.log_end + (gap if self.config.is_compacted else 0)
            stored = batch(b"followed", base_offset=base, epoch=self.epoch)
            self.batches.append(Entry(base, bytes(stored), self.epoch, T0))
            self.log_end = base + 1
            data += stored
        data += batch(b"cut off" * 9, base_offset=self.log_end, epoch=self.epoch)[:tail]
        assert self.log.append_as_follower(memoryview(data)).batches == len(gaps)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 2

    @rule(generator=st.randoms(use_true_random=False))
    def truncate(self, generator: random.Random) -> None:
        starts = [entry.base for entry in self.batches] + [self.log_end]
        offset = generator.choice(starts)
        assert self.log.truncate_to(offset, T0) == (offset < self.log_end)
        self.batches = [entry for entry in self.batches if entry.base < offset]
        self.log_end = offset
        self.log_start, self.watermark = min(self.log_start, offset), min(self.watermark, offset)
        self.synced = min(self.synced, offset)

    @rule(offset=st.integers(0, 1000))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, T0)
        self.batches.clear()
        self.log_start = self.log_end = self.watermark = offset
        self.synced = min(self.synced, offset)

    @rule()
    def roll(self) -> None:
        if self.log.size:
            self.log.roll(T0)

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        offset = self.watermark + int((self.log_end - self.watermark) * part)
        self.log.update_high_watermark(offset)
        self.watermark = offset

    @rule(part=st.one_of(st.just(1.0), st.floats(0, 1)), is_committed=st.booleans())
    def delete_records(self, part: float, is_committed: bool) -> None:
        if is_committed:
            self.commit(1.0)
        offset = self.log_start + int((self.watermark - self.log_start) * part)
        self.log.increment_log_start_offset(offset)
        self.log_start = max(self.log_start, offset)

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments(T0)
        self.log.delete_files(T0 + 1)
        self.disk.fsync_dir("/data/t-0")
        assert self.log.log_start_offset <= self.watermark
        self.log_start = self.log.log_start_offset
        kept = self.log.segments.bases[0]
        self.batches = [entry for entry in self.batches if entry.last >= kept]

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced = self.log_end

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.open(is_clean=True, recovery_point=0)
        self.settle()

    @rule()
    def kill(self) -> None:
        recovery_point = self.log.recovery_point
        self.disk = self.disk.kill()
        self.open(is_clean=False, recovery_point=recovery_point)
        self.settle()

    @precondition(lambda self: not self.config.is_compacted)
    @rule(generator=st.randoms(use_true_random=False))
    def power_cut(self, generator: random.Random) -> None:
        """Unsynced bytes and names may be lost; the directory itself and everything synced is there."""
        assert self.log.recovery_point >= self.synced
        # Until then a power cut may bring all of it back, and nothing else.
        self.log.durability.sync_cut()
        recovery_point = self.log.recovery_point
        self.disk = self.disk.crash(generator)
        self.open(is_clean=False, recovery_point=recovery_point)
        end = self.log.log_end_offset
        assert end >= self.synced
        self.forget_what_was_before_the_start()
        # The names of segments that were not synced are lost one by one, also the first.
        begin = self.log.segments.bases[0]
        assert all(entry.last >= self.synced for entry in self.batches if self.log_start <= entry.last < begin)
        self.batches = [entry for entry in self.batches if begin <= entry.last < end]
        self.log_start, self.log_end = self.log.log_start_offset, end
        self.watermark = self.log.high_watermark
        self.sequence = self.next_sequence()

    def forget_what_was_before_the_start(self) -> None:
        """Less was left than DeleteRecords had deleted, after a power cut or because the log was cut in a hole: it is emptied and goes on
        at its start, as Apache Kafka's does (KAFKA-10101, tests/system/test_start_beyond_end.py)."""
        if not self.log.size and self.log.log_end_offset == self.log_start:
            self.batches.clear()

    def settle(self) -> None:
        """After a restart the log ends behind its last batch, or where an empty segment begins."""
        self.forget_what_was_before_the_start()
        if self.batches and self.batches[-1].last >= self.log.segments.bases[0]:
            assert self.batches[-1].last + 1 <= self.log.log_end_offset <= self.log_end
        self.log_end = self.log.log_end_offset
        self.watermark = self.log.high_watermark
        self.log_start = self.log.log_start_offset

    def next_sequence(self) -> int:
        idempotent = [entry for entry in self.batches if entry.data[43] == 0]
        return max((int.from_bytes(e.data[53:57], "big") + e.last - e.base + 1 for e in idempotent), default=0)

    # -- what must hold

    @invariant()
    def watermarks_agree(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
            self.log_start,
            self.watermark,
            self.log_end,
        )
        assert log.segments.bases[0] <= log.log_start_offset <= log.high_watermark <= log.log_end_offset

    @invariant()
    def bytes_agree(self) -> None:
        stored = b""
        for segment in self.log.segments:
            stored += segment.slice(0, segment.size).read()
            assert segment.base_offset in self.log.segments.bases
        assert stored == b"".join(entry.data for entry in self.batches)
        assert self.log.size == len(stored)

    @invariant()
    def every_offset_is_found(self) -> None:
        for offset in range(self.log_start, self.log_end):
            wanted = next((entry for entry in self.batches if entry.last >= offset), None)
            result = self.log.read(offset, 1, end_offset=self.log_end)
            assert result.slice.read() == (wanted.data if wanted else b"")

    @invariant()
    def timestamps_are_found(self) -> None:
        for target in (0, T0, T0 + 10, T0 + 50):
            wanted = next(
                (e for e in self.batches if e.timestamp >= target and e.last >= self.log_start), None
            )
            found = self.log.lookup_offset_for_timestamp(target)
            if wanted is None:
                assert found is None
            else:
                assert found is not None
                assert (found.timestamp, found.offset) == (wanted.timestamp, max(wanted.base, self.log_start))

    @invariant()
    def epochs_agree(self) -> None:
        entries = self.log.epochs.entries
        assert entries == sorted(set(entries))
        for entry in self.batches:
            if entry.base >= self.log_start:
                assert self.log.epochs.epoch_for_offset(entry.base) == entry.epoch

    @invariant()
    def indexes_are_well_formed(self) -> None:
        for segment in self.log.segments:
            for index in (segment.offset_index, segment.time_index):
                entries = index.all_entries()
                assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries))

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


LogMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestLogAgainstAList = LogMachine.TestCase
