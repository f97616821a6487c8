"""A producer that continues where an earlier one with its id stopped, which it learns from the leaders (DescribeProducers, KIP-664)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from minikafka.client.cluster import Cluster
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError
from minikafka.client.produce_queue import Batch, PartitionQueue, RetryBatch
from minikafka.client.producer import Producer
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_producers import DescribeProducersRequest

#: How long a topic may be unknown to the brokers before it counts as deleted.
UNKNOWN_S_MAX = 10.0
#: Pause before asking leaders again that did not answer.
PAUSE_S = 0.2


async def last_sequences(cluster: Cluster, topic: str, producer_ids: Iterable[int], timeout_ms: int) -> dict[int, dict[int, int]]:
    """{producer id: {partition: last sequence on the leader}}. Raises ClientError, and TimeoutError with the leaders' last error."""
    wanted = set(producer_ids)
    found: dict[int, dict[int, int]] = {}
    left = {partition.index for partition in (await cluster.topic(topic)).partitions}
    deadline_s = time.monotonic() + timeout_ms / 1000
    failure = ""
    while left:
        by_leader: dict[int, list[int]] = {}
        for partition in (await cluster.topic(topic)).partitions:
            if partition.index in left:
                by_leader.setdefault(partition.leader, []).append(partition.index)
        for leader, partitions in by_leader.items():
            try:
                answers = await _describe(cluster, topic, leader, partitions)
            except TRANSPORT_ERRORS as error:
                failure = f"broker {leader}: {error}"
                continue
            for one in answers:
                if one.error_code:
                    failure = ErrorCode(one.error_code).name
                    continue
                left.discard(one.partition_index)
                for state in one.active_producers:
                    if state.producer_id in wanted and state.last_sequence >= 0:
                        found.setdefault(state.producer_id, {})[one.partition_index] = state.last_sequence
        if left:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{topic}: the leaders do not report which records were written ({failure})")
            cluster.forget(topic)
            await asyncio.sleep(PAUSE_S)
    return found


async def _describe(cluster: Cluster, topic: str, leader: int, partitions: list[int]) -> Any:
    request = DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=partitions)])
    answer: Any = await cluster.request(request, leader)
    return answer.topics[0].partitions


class ResumingProducer(Producer):
    """Uses the producer id given to `resume` and never requests another: if a batch cannot be written under it, it and all later ones fail.

    When a leader answers that a sequence number is out of order, another run with the same id may be ahead. Batches that the leader already
    has are then settled without being sent, except its last one: that is sent again, and the leader answers it as a duplicate once it is on
    all in-sync replicas.
    """

    def __init__(self, bootstrap: str, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        #: partition -> number of records that another run had already written.
        self.repeated: dict[int, int] = {}
        self._unknown_since_s = 0.0

    def resume(self, producer_id: int, producer_epoch: int) -> None:
        """Continue under this producer id and epoch."""
        self._producer, self._has_producer_id = (producer_id, producer_epoch), True

    async def _ensure_producer_id(self) -> None:
        if not self._has_producer_id:
            raise ClientError("a batch before this one was not written")

    async def _settle_lost_sequence(self, queue: PartitionQueue, batch: Batch, code: ErrorCode) -> bool:
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return False
        try:
            sequences = await last_sequences(self.cluster, queue.topic, [self._producer[0]], self._request_timeout_ms)
        except TRANSPORT_ERRORS as error:
            raise RetryBatch(code, str(error)) from error
        last = sequences.get(self._producer[0], {}).get(queue.index, -1)
        if batch.sequence > last + 1:
            raise BrokerError(code, "a new leader lacks records that were there before; run the job again")
        if batch.sequence + batch.count - 1 >= last:
            raise RetryBatch(code, "another run is ahead")
        self.repeated[queue.index] = self.repeated.get(queue.index, 0) + batch.count
        self._settle(queue, batch, -1, -1)
        return True

    def _is_temporary(self, queue: PartitionQueue, error: ClientError) -> bool:
        if getattr(error, "code", None) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        now_s = time.monotonic()
        self._unknown_since_s = self._unknown_since_s or now_s
        return now_s - self._unknown_since_s < UNKNOWN_S_MAX
