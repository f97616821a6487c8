"""The runtime of coordinators: what a shard holds is what its log holds, as far as it is committed; nothing holds the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coordinator_world import CoordinatorWorld, append_records, coordinator_log

from minikafka.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from minikafka.broker.coordinators.loader import STEP_RECORDS, UNPACKED_BYTES_MAX
from minikafka.broker.coordinators.transaction_coordinator import TRANSACTIONS_TOPIC
from minikafka.core.coordinator.reload import PAUSE_MS_MAX
from minikafka.core.group.classic import GENERATION_MAX, ClassicGroup, GroupState
from minikafka.core.group.config import Client
from minikafka.core.group.consumer import records as consumer_records
from minikafka.core.group.consumer.member import ConsumerMember
from minikafka.core.group.consumer.records import EPOCH_MAX
from minikafka.core.group.coordinator import GroupShard
from minikafka.core.group.effects import Effects
from minikafka.core.group.share import records as share_records
from minikafka.core.group.share.group import ShareMember
from minikafka.core.transaction.state import TransactionState
from minikafka.storage.log import Log
from minikafka.wire import compression
from minikafka.wire.compression import CompressionType
from minikafka.wire.control import ControlType, end_transaction_batch
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from minikafka.wire.records.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from minikafka.wire.records.transaction_records import TransactionLogKey, TransactionLogValue

LOADS = 2000
PRODUCER_ID = 7


def offset_of(number: int, topic: str = "t", partition: int = 0) -> tuple[OffsetCommitKey, OffsetCommitValue, int]:
    value = OffsetCommitValue(offset=number, leader_epoch=-1, metadata="", commit_timestamp=1)
    return OffsetCommitKey(group="g", topic=topic, partition=partition), value, 3


def offsets_log(count: int, *, batch_size: int = 1, partitions: int = 1, is_committed: bool = True, **batch: Any) -> Log:
    """Every second commit is for a topic "gone"."""
    log = coordinator_log(OFFSETS_TOPIC)
    for start in range(0, count, batch_size):
        rows = [offset_of(n, "gone" if n % 2 else "t", n // 2 % partitions) for n in range(start, start + batch_size)]
        append_records(log, rows, **batch)
    if is_committed:
        log.update_high_watermark(log.log_end_offset)
    return log


def transactions_log(count: int) -> Log:
    log = coordinator_log(TRANSACTIONS_TOPIC)
    for number in range(count):
        value = TransactionLogValue(
            producer_id=number, producer_epoch=0, transaction_timeout_ms=1000, transaction_status=0, transaction_partitions=None
        )
        append_records(log, [(TransactionLogKey(transactional_id=f"id-{number % 10}"), value, 1)], base_sequence=-1)
    log.update_high_watermark(log.log_end_offset)
    return log


def marker(log: Log, *, commit: bool, epoch: int) -> None:
    """A marker as the marker writer appends it, possibly long after its requester has gone."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    batch = end_transaction_batch(kind, producer_id=PRODUCER_ID, producer_epoch=epoch, coordinator_epoch=0, timestamp=1)
    log.append_as_leader(memoryview(batch), 0, 1, origin="coordinator")


class Commit:
    """A request that waits for its answer; `codes` are those it has been given."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def respond(self, response: Any) -> None:
        self.codes.append(ErrorCode(response.topics[0].partitions[0].error_code))


def commit(world: CoordinatorWorld, offset: int, *, epoch: int | None = None) -> list[ErrorCode]:
    """OffsetCommit, or TxnOffsetCommit in the producer's epoch; the list into which the answer falls."""
    index, shard = world.groups.shard("g")
    waiting = Commit()

    def resolve(name: str, topic_id: bytes, partition: int) -> tuple[str, bytes]:
        return name, bytes(16)

    if epoch is None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        )
        shard.commit(waiting, OffsetCommitRequest(group_id="g", topics=[topic]), 8, resolve, world.now_ms)
    else:
        parts = [TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=parts)]
        request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=PRODUCER_ID, producer_epoch=epoch, topics=topics)
        shard.commit_transactional(waiting, request, 5, resolve, lambda: None, world.now_ms)
    world.groups.run_effects(index, shard)
    return waiting.codes


def committed(world: CoordinatorWorld, topic: str = "t") -> int | None:
    found = world.groups.shard("g")[1].offsets.get("g", topic, 0)
    return None if found is None else found.offset


def is_open(world: CoordinatorWorld) -> bool:
    return world.groups.shard("g")[1].offsets.is_open("g", "t", 0)


# -- loading


@pytest.mark.parametrize("batch_size", [1, LOADS])
async def test_the_loop_works_on_while_groups_are_loaded(batch_size: int) -> None:
    world = CoordinatorWorld(offsets_log(LOADS, batch_size=batch_size))
    world.lead()
    with pytest.raises(ApiError):
        world.groups.shards()
    turns = await world.loaded()
    assert turns >= LOADS // STEP_RECORDS - 1
    assert (committed(world), committed(world, "gone")) == (LOADS - 2, LOADS - 1)
    await world.stop()


async def test_the_loop_works_on_while_transactions_are_loaded() -> None:
    world = CoordinatorWorld(transactions=transactions_log(LOADS))
    world.lead(TRANSACTIONS_TOPIC)
    assert await world.loaded(TRANSACTIONS_TOPIC) >= LOADS // STEP_RECORDS - 1
    found = world.transactions.shard("id-3")[1].find("id-3")
    assert found is not None and found.producer_id == LOADS - 7
    await world.stop()


async def test_partitions_are_loaded_one_after_the_other() -> None:
    """Fifty at once would do fifty steps in a turn."""
    world = CoordinatorWorld(offsets_log(LOADS), transactions_log(LOADS))
    world.lead(OFFSETS_TOPIC)
    world.lead(TRANSACTIONS_TOPIC)
    turns = await world.loaded(OFFSETS_TOPIC)
    assert world.refusal(TRANSACTIONS_TOPIC) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert turns + await world.loaded(TRANSACTIONS_TOPIC) >= 2 * LOADS // STEP_RECORDS - 2
    await world.stop()


async def test_large_compressed_batches_are_decompressed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    windows, on_loop, elsewhere = compression._windows, [0], [0]

    def counting(*arguments: Any) -> Iterator[bytes]:
        for window in windows(*arguments):
            (on_loop if threading.current_thread() is threading.main_thread() else elsewhere)[0] += len(window)
            yield window

    log = offsets_log(3 * LOADS, batch_size=LOADS, compression=CompressionType.ZSTD)
    offsets = log.log_end_offset
    monkeypatch.setattr(compression, "_windows", counting)
    world = CoordinatorWorld(log)
    world.lead()
    await world.loaded()
    assert (committed(world), committed(world, "gone")) == (3 * LOADS - 2, 3 * LOADS - 1)
    assert elsewhere[0] > 3 * UNPACKED_BYTES_MAX and on_loop[0] <= 3 * (UNPACKED_BYTES_MAX + compression.WINDOW_BYTES)
    assert world.groups.runtime._led[0].reader.next_offset == offsets
    await world.stop()


async def test_what_others_write_is_followed_in_steps_and_decompressed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    windows, on_loop, elsewhere = compression._windows, [0], [0]

    def counting(*arguments: Any) -> Iterator[bytes]:
        for window in windows(*arguments):
            (on_loop if threading.current_thread() is threading.main_thread() else elsewhere)[0] += len(window)
            yield window

    world = CoordinatorWorld()
    world.lead()
    partition = world.partitions[OFFSETS_TOPIC]
    for start in range(0, 3 * LOADS, LOADS):
        rows = [offset_of(number, "gone" if number % 2 else "t") for number in range(start, start + LOADS)]
        append_records(partition.log, rows, compression=CompressionType.ZSTD)
    monkeypatch.setattr(compression, "_windows", counting)
    turns = 0
    partition.replicate()
    codes = commit(world, 7_000_000)
    while not codes:
        assert committed(world) != 7_000_000
        await asyncio.sleep(0)
        turns += 1
        partition.replicate()
    assert codes == [ErrorCode.NONE] and (committed(world), committed(world, "gone")) == (7_000_000, 3 * LOADS - 1)
    assert turns >= 3 * LOADS // STEP_RECORDS - 2
    assert elsewhere[0] > 3 * UNPACKED_BYTES_MAX and on_loop[0] <= 3 * (UNPACKED_BYTES_MAX + compression.WINDOW_BYTES)
    await world.stop()


async def test_a_leadership_that_ends_while_it_follows_answers_who_waits_and_replays_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CoordinatorWorld()
    world.lead()
    partition = world.partitions[OFFSETS_TOPIC]
    for number in range(2 * LOADS):
        append_records(partition.log, [offset_of(number)])
    partition.replicate()
    codes = commit(world, 7_000_000)
    await asyncio.sleep(0)
    led = world.groups.runtime._led[0]
    assert led.is_following and not codes
    world.lead(leader=False)
    replayed = led.reader.records
    for _ in range(5):
        await asyncio.sleep(0)
    assert codes == [ErrorCode.NOT_COORDINATOR] and led.reader.records == replayed < 2 * LOADS
    await world.stop()


async def test_the_queue_goes_on_with_others_while_something_is_done_beside_the_loop() -> None:
    world, order = CoordinatorWorld(), []
    done = threading.Event()

    def first() -> Iterator[Any]:
        order.append("first begins")
        yield lambda: done.wait(10)
        order.append("first ends")

    def second() -> Iterator[Any]:
        order.append("second")
        yield None
        done.set()

    world.steps.run(first(), lambda: None)
    world.steps.run(second(), lambda: None)
    while "first ends" not in order:
        await asyncio.sleep(0.005)
    assert order == ["first begins", "second", "first ends"]
    await world.stop()


async def test_a_short_log_is_loaded_at_once() -> None:
    world = CoordinatorWorld(offsets_log(20))
    world.lead()
    assert world.refusal() is None
    await world.stop()


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_nothing_is_served_that_an_election_could_take_back(topic: str) -> None:
    offsets, transactions = offsets_log(10, is_committed=False), transactions_log(10)
    transactions.update_high_watermark(4)
    offsets.update_high_watermark(4)
    world = CoordinatorWorld(offsets, transactions)
    world.lead(topic)
    for _ in range(5):
        await asyncio.sleep(0)
        assert world.refusal(topic) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.partitions[topic].replicate(9)
    assert world.refusal(topic) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.partitions[topic].replicate(10)
    assert world.refusal(topic) is None
    await world.stop()


async def test_leadership_is_lost_meanwhile() -> None:
    world = CoordinatorWorld(offsets_log(LOADS))
    world.lead()
    await asyncio.sleep(0)
    world.lead(leader=False)
    for _ in range(5):
        await asyncio.sleep(0)
        assert world.refusal() is ErrorCode.NOT_COORDINATOR
    world.lead()
    await world.loaded()
    assert committed(world) == LOADS - 2
    await world.stop()


async def test_a_topic_goes_meanwhile_and_its_offsets_with_it() -> None:
    world = CoordinatorWorld(offsets_log(LOADS))
    world.lead()
    world.delete_topic("gone")
    await world.loaded()
    while committed(world, "gone") is not None:
        await asyncio.sleep(0)
    assert committed(world) == LOADS - 2
    await world.stop()


# -- what is written


async def test_a_commit_counts_and_is_answered_when_it_is_committed() -> None:
    world = CoordinatorWorld()
    world.lead()
    assert commit(world, 5) == [ErrorCode.NONE] and committed(world) == 5
    world.offsets.is_stalled = True
    answered = commit(world, 6)
    assert committed(world) == 5 and not answered
    world.offsets.replicate()
    assert committed(world) == 6 and answered == [ErrorCode.NONE]
    await world.stop()


async def test_an_abandoned_write_counts_if_it_is_committed_nevertheless() -> None:
    world = CoordinatorWorld()
    world.lead()
    world.offsets.is_stalled = True
    answered = commit(world, 5)
    world.now_ms += world.config.offsets_commit_timeout_ms
    world.groups.runtime._time_out(world.groups.runtime._led[0])
    assert answered == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and committed(world) is None
    world.offsets.replicate()
    assert answered == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and committed(world) == 5
    await world.stop()


async def test_a_failed_write_is_refused_and_leaves_nothing_behind() -> None:
    world = CoordinatorWorld()
    world.lead()
    world.offsets.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert commit(world, 5) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert committed(world) is None and not world.groups.shard("g")[1].groups
    world.offsets.refusal = None
    assert commit(world, 6) == [ErrorCode.NONE] and committed(world) == 6
    await world.stop()


class Heartbeats:
    """Members' requests, and the codes that they were answered with."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.codes: list[ErrorCode] = []

    def respond(self, response: Any) -> None:
        self.codes.append(ErrorCode(response.error_code))

    def send(self, request: Any) -> ErrorCode:
        index, shard = self.world.groups.shard(request.group_id)
        coordinator = shard.shares if isinstance(request, ShareGroupHeartbeatRequest) else shard.consumers
        coordinator.heartbeat(self, request, Client("c", "/127.0.0.1", 1), self.world.now_ms)
        self.world.groups.run_effects(index, shard)
        return self.codes[-1]


@pytest.mark.parametrize("kind", ["consumer", "share"])
async def test_a_group_in_its_last_epoch_refuses_members_and_affects_no_other(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who may write to the log can bring a group there."""
    log, records = coordinator_log(OFFSETS_TOPIC), consumer_records if kind == "consumer" else share_records
    member: Any = ConsumerMember("m", EPOCH_MAX, EPOCH_MAX) if kind == "consumer" else ShareMember("m", EPOCH_MAX, EPOCH_MAX)
    written = [
        records.epoch_record("last", EPOCH_MAX, 0), records.member_record("last", member),
        records.target_epoch_record("last", EPOCH_MAX, 0), records.current_record("last", member),
    ]  # fmt: skip
    append_records(log, [(record.key, record.value, record.version) for record in written])
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(log)
    world.lead()
    shard, heartbeats = world.groups.shard("g")[1], Heartbeats(world)
    request: Any = ConsumerGroupHeartbeatRequest if kind == "consumer" else ShareGroupHeartbeatRequest
    more = {"rebalance_timeout_ms": 1000, "topic_partitions": []} if kind == "consumer" else {}
    joining = request(group_id="last", member_id="n", member_epoch=0, subscribed_topic_names=["t"], **more)
    assert [heartbeats.send(joining) for _ in range(3)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert sum("cannot write a batch" in record.getMessage() for record in caplog.records if record.levelname == "ERROR") == 1
    assert commit(world, 5) == [ErrorCode.NONE] and world.groups.shard("g")[1] is shard
    assert heartbeats.send(request(group_id="last", member_id="m", member_epoch=-1)) is ErrorCode.NONE
    groups: Any = shard.consumers.groups if kind == "consumer" else shard.shares.groups
    assert not groups["last"].members, "who leaves is gone, so that the group can be deleted"
    assert not world.supervisor.unexpected
    await world.stop()


async def test_a_failure_beside_a_shard_ends_the_shard_but_not_the_node() -> None:
    world = CoordinatorWorld()
    world.lead()
    shard = world.groups.shard("g")[1]

    class Broken:
        async def answer(self, question: Any) -> Any:
            raise ZeroDivisionError

        async def resolve(self, context: Any, regexes: Any) -> Any:
            raise ZeroDivisionError

    broken: Any = Broken()
    world.groups._persister = world.groups._patterns = broken
    for effects in (Effects(questions=[broken]), Effects(resolutions=[(broken, "g", ("t.*",))])):
        for _ in world.groups._carry_out(0, world.groups.shard("g")[1], effects):
            pass
        while world.groups.shard("g")[1] is shard:
            await asyncio.sleep(0)
        shard = world.groups.shard("g")[1]
        world.now_ms += PAUSE_MS_MAX
    assert world.supervisor.unexpected == {"shard": 2} and not world.supervisor.failed.done()
    assert commit(world, 5) == [ErrorCode.NONE]
    await world.stop()


@pytest.mark.parametrize("steps", [None, 0, 2])
async def test_periodic_work_that_fails_ends_its_shard_and_no_node(steps: int | None) -> None:
    """The work fails when it is called, or after some steps. The shard is loaded again, and the queue continues with other work."""
    world = CoordinatorWorld(offsets_log(2))
    world.lead()
    await world.loaded()
    shard = world.groups.shard("g")[1]

    def failing() -> Iterator[None]:
        for _ in range(steps or 0):
            yield
        raise ZeroDivisionError

    def work(index: int, led: Any) -> Iterator[None]:
        if steps is None:
            raise ZeroDivisionError
        return failing() if led is shard else iter(())

    world.groups.every(1000, "work that fails", work)
    timer = world.groups._periodic["work that fails"]
    timer._run()
    while world.groups.runtime.is_current(0, shard):
        await asyncio.sleep(0)
    await world.loaded()
    assert world.supervisor.unexpected == {"shard": 1} and not world.supervisor.failed.done()
    assert commit(world, 5) == [ErrorCode.NONE] and not world.steps._waiting
    assert world.groups._periodic["work that fails"] is not timer, "the next period comes"
    await world.stop()


async def test_a_retry_of_a_transaction_that_fails_ends_its_shard_and_no_node() -> None:
    world = CoordinatorWorld()
    world.lead(TRANSACTIONS_TOPIC)
    shard = world.transactions.shard("x")[1]

    def fails() -> None:
        raise ZeroDivisionError

    world.transactions._after(0, 0, shard, fails)
    while world.transactions.runtime.is_current(0, shard):
        await asyncio.sleep(0)
    assert world.supervisor.unexpected == {"shard": 1} and not world.supervisor.failed.done()
    assert world.refusal(TRANSACTIONS_TOPIC, "x") is None
    await world.stop()


async def test_a_shard_that_fails_at_the_end_of_its_loading_ends_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(shard: Any, now_ms: int) -> None:
        raise ZeroDivisionError

    world = CoordinatorWorld(offsets_log(2))
    monkeypatch.setattr(GroupShard, "loaded", fails)
    world.lead()
    await asyncio.sleep(0)
    assert world.supervisor.unexpected == {"shard": 1} and not world.supervisor.failed.done()
    assert world.refusal() is ErrorCode.NOT_COORDINATOR
    await world.stop()


def test_the_generation_after_the_last_one_is_the_first() -> None:
    group = ClassicGroup("g", 0)
    group.transition(GroupState.PREPARING_REBALANCE, 1)
    group.generation_id = GENERATION_MAX
    group.next_generation(1)
    assert group.generation_id == 0


async def test_a_disk_that_fails_has_the_shard_loaded_anew() -> None:
    """Nobody knows whether the record is in the log."""
    world = CoordinatorWorld()
    world.lead()
    commit(world, 5)
    before = world.groups.shard("g")[1]
    world.offsets.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert commit(world, 6) == [ErrorCode.NOT_COORDINATOR]
    await world.loaded()
    assert world.groups.shard("g")[1] is not before and committed(world) == 5
    await world.stop()


async def test_waiting_requests_fail_when_the_leadership_ends() -> None:
    world = CoordinatorWorld()
    world.lead()
    world.offsets.is_stalled = True
    answered = commit(world, 5)
    world.lead(leader=False)
    assert answered == [ErrorCode.NOT_COORDINATOR]
    await world.stop()


# -- transactions: the markers are taken from the log


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_marker_counts_once_committed_regardless_of_writer_and_delay(is_commit: bool) -> None:
    world = CoordinatorWorld()
    world.lead()
    commit(world, 10)
    assert commit(world, 20, epoch=0) == [ErrorCode.NONE]
    assert is_open(world) and committed(world) == 10
    marker(world.offsets.log, commit=is_commit, epoch=1)
    assert is_open(world), "an election could take the marker back"
    world.offsets.replicate()
    assert not is_open(world) and committed(world) == (20 if is_commit else 10)
    commit(world, 30, epoch=1)
    marker(world.offsets.log, commit=False, epoch=2)
    world.offsets.replicate()
    assert committed(world) == (20 if is_commit else 10), "the abort of the next transaction takes nothing of the one before with it"
    await world.stop()


async def test_marker_and_commits_keep_the_order_of_the_log() -> None:
    world = CoordinatorWorld()
    world.lead()
    world.offsets.is_stalled = True
    commit(world, 20, epoch=0)
    marker(world.offsets.log, commit=True, epoch=1)
    commit(world, 40, epoch=1)
    world.offsets.replicate()
    assert committed(world) == 20 and is_open(world)
    commit(world, 30)
    marker(world.offsets.log, commit=True, epoch=2)
    commit(world, 50, epoch=2)
    world.offsets.replicate()
    assert committed(world) == 30 and is_open(world), "a later commit without a transaction counts"
    await world.stop()


async def test_a_successor_finds_what_its_predecessor_found() -> None:
    world = CoordinatorWorld()
    world.lead()
    commit(world, 20, epoch=0)
    marker(world.offsets.log, commit=True, epoch=1)
    commit(world, 40, epoch=1)
    world.lead()
    await world.loaded()
    assert committed(world) == 20 and is_open(world)
    await world.stop()


# -- other things


async def test_a_streams_group_is_loaded_and_has_its_offsets() -> None:
    log = coordinator_log(OFFSETS_TOPIC)
    member = StreamsGroupMemberMetadataValue(instance_id=None, rack_id=None, process_id="p", topology_epoch=0)
    append_records(log, [(StreamsGroupMetadataKey(group_id="g"), StreamsGroupMetadataValue(epoch=3, metadata_hash=0), 0)])
    append_records(log, [(StreamsGroupMemberMetadataKey(group_id="g", member_id="m"), member, 0)])
    append_records(log, [offset_of(8)])
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(log)
    world.lead()
    assert commit(world, 9) == [ErrorCode.UNKNOWN_MEMBER_ID]
    _, shard = world.groups.shard("g")
    with pytest.raises(ApiError) as refused:
        shard.delete_group("g", lambda code: None)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert committed(world) == 8 and not shard.groups and shard.listed() == [("g", "streams", "NotReady", "streams")]
    append_records(log, [(StreamsGroupMemberMetadataKey(group_id="g", member_id="m"), None, 0)])
    world.offsets.replicate()
    assert commit(world, 9) == [ErrorCode.NONE], "an empty one takes commits of whoever has no epoch"
    await world.stop()


async def test_a_decision_that_is_committed_late_is_carried_out() -> None:
    log = transactions_log(1)
    world = CoordinatorWorld(transactions=log)
    sent: list[Any] = []
    world.transactions._markers = SimpleNamespace(send=lambda markers, answered: sent.append(markers))  # type: ignore[assignment]
    world.lead(TRANSACTIONS_TOPIC)
    index, shard = world.transactions.shard("id-0")
    added: list[ErrorCode] = []
    shard.add_partitions("id-0", 0, 0, frozenset({("t", 0)}), 2, added.append, 1)
    world.transactions.run_effects(index, shard)
    assert added == [ErrorCode.NONE]
    partition = world.partitions[TRANSACTIONS_TOPIC]
    partition.is_stalled = True
    ended: list[Any] = []
    shard.end_transaction("id-0", 0, 0, True, 2, lambda *answer: ended.append(answer), 1)
    world.transactions.run_effects(index, shard)
    world.now_ms += world.config.request_timeout_ms
    world.transactions.runtime._time_out(world.transactions.runtime._led[0])
    assert ended == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)] and not sent
    again: list[Any] = []
    shard.end_transaction("id-0", 0, 0, False, 2, lambda *answer: again.append(answer), 1)
    assert again == [(ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)], "the first decision may stand"
    partition.replicate()
    found = shard.find("id-0")
    assert found is not None and found.state is TransactionState.PREPARE_COMMIT and len(sent) == 1
    await world.stop()
