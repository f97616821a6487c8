"""The dispatcher's view of fast paths, which serve repeated requests of a connection that differ in a few fields only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minikafka.net.network import Connection

ServeFast = Callable[[Connection, memoryview], bool]


class FastPath(Protocol):
    """The fast path of one API on one connection."""

    #: Whether it may put frames off.
    puts_off: bool

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a frame, perhaps only when `complete` is called. Returns False, and does nothing, for a frame that the dispatcher must
        serve."""

    def complete(self) -> None:
        """Complete the frames that were put off. The connection calls this after the frames that arrived together; it must also be called
        before a later frame is served in another way. Raises nothing."""

    def forget(self) -> None:
        """Forget everything learned from earlier requests. The fast path may learn again."""


#: Lets the dispatcher serve a frame that was put off and cannot be completed.
Refer = Callable[[Connection, memoryview], None]
#: (entry, refer, permits=…) -> the fast path of a new connection. It learns a request only if `permits(version, request)` is true.
MakeFastPath = Callable[..., FastPath]
