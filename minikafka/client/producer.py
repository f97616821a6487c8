"""A producer: batches by linger and size, one batch in flight for each partition, idempotent retries."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from minikafka.client.cluster import BACKOFF_S_MAX, BACKOFF_S_MIN, TRANSPORT_ERRORS, Cluster
from minikafka.client.errors import ClientError, DeliveryFailed, NoBrokers, refusal
from minikafka.client.partitioner import StickyPartitioner
from minikafka.net.network import Network
from wire.batch import build_batch
from wire.compression import CompressionType
from wire.errors import ErrorCode
from wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.messages.produce import ProduceRequest, ProduceResponse
from wire.record import Header, Record

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

RECORD_OVERHEAD_BYTES = 24
PRODUCE_VERSION_MAX = 12
_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was stored; offset -1 with acks=0, timestamp in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class _Batch:
    __slots__ = ("closed", "created_s", "deadline_s", "encoded", "futures", "producer", "records", "sequence", "size")

    def __init__(self, now_s: float, deadline_s: float) -> None:
        self.records: list[Record] = []
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.size = 0
        self.created_s = now_s
        self.deadline_s = deadline_s
        self.sequence = -1
        self.producer: tuple[int, int] = (-1, -1)
        self.encoded: bytearray | None = None
        self.closed = False


class _PartitionQueue:
    __slots__ = ("batches", "index", "next_sequence", "task", "topic", "wake")

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.batches: deque[_Batch] = deque()
        self.next_sequence = 0
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Producer:
    """Sends records. Use as `async with Producer(...)` or with `start` and `close`."""

    #: Of a `TransactionalProducer`.
    transactional_id: str | None = None

    def __init__(
        self,
        bootstrap: str,
        *,
        acks: int | str = "all",
        linger_ms: float = 5,
        batch_size: int = 1 << 18,
        compression: str = "none",
        enable_idempotence: bool = True,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        buffer_memory: int = 64 << 20,
        client_id: str = "minikafka-producer",
        network: Network | None = None,
        security: Mapping[str, str] | ClientSecurity | None = None,
    ) -> None:
        """Kafka's settings: times in milliseconds, sizes in bytes; `acks` 0, 1 or "all". `security`: Kafka's client properties
        (security.protocol, ssl.*, sasl.*)."""
        self._acks = -1 if acks in ("all", -1, "-1") else int(acks)
        self._linger_s = linger_ms / 1000
        self._batch_size = batch_size
        self._codec = CompressionType.from_name(compression)
        self._idempotent = enable_idempotence and self._acks == -1
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._request_timeout_ms = request_timeout_ms
        self._buffer_memory = buffer_memory
        self.cluster = Cluster(
            bootstrap, client_id=client_id, request_timeout_ms=request_timeout_ms, network=network, security=security
        )
        self._partitioner = StickyPartitioner()
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}
        self._producer: tuple[int, int] = (-1, -1)
        self._has_producer_id = False
        self._asking_producer_id = asyncio.Lock()
        self._buffered = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._unsettled = 0
        self._closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close(timeout_ms=None if error is None else 0)

    async def start(self) -> None:
        """Connect, and get a producer id when idempotent. Raises ClientError."""
        await self.cluster.retry(lambda: self.cluster.refresh([]))
        if self._idempotent:
            await self._ensure_producer_id()

    async def _ensure_producer_id(self) -> None:
        """Get a producer id unless there is one that can be used. Raises as `Cluster.retry` and BrokerError."""
        async with self._asking_producer_id:
            if not self._has_producer_id:
                await self._init_producer_id()
                self._has_producer_id = True

    async def _init_producer_id(self) -> None:
        async def ask() -> tuple[int, int] | None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = cast(InitProducerIdResponse, await self.cluster.request(request))
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                return response.producer_id, response.producer_epoch
            if code.retriable:
                return None
            raise refusal(code, "the cluster gives no producer id")

        self._producer = await self.cluster.retry(ask, self._request_timeout_ms)
        for queue in self._queues.values():
            queue.next_sequence = 0

    # -- sending ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a record; the future is settled when the cluster has answered. Waits while too much is buffered. Raises ClientError."""
        if self._closing:
            raise ClientError("the producer is closed")
        if partition is None or (topic, partition) not in self._queues:
            info = await self.cluster.topic(topic, create=True)
            if partition is None:
                partition = self._partitioner.partition(topic, key, len(info.partitions))
        size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        while self._buffered and self._buffered + size > self._buffer_memory:
            self._drained.clear()
            await self._drained.wait()
        loop = asyncio.get_running_loop()
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[(topic, partition)] = _PartitionQueue(topic, partition)
            queue.task = asyncio.ensure_future(self._run(queue))
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.closed or batch.size + size > self._batch_size:
            if batch is not None:
                batch.closed = True
                self._partitioner.batch_left(topic, partition)
            batch = _Batch(loop.time(), loop.time() + self._delivery_timeout_s)
            queue.batches.append(batch)
            queue.wake.set()
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        timestamp = timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000
        batch.records.append(Record(len(batch.records), timestamp, key, value, headers))
        batch.futures.append(future)
        batch.size += size
        self._buffered += size
        self._unsettled += 1
        self._idle.clear()
        if batch.size >= self._batch_size:
            queue.wake.set()
        return future

    async def flush(self) -> None:
        """Wait until every record that was queued is settled."""
        for queue in self._queues.values():
            if queue.batches:
                queue.batches[-1].closed = True
                queue.wake.set()
        await self._idle.wait()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send what is queued, within `timeout_ms` if given, and disconnect; what is left fails."""
        self._closing = True
        try:
            if timeout_ms is None:
                await self.flush()
            elif timeout_ms > 0:
                await asyncio.wait_for(self.flush(), timeout_ms / 1000)
        except TimeoutError:
            pass
        finally:
            self._drop("the producer was closed")
            await self.cluster.close()

    def _drop(self, reason: str) -> None:
        """Give up whatever is not acknowledged."""
        for queue in self._queues.values():
            if queue.task is not None:
                queue.task.cancel()
            for batch in queue.batches:
                self._fail(batch, ErrorCode.REQUEST_TIMED_OUT, reason)
        self._queues.clear()

    # -- one partition ---------------------------------------------------------------------------------------------

    async def _run(self, queue: _PartitionQueue) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not queue.batches:
                queue.wake.clear()
                await queue.wake.wait()
            batch = queue.batches[0]
            while not batch.closed and batch.size < self._batch_size and not self._closing:
                left = batch.created_s + self._linger_s - loop.time()
                if left <= 0:
                    break
                queue.wake.clear()
                alarm = loop.call_later(left, queue.wake.set)
                try:
                    await queue.wake.wait()
                finally:
                    alarm.cancel()
            batch.closed = True
            self._partitioner.batch_left(queue.topic, queue.index)
            await self._deliver(queue, batch)
            if queue.batches and queue.batches[0] is batch:
                queue.batches.popleft()

    async def _deliver(self, queue: _PartitionQueue, batch: _Batch) -> None:
        loop = asyncio.get_running_loop()
        backoff, failure = BACKOFF_S_MIN, ErrorCode.REQUEST_TIMED_OUT
        reason = ""
        while True:
            try:
                answer = await self._attempt(queue, batch)
                if answer is None:
                    self._settle(queue, batch, -1, -1)
                    return
                code = ErrorCode(answer.error_code)
                hint = answer.current_leader
                if code is ErrorCode.NONE:
                    if hint.leader_id >= 0:
                        # An old leader has handed the batch on and says so: the next one goes to the new leader.
                        self.cluster.moved(queue.topic, queue.index, hint.leader_id, hint.leader_epoch)
                    self._settle(queue, batch, answer.base_offset, answer.log_append_time_ms)
                    return
                failure, reason = code, answer.error_message or ""
                if code in _SEQUENCE_LOST and self._idempotent:
                    self._fail(batch, code, reason)
                    # A new id comes with the next batch, within that batch's time and with its retries.
                    self._has_producer_id = False
                    return
                if not code.retriable:
                    self._fail(batch, code, reason)
                    self._leave_gap(batch)
                    return
                if self.cluster.moved(queue.topic, queue.index, hint.leader_id, hint.leader_epoch):
                    backoff = BACKOFF_S_MIN
                    continue
            except (NoBrokers, *TRANSPORT_ERRORS) as error:
                failure, reason = ErrorCode.REQUEST_TIMED_OUT, str(error)
            except ClientError as error:
                self._fail(batch, getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR), str(error))
                self._leave_gap(batch)
                return
            if loop.time() + backoff >= batch.deadline_s:
                self._fail(batch, failure, reason)
                self._leave_gap(batch)
                return
            self.cluster.forget(queue.topic)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_S_MAX)

    async def _attempt(self, queue: _PartitionQueue, batch: _Batch) -> ProduceResponse.PartitionProduceResponse | None:
        left_ms = max(int((batch.deadline_s - asyncio.get_running_loop().time()) * 1000), 1)
        timeout_ms = min(left_ms, self._request_timeout_ms)
        if self._idempotent and batch.encoded is None:
            await self._ensure_producer_id()
        leader = await self.cluster.leader(queue.topic, queue.index, timeout_ms=timeout_ms)
        channel = await self.cluster.channel_to(leader.leader)
        data = ProduceRequest.PartitionProduceData(index=queue.index, records=bytes(self._encode(queue, batch)))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=queue.topic, partition_data=[data])],
        )
        version = channel.version_for(request, PRODUCE_VERSION_MAX)
        if self._acks == 0:
            channel.send_unanswered(request, version)
            return None
        try:
            response: Any = await channel.request(request, version, timeout_ms + 1000)
        except TimeoutError:
            channel.close("no answer to a produce request in time")
            raise
        return cast(ProduceResponse.PartitionProduceResponse, response.responses[0].partition_responses[0])

    def _encode(self, queue: _PartitionQueue, batch: _Batch) -> bytearray:
        if batch.encoded is None:
            if self._idempotent:
                batch.producer = self._producer
                batch.sequence = queue.next_sequence
                queue.next_sequence = (queue.next_sequence + len(batch.records)) & 0x7FFFFFFF
            batch.encoded = build_batch(
                batch.records,
                compression=self._codec,
                producer_id=batch.producer[0],
                producer_epoch=batch.producer[1],
                base_sequence=batch.sequence,
                is_transactional=self.transactional_id is not None,
            )
        return batch.encoded

    def _settle(self, queue: _PartitionQueue, batch: _Batch, base_offset: int, append_time_ms: int) -> None:
        for number, (record, future) in enumerate(zip(batch.records, batch.futures, strict=True)):
            if not future.done():
                offset = base_offset + number if base_offset >= 0 else -1
                timestamp = append_time_ms if append_time_ms >= 0 else record.timestamp
                future.set_result(RecordMetadata(queue.topic, queue.index, offset, timestamp))
        self._done(batch)

    def _leave_gap(self, batch: _Batch) -> None:
        """A numbered batch is given up, stored or not: its sequence numbers are not used again, and what follows them would stand behind a
        gap. So the next batches come with a new producer id (as Sender.failBatch bumps the epoch)."""
        if self._idempotent and batch.sequence >= 0:
            self._has_producer_id = False

    def _fail(self, batch: _Batch, code: ErrorCode, reason: str) -> None:
        text = f"the record was not acknowledged: {reason or code.text} ({code.name})"
        for future in batch.futures:
            if not future.done():
                future.set_exception(DeliveryFailed(code, text))
                # Whoever does not look at the future has chosen not to know.
                future.exception()
        self._done(batch)

    def _done(self, batch: _Batch) -> None:
        self._buffered -= batch.size
        self._unsettled -= len(batch.futures)
        batch.size = 0
        batch.futures = []
        batch.records = []
        self._drained.set()
        if self._unsettled == 0:
            self._idle.set()
