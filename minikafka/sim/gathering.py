"""Producers that send the batches of several partitions in one request, as other clients do; minikafka's own send one partition each."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from minikafka.client.producer import Producer
from minikafka.client.transactional import TransactionalProducer
from minikafka.net.channel import Channel, ConnectionLost
from minikafka.wire.message import Response
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

#: A batch that waits: topic, its data, and the future of its answer.
Waiting = tuple[str, ProduceRequest.PartitionProduceData, asyncio.Future[Any]]


class GatheringProducer(Producer):
    """`gather_s`: how long a batch waits for those of other partitions with the same leader. Needs acks other than 0."""

    def __init__(self, *arguments: Any, gather_s: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gather_s = gather_s
        self._gathered: dict[Channel, list[Waiting]] = {}

    def _produce(self, channel: Channel, version: int, queue: Any, batch: Any, timeout_ms: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        data = ProduceRequest.PartitionProduceData(index=queue.index, records=self._encode(queue, batch))
        waiting = self._gathered.setdefault(channel, [])
        if not waiting:
            loop.call_later(self._gather_s, self._send_gathered, channel, version, timeout_ms)
        waiting.append((queue.topic, data, future))
        return future

    def _send_gathered(self, channel: Channel, version: int, timeout_ms: int) -> None:
        waiting = self._gathered.pop(channel)
        while waiting:
            # A request has one batch of each partition; the next one goes into the next request.
            once: dict[tuple[str, int], Waiting] = {}
            later: list[Waiting] = []
            for entry in waiting:
                key = entry[0], entry[1].index
                if key in once:
                    later.append(entry)
                else:
                    once[key] = entry
            self._send_request(channel, version, timeout_ms, once)
            waiting = later

    def _send_request(self, channel: Channel, version: int, timeout_ms: int, batches: dict[tuple[str, int], Waiting]) -> None:
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for (topic, _), (_, data, _) in batches.items():
            topics.setdefault(topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data) for topic, data in topics.items()],
        )

        def answered(response: Response | None, error: Exception | None) -> None:
            if error is not None:
                fail(error)
                return
            for topic in cast(ProduceResponse, response).responses:
                for answer in topic.partition_responses:
                    future = batches.pop((topic.name, answer.index))[2]
                    if not future.done():
                        future.set_result(answer)
            assert not batches, f"no answer for {list(batches)}"

        def fail(error: Exception) -> None:
            for _, _, future in batches.values():
                if not future.done():
                    future.set_exception(error)

        try:
            channel.send(request, version, answered, timeout_ms + 1000, safe=True)
        except ConnectionLost as error:
            fail(error)


class GatheringTransactionalProducer(GatheringProducer, TransactionalProducer):
    """The same with transactions."""
