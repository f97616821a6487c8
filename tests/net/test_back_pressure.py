"""A connection that stopped reading because too much was queued reads on as soon as the socket has taken it."""

from __future__ import annotations

import asyncio
import socket

from minikafka.net.connection import SocketConnection
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.network import ConnectionLimits


class BigAnswers:
    """Answers every frame with more bytes than may be queued."""

    def on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
        connection.finish(connection.begin(), [b"x" * 4000])

    def on_closed(self, connection: SocketConnection, reason: str) -> None:
        pass


async def test_an_answer_that_the_socket_takes_whole_does_not_stop_the_reading() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = SocketConnection(loop, ours, FlushQueue(loop), ConnectionLimits(queued_bytes_max=1000))
    connection.start(BigAnswers())  # type: ignore[arg-type]
    with theirs:
        for _ in range(3):
            await loop.sock_sendall(theirs, b"\0\0\0\1a")
            received = 0
            while received < 4000:
                received += len(await loop.sock_recv(theirs, 4000))
        connection.close("done")
