"""The active controller's events: one at a time, as in Kafka's event queue. Those of the cluster's own nodes come before those of clients,
so that however much clients ask, no broker waits behind more than one of their events. Clients take turns: however much one asks, another
waits behind one of its events. Otherwise events keep the order of their arrival.

An event is carried out in steps. A short one ends in the turn of the loop in which it arrives. A long one (a broker with very many
partitions is fenced) gives the loop back after its share of a turn; those that arrive meanwhile wait, so each finds what the one before it
has decided.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

from minikafka.broker.measures.durations import Durations
from minikafka.steps import Steps

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment


class Event(Protocol):
    """Something that the controller decides."""

    def steps(self) -> Steps[None]:
        """Decide. It handles its exceptions itself."""

    def dropped(self) -> None:
        """The controller is no longer active: the event will not be carried out, or not to its end."""


#: An event, and since when it waits.
_Waiting = tuple[Event, float]


class _Turns:
    """Events that wait, of clients that take turns."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        #: client -> its events; the first client is next. Only clients that have some are here.
        self._of: dict[Hashable, deque[_Waiting]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, client: Hashable, event: _Waiting) -> None:
        """Keep an event of a client."""
        self._of.setdefault(client, deque()).append(event)

    def take(self) -> _Waiting:
        """The next client's first event. Its next one comes after one of each other client."""
        client = next(iter(self._of))
        events = self._of.pop(client)
        event = events.popleft()
        if events:
            self._of[client] = events
        return event

    def take_all(self) -> list[_Waiting]:
        """All events."""
        found = [event for events in self._of.values() for event in events]
        self._of.clear()
        return found


class ControllerEvents:
    """Carries out events."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._waiting = _Turns()
        self._urgent: deque[_Waiting] = deque()
        self._event: Event | None = None
        self._steps: Steps[None] | None = None
        self._scheduled: asyncio.Handle | None = None
        self._is_in_step = False
        #: Steps after which the loop got its turn back.
        self.pauses = 0
        #: How long events waited before they began.
        self.waits = Durations(environment.monotonic_s)

    def add(self, event: Event, *, is_urgent: bool = False, client: Hashable = None) -> None:
        """Carry the event out, now unless others are before it. `is_urgent`: it comes from a node of the cluster, or from a timer.
        `client`: whose it is otherwise."""
        waiting = (event, self.waits.begin())
        if is_urgent:
            self._urgent.append(waiting)
        else:
            self._waiting.add(client, waiting)
        if self._scheduled is None and not self._is_in_step:
            self._go_on()

    def clear(self) -> None:
        """Drop all events."""
        waiting = [event for event, _ in (*self._urgent, *self._waiting.take_all())]
        dropped = waiting if self._event is None else [self._event, *waiting]
        steps = self._steps
        self._event = self._steps = None
        self._urgent.clear()
        if steps is not None and not self._is_in_step:
            steps.close()
        for event in dropped:
            event.dropped()

    def _go_on(self) -> None:
        self._scheduled, is_over = None, self._environment.shares.begin()
        self._is_in_step = True
        try:
            while self._steps is not None or self._urgent or self._waiting:
                if self._steps is None:
                    self._event, since_s = self._urgent.popleft() if self._urgent else self._waiting.take()
                    self.waits.end(since_s)
                    self._steps = self._event.steps()
                steps = self._steps
                try:
                    next(steps)
                except StopIteration:
                    if self._steps is steps:
                        self._event = self._steps = None
                if is_over() and (self._steps is not None or self._urgent or self._waiting):
                    self.pauses += 1
                    self._scheduled = self._environment.supervisor.call_soon("the controller", self._go_on)
                    return
        finally:
            self._is_in_step = False
