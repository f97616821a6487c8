"""A blocking wrapper around the client's producer for load tasks, for one topic and batches that are already encoded.

One producer id with a sequence per partition (KIP-98) ensures order and exactly-once. A task that runs again uses the same producer id,
asks the leaders for its last sequence and continues from there: a sequence is the number of a row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from minikafka.client.blocking import BlockingLoop
from minikafka.client.produce_queue import RecordMetadata
from minikafka.client.producer import Producer
from minikafka.client.resuming import ResumingProducer, last_sequences
from minikafka.spark.encode import EncodedBatch
from minikafka.spark.produce_errors import ProduceFailed, TopicGone, Unreachable, checked, run_client
from minikafka.spark.security import PLAIN_TEXT, Security
from minikafka.spark.sink_transaction import CLIENT_ID, QUEUE_BYTES_MAX, SinkTransaction
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

__all__ = ["LoadProducer", "PartitionState", "ProduceFailed", "TopicGone", "Unreachable"]
Result = TypeVar("Result")
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
#: Pause between checks whether a new topic's partitions have leaders.
PAUSE_S = 0.05


@dataclass(slots=True)
class PartitionState:
    """The progress in one partition. `records`: acknowledged records, including those of earlier runs (`repeated`). `first_offset` and
    `next_offset` (exclusive): offsets that this run wrote, -1 none.

    `written`: the last sequence that an earlier run of the same task wrote; batches before the one that holds it are not sent again.
    """

    next_sequence: int = 0
    first_offset: int = -1
    next_offset: int = -1
    records: int = 0
    written: int = 0
    repeated: int = 0


class LoadProducer:
    """Writes EncodedBatches to one topic with acks=all. Not thread-safe. Raises ProduceFailed."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        timeout_ms: int = 30_000,
        delivery_ms: int = 120_000,
        security: Security = PLAIN_TEXT,
        transaction: SinkTransaction | None = None,
    ) -> None:
        """`transaction`: if given, it must have begun, and its producer is used. Raises ValueError for a bad bootstrap list."""
        self.topic, self.transaction = topic, transaction
        self.timeout_ms, self.delivery_ms = timeout_ms, delivery_ms
        self.partitions: dict[int, PartitionState] = {}
        self._failure: ProduceFailed | None = None
        self._producer: Producer
        self._own: ResumingProducer | None
        if transaction is not None:
            self._loop, self._own, self._producer = transaction.loop, None, transaction.producer
        else:
            self._loop = BlockingLoop()
            self._own = self._producer = ResumingProducer(
                checked(bootstrap), delivery_timeout_ms=delivery_ms, request_timeout_ms=timeout_ms, buffer_memory=QUEUE_BYTES_MAX,
                client_id=CLIENT_ID, security=security.client_properties(),
            )  # fmt: skip

    @property
    def retries(self) -> int:
        return self._producer.retries

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return run_client(self._loop, work)

    # ---- cluster ----

    def partition_count(self) -> int:
        """The number of the topic's partitions; 0 if it does not exist."""
        return self._run(self._partition_count())

    async def _partition_count(self) -> int:
        cluster = self._producer.cluster
        if self.topic not in cluster.topics:
            await cluster.refresh([self.topic])
        found = cluster.topics.get(self.topic)
        return len(found.partitions) if found is not None else 0

    def create_topic(self, partitions: int, replication_factor: int = -1, configs: dict[str, str] | None = None) -> None:
        """Create the topic, unless it exists."""
        settings = [CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=self.topic, num_partitions=partitions, replication_factor=replication_factor, configs=settings
        )
        self._run(self._create(CreateTopicsRequest(topics=[topic], timeout_ms=self.timeout_ms), partitions))

    async def _create(self, request: CreateTopicsRequest, partitions: int) -> None:
        cluster = self._producer.cluster
        answer = cast(CreateTopicsResponse, await cluster.request(request))
        for one in answer.topics:
            if one.error_code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                text = f"topic {self.topic} cannot be created: {ErrorCode(one.error_code).name} {one.error_message or ''}"
                raise ProduceFailed(text.rstrip())
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        while True:
            await cluster.refresh([self.topic])
            found = cluster.topics.get(self.topic)
            if found is not None and len(found.partitions) >= partitions and all(one.leader >= 0 for one in found.partitions):
                return
            if time.monotonic() > deadline_s:
                raise ProduceFailed(f"topic {self.topic} was created, but its partitions have no leaders after {self.timeout_ms} ms")
            await asyncio.sleep(PAUSE_S)

    def new_producer_id(self) -> tuple[int, int]:
        """Request a new (producer id, epoch)."""
        return self._run(self._producer.new_producer_id())

    def start(self) -> None:
        """Use a new producer id."""
        if self._own is not None:
            self._own.resume(*self.new_producer_id())

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Continue as a producer that may have written before. Batches that the leaders have are not sent again, except the last one.

        The last batch is sent once more. The leader answers it as a duplicate once all in-sync replicas have it.
        """
        if self._own is not None:
            self._own.resume(producer_id, producer_epoch)
        for partition, sequence in self.last_sequences([producer_id]).get(producer_id, {}).items():
            self.partitions.setdefault(partition, PartitionState()).written = sequence

    def last_sequences(self, producer_ids: Iterable[int]) -> dict[int, dict[int, int]]:
        """{producer id: {partition: last sequence on the leader}}."""
        return self._run(last_sequences(self._producer.cluster, self.topic, producer_ids, self.delivery_ms))

    # ---- produce ----

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Queue and send batches. Blocks while more than QUEUE_BYTES_MAX wait for their acknowledgement."""
        self._run(self._send(batches))
        self._raise_failure()

    async def _send(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            state = self.partitions.setdefault(batch.partition, PartitionState())
            if state.written and self._is_written(batch, state):
                continue
            sequence = -1 if self._own is None else state.next_sequence
            state.next_sequence = (state.next_sequence + batch.records) & 0x7FFFFFFF
            future = await self._producer.send_batch(self.topic, batch.partition, batch.data, batch.records, sequence)
            future.add_done_callback(_Settled(self, batch.partition, batch.records))
            if self._failure is not None:
                return
        await self._producer.turns()

    def _is_written(self, batch: EncodedBatch, state: PartitionState) -> bool:
        """Whether an earlier run wrote this batch and a later one. A leader accepts batches only in order."""
        end = state.next_sequence + batch.records - 1
        if state.next_sequence <= state.written < end:
            raise ProduceFailed(f"{self.topic}-{batch.partition}: the job was started with other batch sizes, so it cannot be resumed")
        if end >= state.written:
            return False
        state.next_sequence += batch.records
        state.records += batch.records
        state.repeated += batch.records
        return True

    def settled(self, partition: int, records: int, future: asyncio.Future[RecordMetadata]) -> None:
        """Record that a batch was acknowledged or has failed."""
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self._failure = self._failure or self._said(partition, error)
            return
        state, offset = self.partitions[partition], future.result().offset
        state.records += records
        if offset >= 0:
            state.first_offset = offset if state.first_offset < 0 else state.first_offset
            state.next_offset = max(state.next_offset, offset + records)

    def _said(self, partition: int, error: BaseException | None) -> ProduceFailed:
        code = getattr(error, "code", ErrorCode.REQUEST_TIMED_OUT)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return TopicGone(f"topic {self.topic} no longer exists: it was deleted while rows were being written")
        if code.retriable:
            return ProduceFailed(f"{self.topic}-{partition}: not acknowledged within {self.delivery_ms / 1000:.0f} s: {error}")
        hint = "; use a smaller --batch-size" if code in TOO_LARGE else ""
        return ProduceFailed(f"{self.topic}-{partition}: {code.name} ({code.text}): {error}{hint}")

    def _raise_failure(self) -> None:
        if self._own is not None:
            for partition, records in self._own.repeated.items():
                self.partitions[partition].repeated += records
            self._own.repeated.clear()
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        self._run(self._producer.flush())
        self._raise_failure()

    def close(self) -> None:
        """Drop unacknowledged batches and disconnect. A transaction's producer stays open, because the transaction owns it."""
        if self._own is not None and not self._loop.is_closed:
            self._loop.run(self._own.close(timeout_ms=0))
            self._loop.close()


class _Settled:
    __slots__ = ("partition", "producer", "records")

    def __init__(self, producer: LoadProducer, partition: int, records: int) -> None:
        self.producer, self.partition, self.records = producer, partition, records

    def __call__(self, future: asyncio.Future[RecordMetadata]) -> None:
        self.producer.settled(self.partition, self.records, future)
