"""Sends proposed changes of in-sync sets to the controller, one request at a time; the next request carries all proposals made in the
meantime (KIP-497)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.core.partition.isr import IsrProposal
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_partition import AlterPartitionRequest

if TYPE_CHECKING:
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.supervise import Supervisor

logger = logging.getLogger("minikafka.replicas")
#: Proposals of one request: to make, to encode, and to follow the answer, take some ten microseconds each.
PROPOSALS_AT_ONCE = 500
RETRY_DELAY_S = 0.05
#: Called with the answer: the error and, on success, the committed in-sync set and its partition epoch.
OnAltered = Callable[["Partition", IsrProposal, ErrorCode, "tuple[int, ...]", int], None]


class AlterPartitionManager:
    """Batches proposals.

    Invariant: each partition has at most one proposal here, and each proposal is answered once, unless the manager is stopped.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerChannel,
        on_altered: OnAltered,
        supervisor: Supervisor,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._on_altered = on_altered
        self._supervisor = supervisor
        self._pending: dict[tuple[bytes, int], tuple[Partition, IsrProposal]] = {}
        self._task: asyncio.Task[None] | None = None

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send the proposal as soon as the request in flight is answered."""
        self._pending[(partition.topic_id, partition.index)] = (partition, proposal)
        if self._task is None or self._task.done():
            self._task = self._supervisor.start(self._run(), "changes of in-sync replicas")

    async def stop(self) -> None:
        """Stop sending, and drop all proposals."""
        self._pending.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._pending:
            batch = dict(itertools.islice(self._pending.items(), PROPOSALS_AT_ONCE))
            for key in batch:
                del self._pending[key]
            try:
                response: Any = await self._controller.request(self._request(batch))
            except (ConnectionError, TimeoutError, UnsupportedVersion) as error:
                logger.warning("AlterPartition failed, trying again: %s", error)
                response = None
            if response is None or response.error_code:
                if response is not None:
                    logger.warning("AlterPartition failed, trying again: %s", ErrorCode(response.error_code).name)
                for key, entry in batch.items():
                    self._pending.setdefault(key, entry)
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            self._deliver(batch, response)

    def _request(self, batch: dict[tuple[bytes, int], tuple[Partition, IsrProposal]]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        for (topic_id, index), (_, proposal) in batch.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = AlterPartitionRequest.TopicData(topic_id=topic_id)
            members = [
                AlterPartitionRequest.BrokerState(broker_id=broker_id, broker_epoch=epoch)
                for broker_id, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ]
            topic.partitions.append(
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        m
                        if m.broker_id != self._broker_id
                        else AlterPartitionRequest.BrokerState(broker_id=m.broker_id, broker_epoch=self._broker_epoch())
                        for m in members
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values()))

    def _deliver(self, batch: dict[tuple[bytes, int], tuple[Partition, IsrProposal]], response: Any) -> None:
        answers = {(topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions}
        for key, (partition, proposal) in batch.items():
            answer = answers.get(key)
            if answer is None:
                self._on_altered(partition, proposal, ErrorCode.UNKNOWN_SERVER_ERROR, (), -1)
            else:
                self._on_altered(partition, proposal, ErrorCode(answer.error_code), tuple(answer.isr), answer.partition_epoch)
