"""InitProducerId for idempotent producers: ids come in blocks from the controller (KIP-98, KIP-360)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from wire.errors import ErrorCode
from wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from minikafka.broker.controller_channel import ControllerChannel
    from minikafka.broker.dispatch import Dispatcher, RequestContext
    from minikafka.broker.hosts.lifecycle import BrokerLifecycle

#: A block with fewer ids left than this share is followed by the next one before it runs out.
PREFETCH_SHARE = 0.1


class ProducerIdBlocks:
    """Hands out producer ids of this broker's block.

    Invariant: an id is handed out once in the life of the cluster, because the controller never gives the same block
    twice and a block is forgotten when the process ends.
    """

    def __init__(self, broker_id: int, lifecycle: BrokerLifecycle, controller: ControllerChannel) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._controller = controller
        self._next = 0
        self._end = 0
        self._block_length = 0
        self._following: tuple[int, int] | None = None
        self._request: asyncio.Task[ErrorCode] | None = None

    async def next_id(self) -> tuple[ErrorCode, int]:
        """The next id, or the error that kept the controller from giving a block."""
        while self._next >= self._end:
            if self._following is not None:
                self._take_following()
                break
            code = await asyncio.shield(self._allocate())
            if code is not ErrorCode.NONE:
                return code, -1
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
            self._request = asyncio.ensure_future(self._allocate_block())
        return self._request

    async def _allocate_block(self) -> ErrorCode:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._lifecycle.broker_epoch)
        try:
            response: Any = await self._controller.request(request)
        except (ConnectionError, TimeoutError):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._following = (response.producer_id_start, response.producer_id_len)
        return ErrorCode.NONE

    async def close(self) -> None:
        """Give up a block that is being asked for."""
        if self._request is not None:
            self._request.cancel()


class ProducerIdHandlers:
    """InitProducerId v0-5 without a transactional id."""

    def __init__(self, blocks: ProducerIdBlocks, transaction_timeout_ms_max: int) -> None:
        self._blocks = blocks
        self._transaction_timeout_ms_max = transaction_timeout_ms_max

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve InitProducerId on a broker listener."""
        dispatcher.register(InitProducerIdRequest, self.init_producer_id)

    async def init_producer_id(self, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """A fresh id at epoch 0; an id that the client brings along is replaced, as Kafka does without transactions."""
        code = self._validate(request)
        producer_id = -1
        if code is ErrorCode.NONE:
            code, producer_id = await self._blocks.next_id()
        epoch = 0 if code is ErrorCode.NONE else -1
        return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _validate(self, request: InitProducerIdRequest) -> ErrorCode:
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return ErrorCode.INVALID_REQUEST
        if request.transactional_id is None:
            return ErrorCode.NONE
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.transaction_timeout_ms <= self._transaction_timeout_ms_max:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
