"""What the dispatcher knows of fast paths: for requests that a connection repeats, byte for byte but for a few fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minikafka.net.network import Connection

ServeFast = Callable[[Connection, memoryview], bool]


class FastPath(Protocol):
    """The fast path of one API on one connection."""

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a frame. False, with nothing done, for a frame that the dispatcher must serve."""

    def forget(self) -> None:
        """Forget what was learned; the fast path may learn again."""


#: (entry, permits=…) -> the fast path of a new connection. `permits(version, request)` is asked before a request is learned.
MakeFastPath = Callable[..., FastPath]
