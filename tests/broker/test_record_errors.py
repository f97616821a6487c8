"""Which records of a refused batch are the reason (KIP-467), as Kafka's LogValidator says it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client import Admin
from minikafka.storage.validation import LIGHT_BYTES_MAX, RECORD_ERRORS_MAX
from minikafka.testing.probe import exchange
from minikafka.wire.batch import build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.produce import ProduceRequest

Records = list[tuple[int, int, bytes | None, bytes]]


async def produced(tmp_path: Path, configs: dict[str, str], records: Records, codec: CompressionType, version: int = 12) -> Any:
    async with live_node(tmp_path) as node:
        port = broker_port(node)
        async with Admin(f"127.0.0.1:{port}") as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1, configs=configs)
        data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(build_batch(records, compression=codec)))
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])])
        response: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, request, version)
        return response.responses[0].partition_responses[0]


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
async def test_records_without_a_key_of_a_compacted_topic_are_named(tmp_path: Path, codec: CompressionType) -> None:
    now = now_ms()
    records: Records = [(index, now, None if index % 10 == 3 else b"k", b"v") for index in range(100)]
    answer = await produced(tmp_path, {"cleanup.policy": "compact"}, records, codec)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in answer.record_errors] == list(range(3, 100, 10))
    text = "Compacted topic cannot accept message without key in topic partition t-0."
    assert {error.batch_index_error_message for error in answer.record_errors} == {text}
    start = "One or more records have been rejected due to 10 record errors in total, and only showing the first three errors at most: ["
    assert answer.error_message.startswith(start) and answer.error_message.count(text) == 3


async def test_records_out_of_time_are_named(tmp_path: Path) -> None:
    now = now_ms()
    records: Records = [(0, now, None, b"a"), (1, now + 10**9, None, b"b"), (2, now, None, b"c"), (3, -1, None, b"d")]
    answer = await produced(tmp_path, {"message.timestamp.after.max.ms": "1000"}, records, CompressionType.NONE)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    [error] = answer.record_errors
    assert error.batch_index == 1
    assert error.batch_index_error_message.startswith(f"Timestamp {now + 10**9} of message with offset 1 is out of range.")


async def test_the_list_is_bounded_and_older_versions_get_the_code(tmp_path: Path) -> None:
    now = now_ms()
    records: Records = [(index, now, None, b"v") for index in range(RECORD_ERRORS_MAX + 7)]
    answer = await produced(tmp_path, {"cleanup.policy": "compact"}, records, CompressionType.ZSTD)
    assert len(answer.record_errors) == RECORD_ERRORS_MAX and f" {RECORD_ERRORS_MAX + 7} record errors in total" in answer.error_message
    older = await produced(tmp_path / "older", {"cleanup.policy": "compact"}, records[:3], CompressionType.NONE, version=7)
    assert older.error_code == ErrorCode.INVALID_RECORD and not older.record_errors


async def test_a_batch_that_takes_long_to_examine_is_refused_without_a_list(tmp_path: Path) -> None:
    now = now_ms()
    records: Records = [(index, now + 10**9, None, bytes(LIGHT_BYTES_MAX)) for index in range(5)]
    answer = await produced(tmp_path, {"message.timestamp.after.max.ms": "1000"}, records, CompressionType.GZIP)
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])
