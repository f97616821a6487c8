"""Requests that wait for something: completed by what happens to a partition, or by time.

An operation knows itself when it is complete; the purgatory only knows who waits for which key, and until when. Rules:
org.apache.kafka.server.purgatory.DelayedOperation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from minikafka.core.timers import TimerQueue


class DelayedOperation(Protocol):
    """Something parked. `is_done` never goes back."""

    is_done: bool

    def try_complete(self) -> bool:
        """Complete if the condition holds now; whether it is done. Must be harmless when it is done already."""

    def expire(self) -> None:
        """The time is up: complete with what there is."""


class Purgatory:
    """Parked operations by key. `watched` has the keys that somebody waits for: hot paths look there before they wake.

    Invariants: an operation that is done is never called again, and is dropped from the lists it stands in when they are next looked at.
    One that raises is done, `on_failure` is told of it, and the others have their turn.
    """

    def __init__(self, on_failure: Callable[[DelayedOperation, Exception], object]) -> None:
        self._on_failure = on_failure
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
        """Keep an operation until one of its keys wakes it, or `deadline_ms`. It has been tried before; it is tried again by `wake`
        only."""
        self.watch(operation, keys)
        self._numbers += 1
        self._operations[self._numbers] = operation
        self._timers.schedule(self._numbers, deadline_ms)
        if len(self._operations) > self._prune_at:
            self._prune()

    def watch(self, operation: DelayedOperation, keys: list[Hashable]) -> None:
        """What is parked waits for more keys."""
        for key in keys:
            waiting = self.watched.get(key)
            if waiting is None:
                self.watched[key] = [operation]
            else:
                if len(waiting) > 32 and waiting[0].is_done:
                    waiting[:] = [other for other in waiting if not other.is_done]
                waiting.append(operation)

    def wake(self, key: Hashable) -> int:
        """Something happened to the key: the number of operations that it completed, in the order in which they were parked."""
        waiting = self.watched.pop(key, None)
        if waiting is None:
            return 0
        completed = 0
        left = []
        for operation in waiting:
            if operation.is_done:
                continue
            try:
                is_complete = operation.try_complete()
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
        """When `on_deadline` is due for somebody; forgets those before that are done."""
        timers, operations = self._timers, self._operations
        while (first := timers.first()) is not None:
            number, deadline_ms = first
            if not operations[number].is_done:
                return deadline_ms
            timers.cancel(number)
            del operations[number]
        return None

    def on_deadline(self, now_ms: int) -> None:
        """Expire what is due; forget what is done."""
        for number in self._timers.expired(now_ms):
            self._expire(self._operations.pop(number))

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
        """Forget operations that are done long before their deadline; the work is shared by as many parkings."""
        for number in [n for n, operation in self._operations.items() if operation.is_done]:
            del self._operations[number]
            self._timers.cancel(number)
        self._prune_at = max(1024, 2 * len(self._operations))

    def expire_those(self, chosen: Callable[[DelayedOperation], bool]) -> None:
        """Complete what is chosen with what there is, before its time."""
        for operation in [operation for operation in self._operations.values() if not operation.is_done and chosen(operation)]:
            self._expire(operation)

    def expire_all(self) -> None:
        """The broker stops: everything is completed with what there is."""
        operations, self._operations = self._operations, {}
        self.watched.clear()
        self._timers.clear()
        for operation in operations.values():
            self._expire(operation)
