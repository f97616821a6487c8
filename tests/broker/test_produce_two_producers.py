"""A transactional Produce with batches of two producers is refused as a whole, but not for batches of partitions that do not exist."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.batches import T0, batch

from minikafka.broker.partitions.produce_transactional import TransactionalProduce
from minikafka.broker.supervise import Supervisor
from minikafka.wire.batch import TRANSACTIONAL_BIT
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.produce import ProduceRequest


@pytest.mark.parametrize(
    ("fault", "refuses"),
    [
        (None, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, False),
    ],
)
async def test_batches_of_partitions_that_do_not_exist_do_not_count(fault: ErrorCode | None, refuses: bool) -> None:
    def require(name: str, topic_id: bytes | None, index: int) -> object:
        if index == 1 and fault is not None:
            raise ApiError(fault)
        return object()

    replicas: Any = SimpleNamespace(require=require)
    held = TransactionalProduce(replicas, SimpleNamespace(), lambda: T0, Supervisor(asyncio.get_running_loop()))  # type: ignore[arg-type]
    batches = [batch(b"v", producer=(producer, 0, 0), attributes=TRANSACTIONAL_BIT) for producer in (7, 8)]
    data = [ProduceRequest.PartitionProduceData(index=index, records=memoryview(records)) for index, records in enumerate(batches)]
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=data)]
    context: Any = SimpleNamespace(api_version=12)
    assert held.has_two_producers(context, ProduceRequest(transactional_id="id", topic_data=topics)) is refuses
    topics[0].partition_data = data[:1]
    assert not held.has_two_producers(context, ProduceRequest(transactional_id="id", topic_data=topics))
