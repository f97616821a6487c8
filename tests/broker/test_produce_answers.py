"""Answers of Produce, field by field, as Apache Kafka 4.4 gives them (it was asked)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client import Admin
from minikafka.storage.validation import LIGHT_BYTES_MAX
from minikafka.testing.probe import exchange
from minikafka.wire.batch import build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.produce import ProduceRequest

pytestmark = pytest.mark.timeout(60)
NOW_MS = int(time.time() * 1000)
PLAIN = build_batch([(0, NOW_MS, b"k", b"v", ())])


@asynccontextmanager
async def asked(directory: Path, **configs: str) -> AsyncIterator[Callable[..., Any]]:
    """One broker with the topic t; what is yielded sends a request of a version."""
    async with live_node(directory) as node:
        port = broker_port(node)
        async with Admin(f"127.0.0.1:{port}") as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1, configs={k.replace("_", "."): v for k, v in configs.items()})

        async def ask(request: Any, version: int) -> Any:
            return await asyncio.to_thread(exchange, "127.0.0.1", port, request, version)

        yield ask


def produce(*topics: Sequence[Any], transactional_id: str | None = None) -> ProduceRequest:
    """Each topic has t's partition 0 once for each of its batches."""
    kind = ProduceRequest
    data = [
        kind.TopicProduceData(name="t", partition_data=[kind.PartitionProduceData(records=memoryview(batch)) for batch in batches])
        for batches in topics
    ]
    return kind(acks=-1, timeout_ms=1000, transactional_id=transactional_id, topic_data=data)


def said(response: Any) -> list[tuple[str, int, int]]:
    return [
        (ErrorCode(answer.error_code).name, answer.base_offset, answer.log_start_offset)
        for topic in response.responses
        for answer in topic.partition_responses
    ]


async def test_of_a_partition_that_is_named_twice_only_the_last_batch_is_looked_at(tmp_path: Path) -> None:
    """The first one was checked beside the loop, and its verdict was taken for the last one's: a record without a key was stored."""
    noise = random.Random(1).randbytes(LIGHT_BYTES_MAX)
    heavy = build_batch([(n, NOW_MS, b"k", noise, ()) for n in range(4)], compression=CompressionType.ZSTD)
    without_key = build_batch([(0, NOW_MS, None, b"v", ())])
    async with asked(tmp_path, cleanup_policy="compact") as ask:
        for topics in ([[heavy, without_key]], [[heavy], [without_key]]):
            assert said(await ask(produce(*topics), 9)) == [("INVALID_RECORD", -1, 0)]
        assert said(await ask(produce([without_key, heavy]), 9)) == [("NONE", 0, 0)]


async def test_a_transaction_is_verified_for_the_last_batch_alone(tmp_path: Path) -> None:
    async with asked(tmp_path) as ask:
        await ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        while (producer := await ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)).producer_id < 0:
            pass
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
        of_no_transaction = build_batch([(0, NOW_MS, b"k", b"v", ())], is_transactional=True, **identity)
        for topics in ([[of_no_transaction, PLAIN]], [[of_no_transaction], [PLAIN]]):
            assert said(await ask(produce(*topics, transactional_id="x"), 9))[0][0] == "NONE"
        assert said(await ask(produce([PLAIN, of_no_transaction], transactional_id="x"), 9)) == [("INVALID_TXN_STATE", -1, -1)]


async def test_a_refusal_names_the_start_of_the_log_when_the_log_refused(tmp_path: Path) -> None:
    async with asked(tmp_path) as ask:
        await ask(produce([PLAIN]), 9)
        kind = DeleteRecordsRequest
        partition = kind.DeleteRecordsPartition(partition_index=0, offset=1)
        await ask(kind(timeout_ms=1000, topics=[kind.DeleteRecordsTopic(name="t", partitions=[partition])]), 2)
        producer = await ask(InitProducerIdRequest(transactional_id=None), 4)
        identity = {"producer_id": producer.producer_id, "producer_epoch": 0}
        gap = build_batch([(0, NOW_MS, b"k", b"v", ())], base_sequence=7, **identity)
        await ask(produce([build_batch([(0, NOW_MS, b"k", b"v", ())], base_sequence=0, **identity)]), 9)
        assert said(await ask(produce([gap]), 9)) == [("OUT_OF_ORDER_SEQUENCE_NUMBER", -1, 1)]
        corrupt = bytearray(PLAIN)
        corrupt[-1] ^= 1
        assert said(await ask(produce([corrupt]), 9)) == [("CORRUPT_MESSAGE", -1, -1)]
