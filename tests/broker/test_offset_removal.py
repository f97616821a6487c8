"""Offsets are deleted and expire with regard to commits that do not count yet: in open transactions, or on their way into the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from broker.test_coordinator_runtime import commit, committed, is_open, marker, offset_of, offsets_log
from helpers.coordinator_world import OFFSETS_TOPIC, CoordinatorWorld, append_records, coordinator_log

from minikafka.wire.errors import ErrorCode

Delete = Callable[[CoordinatorWorld], None]


def delete_group(world: CoordinatorWorld) -> None:
    index, shard = world.groups.shard("g")
    world.groups.run_steps(index, shard, shard.delete_group("g", lambda code: None))


def delete_offsets(world: CoordinatorWorld) -> None:
    index, shard = world.groups.shard("g")
    world.groups.run_steps(index, shard, shard.delete_offsets("g", [("t", 0)], lambda code: None))


def delete_topic(world: CoordinatorWorld) -> None:
    world.delete_topic("t")


@pytest.mark.parametrize("epoch", [None, 0])
@pytest.mark.parametrize("is_stalled", [False, True])
@pytest.mark.parametrize("delete", [delete_group, delete_offsets, delete_topic])
async def test_offsets_are_deleted_in_open_transactions_and_on_their_way_into_the_log_too(
    delete: Delete, is_stalled: bool, epoch: int | None
) -> None:
    """A group would come back with an offset of a partition that is another one by now."""
    log = coordinator_log(OFFSETS_TOPIC)
    append_records(log, [offset_of(1, "other")])
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(log)
    world.lead()
    world.offsets.is_stalled = is_stalled
    answered = commit(world, 6, epoch=epoch)
    delete(world)
    world.offsets.replicate()
    assert answered == [ErrorCode.NONE]
    marker(world.offsets.log, commit=True, epoch=0)
    world.offsets.replicate()
    assert committed(world) is None
    world.lead()
    assert committed(world) is None
    await world.stop()


@pytest.mark.parametrize("epoch", [None, 0])
async def test_a_commit_that_is_being_written_keeps_its_partition_and_group_from_expiring(epoch: int | None) -> None:
    world = CoordinatorWorld(offsets_log(2, partitions=2))
    world.lead()
    world.now_ms += world.config.offsets_retention_minutes * 60_000 + 1
    world.offsets.is_stalled = True
    log = world.offsets.log
    end = log.log_end_offset
    answered = commit(world, 6, epoch=epoch)
    # The log begins a segment after so long a time, and is flushed before that.
    while log.log_end_offset == end:
        await asyncio.sleep(0)
    index, shard = world.groups.shard("g")
    world.groups.run_steps(index, shard, shard.expire_offsets(world.now_ms))
    world.offsets.replicate()
    marker(world.offsets.log, commit=True, epoch=0)
    world.offsets.replicate()
    assert answered == [ErrorCode.NONE] and committed(world) == 6 and "g" in shard.groups
    assert committed(world, "gone") is None, "the others expire"
    await world.stop()


async def test_offsets_that_a_transaction_is_writing_are_not_stable() -> None:
    world = CoordinatorWorld()
    world.lead()
    world.offsets.is_stalled = True
    commit(world, 6, epoch=0)
    assert is_open(world)
    world.offsets.replicate()
    assert is_open(world)
    world.offsets.is_stalled = False
    world.offsets.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    marker(world.offsets.log, commit=False, epoch=0)
    world.offsets.replicate()
    assert commit(world, 7, epoch=0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and not is_open(world)
    await world.stop()
