"""The receive buffer of a connection: grows with what arrives, is kept while large frames come, and is given back."""

from __future__ import annotations

import asyncio
import socket

from minikafka.net.connection import (
    RECEIVE_BYTES_GROWN,
    RECEIVE_BYTES_INITIAL,
    RECEIVE_BYTES_KEPT,
    SMALL_RECEIVES,
    FlushQueue,
    SocketConnection,
)
from minikafka.net.network import ConnectionLimits


class Sizes:
    """Notes the size of each frame."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[int] = asyncio.Queue()

    def on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
        assert frame[0] == frame[-1] == 7
        self.arrived.put_nowait(len(frame))

    def on_closed(self, connection: SocketConnection, reason: str) -> None:
        pass


async def test_memory_follows_the_frames() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = SocketConnection(loop, ours, FlushQueue(loop), ConnectionLimits())
    sizes = Sizes()
    connection.start(sizes)  # type: ignore[arg-type]

    async def send(size: int) -> int:
        await loop.sock_sendall(theirs, size.to_bytes(4, "big") + bytes([7]) * size)
        assert await sizes.arrived.get() == size
        await asyncio.sleep(0)
        return len(connection._buffer)

    with theirs:
        assert await send(100) == RECEIVE_BYTES_INITIAL
        large = await send(3_000_000)
        assert 3_000_000 < large <= RECEIVE_BYTES_KEPT
        buffer = connection._buffer
        for _ in range(3):
            assert await send(3_000_000) == large
            assert await send(100) == large
        assert connection._buffer is buffer, "large frames do not allocate again and again"
        for _ in range(SMALL_RECEIVES):
            kept = await send(100)
        assert kept == RECEIVE_BYTES_GROWN
        assert await send(RECEIVE_BYTES_KEPT + 1) == RECEIVE_BYTES_GROWN
        connection.trim()
        assert len(connection._buffer) == RECEIVE_BYTES_INITIAL
        assert await send(100) == RECEIVE_BYTES_INITIAL
        connection.close("done")


async def test_a_kept_frame_is_not_overwritten_by_those_behind_it() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = SocketConnection(loop, ours, FlushQueue(loop), ConnectionLimits())
    frames: asyncio.Queue[memoryview] = asyncio.Queue()

    class Keeper:
        def on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
            connection.keep_frame()
            frames.put_nowait(frame)

        def on_closed(self, connection: SocketConnection, reason: str) -> None:
            pass

    connection.start(Keeper())  # type: ignore[arg-type]
    with theirs:
        kept = []
        for number in range(40):
            # Parts of frames, too: what follows is moved.
            await loop.sock_sendall(theirs, 2 * ((9_000).to_bytes(4, "big") + bytes([number]) * 9_000) + b"\0\0")
            kept += [await frames.get(), await frames.get()]
            await loop.sock_sendall(theirs, b"\0\1" + bytes([number]))
            kept.append(await frames.get())
        assert [(len(frame), set(frame)) for frame in kept] == [(size, {n}) for n in range(40) for size in (9_000, 9_000, 1)]
        connection.close("done")
