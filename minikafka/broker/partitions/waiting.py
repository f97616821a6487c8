"""Requests that wait for partitions: three purgatories, and timers for their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING

from minikafka.broker.supervise import Ends
from minikafka.core.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment


class Waiting:
    """`produces` wait for replication, `fetches` for records, `deletes` for the replicas' log start. Keys are `Partition.key`."""

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.clock
        self._supervisor = environment.supervisor
        self._shares = environment.shares
        begin = self._shares.begin
        self.produces, self.fetches, self.deletes = (Purgatory(self._failed, self._wake_rest, begin) for _ in range(3))
        #: What is to be woken in the loop's next turn.
        self._rest: dict[tuple[int, Hashable], Purgatory] = {}
        #: Per purgatory: its timer, and the deadline that the timer is set to.
        self._timers: dict[int, tuple[asyncio.TimerHandle, int]] = {}

    def wake(self, key: Hashable) -> None:
        """Check all requests that wait for a partition."""
        self.produces.wake(key)
        self.fetches.wake(key)
        self.deletes.wake(key)

    def _wake_rest(self, purgatory: Purgatory, key: Hashable) -> None:
        """Very many requests wait for a partition: check the others in the next turn of the loop."""
        if not self._rest:
            self._supervisor.call_soon("waiting requests", self._wake_again)
        self._rest[id(purgatory), key] = purgatory

    def _wake_again(self) -> None:
        rest, self._rest = self._rest, {}
        for (_, key), purgatory in rest.items():
            purgatory.wake(key)

    def park(self, purgatory: Purgatory, operation: DelayedOperation, keys: list[Hashable], wait_ms: int) -> None:
        """Park an operation until it completes or its deadline passes."""
        deadline_ms = self._clock.now_ms() + wait_ms
        purgatory.park(operation, keys, deadline_ms)
        timer = self._timers.get(id(purgatory))
        if timer is None or timer[1] > deadline_ms:
            if timer is not None:
                timer[0].cancel()
            self._arm(purgatory, deadline_ms)

    async def close(self) -> None:
        """The broker stops: answer everything that waits with what is there, some in a turn of the loop."""
        for handle, _ in self._timers.values():
            handle.cancel()
        self._timers.clear()
        for purgatory in (self.produces, self.fetches, self.deletes):
            await self._shares.take(purgatory.expire_all())

    def _failed(self, operation: DelayedOperation, error: Exception) -> None:
        """Handle an exception in a parked operation. A client's request ends with its connection; a coordinator's ends the node."""
        close = getattr(operation, "close", None)
        self._supervisor.caught("a request that waited", error, None if close is None else Ends("connection", close))

    def _arm(self, purgatory: Purgatory, deadline_ms: int) -> None:
        delay_s = max(deadline_ms - self._clock.now_ms(), 0) / 1000
        handle = self._supervisor.call_later(delay_s, "waiting requests", self._on_timer, purgatory)
        self._timers[id(purgatory)] = (handle, deadline_ms)

    def _on_timer(self, purgatory: Purgatory) -> None:
        self._timers.pop(id(purgatory), None)
        purgatory.on_deadline(self._clock.now_ms())
        deadline_ms = purgatory.next_deadline()
        if deadline_ms is not None and id(purgatory) not in self._timers:
            self._arm(purgatory, deadline_ms)
