"""A producer: batches by linger and size, a few of them in flight for each partition, idempotent retries in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from minikafka.addresses import host_port
from minikafka.client.cluster import BACKOFF_S_MAX, BACKOFF_S_MIN, Cluster
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, DeliveryFailed, NoBrokers, refusal
from minikafka.client.partitioner import StickyPartitioner
from minikafka.client.produce_queue import Batch, PartitionQueue, RecordMetadata, RetryBatch
from minikafka.net import tasks
from minikafka.net.channel import Channel, ConnectionLost, UnreadableResponse, UnsupportedVersion
from minikafka.net.network import Network
from minikafka.net.tasks import within
from minikafka.wire.batch import build_batch, set_producer
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Response
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.record import Header, Record

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

RECORD_OVERHEAD_BYTES = 24
PRODUCE_VERSION_MAX = 12
#: Batches of a partition in flight at once with idempotence, as max.in.flight.requests.per.connection: a leader remembers this many batches
#: of a producer and recognizes their retries. Without idempotence it is one, because a retry would change the order.
IN_FLIGHT_MAX = 5
_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


#: A duplicate counts as stored: the leader has seen its sequence number.
_STORED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
#: After these errors a batch may be in the leader's log, or come there later.
_MAYBE_STORED = _STORED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
}
#: The response for one batch, or why there is none; None with acks=0.
_Answer = ProduceResponse.PartitionProduceResponse | BaseException | None


class Producer:
    """Sends records. Use as `async with Producer(...)` or with `start` and `close`."""

    #: Set by `TransactionalProducer`.
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
        self.cluster = Cluster(bootstrap, client_id=client_id, request_timeout_ms=request_timeout_ms, network=network, security=security)
        self._partitioner = StickyPartitioner()
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._in_flight_max = IN_FLIGHT_MAX
        #: How many times batches had to be sent again.
        self.retries = 0
        self._produce_version_max = PRODUCE_VERSION_MAX
        self._producer: tuple[int, int] = (-1, -1)
        self._has_producer_id = False
        self._producer_id_lock = asyncio.Lock()
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
        """Connect, and request a producer id if idempotence is enabled. Raises ClientError."""
        await self.cluster.retry(lambda: self.cluster.refresh([]))
        if self._idempotent:
            await self._ensure_producer_id()

    async def _ensure_producer_id(self) -> None:
        """Request a producer id unless there is a usable one. Raises as `Cluster.retry`, and BrokerError."""
        async with self._producer_id_lock:
            if not self._has_producer_id:
                await self._init_producer_id()
                self._has_producer_id = True

    async def new_producer_id(self) -> tuple[int, int]:
        """A new (producer id, epoch) from the cluster. Raises BrokerError, AuthenticationError, NoBrokers, TimeoutError."""

        async def ask() -> tuple[int, int] | None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = cast(InitProducerIdResponse, await self.cluster.request(request))
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                return response.producer_id, response.producer_epoch
            if code.retriable:
                return None
            raise refusal(code, "the cluster gives no producer id")

        return cast(tuple[int, int], await self.cluster.retry(ask, self._request_timeout_ms))

    async def _init_producer_id(self) -> None:
        self._producer = await self.new_producer_id()
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
        """Queue a record. The future completes when the leader responds. Waits while `buffer_memory` is full. Raises ClientError."""
        if self._closing:
            raise ClientError("the producer is closed")
        if partition is None or (topic, partition) not in self._queues:
            with self.cluster.silence.watched(asyncio.get_running_loop().time() + self._request_timeout_ms / 1000):
                info = await self.cluster.topic(topic, create=True)
            if partition is None:
                partition = self._partitioner.partition(topic, key, len(info.partitions))
        size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        while self._buffered and self._buffered + size > self._buffer_memory:
            self._drained.clear()
            await self._drained.wait()
        loop = asyncio.get_running_loop()
        queue = self._queue(topic, partition)
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.closed or batch.size + size > self._batch_size:
            if batch is not None:
                batch.closed = True
                self._partitioner.batch_left(topic, partition)
            batch = Batch(loop.time(), loop.time() + self._delivery_timeout_s)
            queue.batches.append(batch)
            queue.wake.set()
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        timestamp = timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000
        batch.records.append(Record(len(batch.records), timestamp, key, value, headers))
        batch.count += 1
        batch.futures.append(future)
        batch.size += size
        self._buffered += size
        self._unsettled += 1
        self._idle.clear()
        if batch.size >= self._batch_size:
            queue.wake.set()
        return future

    async def send_batch(
        self, topic: str, partition: int, data: bytearray, records: int, sequence: int = -1
    ) -> asyncio.Future[RecordMetadata]:  # fmt: skip
        """Queue a whole record batch of format 2; its producer fields and CRC are set here. The future is settled with the batch's first
        offset. `sequence`: the base sequence, if the caller numbers batches itself. Waits as `send`. Raises ClientError."""
        if self._closing:
            raise ClientError("the producer is closed")
        while self._buffered and self._buffered + len(data) > self._buffer_memory:
            self._drained.clear()
            await self._drained.wait()
        loop = asyncio.get_running_loop()
        queue = self._queue(topic, partition)
        if queue.batches:
            queue.batches[-1].closed = True
        batch = Batch(loop.time(), loop.time() + self._delivery_timeout_s)
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        batch.prepared, batch.count, batch.size, batch.closed, batch.sequence = data, records, len(data), True, sequence
        batch.futures.append(future)
        queue.batches.append(batch)
        queue.wake.set()
        self._buffered += batch.size
        self._unsettled += 1
        self._idle.clear()
        return future

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[(topic, partition)] = PartitionQueue(topic, partition)
            self._start(queue)
        return queue

    def _start(self, queue: PartitionQueue) -> None:
        name = f"sending to {queue.topic}-{queue.index}"
        queue.task = tasks.start(
            asyncio.get_running_loop(), self._run(queue), name, lambda error: self._ended_unexpectedly(queue, name, error)
        )

    def _ended_unexpectedly(self, queue: PartitionQueue, name: str, error: BaseException) -> None:
        """Fail what is queued after an unexpected error, report the error to the loop's exception handler, and go on with later records."""
        asyncio.get_running_loop().call_exception_handler({"message": f"{name} failed unexpectedly", "exception": error})
        for batch in list(queue.batches):
            self._give_up(queue, ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}", batch)
        self._start(queue)

    async def turns(self, number: int = 8) -> None:
        """Run the event loop `number` times, so that it handles arrived responses and sends complete batches. For callers that run the loop
        only now and then."""
        for _ in range(number):
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Send all queued records, and wait until each is acknowledged or has failed."""
        for queue in self._queues.values():
            if queue.batches:
                queue.batches[-1].closed = True
                queue.wake.set()
        await self._idle.wait()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send the queued records, within `timeout_ms` if given, and disconnect; the rest fails with DeliveryFailed."""
        self._closing = True
        try:
            if timeout_ms is None:
                await self.flush()
            elif timeout_ms > 0:
                await within(timeout_ms / 1000, self.flush())
        except TimeoutError:
            pass
        finally:
            self._drop("the producer was closed")
            await self.cluster.close()

    def _drop(self, reason: str) -> None:
        """Fail every batch that is not acknowledged."""
        for queue in self._queues.values():
            if queue.task is not None:
                queue.task.cancel()
            for batch in queue.batches:
                self._fail(batch, ErrorCode.REQUEST_TIMED_OUT, reason)
        self._queues.clear()

    # -- one partition ---------------------------------------------------------------------------------------------

    async def _run(self, queue: PartitionQueue) -> None:
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
            await self._deliver(queue)

    async def _deliver(self, queue: PartitionQueue) -> None:
        """Send batches, with retries, until the first in the queue is still open for records."""
        loop = asyncio.get_running_loop()
        backoff = BACKOFF_S_MIN
        while queue.batches and queue.batches[0].closed:
            first = queue.batches[0]
            try:
                await self._send_group(queue)
                backoff = BACKOFF_S_MIN
            except RetryBatch as again:
                self.retries += 1
                if again.at_once or queue.batches[0] is not first:
                    backoff = BACKOFF_S_MIN
                if again.at_once:
                    continue
                if loop.time() + backoff >= queue.batches[0].deadline_s:
                    # All whose time is up, not one for each attempt: an attempt may take as long as a connection.
                    while queue.batches and loop.time() + backoff >= queue.batches[0].deadline_s:
                        self._give_up(queue, again.code, self._out_of_time(again))
                    continue
                self.cluster.forget(queue.topic)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, BACKOFF_S_MAX)

    def _group(self, queue: PartitionQueue) -> list[Batch]:
        """The batches to send together: complete, and of the producer id of the first, because sequence numbers order only one id.

        The first batch of a producer id goes alone. A leader that does not know the id accepts any sequence number: it would store the
        second batch if it had refused the first, for instance because it was not the leader yet."""
        group: list[Batch] = []
        for batch in queue.batches:
            if not batch.closed or len(group) == (self._in_flight_max if self._idempotent else 1):
                break
            if group and (self._sequence_of(queue, group[0]) == 0 or self._producer_of(batch) != self._producer_of(group[0])):
                break
            group.append(batch)
        return group

    def _sequence_of(self, queue: PartitionQueue, batch: Batch) -> int:
        return queue.next_sequence if batch.sequence < 0 else batch.sequence

    def _producer_of(self, batch: Batch) -> tuple[int, int] | None:
        if batch.encoded is not None:
            return batch.producer
        return self._producer if self._has_producer_id or not self._idempotent else None

    async def _send_group(self, queue: PartitionQueue) -> None:
        """Send a group of batches and handle their responses in order. Raises RetryBatch for the first that is not settled."""
        try:
            with self.cluster.silence.watched(queue.batches[0].deadline_s):
                sent = await self._attempt(queue)
        except (NoBrokers, *TRANSPORT_ERRORS) as error:
            raise RetryBatch(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except ClientError as error:
            code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
            if self._is_temporary(queue, error):
                raise RetryBatch(code, str(error)) from error
            self._give_up(queue, code, str(error))
            return
        for batch, answer in sent:
            if isinstance(answer, BaseException) or (answer is not None and ErrorCode(answer.error_code) in _MAYBE_STORED):
                batch.in_doubt = True
        for number, (batch, answer) in enumerate(sent, 1):
            if await self._answered(queue, batch, answer):
                self._settle_after_gap(queue, sent[number:])
                break

    def _settle_after_gap(self, queue: PartitionQueue, sent: list[tuple[Batch, _Answer]]) -> None:
        """Handle the responses of batches that were in flight after one that is given up. What is surely not stored is sent again under the
        next producer id, under which the leader could not recognize the rest."""
        left: list[tuple[Batch, ErrorCode]] = []
        for batch, answer in sent:
            if isinstance(answer, BaseException):
                self._give_up(queue, ErrorCode.REQUEST_TIMED_OUT, str(answer), batch)
                continue
            assert answer is not None, "with acks=0 nothing is refused"
            code = ErrorCode(answer.error_code)
            if code in _STORED:
                self._settle(queue, batch, answer.base_offset, answer.log_append_time_ms)
                for earlier, reason in left:  # their place in the order is gone
                    self._give_up(queue, reason, "", earlier)
                left.clear()
            elif batch.in_doubt and code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._give_up(queue, code, "", batch)
            else:
                left.append((batch, code))
        for batch, _ in left:
            batch.reset_sequence()

    async def _answered(self, queue: PartitionQueue, batch: Batch, answer: _Answer) -> bool:
        """Settle the first batch, or raise RetryBatch. Returns True if it is given up, which leaves a gap before the following ones."""
        if isinstance(answer, BaseException):
            raise RetryBatch(ErrorCode.REQUEST_TIMED_OUT, str(answer)) from answer
        if answer is None:
            self._settle(queue, batch, -1, -1)
            return False
        code, hint = ErrorCode(answer.error_code), answer.current_leader
        reason = answer.error_message or ""
        if code in _STORED:
            if hint.leader_id >= 0:
                # The old leader forwarded the batch and names the new leader: send the next batch there.
                self.cluster.moved(queue.topic, queue.index, hint.leader_id, hint.leader_epoch)
            self._settle(queue, batch, answer.base_offset, answer.log_append_time_ms)
            return False
        if code in _SEQUENCE_LOST and self._idempotent:
            try:
                if await self._settle_lost_sequence(queue, batch, code):
                    return False
            except BrokerError as error:
                reason = str(error)
            # The next batch requests the new producer id, within its own delivery timeout.
            self._give_up(queue, code, reason)
            return True
        if not code.retriable:
            self._give_up(queue, code, reason)
            return True
        raise RetryBatch(code, reason, at_once=self.cluster.moved(queue.topic, queue.index, hint.leader_id, hint.leader_epoch))

    async def _settle_lost_sequence(self, queue: PartitionQueue, batch: Batch, code: ErrorCode) -> bool:
        """A hook of producers that continue an earlier one's id: settle the first batch although the leader refused its sequence number.
        Returns whether it did. Raises RetryBatch, or BrokerError with a better reason."""
        return False

    def _is_temporary(self, queue: PartitionQueue, error: ClientError) -> bool:
        """A hook: whether to try again after this error, although it is not retriable."""
        return False

    def _out_of_time(self, last: RetryBatch) -> str:
        """The last attempt has only what was left of the time, so how long it took says nothing."""
        text = f"tried for {self._delivery_timeout_s:g} s"
        return text if last.reason.startswith("gave up after") else f"{text}, the last error was: {last.reason or last.code.text}"

    def _give_up(self, queue: PartitionQueue, code: ErrorCode, reason: str, batch: Batch | None = None) -> None:
        """Fail a batch, by default the first, and remove it from the queue."""
        batch = batch or queue.batches[0]
        self._leave_gap(batch)
        self._fail(batch, code, reason)
        queue.batches.remove(batch)

    async def _attempt(self, queue: PartitionQueue) -> list[tuple[Batch, _Answer]]:
        """Send a group once. Returns each batch with its response, or with the exception; None with acks=0."""
        left_ms = max(int((queue.batches[0].deadline_s - asyncio.get_running_loop().time()) * 1000), 1)
        timeout_ms = min(left_ms, self._request_timeout_ms)
        if self._idempotent and queue.batches[0].encoded is None:
            await self._ensure_producer_id()
        leader = await self.cluster.leader(queue.topic, queue.index, timeout_ms=timeout_ms)
        channel = await self.cluster.channel_to(leader.leader)
        await self._before_sending(queue)
        try:
            version = channel.version_for(ProduceRequest, self._produce_version_max)
        except UnsupportedVersion as error:
            raise ClientError(str(error)) from error
        group = [batch for batch in self._group(queue) if self._is_encoded(queue, batch)]
        asked = [(batch, self._produce(channel, version, queue, batch, timeout_ms)) for batch in group]
        if self._acks == 0:
            return [(batch, None) for batch, _ in asked]
        answers = await asyncio.gather(*(future for _, future in asked), return_exceptions=True)
        if any(isinstance(answer, TimeoutError) for answer in answers):
            channel.close("no answer to a produce request in time")
        return [(batch, answer) for (batch, _), answer in zip(asked, answers, strict=True)]

    async def _before_sending(self, queue: PartitionQueue) -> None:
        """A hook that runs before a group is sent: transactions add the partition at the coordinator here."""

    def _produce(self, channel: Channel, version: int, queue: PartitionQueue, batch: Batch, timeout_ms: int) -> asyncio.Future[Any]:
        """Send a batch now. The future receives the response or the exception."""
        data = ProduceRequest.PartitionProduceData(index=queue.index, records=self._encode(queue, batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=queue.topic, partition_data=[data])],
        )
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(response: Response | None, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
                return
            try:
                future.set_result(cast(ProduceResponse, response).responses[0].partition_responses[0])
            except IndexError:
                where = host_port(channel.host, channel.port)
                future.set_exception(UnreadableResponse(f"{where} sent a Produce response without the partition"))

        try:
            if self._acks == 0:
                channel.send_unanswered(request, version)
            else:
                channel.send(request, version, answered, timeout_ms + 1000, safe=True)
        except ConnectionLost as error:
            if self._acks == 0:
                raise
            future.set_exception(error)
        return future

    def _is_encoded(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Encode a batch; give it up if it has a record that cannot be encoded. Its sequence numbers are then free for the next one."""
        before = queue.next_sequence, batch.sequence
        try:
            self._encode(queue, batch)
        except Exception as error:
            queue.next_sequence, batch.sequence = before
            self._give_up(queue, ErrorCode.INVALID_RECORD, f"a record of its batch cannot be encoded ({error})", batch)
        return batch.encoded is not None

    def _encode(self, queue: PartitionQueue, batch: Batch) -> bytearray:
        if batch.encoded is None:
            if self._idempotent:
                batch.producer = self._producer
                batch.sequence = self._sequence_of(queue, batch)
                queue.next_sequence = (batch.sequence + batch.count) & 0x7FFFFFFF
            batch.encoded = self._with_producer(batch, batch.prepared) if batch.prepared is not None else build_batch(
                batch.records,
                compression=self._codec,
                producer_id=batch.producer[0],
                producer_epoch=batch.producer[1],
                base_sequence=batch.sequence,
                is_transactional=self.transactional_id is not None,
            )  # fmt: skip
        return batch.encoded

    def _with_producer(self, batch: Batch, data: bytearray) -> bytearray:
        set_producer(data, *batch.producer, batch.sequence, self.transactional_id is not None)
        return data

    def _settle(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        for number, future in enumerate(batch.futures):
            if not future.done():
                offset = base_offset + number if base_offset >= 0 else -1
                created_ms = batch.records[number].timestamp if batch.records else -1
                timestamp = append_time_ms if append_time_ms >= 0 else created_ms
                future.set_result(RecordMetadata(queue.topic, queue.index, offset, timestamp))
        self._done(batch)
        queue.batches.remove(batch)

    def _leave_gap(self, batch: Batch) -> None:
        """Request a new producer id if a numbered batch is given up. It may or may not be stored, so its sequence numbers cannot be used
        again, and the leader would refuse what follows the gap (Sender.failBatch bumps the epoch for this)."""
        if self._idempotent and batch.sequence >= 0:
            self._has_producer_id = False

    def _fail(self, batch: Batch, code: ErrorCode, reason: str) -> None:
        text = f"the record was not acknowledged: {reason or code.text} ({code.name})"
        for future in batch.futures:
            if not future.done():
                future.set_exception(DeliveryFailed(code, text))
                future.exception()  # asyncio would log it if the caller drops the future
        self._done(batch)

    def _done(self, batch: Batch) -> None:
        self._buffered -= batch.size
        self._unsettled -= len(batch.futures)
        batch.size = 0
        batch.futures = []
        batch.records = []
        batch.prepared = batch.encoded = None
        self._drained.set()
        if self._unsettled == 0:
            self._idle.set()
