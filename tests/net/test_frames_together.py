"""Frames that arrive together: a handler may put them off until the last of them, and no more than a connection may have under way."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from minikafka.net.connection import SocketConnection
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.network import ConnectionLimits


class PutsOff:
    """Answers every frame with itself, when all that arrived together have been handled."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, memoryview]] = []
        self.groups: list[list[bytes]] = []
        self.closed = ""

    def on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
        if not connection.bytes_behind and not self.waiting:
            connection.finish(connection.begin(), [bytes(frame)])
            return
        if not self.waiting:
            connection.after_frames(lambda: self.complete(connection))
        self.waiting.append((connection.begin(), frame))

    def complete(self, connection: SocketConnection) -> None:
        waiting, self.waiting = self.waiting, []
        self.groups.append([bytes(frame) for _, frame in waiting])
        for ticket, frame in waiting:
            connection.finish(ticket, [bytes(frame)])

    def on_closed(self, connection: SocketConnection, reason: str) -> None:
        self.closed = reason


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


async def begun(**limits: Any) -> tuple[socket.socket, SocketConnection, PutsOff]:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection, handler = SocketConnection(loop, ours, FlushQueue(loop), ConnectionLimits(**limits)), PutsOff()
    connection.start(handler)  # type: ignore[arg-type]
    return theirs, connection, handler


async def received(peer: socket.socket, count: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < count:
        data += await loop.sock_recv(peer, count)
    return data


@pytest.mark.parametrize("pending_answers_max", [3, 256])
async def test_frames_of_one_wake_up_end_together(pending_answers_max: int) -> None:
    """The bound on requests under way ends a group, and the frames behind it need no further bytes to be served."""
    peer, connection, handler = await begun(pending_answers_max=pending_answers_max)
    bodies = [b"%05d" % number for number in range(1000)]
    with peer:
        await asyncio.get_running_loop().sock_sendall(peer, framed(*bodies))
        assert await received(peer, 5000) == b"".join(bodies)
        # Whatever happened to be the last in the buffer was not put off.
        assert len([body for group in handler.groups for body in group]) > 900
        assert 1 < max(map(len, handler.groups)) <= pending_answers_max
        # One frame by itself is not put off.
        await asyncio.get_running_loop().sock_sendall(peer, framed(b"alone"))
        assert await received(peer, 5) == b"alone"
        assert b"alone" not in handler.groups[-1]
        connection.close("done")


async def test_what_was_put_off_is_done_when_the_connection_ends_behind_it() -> None:
    peer, _, handler = await begun(frame_bytes_max=100)
    with peer:
        await asyncio.get_running_loop().sock_sendall(peer, framed(b"one", b"two") + (101).to_bytes(4, "big"))
        while not handler.closed:
            await asyncio.sleep(0)
    assert handler.groups == [[b"one", b"two"]] and "101 bytes is refused" in handler.closed
