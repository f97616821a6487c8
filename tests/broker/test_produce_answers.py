"""Answers of Produce, field by field, as Apache Kafka 4.4 gives them (it was asked)."""

from __future__ import annotations

import asyncio
import random
import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node, still

from minikafka.client import Admin
from minikafka.storage.validation import LIGHT_BYTES_MAX
from minikafka.testing.probe import exchange
from minikafka.wire import batch_header
from minikafka.wire.batch import HEADER, TRANSACTIONAL_BIT, build_batch
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
async def asked(directory: Path, partitions: int = 1, **configs: str) -> AsyncIterator[Callable[..., Any]]:
    """One broker with the topic t; what is yielded sends a request of a version."""
    async with live_node(directory, turn_clock_s=still) as node:
        port = broker_port(node)
        named = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(f"127.0.0.1:{port}") as admin:
            await admin.create_topic("t", partitions=partitions, replication_factor=1, configs=named)

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


def both(*batches: bytes, acks: int = -1, transactional_id: str | None = None) -> ProduceRequest:
    """A batch for each of t's partitions."""
    kind = ProduceRequest
    data = [kind.PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in enumerate(batches)]
    topics = [kind.TopicProduceData(name="t", partition_data=data)]
    return kind(acks=acks, timeout_ms=1000, transactional_id=transactional_id, topic_data=topics)


def transactional(producer_id: int) -> bytes:
    records = [(0, NOW_MS, b"k", b"v", ())]
    return bytes(build_batch(records, is_transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0))


async def test_a_transactional_batch_without_a_transactional_id_fails_the_whole_request(tmp_path: Path) -> None:
    """The other partition's batch was stored, whose sequence numbers a producer then had to go on with."""
    async with asked(tmp_path, partitions=2) as ask:
        denied = ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", -1, -1)
        assert said(await ask(both(PLAIN, transactional(7)), 9)) == [denied, denied]
        with pytest.raises(ConnectionError):
            await ask(both(PLAIN, transactional(7), acks=0), 9)
        assert said(await ask(both(PLAIN, PLAIN), 9)) == [("NONE", 0, 0), ("NONE", 0, 0)]


async def test_transactional_batches_of_two_producers_fail_the_whole_request(tmp_path: Path) -> None:
    async with asked(tmp_path, partitions=2) as ask:
        refused = ("INVALID_PRODUCER_ID_MAPPING", -1, -1)
        assert said(await ask(both(transactional(7), transactional(8), transactional_id="x"), 9)) == [refused, refused]
        assert said(await ask(both(PLAIN, PLAIN, acks=2), 9)) == [("INVALID_REQUIRED_ACKS", -1, -1)] * 2


async def test_records_of_a_topic_without_a_cleanup_policy_may_be_deleted(tmp_path: Path) -> None:
    kind = DeleteRecordsRequest
    partitions = [kind.DeleteRecordsPartition(partition_index=0, offset=-1)]
    request = kind(timeout_ms=1000, topics=[kind.DeleteRecordsTopic(name="t", partitions=partitions)])
    for policy, code in (("", "NONE"), ("compact", "POLICY_VIOLATION")):
        async with asked(tmp_path / f"p{policy}", cleanup_policy=policy) as ask:
            response = await ask(request, 2)
            assert ErrorCode(response.topics[0].partitions[0].error_code).name == code


def message_of_format_1(timestamp_ms: int) -> bytes:
    body = struct.pack(">bbq", 1, 0, timestamp_ms) + struct.pack(">i1s", 1, b"k") + struct.pack(">i60s", 60, bytes(60))
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("attributes", [TRANSACTIONAL_BIT, CompressionType.ZSTD])
@pytest.mark.parametrize("version", [3, 9])
async def test_the_timestamp_of_an_older_format_is_not_taken_for_attributes(tmp_path: Path, version: int, attributes: int) -> None:
    """It has their place; for three days of every six it said "transactional", and for some hours "zstd", and the request failed."""
    records = message_of_format_1(NOW_MS & ~(0xFF << 24) | attributes << 24)
    assert HEADER.unpack_from(records)[batch_header.ATTRIBUTES] & 0xFF == attributes
    async with asked(tmp_path, partitions=2) as ask:
        assert [code for code, *_ in said(await ask(both(PLAIN, records), version))] == ["NONE", "INVALID_RECORD"]
