"""Connections share the turns of the loop: however many have requests at once, a turn is short, and nobody is passed over."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minikafka.net import connection as connection_module
from minikafka.net import turn_share
from minikafka.net.connection import SocketConnection
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.network import ConnectionLimits

FRAME_S = 0.0004
TURN_S = 0.02
Served = list[int]
Both = tuple[list[SocketConnection], list[socket.socket]]
FRAME = (10).to_bytes(4, "big") + bytes([0, 3]) + bytes(8)


class Clock:
    """Time passes while frames are served, and not otherwise."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Handler:
    """Takes FRAME_S for each frame, and answers it."""

    def __init__(self, number: int, clock: Clock, served: Served) -> None:
        self.number, self.clock, self.served = number, clock, served

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        self.clock.now_s += FRAME_S
        self.served.append(self.number)
        connection.finish(connection.begin(), [b"x"])

    def on_closed(self, connection: Any, reason: str) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection_module, "monotonic", clock)
    monkeypatch.setattr(turn_share, "monotonic", clock)
    return clock


@contextlib.asynccontextmanager
async def many(count: int, clock: Clock, served: Served, **limits: Any) -> AsyncIterator[Both]:
    """Connections that share a loop's turns, and their peers."""
    loop = asyncio.get_running_loop()
    queue, pairs = FlushQueue(loop), [socket.socketpair() for _ in range(count)]
    connections = [SocketConnection(loop, ours, queue, ConnectionLimits(**limits)) for ours, _ in pairs]
    for number, connection in enumerate(connections):
        connection.start(Handler(number, clock, served))  # type: ignore[arg-type]
    yield connections, [theirs for _, theirs in pairs]
    for connection, (_, theirs) in zip(connections, pairs, strict=True):
        connection.close("done")
        theirs.close()


async def turns_of(clock: Clock, served: Served, total: int) -> list[float]:
    """The time that each turn of the loop took, until so many frames have been served."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    times = [clock.now_s]

    def look() -> None:
        times.append(clock.now_s)
        if len(served) < total:
            loop.call_soon(look)
        else:
            done.set()

    loop.call_soon(look)
    await done.wait()
    return [after - before for before, after in itertools.pairwise(times)]


@pytest.mark.parametrize("frames", [1, 20])
async def test_connections_that_are_ready_together_do_not_make_a_turn_long(clock: Clock, frames: int) -> None:
    served: Served = []
    async with many(200, clock, served) as (_, peers):
        for peer in peers:
            peer.send(FRAME * frames)
        turns = await turns_of(clock, served, 200 * frames)
    assert sorted(served) == sorted(list(range(200)) * frames)
    assert max(turns) <= TURN_S


async def test_a_connection_that_has_more_waits_behind_those_that_had_nothing_yet(clock: Clock) -> None:
    """The kernel names the connections that were served first again first, if they have more."""
    served: Served = []
    async with many(100, clock, served) as (_, peers):
        greedy = peers[:5]
        for peer in peers:
            peer.send(FRAME)
        seen = 0
        while len(set(served)) < 100:
            await asyncio.sleep(0)
            for number in served[seen:]:
                if number < len(greedy):
                    greedy[number].send(FRAME)
            seen = len(served)
        first = {number: served.index(number) for number in set(served)}
    between = [served[: first[number]] for number in range(5, 100)]
    assert max(list_.count(number) for list_ in between for number in range(5)) <= 2


async def test_answers_to_own_requests_do_not_wait(clock: Clock) -> None:
    served: Served = []
    async with many(100, clock, served, is_outgoing=True) as (_, peers):
        for peer in peers:
            peer.send(FRAME)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(served) == 100


async def test_a_connection_that_closes_or_stops_reading_while_it_waits_is_passed_over(clock: Clock) -> None:
    served: Served = []
    async with many(40, clock, served) as (connections, peers):
        for peer in peers:
            peer.send(FRAME)
        while not served:
            await asyncio.sleep(0)
        waiting = [number for number, connection in enumerate(connections) if connection._waits]
        connections[waiting[0]].close("gone")
        connections[waiting[1]].hold()
        await turns_of(clock, served, 38)
        assert not set(waiting[:2]) & set(served)
        connections[waiting[1]].go_on()
        await turns_of(clock, served, 39)
        assert waiting[1] in served
