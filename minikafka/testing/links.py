"""A broker's network whose connections to other nodes can be cut and slowed.

A cut link swallows what is sent and received, as a dead cable does; what it swallowed is lost, so such a connection is closed when the link
heals. Connections that clients opened are not touched.
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
    """`cut` and `delay_ms` are by port of 127.0.0.1; each node owns the connections that it opened, so a partition cuts on both sides."""

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
        """As SocketNetwork; to a cut port it hangs until the link heals or the caller gives up."""
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
        """Cut the links to exactly these ports; links that are not cut any more are healed."""
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
        """Close every connection that this node opened, as its death does."""
        for link in list(self._links):
            link.connection.close("the broker was killed")


class _Connecting:
    """Begins to connect when it is awaited: one that is given up before leaves nothing behind."""

    def __init__(self, network: BreakableNetwork, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None) -> None:
        self._network = network
        self._arguments = (host, port, handler, tls)

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._network.open_link(*self._arguments).__await__()


class _Link:
    """Stands between a connection and its handler, in both directions."""

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
        """To the peer."""
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
        """From the peer."""
        if self.is_cut:
            self.lost = True
        else:
            self._handler.on_frame(self, frame)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The end."""
        self._network.forget(self)
        self._handler.on_closed(self, reason)
