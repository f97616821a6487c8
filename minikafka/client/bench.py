"""Measures the throughput and latency of a running cluster. Batches are built beforehand, so the timed part encodes and compresses nothing.

There is one connection to each leader, with several requests in flight. The client is one Python process: `client_busy` is the share of a
core that it used. Near 1, the figure measures the client and not the cluster.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minikafka.client.admin import Admin
from minikafka.client.cluster import Cluster, PartitionInfo
from minikafka.client.errors import BrokerError, ClientError, refusal
from minikafka.net.channel import Channel
from minikafka.wire.batch import HEADER, LOG_OVERHEAD, build_batch
from minikafka.wire.batch_header import BASE_OFFSET, LAST_DELTA, LENGTH
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

RECORD_BYTES = 1000
#: Size of a record beyond its value of RECORD_BYTES.
RECORD_OVERHEAD_BYTES = 12
PRODUCE_VERSION_MAX = 12
FETCH_VERSION_MAX = 12
FETCH_WAIT_MS_MAX = 500
REQUEST_TIMEOUT_MS = 30_000
RETRY_BACKOFF_S = 0.05
NO_SESSION_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: requests/s, MB/s (1e6 bytes of batches), latencies in milliseconds, the client's share of a core."""

    measure: str
    requests_per_s: float
    megabytes_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    client_busy: float


class Bench:
    """Measures one topic of a cluster. Raises ClientError for a request that a broker refuses, TimeoutError, NoBrokers."""

    def __init__(self, admin: Admin, topic: str, *, seconds: float, in_flight: int, megabytes_max: float) -> None:
        self._cluster: Cluster = admin.cluster
        self._topic = topic
        self._seconds = seconds
        self._in_flight = in_flight
        self._bytes_max = megabytes_max * 1e6

    async def produce(self, batch_bytes: int, acks: int) -> Measured:
        """Send batches of about `batch_bytes`, one per request, to all partitions at once, as fast as the brokers acknowledge them."""
        batch = _batch(batch_bytes)
        channels = await self._leaders()
        run = _Run(f"produce {size_text(batch_bytes)} acks={'all' if acks == -1 else acks}", self._seconds, self._bytes_max)

        def start(channel: Channel, partition: PartitionInfo) -> None:
            sent = run.begin()
            request = produce_request(self._topic, partition.index, batch, acks)

            def answered(response: Any, error: Exception | None) -> None:
                if error is None:
                    error = _produce_error(response)
                if run.end(sent, len(batch), error):
                    start(channel, partition)

            channel.send(request, channel.version_for(request, PRODUCE_VERSION_MAX), answered, REQUEST_TIMEOUT_MS)

        return await run.drive([(start, channel, partition) for channel, partition in channels for _ in range(self._in_flight)])

    async def fetch(self, partition_bytes: int) -> Measured:
        """Read every partition from beginning to end, again and again, with fetches of up to `partition_bytes`."""
        channels = await self._leaders()
        run = _Run(f"consume {size_text(partition_bytes)} a fetch", self._seconds, float("inf"))

        def start(channel: Channel, partition: PartitionInfo, offset: int) -> None:
            sent = run.begin()
            request = fetch_request(self._topic, partition.index, offset, partition_bytes, wait_ms=0)

            def answered(response: Any, error: Exception | None) -> None:
                size, following = 0, 0
                if error is None:
                    try:
                        size, following = _fetched(response, offset)
                    except ClientError as refused:
                        error = refused
                if run.end(sent, size, error):
                    start(channel, partition, following if size and following > offset else 0)

            channel.send(request, channel.version_for(request, FETCH_VERSION_MAX), answered, REQUEST_TIMEOUT_MS)

        return await run.drive([(start, channel, partition, 0) for channel, partition in channels])

    async def round_trip(self) -> Measured:
        """One record at a time with acks=all."""
        channel, partition = (await self._leaders())[0]
        batch = _batch(RECORD_BYTES)
        run = _Run("round trip of a record, acks=all", self._seconds, float("inf"))

        def start() -> None:
            sent = run.begin()
            request = produce_request(self._topic, partition.index, batch, -1)

            def answered(response: Any, error: Exception | None) -> None:
                if run.end(sent, len(batch), error or _produce_error(response)):
                    start()

            channel.send(request, channel.version_for(request, PRODUCE_VERSION_MAX), answered, REQUEST_TIMEOUT_MS)

        return await run.drive([(start,)])

    async def end_to_end(self, reader: Cluster) -> Measured:
        """One record at a time: from sending it (acks=all) until a consumer's waiting fetch returns it."""
        channel, partition = (await self._leaders())[0]
        await reader.topic(self._topic)
        consumer = await reader.channel_to(partition.leader)
        batch = _batch(RECORD_BYTES)
        run = _Run("send to receive of a record, acks=all", self._seconds, float("inf"))
        offset = await self._append(channel, partition.index, batch) + 1

        def fetch(offset: int, sent: float) -> None:
            request = fetch_request(self._topic, partition.index, offset, 1 << 20, wait_ms=FETCH_WAIT_MS_MAX)

            def answered(response: Any, error: Exception | None) -> None:
                size, following = 0, offset
                if error is None:
                    try:
                        size, following = _fetched(response, offset)
                    except ClientError as refused:
                        error = refused
                if error is None and following == offset:
                    fetch(offset, sent)
                elif run.end(sent, size, error):
                    start(following)

            consumer.send(request, consumer.version_for(request, FETCH_VERSION_MAX), answered, REQUEST_TIMEOUT_MS)

        def start(offset: int) -> None:
            sent = run.begin()
            fetch(offset, sent)
            request = produce_request(self._topic, partition.index, batch, -1)

            def answered(response: Any, error: Exception | None) -> None:
                if error is not None or (error := _produce_error(response)) is not None:
                    run.end(sent, 0, error)

            channel.send(request, channel.version_for(request, PRODUCE_VERSION_MAX), answered, REQUEST_TIMEOUT_MS)

        return await run.drive([(start, offset)])

    async def settle(self) -> None:
        """Wait until the followers have replicated everything: one more append to each partition with acks=all. Tries again for
        REQUEST_TIMEOUT_MS, because a leader may not know yet of a topic that was just created."""
        batch = _batch(RECORD_BYTES)
        deadline = time.monotonic() + REQUEST_TIMEOUT_MS / 1000
        while True:
            try:
                await asyncio.gather(*(self._append(channel, partition.index, batch) for channel, partition in await self._leaders()))
                return
            except BrokerError as error:
                if not error.code.retriable or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)
            await self._cluster.refresh([self._topic])

    async def _append(self, channel: Channel, index: int, batch: bytes) -> int:
        """Append one batch and return its base offset."""
        request = produce_request(self._topic, index, batch, -1)
        response: Any = await channel.request(request, channel.version_for(request, PRODUCE_VERSION_MAX), REQUEST_TIMEOUT_MS)
        if (error := _produce_error(response)) is not None:
            raise error
        return int(response.responses[0].partition_responses[0].base_offset)

    async def _leaders(self) -> list[tuple[Channel, PartitionInfo]]:
        topic = await self._cluster.topic(self._topic)
        return [(await self._cluster.channel_to(partition.leader), partition) for partition in topic.partitions]


class _Run:
    """One timed run: chains of requests, in which each response starts the next request until the time or the bytes are used up."""

    def __init__(self, name: str, seconds: float, bytes_max: float) -> None:
        self._name = name
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._latencies: list[float] = []
        self._bytes = 0
        self._open = 0
        self._deadline = 0.0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> float:
        """Note that a request is sent. Returns the start time that `end` needs."""
        self._open += 1
        return time.perf_counter()

    def end(self, sent: float, size: int, error: Exception | None) -> bool:
        """Note that its response has arrived. Returns whether to send the next request of the chain."""
        now = time.perf_counter()
        self._open -= 1
        if self._ended.done():
            return False
        if error is not None:
            self._ended.set_exception(error)
            return False
        self._latencies.append(now - sent)
        self._bytes += size
        if now < self._deadline and self._bytes < self._bytes_max:
            return True
        if not self._open:
            self._ended.set_result(None)
        return False

    async def drive(self, chains: list[tuple[Any, ...]]) -> Measured:
        """Start the chains and wait for the last response."""
        started, cpu = time.perf_counter(), time.process_time()
        self._deadline = started + self._seconds
        for start, *arguments in chains:
            start(*arguments)
        await self._ended
        elapsed = time.perf_counter() - started
        latencies = sorted(self._latencies)

        def at(share: float) -> float:
            return latencies[min(int(share * len(latencies)), len(latencies) - 1)] * 1000

        busy = (time.process_time() - cpu) / elapsed
        return Measured(self._name, len(latencies) / elapsed, self._bytes / elapsed / 1e6, at(0.5), at(0.99), latencies[-1] * 1000, busy)


def produce_request(topic: str, index: int, batch: bytes, acks: int) -> ProduceRequest:
    """One batch of one partition."""
    data = ProduceRequest.PartitionProduceData(index=index, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=topics)


def fetch_request(topic: str, index: int, offset: int, size: int, *, wait_ms: int) -> FetchRequest:
    """One partition, without a session."""
    partition = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=size, session_id=0, session_epoch=NO_SESSION_EPOCH, topics=topics)


def _batch(size_bytes: int) -> bytes:
    """A batch of about `size_bytes`, of records of up to RECORD_BYTES that do not compress."""
    count = max(1, size_bytes // (RECORD_BYTES + RECORD_OVERHEAD_BYTES))
    value = os.urandom(max(1, min(RECORD_BYTES, size_bytes - RECORD_OVERHEAD_BYTES)))
    now = time.time_ns() // 1_000_000
    return bytes(build_batch([(number, now, None, value, ()) for number in range(count)]))


def _produce_error(response: ProduceResponse) -> Exception | None:
    answer = response.responses[0].partition_responses[0]
    return refusal(answer.error_code, "a produce request", answer.error_message) if answer.error_code else None


def _fetched(response: FetchResponse, offset: int) -> tuple[int, int]:
    """(bytes of records, the offset after the last whole batch)."""
    if response.error_code:
        raise refusal(response.error_code, "a fetch")
    answer = response.responses[0].partitions[0]
    if answer.error_code:
        raise refusal(answer.error_code, "a fetch")
    records: Any = answer.records or b""
    position, following = 0, offset
    while position + HEADER.size <= len(records):
        header = HEADER.unpack_from(records, position)
        if position + header[LENGTH] + LOG_OVERHEAD > len(records):
            break
        following = header[BASE_OFFSET] + header[LAST_DELTA] + 1
        position += header[LENGTH] + LOG_OVERHEAD
    return len(records), following


def size_text(size_bytes: int) -> str:
    """16384 -> "16 KiB"."""
    for unit, name in ((1 << 20, "MiB"), (1_000_000, "MB"), (1 << 10, "KiB"), (1000, "KB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


async def measure(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    replication_factor: int,
    batch_sizes: list[int],
    fetch_sizes: list[int],
    seconds: float,
    in_flight: int,
    megabytes_max: float,
    on_measured: Callable[[Measured], None],
) -> list[Measured]:
    """Create `topic`, measure, and delete it, also after an error. Raises as `Bench`."""
    found: list[Measured] = []

    def note(measured: Measured) -> None:
        found.append(measured)
        on_measured(measured)

    async with Admin(bootstrap, client_id="minikafka-bench") as admin:
        brokers = len((await admin.describe_cluster()).brokers)
        replicas = min(3, brokers) if replication_factor < 1 else replication_factor
        await admin.create_topic(topic, partitions=partitions, replication_factor=replicas)
        reader = Cluster(bootstrap, client_id="minikafka-bench-consumer")
        try:
            bench = Bench(admin, topic, seconds=seconds, in_flight=in_flight, megabytes_max=megabytes_max)
            await bench.settle()
            await bench.produce(batch_sizes[0], 1)
            for acks in (1, -1):
                for size in batch_sizes:
                    await bench.settle()
                    note(await bench.produce(size, acks))
            await bench.settle()
            for size in fetch_sizes:
                note(await bench.fetch(size))
            note(await bench.round_trip())
            note(await bench.end_to_end(reader))
        finally:
            await reader.close()
            await admin.delete_topic(topic)
    return found
