"""Hands out producer ids from blocks that the controller allocates (KIP-730)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.quorum.broker_lifecycle import BrokerLifecycleHost
    from minikafka.broker.supervise import Supervisor

#: The next block is requested when less than this share of the current one is left.
PREFETCH_SHARE = 0.1
#: Of those that wait for a block, so many go on in a turn of the loop: each writes a record and answers a client.
WOKEN_IN_A_TURN = 8


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
        #: Those that wait for a block, in order.
        self._waiting: deque[asyncio.Future[ErrorCode | None]] = deque()
        self._waking: asyncio.Handle | None = None
        #: How many of them the controller has refused a block, and how; None if it was not asked to the end.
        self._refused = 0
        self._refusal: ErrorCode | None = None

    async def next_id(self) -> tuple[ErrorCode, int]:
        """The next id, or the error because of which the controller did not allocate a block."""
        while self._next >= self._end:
            if self._following is not None:
                self._take_following()
                break
            waiter: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._allocate()
            code = await waiter
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

    def _allocate(self) -> None:
        if self._request is None or self._request.done():
            self._request = self._supervisor.start(self._allocate_block(), "allocation of producer ids")
            self._request.add_done_callback(self._allocated)

    def _allocated(self, request: asyncio.Task[ErrorCode]) -> None:
        code = None if request.cancelled() or request.exception() is not None else request.result()
        if code is not ErrorCode.NONE:
            self._refused, self._refusal = len(self._waiting), code
        self._wake_soon()

    def _wake_soon(self) -> None:
        if self._waiting and self._waking is None:
            self._waking = self._supervisor.call_soon("producer ids", self._wake)

    def _wake(self) -> None:
        """Let some of those that wait go on, as long as there are ids or a refusal for them; the others in later turns."""
        self._waking = None
        for _ in range(min(len(self._waiting), WOKEN_IN_A_TURN)):
            code: ErrorCode | None = ErrorCode.NONE
            if self._refused:
                self._refused -= 1
                code = self._refusal
            elif self._next >= self._end and self._following is None:
                self._allocate()
                return
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(code)
        self._wake_soon()

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
