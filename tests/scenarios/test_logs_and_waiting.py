"""Storage, idempotence, waiting: the entries of S, I and P in README.md that no test of a package tells as a story."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest
from helpers.batches import batch
from helpers.replica_world import TOPIC, WALL_MS, World

from minikafka.storage.errors import LogClosed
from minikafka.wire.errors import ApiError, ErrorCode


def test_s06_kafka_15391_a_topic_is_deleted_while_its_log_is_synced() -> None:
    """KAFKA-13403: what the flush finds gone is no disk failure, and the directory stays online."""
    world = World(1).play("lead 1; produce x3")
    log = world[1].log
    task = log.prepare_flush()
    assert task is not None
    log.close_files()
    world[1].disk.rename("/data/p-0", "/data/p-0.0123456789abcdef0123456789abcdef-delete")
    task.run()
    task.finish()
    assert isinstance(log.failure, LogClosed), "nothing has failed but what would use it now"


def test_s07_kafka_6492_truncated_to_nothing_and_rolled() -> None:
    """KAFKA-6388: the empty segment with its full indexes must not be rolled onto itself."""
    world = World(1, log_config={"segment_bytes": 300, "segment_index_bytes": 24, "index_interval_bytes": 1}).play("lead 1")
    for _ in range(6):
        world.play("produce x1")
    log = world[1].log
    log.truncate_to(log.active_segment_base_offset, WALL_MS)
    log.roll(WALL_MS)
    for _ in range(4):
        world.play("produce x1")
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    assert [offset for offset, _, _ in world[1].content()] == list(range(log.log_end_offset))


@pytest.mark.parametrize("seed", range(30))
def test_i01_retries_in_any_order_give_one_copy_in_order(seed: int) -> None:
    """Redpanda #3039: five batches in flight, each perhaps sent again, late and twice. The broker takes each once, at its place, and tells
    every repetition of the last five the offset of the first time."""
    draw = random.Random(seed)
    world = World(1).play("lead 1")
    partition = world[1].partition
    # A producer that the broker does not know may begin with any number (KIP-360): the first batch arrives first.
    stored = {0: partition.append(memoryview(batch(b"v0", producer=(7, 0, 0))), -1, WALL_MS, 0).first_offset}
    for first in range(1, 51, 5):
        waiting = [number for number in range(first, first + 5) for _ in range(draw.randint(1, 3))]
        draw.shuffle(waiting)
        while waiting:
            number = waiting.pop(0)
            records = memoryview(batch(b"v%d" % number, producer=(7, 0, number)))
            try:
                info = partition.append(records, -1, WALL_MS, 0)
            except ApiError as error:
                assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and number > len(stored)
                waiting.append(number)
                continue
            assert stored.setdefault(number, info.first_offset) == info.first_offset
    assert world.values(1) == [f"v{number}" for number in range(51)]
    with pytest.raises(ApiError) as old:
        partition.append(memoryview(batch(b"v3", producer=(7, 0, 3))), -1, WALL_MS, 0)
    assert old.value.code in (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert len(world.values(1)) == 51


class Waiting:
    """Parked until somebody looks."""

    def __init__(self) -> None:
        self.is_done = False

    def try_complete(self, key: Hashable = None) -> bool:
        self.is_done = True
        return True

    def expire(self) -> None:
        self.is_done = True


KEYS: list[Hashable] = [(TOPIC, 0)]


def test_p03_kafka_9198_waiting_requests_fail_at_once_when_the_leader_steps_down() -> None:
    """KAFKA-10677: no acks=all produce and no fetch sits out its time at a deposed leader."""
    world = World(2).play("lead 1; produce x1")
    replica, parked = world[1], Waiting()
    replica.fetches.park(parked, KEYS, world.now_ms + 100_000)
    waiting = world._parked[0]
    replica.produces.park(waiting, KEYS, world.now_ms + 100_000)
    world.play("lead 2")
    assert parked.is_done and waiting.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_p04_kafka_14334_a_fetch_parked_at_a_follower_wakes_when_its_watermark_moves() -> None:
    world = World(2).play("lead 1; produce x1; fetch 2")
    parked = Waiting()
    world[2].fetches.park(parked, KEYS, world.now_ms + 100_000)
    assert not parked.is_done
    world.play("fetch 2")
    assert parked.is_done and world[2].log.high_watermark == 1
