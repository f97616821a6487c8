"""A broker's network whose connections to other nodes can be cut and delayed.

A cut link drops all bytes in both directions, as a dead cable does. They are lost, so a connection that dropped any is closed when the link
heals. Connections opened by clients are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any

from minikafka.net.network import Connection, ConnectionHandler
from minikafka.net.server import SocketNetwork
from minikafka.net.tls_settings import ClientTls
from minikafka.wire.message import Piece


class BreakableNetwork(SocketNetwork):
    """Cuts and delays apply to ports of 127.0.0.1. A node can only cut connections that it opened, so a partition is set on both sides."""

    def __init__(self, loop: asyncio.AbstractEventLoop, congestion_control: str = "reno") -> None:
        super().__init__(loop, congestion_control)
        self.loop = loop
        self._cut: set[int] = set()
        self._healed = asyncio.Event()
        self.delay_ms: dict[int, int] = {}
        self._links: set[_Link] = set()

    def connect(  # type: ignore[override]
        self, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None = None
    ) -> Awaitable[Connection]:
        """As SocketNetwork; a connection to a cut port waits until the link heals or the caller gives up."""
        return _Connecting(self, host, port, handler, tls)

    async def open_link(self, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None) -> Connection:
        """See `connect`."""
        while port in self._cut:
            await self._healed.wait()
        link = _Link(self, port, handler)
        link.connection = await super().connect(host, port, link, tls)
        self._links.add(link)
        return link

    def set_cut(self, ports: set[int]) -> None:
        """Cut the links to exactly these ports and heal all others."""
        healed = self._cut - ports
        self._cut = set(ports)
        for link in list(self._links):
            if link.port in ports:
                link.is_cut = True
            elif link.port in healed and link.lost:
                link.connection.close("the network was cut")
            else:
                link.is_cut = False
        if healed:
            self._healed.set()
            self._healed = asyncio.Event()

    def forget(self, link: _Link) -> None:
        """A connection has ended."""
        self._links.discard(link)

    def drop_all(self) -> None:
        """Close every connection that this node opened, as happens when it dies."""
        for link in list(self._links):
            link.connection.close("the broker was killed")


class _Connecting:
    """Begins to connect only when it is awaited, so that a caller that gives up before leaves no connection behind."""

    def __init__(self, network: BreakableNetwork, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None) -> None:
        self._network = network
        self._arguments = (host, port, handler, tls)

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._network.open_link(*self._arguments).__await__()


class _Link:
    """Sits between a connection and its handler, in both directions. `lost`: it has dropped something while it was cut."""

    def __init__(self, network: BreakableNetwork, port: int, handler: ConnectionHandler) -> None:
        self._network = network
        self._handler = handler
        self.port = port
        self.connection: Any = None
        self.is_cut = False
        self.lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def send(self, pieces: list[Piece]) -> None:
        """Send to the peer; drop the pieces if the link is cut."""
        if self.is_cut:
            self.lost = True
            return
        delay_ms = self._network.delay_ms.get(self.port, 0)
        if delay_ms:
            kept: list[Piece] = [bytes(piece) if isinstance(piece, memoryview | bytearray) else piece for piece in pieces]
            self._network.loop.call_later(delay_ms / 1000, self._send_late, kept)
        else:
            self.connection.send(pieces)

    def _send_late(self, pieces: list[Piece]) -> None:
        if not self.connection.closed:
            self.connection.send(pieces)

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Pass on a frame from the peer; drop it if the link is cut."""
        if self.is_cut:
            self.lost = True
        else:
            self._handler.on_frame(self, frame)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Pass on that the connection has ended."""
        self._network.forget(self)
        self._handler.on_closed(self, reason)
