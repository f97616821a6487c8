"""The receive buffer of a connection: grows with what arrives, is kept while large frames come, and is given back."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

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


class Arriving:
    """A socket whose bytes arrive in portions. Asked for no bytes a socket answers as at its end, so here nobody may ask."""

    def __init__(self, data: bytes, portions: random.Random) -> None:
        self._data, self._at, self._portions = data, 0, portions

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def recv_into(self, view: memoryview) -> int:
        assert len(view) > 0, "the buffer is full"
        count = min(len(view), len(self._data) - self._at, self._portions.choice((1_000, 30_000, 700_000, 2_000_000)))
        view[:count] = self._data[self._at : self._at + count]
        self._at += count
        return count

    def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(10))
async def test_there_is_room_whatever_is_kept(seed: int) -> None:
    """Of what follows a kept frame of a large buffer, a part as large as the buffer that begins anew may have arrived with it."""
    loop = asyncio.get_running_loop()
    random_ = random.Random(seed)
    sizes = [random_.choice((1, 9_000, 200_000, 262_140, 600_000)) for _ in range(60)]
    data = b"".join(size.to_bytes(4, "big") + bytes([number]) * size for number, size in enumerate(sizes))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = SocketConnection(loop, ours, FlushQueue(loop), ConnectionLimits())
        frames: list[memoryview] = []

        class Keeper:
            def on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
                if random_.random() < 0.5:
                    connection.keep_frame()
                    frames.append(frame)
                else:
                    frames.append(memoryview(bytes(frame)))

            def on_closed(self, connection: SocketConnection, reason: str) -> None:
                pass

        connection.handler = Keeper()  # type: ignore[assignment]
        connection._socket = arriving = Arriving(data, random_)  # type: ignore[assignment]
        while not arriving.is_at_end:
            if connection.paused or connection._waits:
                await asyncio.sleep(0)
            else:
                connection._readable()
        while connection.paused:
            await asyncio.sleep(0)
        assert [bytes(frame) for frame in frames] == [bytes([number]) * size for number, size in enumerate(sizes)]
