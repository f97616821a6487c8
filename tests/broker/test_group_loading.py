"""A coordinator that takes over a long partition of __consumer_offsets goes on serving while it replays it."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.config import BrokerConfig
from minikafka.broker.hosts.group import LOAD_STEP_RECORDS, OFFSETS_TOPIC, GroupHost
from storage.config import LogConfig
from storage.log import Log
from storage.recovery import load_log
from wire.batch import build_batch
from wire.errors import ApiError, ErrorCode
from wire.record import Record
from wire.records.frame import encode_coordinator_key, encode_coordinator_value
from wire.records.group_records import OffsetCommitKey, OffsetCommitValue

COMMITS = 10 * LOAD_STEP_RECORDS


def offsets_log(count: int) -> Log:
    log = load_log(MemoryFileSystem(), "/data/__consumer_offsets-0", OFFSETS_TOPIC, 0, LogConfig(), wall_ms=1)
    for number in range(count):
        key = OffsetCommitKey(group="g", topic="gone" if number % 2 else "t", partition=0)
        value = OffsetCommitValue(offset=number, leader_epoch=-1, metadata="", commit_timestamp=1)
        record = Record(offset=0, timestamp=1, key=encode_coordinator_key(key), value=encode_coordinator_value(value, 3), headers=())
        log.append_as_leader(memoryview(build_batch([record], base_sequence=0)), 0, 1, origin="coordinator")
    return log


class World:
    """What a GroupHost sees; `lead` and `lose` are the partition's, `delete` a topic's."""

    def __init__(self, count: int) -> None:
        properties = {"process.roles": "broker", "node.id": "1", "controller.quorum.voters": "2@localhost:1", "log.dirs": "/data"}
        config = BrokerConfig.from_properties({**properties, "listeners": "PLAINTEXT://:1", "controller.listener.names": "C"})
        clock = SimpleNamespace(now_ms=lambda: 0, wall_ms=lambda: 1)
        environment: Any = SimpleNamespace(clock=clock, loop=asyncio.get_running_loop(), random=random.Random(1))
        partition = SimpleNamespace(log=offsets_log(count))
        self.appended: list[int] = []
        replicas: Any = SimpleNamespace(
            partition=lambda topic, index: partition,
            subscribe_leadership=lambda topic, callback: setattr(self, "_leads", callback),
            append_records=lambda topic, index, *_, **__: self.appended.append(index),
        )
        self.image = SimpleNamespace(topics_by_name={OFFSETS_TOPIC: SimpleNamespace(partitions={0: None})})
        metadata: Any = SimpleNamespace(image=self.image, subscribe=lambda callback: setattr(self, "_changed", callback))
        self.groups = GroupHost(config, environment, replicas, metadata, None)  # type: ignore[arg-type]

    def lead(self) -> None:
        self._leads(0, 1, True)  # type: ignore[attr-defined]

    def lose(self) -> None:
        self._leads(0, 2, False)  # type: ignore[attr-defined]

    def delete(self, topic: str) -> None:
        self._changed(SimpleNamespace(deleted_topics={b"": SimpleNamespace(name=topic)}), self.image)  # type: ignore[attr-defined]

    def refusal(self) -> ErrorCode | None:
        try:
            self.groups.shard("g")
        except ApiError as error:
            return error.code
        return None


async def test_the_loop_works_on_while_groups_are_loaded() -> None:
    world = World(COMMITS)
    world.lead()
    turns = 0
    while world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        with pytest.raises(ApiError):
            world.groups.shards()
        turns += 1
        assert turns <= 2 * COMMITS // LOAD_STEP_RECORDS
        await asyncio.sleep(0)
    assert turns >= COMMITS // LOAD_STEP_RECORDS - 1
    _, shard = world.groups.shard("g")
    assert {key: found.offset for key, found in shard.offsets.of_group("g").items()} == {("t", 0): COMMITS - 2, ("gone", 0): COMMITS - 1}
    await world.groups.stop()


async def test_what_is_short_is_loaded_at_once() -> None:
    world = World(20)
    world.lead()
    assert world.refusal() is None
    await world.groups.stop()


async def test_leadership_is_lost_meanwhile() -> None:
    world = World(COMMITS)
    world.lead()
    await asyncio.sleep(0)
    world.lose()
    for _ in range(2 * COMMITS // LOAD_STEP_RECORDS):
        await asyncio.sleep(0)
        assert world.refusal() is ErrorCode.NOT_COORDINATOR
    world.lead()
    while world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0)
    assert world.refusal() is None
    await world.groups.stop()


async def test_a_topic_goes_meanwhile_and_its_offsets_with_it() -> None:
    world = World(COMMITS)
    world.lead()
    world.delete("gone")
    while world.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0)
    assert world.appended == [0], "tombstones"
    await world.groups.stop()
