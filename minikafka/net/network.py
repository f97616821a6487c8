"""What the broker sees of a network: framed connections, listeners, clocks. Real sockets and the simulator both fit behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from minikafka.net.memory_budget import MemoryBudget
from minikafka.net.peer_lines import PeerLines
from minikafka.wire.message import Piece

if TYPE_CHECKING:
    from minikafka.net.tls_settings import ClientTls, ServerTls

ANONYMOUS = "User:ANONYMOUS"


class AuthenticationFailed(ConnectionError):
    """The peer and this side do not accept each other: a certificate, a password, a mechanism. Trying again does not help."""


class Clock(Protocol):
    """Time, as integers."""

    def now_ms(self) -> int:
        """Milliseconds that never go back; their zero means nothing."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes."""


class Connection(Protocol):
    """A connection that carries frames (four bytes of size, then that many bytes) in both directions.

    The side that answers calls `begin` for every request that will have an answer and `finish` with the answer's frame, in any order:
    frames leave in the order of `begin`. The side that asks calls `send`.
    """

    peer_host: str
    peer_port: int
    closed: bool
    #: Who is at the other end, as far as is known: "User:ANONYMOUS" until it has authenticated.
    principal: str

    def send(self, pieces: list[Piece]) -> None:
        """Queue a frame."""

    def begin(self) -> int:
        """Reserve the next answer's place; the number to give to `finish`."""

    def finish(self, ticket: int, pieces: list[Piece]) -> None:
        """The frame for a reserved place; an empty list gives the place up."""

    def mute(self, delay_ms: int) -> None:
        """Take no more requests for so long (KIP-219); answers leave."""

    def hold(self) -> None:
        """Take no more requests until `go_on` was called as often; answers leave."""

    def go_on(self) -> None:
        """End a `hold`."""

    def close(self, reason: str = "") -> None:
        """Drop the connection; `on_closed` follows once."""


class ConnectionHandler(Protocol):
    """Who listens to a connection."""

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """One whole frame without its size. The view is valid until the call returns."""

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection is gone; nothing more comes."""


class Slots(Protocol):
    """The bound on connections that listeners share (`slots.ConnectionSlots`)."""

    def has_room(self, listener: Listener) -> bool:
        """Whether this listener may take a connection."""

    def settle(self) -> None:
        """Close what is above the bound."""

    def connections_from(self, address: str) -> int:
        """How many connections an address has with all listeners."""

    def freed(self) -> None:
        """A connection has ended: let those that wait look again."""


class Listener(Protocol):
    """An open listening port."""

    host: str
    port: int

    @property
    def connections(self) -> Sized:
        """Those that are open."""

    @property
    def lines(self) -> PeerLines:
        """What it tells of peers."""

    def accept(self) -> None:
        """Begin to accept connections; those that came since `listen` have waited."""

    def limit(self, connections_max: int, connections_per_ip_max: int, of_addresses: Mapping[str, int]) -> None:
        """Other bounds from the next connection on; who waits for a place may have it now. `of_addresses`: those of single addresses."""

    def admit_by(self, admit: Callable[[str], int] | None) -> None:
        """Ask about each new connection's address from now on: for how many ms to hold it before it is closed, 0 to serve it."""

    def share(self, slots: Slots) -> None:
        """Take connections within a bound that others share."""

    def connections_from(self, address: str) -> int:
        """How many connections an address has."""

    def open_connections(self) -> Iterable[tuple[float, Connection]]:
        """Connections, each with when it was last active."""

    def look_for_slot(self) -> None:
        """Go on accepting if that waits for a place and there is one."""

    def close(self) -> None:
        """Stop accepting and drop the accepted connections."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that keep one peer from harming others; sizes in bytes, times in milliseconds, 0 = none for `idle_ms`."""

    frame_bytes_max: int = 104_857_600
    connections_max: int = 2_147_483_647
    connections_per_ip_max: int = 2_147_483_647
    #: Instead of `connections_per_ip_max`, by address.
    connections_of_addresses_max: Mapping[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000
    pending_answers_max: int = 256
    queued_bytes_max: int = 4 << 20
    #: The bound on memory that connections share; None: there is none.
    budget: MemoryBudget | None = None


class Network(Protocol):
    """Opens listeners and connections."""

    async def listen(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], ConnectionHandler],
        limits: ConnectionLimits,
        tls: ServerTls | None = None,
        pace: Callable[[], int] | None = None,
    ) -> Listener:
        """Bind `host`:`port` (0 = any free port); connections wait until `accept`. `pace` is asked at each new connection: for how many ms
        it and those after it must wait, 0 to go on. Raises OSError."""

    def connect(self, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None = None) -> Awaitable[Connection]:
        """Open a connection. Raises OSError; AuthenticationFailed, which is one, when TLS is refused by either side."""
