"""Small requests with a large decompressed size: the broker decompresses them in a thread, only as far as needed, and within a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node
from helpers.pipelined_client import PipelinedClient

from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.storage.validation import LIGHT_BYTES_MAX
from minikafka.wire import compression
from minikafka.wire.batch import RecordBatch, assemble_batch, build_batch, iterate_batches
from minikafka.wire.compression import WINDOW_BYTES, CompressionType, compress
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.record import encode_record

MIB = 1 << 20
NOW_MS = time.time_ns() // 1_000_000
BOUND = 16 * MIB


class Meter:
    """Bytes that were decompressed in the loop's thread, and elsewhere."""

    def __init__(self) -> None:
        self.on_loop = self.elsewhere = 0


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    windows, counted = compression._windows, Meter()

    def counting(codec: Any, data: Any, size_max: int, blocks_max: int) -> Iterator[bytes]:
        for window in windows(codec, data, size_max, blocks_max):
            if threading.current_thread() is threading.main_thread():
                counted.on_loop += len(window)
            else:
                counted.elsewhere += len(window)
            yield window

    monkeypatch.setattr(compression, "_windows", counting)
    return counted


class Client(PipelinedClient):
    async def produce(self, *batches: bytes) -> list[tuple[int, int]]:
        """(error code, base offset) of each, all sent at once."""
        for records in batches:
            data = ProduceRequest.PartitionProduceData(index=0, records=records)
            topics = [ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
            self.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
        found = []
        for _ in batches:
            answer = (await self.receive(ProduceResponse, 9)).responses[0].partition_responses[0]
            found.append((answer.error_code, answer.base_offset))
        return found

    async def list_offset(self, timestamp: int) -> tuple[int, int, int]:
        kind = ListOffsetsRequest
        partitions = [kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        self.send(kind(topics=[kind.ListOffsetsTopic(name="t", partitions=partitions)]), 7)
        answer = (await self.receive(ListOffsetsResponse, 7)).topics[0].partitions[0]
        return answer.error_code, answer.offset, answer.timestamp


def zeros(*sizes: int, codec: CompressionType = CompressionType.ZSTD, key: bytes | None = b"k") -> bytes:
    """A batch of records whose values are so many zeros; record n is of NOW_MS + n."""
    body = compress(codec, b"".join(encode_record(n, n, key, bytes(size), ()) for n, size in enumerate(sizes)))
    count = len(sizes)
    return bytes(assemble_batch(body, count=count, base_timestamp=NOW_MS, max_timestamp=NOW_MS + count - 1, attributes=int(codec)))


async def topic(node: Node, **configs: str) -> None:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1, configs=configs)


def log_of(node: Node) -> Any:
    assert node.broker is not None
    return node.broker.replicas.partitions[("t", 0)].log


@pytest.mark.asyncio
@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec])
async def test_a_bomb_is_refused_and_never_decompressed_on_the_loop(tmp_path: Path, meter: Meter, codec: CompressionType) -> None:
    bomb = zeros(63 * MIB, codec=codec)
    async with live_node(tmp_path, {"message.max.bytes": str(8 * MIB)}) as node, Client(node) as client:
        await topic(node, **{"max.message.bytes": str(MIB if len(bomb) < MIB else 8 * MIB)})
        bound = log_of(node).decompressed_bytes_max
        code = (await client.produce(bomb))[0][0]
        assert code == (ErrorCode.INVALID_RECORD if bound < 63 * MIB else ErrorCode.NONE)
    assert meter.on_loop <= LIGHT_BYTES_MAX + WINDOW_BYTES
    assert meter.elsewhere <= bound + WINDOW_BYTES


@pytest.mark.asyncio
async def test_a_look_up_by_time_stops_at_the_hit_and_at_the_bound(tmp_path: Path, meter: Meter) -> None:
    # Five records: more than are looked at when they come.
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node)
        assert await client.produce(zeros(6 * MIB, 6 * MIB, 40 * MIB, 10, 10)) == [(0, 0)]
        assert meter.elsewhere == 0
        assert await client.list_offset(NOW_MS + 1) == (0, 1, NOW_MS + 1)
        assert meter.elsewhere <= 13 * MIB
        assert (await client.list_offset(NOW_MS + 3))[0] == ErrorCode.CORRUPT_MESSAGE
        assert meter.elsewhere <= 13 * MIB + BOUND + WINDOW_BYTES
        # The largest timestamp stands behind the bound, too.
        assert (await client.list_offset(-3))[0] == ErrorCode.CORRUPT_MESSAGE
    assert meter.on_loop <= 3 * (LIGHT_BYTES_MAX + WINDOW_BYTES)


@pytest.mark.asyncio
async def test_a_look_up_goes_on_behind_a_batch_whose_header_lies(tmp_path: Path) -> None:
    def lying(largest: int, *sizes: int) -> bytes:
        # A stream that is looked at no further: else the header is put right.
        body = compress(CompressionType.LZ4, b"".join(encode_record(n, n, b"k", bytes(size), ()) for n, size in enumerate(sizes)))
        return bytes(assemble_batch(body, count=len(sizes), base_timestamp=NOW_MS, max_timestamp=largest, attributes=3))

    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node)
        await client.produce(lying(NOW_MS + 50, 9, 9, MIB, 9, 9), lying(NOW_MS + 50, 9, 9, 9, 9, 9), lying(NOW_MS + 5, *[9] * 6))
        assert await client.list_offset(NOW_MS + 5) == (0, 15, NOW_MS + 5)
        assert await client.list_offset(NOW_MS + 6) == (0, -1, -1)
        assert await client.list_offset(-3) == (0, 4, NOW_MS + 50)


@pytest.mark.asyncio
@pytest.mark.parametrize("configs", [{}, {"cleanup.policy": "compact"}, {"compression.type": "lz4"}])
async def test_requests_of_a_connection_keep_their_order(tmp_path: Path, meter: Meter, configs: dict[str, str]) -> None:
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node, **configs)
        small = bytes(build_batch([(0, NOW_MS, b"k", b"v", ())]))
        sent = [small, zeros(2 * MIB), small, zeros(MIB, MIB), small, small]
        assert await client.produce(*sent) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 5), (0, 6)]
        read = log_of(node).read(0, 64 * MIB, end_offset=7).slice
        sizes = [len(record.value or b"") for batch in iterate_batches(memoryview(read.read())) for record in batch.records()]
        assert sizes == [1, 2 * MIB, 1, MIB, MIB, 1, 1]
    assert meter.elsewhere >= 4 * MIB


@pytest.mark.asyncio
async def test_a_prepared_batch_takes_the_topics_timestamps(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node, **{"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"})
        await client.produce(zeros(MIB, codec=CompressionType.GZIP))
        stored = RecordBatch(log_of(node).read(0, 64 * MIB, end_offset=1).slice.read())
        assert stored.compression is CompressionType.ZSTD and stored.timestamp_type == 1 and stored.crc_valid()
        assert stored.max_timestamp >= NOW_MS


@pytest.mark.asyncio
@pytest.mark.parametrize("configs", [{"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}, {}])
async def test_timestamps_beyond_64_bits_are_refused(tmp_path: Path, configs: dict[str, str]) -> None:
    body = encode_record(0, 4, b"k", b"v", ())
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node, **configs)
        for base in ((1 << 63) - 1, (1 << 63) - 4):
            bad = bytes(assemble_batch(body, count=1, base_timestamp=base, max_timestamp=NOW_MS, attributes=0))
            assert (await client.produce(bad))[0][0] in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
            if configs:
                assert (await client.produce(bad))[0][0] == ErrorCode.INVALID_RECORD


@pytest.mark.asyncio
async def test_a_million_headers_are_walked_beside_the_loop(tmp_path: Path) -> None:
    record = encode_record(0, 0, b"k", b"v", [("", b"")] * 400_000)
    batch = bytes(assemble_batch(record, count=1, base_timestamp=NOW_MS, max_timestamp=NOW_MS, attributes=0))
    async with live_node(tmp_path) as node, Client(node) as client:
        await topic(node)
        assert log_of(node).is_heavy(memoryview(batch))
        assert await client.produce(batch) == [(0, 0)]
