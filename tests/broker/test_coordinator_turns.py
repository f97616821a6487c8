"""What a coordinator does for very many transactions or members at once is done in several turns of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coordinator_world import CoordinatorWorld, append_records, coordinator_log

from minikafka.broker.coordinators import transaction_requests
from minikafka.broker.coordinators.transaction_coordinator import TRANSACTIONS_TOPIC
from minikafka.broker.coordinators.transaction_requests import TransactionHandlers
from minikafka.core.group.coordinator import GroupShard
from minikafka.core.group.effects import Effects
from minikafka.core.transaction import effects
from minikafka.core.transaction.coordinator import TransactionShard
from minikafka.core.transaction.effects import Markers
from minikafka.core.transaction.state import TransactionState
from minikafka.net.turn_share import TurnShares
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.records.transaction_records import TransactionLogKey, TransactionLogValue

MANY = 40


class Turns:
    """Counts what is done between two turns of the loop. Each piece of work has a turn of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TurnShares, "begin", lambda shares: lambda: True)
        self.done = list[Any]()
        self.most = 0

    async def until(self, count: int) -> None:
        before = 0
        while len(self.done) < count:
            self.most = max(self.most, len(self.done) - before)
            before = len(self.done)
            await asyncio.sleep(0)
        self.most = max(self.most, len(self.done) - before)


def ongoing_transactions() -> Any:
    log = coordinator_log(TRANSACTIONS_TOPIC)
    for number in range(MANY):
        partitions = [TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[0])]
        value = TransactionLogValue(
            producer_id=number, producer_epoch=0, transaction_timeout_ms=1000, transaction_status=TransactionState.ONGOING.number,
            transaction_partitions=partitions, transaction_start_timestamp_ms=1, transaction_last_update_timestamp_ms=1,
        )  # fmt: skip
        append_records(log, [(TransactionLogKey(transactional_id=f"id-{number}"), value, 1)], base_sequence=-1)
    log.update_high_watermark(log.log_end_offset)
    return log


async def test_each_transaction_of_many_partitions_is_described_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of 9,000 partitions were in one part of a request."""
    world = CoordinatorWorld(transactions=ongoing_transactions())
    world.lead(TRANSACTIONS_TOPIC)
    await world.loaded(TRANSACTIONS_TOPIC)
    monkeypatch.setattr(transaction_requests, "STEP_ITEMS", 1)
    turns, by_topic = Turns(monkeypatch), transaction_requests.by_topic
    monkeypatch.setattr(transaction_requests, "by_topic", lambda keys: turns.done.append(None) or by_topic(keys))  # type: ignore[func-returns-value]
    nobody: Any = None
    environment: Any = SimpleNamespace(clock=None)
    handlers = TransactionHandlers(
        world.transactions, nobody, nobody, world.groups, nobody, nobody, nobody, environment, nobody, lambda *_: True
    )
    request = DescribeTransactionsRequest(transactional_ids=[f"id-{number}" for number in range(MANY)])
    answer, _ = await asyncio.gather(handlers.describe(nobody, request), turns.until(MANY))
    assert turns.most == 1 and [len(state.topics) for state in answer.transaction_states] == [1] * MANY
    await world.stop()


def of_partitions(state: TransactionState, many: int, name: str = "id") -> tuple[TransactionLogKey, TransactionLogValue, int]:
    value = TransactionLogValue(
        producer_id=1, producer_epoch=0, transaction_timeout_ms=1000, transaction_status=state.number,
        transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="t", partition_ids=list(range(many)))],
        transaction_start_timestamp_ms=1, transaction_last_update_timestamp_ms=1,
    )  # fmt: skip
    return TransactionLogKey(transactional_id=name), value, 1


async def test_the_markers_of_a_transaction_of_many_partitions_are_sent_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 9,000 partitions took 30 ms of a turn."""
    monkeypatch.setattr(effects, "MARKERS_AT_ONCE", 3)
    log = coordinator_log(TRANSACTIONS_TOPIC)
    append_records(log, [of_partitions(TransactionState.PREPARE_COMMIT, MANY)], base_sequence=-1)
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(transactions=log)
    turns = Turns(monkeypatch)
    answer: list[Any] = []

    def send(markers: Markers, answered: Any) -> None:
        turns.done.append(markers)
        answer.append(lambda: answered(dict.fromkeys(sorted(markers.partitions), ErrorCode.NONE)))

    world.transactions._markers = SimpleNamespace(send=send)  # type: ignore[assignment]
    world.lead(TRANSACTIONS_TOPIC)
    await world.loaded(TRANSACTIONS_TOPIC)
    await turns.until(-(-MANY // 3))
    assert turns.most == 1 and max(len(markers.partitions) for markers in turns.done) == 3
    sent = [key for markers in turns.done for key in markers.partitions]
    assert sorted(sent) == [("t", index) for index in range(MANY)]
    _, shard = world.transactions.shard("id")
    for number, one in enumerate(answer):
        assert shard.transactions[0].state is TransactionState.PREPARE_COMMIT, f"after {number} answers"
        one()
        await asyncio.sleep(0)
    assert shard.transactions[0].state is TransactionState.COMPLETE_COMMIT
    await world.stop()


async def test_transactions_of_many_partitions_are_loaded_one_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 of 9,000 partitions would take a quarter of a second."""
    log = coordinator_log(TRANSACTIONS_TOPIC)
    append_records(log, [of_partitions(TransactionState.ONGOING, 9_000, f"id-{number}") for number in range(5)], base_sequence=-1)
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(transactions=log)
    turns, replay = Turns(monkeypatch), TransactionShard.replay
    monkeypatch.setattr(TransactionShard, "replay", lambda shard, *record: (turns.done.append(record), replay(shard, *record))[1])
    world.lead(TRANSACTIONS_TOPIC)
    await turns.until(5)
    assert turns.most == 1
    await world.loaded(TRANSACTIONS_TOPIC)
    await world.stop()


async def test_the_addition_of_many_partitions_is_answered_in_another_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """To add 9,000, to order them and to answer for each took 75 ms."""
    monkeypatch.setattr(transaction_requests, "ADDED_AT_ONCE", MANY - 1)
    log = coordinator_log(TRANSACTIONS_TOPIC)
    append_records(log, [of_partitions(TransactionState.COMPLETE_COMMIT, 0)], base_sequence=-1)
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(transactions=log)
    world.image.topics_by_name["t"] = SimpleNamespace(name="t", topic_id=bytes(16), partitions=dict.fromkeys(range(MANY)))
    world.lead(TRANSACTIONS_TOPIC)
    await world.loaded(TRANSACTIONS_TOPIC)
    environment: Any = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1), supervisor=world.supervisor)
    nobody: Any = None
    handlers = TransactionHandlers(
        world.transactions, nobody, nobody, world.groups, nobody, nobody, nobody, environment, nobody, lambda *_: True
    )
    answers: list[AddPartitionsToTxnResponse] = []
    context: Any = SimpleNamespace(api_version=3, respond=answers.append)
    kind = AddPartitionsToTxnRequest
    for count in (MANY - 1, MANY):
        topic = kind.AddPartitionsToTxnTopic(name="t", partitions=list(range(count)))
        handlers.add_partitions(context, kind(
            v3_and_below_transactional_id="id", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=[topic],
        ))  # fmt: skip
        assert len(world.transactions.shard("id")[1].transactions[0].partitions) == count
        assert len(answers) == 1, "few are answered at once, many are not answered yet"
    await asyncio.sleep(0)
    results = answers[1].results_by_topic_v3_and_below[0].results_by_partition
    assert sorted(result.partition_index for result in results) == list(range(MANY))
    assert {result.partition_error_code for result in results} == {ErrorCode.NONE}
    await world.stop()


async def test_transactions_that_time_out_together_are_aborted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CoordinatorWorld(transactions=ongoing_transactions())
    world.lead(TRANSACTIONS_TOPIC)
    await world.loaded(TRANSACTIONS_TOPIC)
    world.now_ms += 10_000
    turns, written = Turns(monkeypatch), Turns(monkeypatch)
    world.transactions._markers = SimpleNamespace(send=lambda markers, answered: turns.done.append(markers))  # type: ignore[assignment]
    partition = world.partitions[TRANSACTIONS_TOPIC]
    append = partition.append
    monkeypatch.setattr(partition, "append", lambda *a, **named: (written.done.append(a), append(*a, **named))[1])
    index, shard = world.transactions.shard("id-0")
    world.transactions.run_steps(index, shard, world.transactions._abort_timed_out(index, shard))
    await asyncio.gather(turns.until(MANY), written.until(MANY))
    assert turns.most == 1 and written.most <= 2
    assert sorted(markers.transactional_id for markers in turns.done) == sorted(f"id-{number}" for number in range(MANY))
    await world.stop()


def commit(world: CoordinatorWorld, answered: Any) -> None:
    reply: Any = SimpleNamespace(respond=answered, client_id="c", client_host="h")
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    index, shard = world.groups.shard("g")
    shard.commit(reply, OffsetCommitRequest(group_id="g", topics=[topic]), 8, lambda name, topic_id, _: (name, bytes(16)), world.now_ms)
    world.groups.run_effects(index, shard)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_very_many_answers_are_sent_some_at_a_time_and_all_of_them(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    """Members of a group that wait for its assignment are answered together; what is asked meanwhile is answered after them."""
    world = CoordinatorWorld()
    world.lead()
    await world.loaded()
    turns = Turns(monkeypatch)
    many = Effects(answers=[(SimpleNamespace(respond=turns.done.append), number) for number in range(MANY)])  # type: ignore[misc]
    index, shard = world.groups.shard("g")
    waiting = [many]
    take = GroupShard.take_effects
    monkeypatch.setattr(GroupShard, "take_effects", lambda shard: waiting.pop() if waiting else take(shard))
    world.groups.run_effects(index, shard)
    commit(world, turns.done.append)
    assert len(turns.done) == 1
    if is_lost:
        world.lead(leader=False)
    await turns.until(MANY + 1)
    assert turns.done[:MANY] == list(range(MANY))
    assert turns.done[MANY].topics[0].partitions[0].error_code == (ErrorCode.NOT_COORDINATOR if is_lost else ErrorCode.NONE)
    assert is_lost or turns.most <= 1
    await world.stop()
