"""Hands out producer ids from blocks that the controller allocates (KIP-730)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from minikafka.net.channel import UnsupportedVersion
from minikafka.net.tasks import outcome_of
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.quorum.broker_lifecycle import BrokerLifecycleHost
    from minikafka.broker.supervise import Supervisor

#: The next block is requested when less than this share of the current one is left.
PREFETCH_SHARE = 0.1


class ProducerIdBlocks:
    """Hands out the producer ids of this broker's current block.

    Invariant: the cluster hands out each id once. The controller never allocates a block twice, and a broker forgets its block
    when its process ends.
    """

    def __init__(self, broker_id: int, lifecycle: BrokerLifecycleHost, controller: ControllerChannel, supervisor: Supervisor) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._controller = controller
        self._supervisor = supervisor
        self._next = 0
        self._end = 0
        self._block_length = 0
        self._following: tuple[int, int] | None = None
        self._request: asyncio.Task[ErrorCode] | None = None

    async def next_id(self) -> tuple[ErrorCode, int]:
        """The next id, or the error because of which the controller did not allocate a block."""
        while self._next >= self._end:
            if self._following is not None:
                self._take_following()
                break
            code = await outcome_of(self._allocate())
            if code is not ErrorCode.NONE:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is None else code, -1
        producer_id = self._next
        self._next += 1
        if self._following is None and self._end - self._next < self._block_length * PREFETCH_SHARE:
            self._allocate()
        return ErrorCode.NONE, producer_id

    def _take_following(self) -> None:
        if self._following is not None:
            start, length = self._following
            self._following = None
            self._next, self._end, self._block_length = start, start + length, length

    def _allocate(self) -> asyncio.Task[ErrorCode]:
        if self._request is None or self._request.done():
            self._request = self._supervisor.start(self._allocate_block(), "allocation of producer ids")
        return self._request

    async def _allocate_block(self) -> ErrorCode:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._lifecycle.broker_epoch)
        try:
            response: Any = await self._controller.request(request)
        except (ConnectionError, TimeoutError, UnsupportedVersion):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._following = (response.producer_id_start, response.producer_id_len)
        return ErrorCode.NONE

    async def close(self) -> None:
        """Cancel a pending request for a block."""
        if self._request is not None:
            self._request.cancel()
