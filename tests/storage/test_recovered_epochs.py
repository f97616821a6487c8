"""The leader epochs that a start after a crash finds, whichever file of them the crash left: those of the batches, each from the end of the
batch before it. A leader tells followers by them where to truncate."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.log import Log

FILE = "/data/t-0/leader-epoch-checkpoint"
COMPACTED = frozenset({"compact"})


def follow(log: Log, base_offset: int, epoch: int, count: int = 1) -> None:
    """Append a fetched batch, before which others may be compacted away."""
    log.append_as_follower(memoryview(batch(*[b"v"] * count, base_offset=base_offset, epoch=epoch)))


def batches_of(log: Log) -> list[tuple[int, int, int]]:
    """(base offset, last offset, epoch) of each batch, read without the code under test."""
    found = []
    for segment in log.segments:
        data, position = segment.slice(0, segment.size).read(), 0
        while position < len(data):
            base, size, epoch, delta = (
                int.from_bytes(data[position + at : position + at + width], "big", signed=True)
                for at, width in ((0, 8), (8, 4), (12, 4), (23, 4))
            )
            found.append((base, base + delta, epoch))
            position += 12 + size
    return found


def expected_epochs(log: Log) -> list[tuple[int, int]]:
    """What the batches say: an epoch with a record that can be read begins where the batch before it ended, or at the log's start. If no
    record can be read, the last epoch goes on there."""
    entries: list[tuple[int, int]] = []
    start, end = log.log_start_offset, log.segments.bases[0]
    batches = batches_of(log)
    for _, last, epoch in batches:
        if last >= start and (not entries or entries[-1][0] != epoch):
            entries.append((epoch, max(end, start) if entries else start))
        end = last + 1
    return entries or [(epoch, start) for _, _, epoch in batches[-1:]]


def test_an_epoch_behind_a_gap_between_segments_begins_before_the_gap(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """As when it was appended. From the segment's base offset on, the earlier epoch seemed to reach to there, and a leader let a follower
    keep what it has to truncate."""
    log = open_log(cleanup_policy=COMPACTED)
    follow(log, 0, 1, count=3)
    before = disk.read(FILE)
    log.roll(T0, 10)
    follow(log, 10, 3)
    assert log.epochs.entries == [(1, 0), (3, 3)]
    for left in (before, disk.read(FILE), b"", b"0\n1\n"):
        killed = disk.kill()
        killed.write(FILE, left)
        again = open_log(killed, is_clean=False, recovery_point=3, cleanup_policy=COMPACTED)
        assert again.epochs.entries == [(1, 0), (3, 3)] and again.end_offset_for_epoch(2) == (1, 3)


def test_an_epoch_begins_before_an_empty_segment(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """Compaction leaves a segment without a batch."""
    log = open_log(cleanup_policy=COMPACTED)
    follow(log, 0, 1, count=3)
    before = disk.read(FILE)
    log.roll(T0, 10)
    log.roll(T0, 20)
    follow(log, 25, 3)
    assert log.segments.bases == [0, 10, 20]
    killed = disk.kill()
    killed.write(FILE, before)
    assert open_log(killed, is_clean=False, cleanup_policy=COMPACTED).epochs.entries == [(1, 0), (3, 3)]


def test_what_is_behind_the_last_whole_batch_has_no_say(open_log: Callable[..., Log], disk: MemoryFileSystem) -> None:
    """Without a file, the epochs were looked for before the bytes that are cut were: torn ones named any epoch from any offset on."""
    log = open_log()
    follow(log, 0, 1, count=3)
    log.roll(T0)
    follow(log, 3, 2)
    killed = disk.kill()
    torn = batch(b"v", base_offset=1, epoch=1 << 30)
    torn[-1] ^= 1
    killed.names[log.segments[-1].log_path].data += torn
    killed.unlink(FILE)
    again = open_log(killed, is_clean=False, recovery_point=3)
    assert (again.log_end_offset, again.epochs.entries) == (4, [(1, 0), (2, 3)])


class World:
    """A compacted log under random changes, and the files of epochs that a power cut may leave."""

    def __init__(self, log: Log, disk: MemoryFileSystem, generator: random.Random) -> None:
        self.log, self.disk, self.generator = log, disk, generator
        self.epoch = 0
        #: What the file held since the last flush.
        self.files: list[bytes | None] = [None]

    def change(self) -> None:
        generator, log = self.generator, self.log
        kind, recovery_point = generator.random(), log.recovery_point
        if kind < 0.75:
            self.epoch += generator.choice((0, 0, 1, 2))
            base_offset = log.log_end_offset + generator.choice((0, 0, 3, 9))
            # A second segment: compaction leaves some without a batch.
            for _ in range(generator.choice((0, 0, 0, 0, 1, 2)) if log.segments.active.size else 0):
                log.roll(T0, base_offset)
                base_offset += generator.choice((0, 4))
            follow(log, base_offset, self.epoch, generator.randrange(1, 4))
        elif kind < 0.85:
            self.truncate()
        elif kind < 0.92:
            log.update_high_watermark(log.log_end_offset)
            log.increment_log_start_offset(generator.randrange(log.log_start_offset, log.log_end_offset + 1))
        else:
            log.flush()
            self.files.clear()
        if log.recovery_point > recovery_point:
            self.files.clear()  # a roll flushed the log
        self.files.append(self.disk.read(FILE) if self.disk.exists(FILE) else None)

    def truncate(self) -> None:
        """Another leader has only some of the records; its epochs are newer than those, not than what is cut."""
        ends = [last + 1 for _, last, _ in batches_of(self.log) if last + 1 > self.log.log_start_offset]
        if ends:
            self.log.truncate_to(self.generator.choice(ends), T0)
            self.epoch = max(self.log.epochs.latest, 0)

    def left(self) -> MemoryFileSystem:
        """The disk of a killed broker, with one of the files."""
        killed, data = self.disk.kill(), self.generator.choice(self.files)
        if data is not None:
            killed.write(FILE, data if self.generator.random() < 0.8 else data[:-1])
        elif killed.exists(FILE):
            killed.unlink(FILE)
        return killed


@pytest.mark.parametrize("seed", range(150))
def test_epochs_are_those_of_the_batches_whichever_file_is_left(open_log: Callable[..., Log], disk: MemoryFileSystem, seed: int) -> None:
    generator = random.Random(seed)
    log = open_log(cleanup_policy=COMPACTED)
    world = World(log, disk, generator)
    for _ in range(generator.randrange(3, 40)):
        world.change()
    again = open_log(
        world.left(), is_clean=False, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset, cleanup_policy=COMPACTED
    )
    if batches_of(again) != batches_of(log):
        assert not batches_of(again) and again.log_start_offset == again.log_end_offset, "the log start was in a gap at the end"
        return
    assert again.epochs.entries == expected_epochs(again)
