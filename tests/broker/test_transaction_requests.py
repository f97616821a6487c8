"""AddPartitionsToTxn as Apache Kafka 4.3 answers it: one unknown partition keeps all partitions out of the transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coordinator_world import TRANSACTIONS_TOPIC, CoordinatorWorld

from minikafka.broker.coordinators.transaction_requests import TransactionHandlers
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

TOPIC = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TRANSACTION = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


def request(version: int, verify_only: bool) -> AddPartitionsToTxnRequest:
    topics = [TOPIC(name=name, partitions=[0]) for name in (TRANSACTIONS_TOPIC, "unknown")]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics
        )
    return AddPartitionsToTxnRequest(
        transactions=[TRANSACTION(transactional_id="x", producer_id=1, producer_epoch=0, verify_only=verify_only, topics=topics)]
    )


@pytest.mark.parametrize(("version", "verify_only"), [(3, False), (4, False), (5, False), (5, True)])
@pytest.mark.parametrize("is_coordinator", [False, True])
async def test_an_unknown_partition_keeps_the_others_out(version: int, verify_only: bool, is_coordinator: bool) -> None:
    """On every coordinator: otherwise a marker would wait for ever for a missing partition."""
    world = CoordinatorWorld()
    if is_coordinator:
        world.lead(TRANSACTIONS_TOPIC)
    nobody: Any = None
    environment: Any = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1))
    metadata: Any = SimpleNamespace(image=world.image)
    handlers = TransactionHandlers(
        world.transactions, nobody, nobody, world.groups, nobody, metadata, nobody, environment, nobody, lambda *_: True
    )
    answers: list[AddPartitionsToTxnResponse] = []
    context: Any = SimpleNamespace(api_version=version, respond=answers.append)
    handlers.add_partitions(context, request(version, verify_only))
    results = answers[0].results_by_topic_v3_and_below if version < 4 else answers[0].results_by_transaction[0].topic_results
    assert {topic.name: topic.results_by_partition[0].partition_error_code for topic in results} == {
        TRANSACTIONS_TOPIC: ErrorCode.OPERATION_NOT_ATTEMPTED,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await world.stop()
