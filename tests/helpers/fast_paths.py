"""Two connections to one dispatcher, without sockets, one with the fast paths and one without."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from minikafka.broker.front.dispatch import Dispatcher


class Answers:
    """A connection that records the frames it should send."""

    peer_host, peer_port, closed, principal, bytes_behind = "127.0.0.1", 0, False, "User:ANONYMOUS", 0

    def __init__(self) -> None:
        self.frames: dict[int, bytes] = {}
        self.tickets = itertools.count()
        self.reason: str | None = None
        #: How often the connection is told to accept no further request.
        self.holds = 0
        #: Whether frames that arrived together are used after they were served.
        self.keeps_frames = False
        self.arrived = asyncio.Event()
        self.callback: Callable[[], None] | None = None

    def after_frames(self, callback: Callable[[], None]) -> None:
        assert self.bytes_behind
        self.callback = callback

    def begin(self) -> int:
        return next(self.tickets)

    def keep_frame(self) -> None:
        """Frames that arrive together are not overwritten this time; others never are."""
        self.keeps_frames = True

    def hold(self) -> None:
        self.holds += 1

    def go_on(self) -> None:
        self.holds -= 1

    def count_memory(self, ticket: int, size: int) -> None:
        """There is no budget."""

    def finish(self, ticket: int, pieces: list[Any]) -> None:
        self.frames[ticket] = b"".join(piece.read() if hasattr(piece, "fileno") else bytes(piece) for piece in pieces)
        for piece in pieces:
            if hasattr(piece, "fileno"):
                piece.release()
        self.arrived.set()

    def send(self, pieces: list[Any]) -> None:
        raise AssertionError("a broker does not ask")

    def close(self, reason: str = "") -> None:
        self.reason = reason


class Side:
    """One connection, with the fast path or without it."""

    def __init__(self, dispatcher: Dispatcher, *, fast: bool) -> None:
        fast_paths = dispatcher.fast_paths
        dispatcher.fast_paths = fast_paths if fast else {}
        self.session = dispatcher.session("PLAINTEXT")
        dispatcher.fast_paths = fast_paths
        self.connection = Answers()

    def fast_path(self, api_key: int) -> Any:
        """The fast path of an API."""
        serve: Any = self.session._plain_fast_paths[api_key.to_bytes(2, "big")]
        return serve.__self__

    def ask(self, frame: bytes) -> bytes | None:
        """The answer, None if there is none yet."""
        before = set(self.connection.frames)
        self.session.on_frame(self.connection, memoryview(bytearray(frame)))
        new = set(self.connection.frames) - before
        return self.connection.frames[new.pop()] if new else None

    def ask_together(self, frames: Sequence[bytes]) -> list[bytes]:
        """The answers so far, in the order in which they leave, to frames that arrive in one wake-up of the loop."""
        connection = self.connection
        buffers = [bytearray(frame) for frame in frames]
        connection.keeps_frames = False
        for number, buffer in enumerate(buffers):
            connection.bytes_behind = sum(4 + len(later) for later in buffers[number + 1 :])
            self.session.on_frame(connection, memoryview(buffer))
        connection.bytes_behind = 0
        callback, connection.callback = connection.callback, None
        if callback is not None:
            callback()
        # From here on the receive buffer holds other bytes.
        for buffer in [] if connection.keeps_frames else buffers:
            buffer[:] = bytes(len(buffer))
        answers = [connection.frames[ticket] for ticket in sorted(connection.frames)]
        connection.frames.clear()
        return answers
