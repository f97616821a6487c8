"""What fetches of consumers and followers and share fetches have in common: one fetch in steps, and its wait for records.

A fetch of few partitions is served within one turn of the loop: the turn in which it arrives, or in which the data it waits for arrives. A
fetch of very many partitions takes several steps, one per turn, and one of records that are not in memory waits for them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.broker.supervise import Ends
from minikafka.storage.cold_reads import Look, NotInMemory, looking_within, reading

if TYPE_CHECKING:
    from minikafka.broker.cold_reads import ColdReads
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.front.turns import Turns
    from minikafka.broker.supervise import Supervisor

T = TypeVar("T")
#: A step may yield what the next one waits for.
StepsOf = Generator[Awaitable[None] | None, None, T]
Steps = StepsOf[None]
#: Sentinel: a generator is exhausted.
_LAST = object()


class FetchTurns:
    """Takes the remaining steps of fetches, one per turn of the loop. Meanwhile nothing is read from their clients."""

    def __init__(self, supervisor: Supervisor, turns: Turns, cold_reads: ColdReads, name: str) -> None:
        """`name`: of one fetch, in log lines."""
        self._supervisor = supervisor
        self.cold_reads = cold_reads
        self._turns = turns
        self._name = name

    def go_on(self, fetch: FetchInSteps, steps: Iterator[Awaitable[None] | None]) -> None:
        """Take the remaining steps of a fetch."""
        ends = Ends("connection", fetch.close)
        self._supervisor.start(self._in_turns(fetch, steps), f"{self._name} from {fetch.context.connection}", ends=ends)

    async def _in_turns(self, fetch: FetchInSteps, steps: Iterator[Awaitable[None] | None]) -> None:
        connection = fetch.context.connection
        connection.hold()
        try:
            while not connection.closed:
                await self._turns.next()
                waits: Any = next(steps, _LAST)
                if waits is _LAST:
                    break
                if waits is not None:
                    await waits
            fetch.stop()
        except BaseException:
            fetch.abandon()
            raise
        finally:
            connection.go_on()


class FetchInSteps(ABC):
    """One fetch that is answered when there is enough, or when its time is up. A purgatory calls `try_complete` and `expire`."""

    __slots__ = ("_is_busy", "_is_expired", "_is_woken", "_turns", "context", "is_done")

    def __init__(self, context: RequestContext, turns: FetchTurns) -> None:
        self.context = context
        self._turns = turns
        #: Nothing is waited for any more.
        self.is_done = False
        #: True while the fetch takes steps. Events in between set `_is_woken` or `_is_expired`, and are handled after parking.
        self._is_busy = False
        self._is_woken = False
        self._is_expired = False

    @abstractmethod
    def looking(self) -> StepsOf[bool]:
        """Whether to answer now."""

    @abstractmethod
    def answering(self) -> Steps:
        """Read what is there, and answer."""

    @abstractmethod
    def abandon(self) -> None:
        """Drop the fetch and everything that it holds. Purgatory lists may keep the object itself for long."""

    def close(self, reason: str) -> None:
        """Close the client's connection, because the fetch failed unexpectedly."""
        self.context.close(reason)

    # -- steps -----------------------------------------------------------------------------------------------------

    def start(self, steps: Steps) -> None:
        """Take the first step now, and any others in later turns."""
        self._is_busy = True
        try:
            waits = next(steps)
        except StopIteration:
            self._is_busy = False
        except BaseException:
            self._is_busy = False
            raise
        else:
            self._turns.go_on(self, steps if waits is None else itertools.chain([waits], steps))

    def look_up(self, look: Callable[[Look], T]) -> StepsOf[T]:
        """Look something up in logs, see `looking_within`. What is not in memory is waited for, and much may happen meanwhile."""
        return (yield from reading(looking_within(look), self._read))

    def _read(self, missing: NotInMemory) -> Awaitable[None]:
        self._is_woken = True
        return self._turns.cold_reads.read(missing)

    def stop(self) -> None:
        """The last step is taken: the fetch is parked or answered, or its connection has ended."""
        self._is_busy = False
        if self.context.connection.closed:
            self.abandon()

    def until_nothing_happens(self) -> Steps:
        """Look again while events arrive meanwhile, then answer if it is time."""
        is_due = False
        while self._is_woken and not (is_due or self._is_expired):
            self._is_woken = False
            is_due = yield from self.looking()
        if is_due or self._is_expired:
            yield from self.answering()

    # -- events while parked ---------------------------------------------------------------------------------------

    def try_complete(self, key: Hashable = None) -> bool:
        """Answer if there is enough, or something to report. `key`: the partition to which something happened."""
        if self._is_busy:
            self._is_woken = True
        elif not self.is_done:
            is_due = None if key is None else self.is_due_by(key)
            if is_due:
                self.start(self.answering())
            elif is_due is None:
                self._is_woken = True
                self.start(self.until_nothing_happens())
        return self.is_done

    def is_due_by(self, key: Hashable) -> bool | None:
        """Whether what happened to one partition is reason enough to answer; None if the others must be looked at, too."""
        return None

    def expire(self) -> None:
        """max_wait_ms has passed: answer with what is there."""
        if self._is_busy:
            self._is_expired = True
        elif not self.is_done:
            self.start(self.answering())
