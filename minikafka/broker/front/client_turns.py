"""Places at the controller, which clients take in turns: however much one asks, another waits behind few of its requests.

A request that is served in parts keeps its place among those of its client, whichever parts are under way: otherwise the parts of many
requests would mix, and the first of them would be answered hardly before the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from minikafka.core.timers import TimerQueue

if TYPE_CHECKING:
    from minikafka.broker.supervise import Supervisor

#: Requests of one client that are at the controller. It answers those of a connection in order, so whoever asks a little waits for the
#: answers to these of whoever asks much. Apache Kafka has one request of all clients there.
FORWARDED_AT_ONCE = 2
#: Requests of all clients that are at the controller: so many fail together when its connection ends.
FORWARDED_AT_ONCE_OF_ALL = 16
#: Waiting requests that end in one turn of the loop because their time is up. Each may name hundreds of topics, and its answer does, too.
EXPIRED_IN_A_TURN = 4
#: Requests of a client that no longer wait and still have a place in its order, besides as many as wait.
FORGOTTEN_MAX = 64


#: When the whole request arrived, and when the part of it.
Arrival = tuple[int, int]


class WholeRequest:
    """A request that is served in parts. `arrival`: its place among those of its client; 0 before its first part has one."""

    __slots__ = ("arrival",)

    def __init__(self) -> None:
        self.arrival = 0


class _Client:
    """How many places a client has, and its requests that wait for one."""

    __slots__ = ("_order", "taken", "waiting")

    def __init__(self) -> None:
        self.taken = 0
        self.waiting: dict[Arrival, asyncio.Future[None]] = {}
        #: A heap of all that wait, and of some that no longer do.
        self._order: list[Arrival] = []

    def add(self, arrival: Arrival, waiter: asyncio.Future[None]) -> None:
        """A request waits."""
        self.waiting[arrival] = waiter
        if len(self._order) > 2 * len(self.waiting) + FORGOTTEN_MAX:
            self._order = sorted(self.waiting)
        else:
            heappush(self._order, arrival)

    def first(self) -> Arrival:
        """The first of those that wait; there must be one."""
        while self._order[0] not in self.waiting:
            heappop(self._order)
        return self._order[0]


class ClientTurns:
    """Lets `of_each` requests of each client through at a time, and `of_all` of all. Clients take turns; the requests of one keep their
    order. Nothing is kept of a client that has no request here."""

    def __init__(self, supervisor: Supervisor, of_each: int = FORWARDED_AT_ONCE, of_all: int | None = None) -> None:
        self._supervisor = supervisor
        self._of_each = of_each
        self._of_all = FORWARDED_AT_ONCE_OF_ALL if of_all is None else of_all
        self._clients: dict[Hashable, _Client] = {}
        #: Clients with waiting requests that may have another place; the first one is next.
        self._ring: dict[Hashable, None] = {}
        self._taken = 0
        #: Waiting request -> when its time is up, in ms of the loop's clock; and whose it is.
        self._deadlines: TimerQueue[Arrival] = TimerQueue()
        self._waiting: dict[Arrival, Hashable] = {}
        self._arrivals = 0
        self._timer: asyncio.Handle | None = None
        self._timer_ms = 0

    @asynccontextmanager
    async def turn(self, client: Hashable, timeout_ms: int, whole: WholeRequest | None = None) -> AsyncIterator[int]:
        """A place, and the time that is left of `timeout_ms`. `whole`: the request of which this is a part. Raises TimeoutError."""
        began_ms = _now_ms()
        arrival = self._arrival(whole)
        if not self._take(client):
            await self._wait(client, arrival, began_ms + timeout_ms)
        try:
            yield max(1, timeout_ms - (_now_ms() - began_ms))
        finally:
            self._release(client)

    def _arrival(self, whole: WholeRequest | None) -> Arrival:
        number = self._arrivals = self._arrivals + 1
        if whole is None:
            return number, number
        whole.arrival = whole.arrival or number
        return whole.arrival, number

    def _take(self, client: Hashable) -> bool:
        """Take a place now, if there is one."""
        places = self._clients.get(client)
        if self._taken >= self._of_all or (places is not None and (places.waiting or places.taken >= self._of_each)):
            return False
        if places is None:
            places = self._clients[client] = _Client()
        places.taken += 1
        self._taken += 1
        return True

    async def _wait(self, client: Hashable, arrival: Arrival, deadline_ms: int) -> None:
        """Wait for a place. Raises TimeoutError."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        places = self._clients.setdefault(client, _Client())
        places.add(arrival, waiter)
        if places.taken < self._of_each:
            self._ring.setdefault(client)
        self._waiting[arrival] = client
        self._deadlines.schedule(arrival, deadline_ms)
        self._set_timer()
        try:
            await waiter
        except BaseException:
            if arrival in self._waiting:
                self._forget(arrival)
            elif not waiter.cancelled() and waiter.exception() is None:
                self._release(client)
            raise

    def _release(self, client: Hashable) -> None:
        """Give a place back, and to whoever is next."""
        places = self._clients[client]
        places.taken -= 1
        self._taken -= 1
        if places.waiting:
            self._ring.setdefault(client)
        elif not places.taken:
            del self._clients[client]
        while self._ring and self._taken < self._of_all:
            self._give(next(iter(self._ring)))

    def _give(self, client: Hashable) -> None:
        """Let the first waiting request of a client through. The client's next turn comes after one of each other client."""
        places = self._clients[client]
        waiter = self._forget(places.first())
        self._ring.pop(client, None)
        if not waiter.done():  # a request that has been cancelled takes no place
            self._clients[client] = places
            places.taken += 1
            self._taken += 1
            waiter.set_result(None)
        if places.waiting and places.taken < self._of_each:
            self._ring[client] = None

    def _forget(self, arrival: Arrival) -> asyncio.Future[None]:
        """A request waits no longer; what it waited for."""
        client = self._waiting.pop(arrival)
        self._deadlines.cancel(arrival)
        places = self._clients[client]
        waiter = places.waiting.pop(arrival)
        if not places.waiting:
            self._ring.pop(client, None)
            if not places.taken:
                del self._clients[client]
        return waiter

    def _set_timer(self) -> None:
        deadline_ms = self._deadlines.next_deadline()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(0, deadline_ms - _now_ms()) / 1000
        self._timer = self._supervisor.call_later(delay_s, "requests that wait for the controller", self._expire)

    def _expire(self) -> None:
        """End some requests whose time is up; the others end in turns of their own."""
        self._timer = None
        for arrival in self._deadlines.expired(_now_ms(), EXPIRED_IN_A_TURN):
            waiter = self._forget(arrival)
            if not waiter.done():
                waiter.set_exception(TimeoutError("the request waited too long for its turn at the controller"))
        self._set_timer()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
