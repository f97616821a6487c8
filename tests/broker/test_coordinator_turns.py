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
from minikafka.core.transaction.state import TransactionState
from minikafka.net.turn_share import TurnShares
from minikafka.wire.errors import ErrorCode
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
    effects = Effects(answers=[(SimpleNamespace(respond=turns.done.append), number) for number in range(MANY)])  # type: ignore[misc]
    index, shard = world.groups.shard("g")
    waiting = [effects]
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
