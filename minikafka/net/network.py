"""The broker's interface to a network: framed connections, listeners, clocks. Real sockets and the simulator implement it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from minikafka.late_dataclass import dataclass
from minikafka.net.memory_budget import MemoryBudget
from minikafka.net.peer_lines import PeerLines
from minikafka.wire.message import Piece

if TYPE_CHECKING:
    from minikafka.net.tls_settings import ClientTls, ServerTls

ANONYMOUS = "User:ANONYMOUS"


class AuthenticationFailed(ConnectionError):
    """One side rejects the other's certificate, password or mechanism. Trying again does not help."""


class Clock(Protocol):
    """Time, as integers."""

    def now_ms(self) -> int:
        """Monotonic milliseconds with an arbitrary zero."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, by the machine's clock."""


class Connection(Protocol):
    """A connection that carries frames (four bytes of size, then that many bytes) in both directions.

    A server calls `begin` for every request that will have a response, and `finish` with the response's frame, in any order: frames leave
    in the order of `begin`. A client calls `send`.
    """

    peer_host: str
    peer_port: int
    closed: bool
    #: The peer's principal: "User:ANONYMOUS" until it has authenticated.
    principal: str
    #: Number of bytes that have arrived behind the frame that is being handled. Unless it is 0, `after_frames` may be called.
    bytes_behind: int

    def send(self, pieces: list[Piece]) -> None:
        """Queue a frame."""

    def begin(self) -> int:
        """Reserve the next response's place. Returns the ticket for `finish`."""

    def finish(self, ticket: int, pieces: list[Piece]) -> None:
        """The frame for a reserved place; an empty list gives the place up."""

    def after_frames(self, callback: Callable[[], None]) -> None:
        """Call `callback`, which must not raise, once after the frames that have arrived together; until then their views stay valid."""

    def mute(self, delay_ms: int) -> None:
        """Read no requests for `delay_ms` (KIP-219); responses are still sent."""

    def hold(self) -> None:
        """Read no requests until `go_on` has been called as often as `hold`; responses are still sent."""

    def keep_frame(self) -> None:
        """Leave the view of the frame that is being handled valid after the call."""

    def go_on(self) -> None:
        """End a `hold`."""

    def count_memory(self, ticket: int, size: int) -> None:
        """The request of a ticket keeps `size` bytes in memory until its response is finished: they count for the memory budget."""

    def close(self, reason: str = "") -> None:
        """Close the connection; `on_closed` is called once."""


class ConnectionHandler(Protocol):
    """Receives the events of a connection."""

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """One whole frame without its size. The view is valid until the call returns."""

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection has closed; no more calls follow."""


class Slots(Protocol):
    """The bound on connections that listeners share (`slots.ConnectionSlots`)."""

    def has_room(self, listener: Listener) -> bool:
        """Whether this listener may accept a connection."""

    def settle(self) -> None:
        """Close connections above the bound."""

    def connections_from(self, address: str) -> int:
        """How many connections an address has with all listeners."""

    def freed(self) -> None:
        """A connection has ended: let waiting listeners check again."""


class Listener(Protocol):
    """An open listening port."""

    host: str
    port: int

    @property
    def connections(self) -> Sized:
        """The open connections."""

    @property
    def lines(self) -> PeerLines:
        """The log of lines about peers."""

    def accept(self) -> None:
        """Begin to accept connections, starting with those that have waited since `listen`."""

    def limit(self, connections_max: int, connections_per_ip_max: int, of_addresses: Mapping[str, int]) -> None:
        """Set other bounds, from the next connection on; waiting connections may be accepted now. `of_addresses`: bounds by address."""

    def admit_by(self, admit: Callable[[str], int] | None) -> None:
        """Call `admit` with each new connection's address. It returns for how many ms to hold the connection and then close it, 0 = serve
        it."""

    def share(self, slots: Slots) -> None:
        """Accept connections only within a bound shared with other listeners."""

    def connections_from(self, address: str) -> int:
        """How many connections an address has."""

    def open_connections(self) -> Iterable[tuple[float, Connection]]:
        """The open connections, each with the time of its last activity."""

    def accept_if_slot(self) -> None:
        """Accept again if the listener waits for a slot and one is free."""

    def close(self) -> None:
        """Stop accepting and drop the accepted connections."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that keep one peer from harming others; sizes in bytes, times in milliseconds, 0 = none for `idle_ms`."""

    frame_bytes_max: int = 104_857_600
    connections_max: int = 2_147_483_647
    connections_per_ip_max: int = 2_147_483_647
    #: Address -> its bound, instead of `connections_per_ip_max`.
    connections_of_addresses_max: Mapping[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000
    pending_answers_max: int = 256
    queued_bytes_max: int = 4 << 20
    #: Whether this side opened the connection: it brings answers alone, which do not wait for other connections.
    is_outgoing: bool = False
    #: The memory bound shared by connections; None: there is none.
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
        """Bind `host`:`port` (0 = any free port); connections wait until `accept`. `pace` is called for each new connection and returns for
        how many ms to delay it and those after it, 0 = none. Raises OSError."""

    def connect(self, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None = None) -> Awaitable[Connection]:
        """Open a connection. Raises OSError; among these AuthenticationFailed, if either side rejects the TLS handshake."""
