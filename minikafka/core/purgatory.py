"""Requests that wait: an event of a partition or the deadline completes them.

An operation decides itself when it is complete; the purgatory only holds the keys and the deadline of each operation. Rules:
org.apache.kafka.server.purgatory.DelayedOperation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from typing import Protocol

from minikafka.core.timers import TimerQueue
from minikafka.steps import Steps

#: Operations that expire in one call.
EXPIRED_AT_ONCE = 256
#: So few operations are all tried at once.
FEW = 16


class DelayedOperation(Protocol):
    """A parked operation. Once `is_done` is true it stays true."""

    is_done: bool

    def try_complete(self, key: Hashable = None, /) -> bool:
        """Complete if the condition holds now. Returns whether the operation is done. Must do nothing if it is done already. `key`: what
        something happened to, for operations that wait for very many keys; None: look at all of them."""

    def expire(self) -> None:
        """The time is up: complete with the results so far."""


class Purgatory:
    """Parked operations by key. `watched` has the keys with waiting operations; hot paths check it before they call `wake`.

    Invariants: an operation that is done is never called again, and is dropped from its lists when they are next processed. If an operation
    raises, it counts as done, `on_failure` is called with it, and the others continue.
    """

    def __init__(
        self,
        on_failure: Callable[[DelayedOperation, Exception], object],
        on_rest: Callable[[Purgatory, Hashable], object] | None = None,
        begin_share: Callable[[], Callable[[], bool]] | None = None,
    ) -> None:
        """`begin_share`: begins a share of time. If very many operations wait for a key, those that are left when one is used up are left
        to a later `wake`, for which `on_rest` is called with the key."""
        self._on_failure = on_failure
        self._on_rest = on_rest
        self._begin_share = begin_share
        self.watched: dict[Hashable, list[DelayedOperation]] = {}
        #: How many operations `wake` has completed.
        self.completions = 0
        self._timers: TimerQueue[int] = TimerQueue()
        self._operations: dict[int, DelayedOperation] = {}
        self._numbers = 0
        self._prune_at = 1024

    def __len__(self) -> int:
        return sum(1 for operation in self._operations.values() if not operation.is_done)

    def park(self, operation: DelayedOperation, keys: list[Hashable], deadline_ms: int) -> None:
        """Keep an operation until one of its keys wakes it, or until `deadline_ms`. The caller has tried it before; only `wake` tries it
        again."""
        self.watch(operation, keys)
        self._numbers += 1
        self._operations[self._numbers] = operation
        self._timers.schedule(self._numbers, deadline_ms)
        if len(self._operations) > self._prune_at:
            self._prune()

    def watch(self, operation: DelayedOperation, keys: list[Hashable]) -> None:
        """Let a parked operation wait for more keys."""
        for key in keys:
            waiting = self.watched.get(key)
            if waiting is None:
                self.watched[key] = [operation]
            else:
                if len(waiting) > 32 and waiting[0].is_done:
                    waiting[:] = [other for other in waiting if not other.is_done]
                waiting.append(operation)

    def wake(self, key: Hashable) -> int:
        """Something happened to the key: try its operations in the order in which they were parked. Returns how many it completed."""
        waiting = self.watched.pop(key, None)
        if waiting is None:
            return 0
        completed = 0
        left = []
        is_over = self._begin_share() if self._begin_share is not None and len(waiting) > FEW else None
        for number, operation in enumerate(waiting):
            if operation.is_done:
                continue
            if is_over is not None and is_over():
                left += waiting[number:]
                if self._on_rest is not None:
                    self._on_rest(self, key)
                break
            try:
                is_complete = operation.try_complete(key)
            except Exception as error:
                self._failed(operation, error)
                continue
            if is_complete:
                completed += 1
            else:
                left.append(operation)
        self.completions += completed
        if left:
            since = self.watched.get(key)
            self.watched[key] = left if since is None else left + since
        return completed

    def next_deadline(self) -> int | None:
        """When to call `on_deadline`. Drops earlier timers of operations that are done."""
        timers, operations = self._timers, self._operations
        while (first := timers.first()) is not None:
            number, deadline_ms = first
            if not operations[number].is_done:
                return deadline_ms
            timers.cancel(number)
            del operations[number]
        return None

    def on_deadline(self, now_ms: int) -> None:
        """Expire operations that are due until a share of time is used up, and a bounded number of them; drop those that are done."""
        is_over = self._begin_share() if self._begin_share is not None else None
        with contextlib.closing(self._timers.expired(now_ms, EXPIRED_AT_ONCE)) as expired:
            for number in expired:
                self._expire(self._operations.pop(number))
                if is_over is not None and is_over():
                    break

    def _expire(self, operation: DelayedOperation) -> None:
        if operation.is_done:
            return
        try:
            operation.expire()
        except Exception as error:
            self._failed(operation, error)

    def _failed(self, operation: DelayedOperation, error: Exception) -> None:
        operation.is_done = True
        self._on_failure(operation, error)

    def _prune(self) -> None:
        """Drop operations that are done long before their deadline. The cost is amortized over as many calls of `park`."""
        for number in [n for n, operation in self._operations.items() if operation.is_done]:
            del self._operations[number]
            self._timers.cancel(number)
        self._prune_at = max(1024, 2 * len(self._operations))

    def expire_those(self, chosen: Callable[[DelayedOperation], bool]) -> None:
        """Expire the chosen operations now, before their deadline."""
        for operation in [operation for operation in self._operations.values() if not operation.is_done and chosen(operation)]:
            self._expire(operation)

    def expire_all(self) -> Steps[None]:
        """The broker stops: expire all operations that wait now, one in a step."""
        operations, self._operations = self._operations, {}
        self.watched.clear()
        self._timers.clear()
        for operation in operations.values():
            self._expire(operation)
            yield
