"""Real sockets behind the `Network` protocol."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from minikafka.addresses import host_port
from minikafka.net.connection import SocketConnection
from minikafka.net.descriptors import SHORTAGES
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.network import Connection, ConnectionHandler, ConnectionLimits, Slots
from minikafka.net.peer_lines import PeerLines
from minikafka.net.pieces import notice_dead_peers, set_congestion_control
from minikafka.net.tls import TlsConnection, connect_tls
from minikafka.net.tls_settings import ClientTls, ServerTls

BACKLOG = 1024
ACCEPTS_PER_WAKE_UP = 64
HELD_MAX = 128
#: Accepting pauses for this long after descriptors or memory ran out.
SHORTAGE_PAUSE_S = 1.0
WARNING_INTERVAL_S = 60.0
logger = logging.getLogger("minikafka.net")


class SocketNetwork:
    """Listeners and connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, congestion_control: str = "reno") -> None:
        """`congestion_control` is set on listeners and connections where allowed; "" keeps the kernel's default."""
        self._loop = loop
        self._congestion_control = congestion_control
        self._flush_queue = FlushQueue(loop)

    async def listen(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], ConnectionHandler],
        limits: ConnectionLimits,
        tls: ServerTls | None = None,
        pace: Callable[[], int] | None = None,
    ) -> SocketListener:
        """Listen on `host` ("" = every address, IPv4 and IPv6). Raises OSError, whose text names the address."""
        try:
            sock = _bind(host, port)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host_port(host or '*', port)}: {error.strerror or error}") from error
        set_congestion_control(sock, self._congestion_control)
        # Accepted connections inherit it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.listen(BACKLOG)
        sock.setblocking(False)
        return SocketListener(self._loop, sock, self._flush_queue, handler, limits, tls, pace)

    async def connect(self, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None = None) -> Connection:
        """Connect to the first address of `host` that answers. Raises OSError."""
        loop = self._loop
        failure: OSError | None = None
        for family, kind, protocol, _, address in await _resolve(loop, host, port):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            set_congestion_control(sock, self._congestion_control)
            notice_dead_peers(sock)
            try:
                await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                failure = error
                continue
            except BaseException:
                sock.close()
                raise
            connection = (
                SocketConnection(loop, sock, self._flush_queue, CLIENT_LIMITS)
                if tls is None
                else await connect_tls(loop, sock, self._flush_queue, CLIENT_LIMITS, tls, (host, port))
            )
            connection.start(handler)
            return cast(Connection, connection)
        raise failure if failure is not None else OSError(f"{host} has no address")


CLIENT_LIMITS = ConnectionLimits(frame_bytes_max=(1 << 31) - 1, idle_ms=0, is_outgoing=True)


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except UnicodeError:
        raise OSError("this is no name of a host") from None
    return cast("list[tuple[int, int, int, str, tuple[object, ...]]]", sorted(found, key=lambda entry: entry[0] != socket.AF_INET))


def _bind(host: str, port: int) -> socket.socket:
    if host in ("", "0.0.0.0", "::") and host != "0.0.0.0" and socket.has_dualstack_ipv6():
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        address: tuple[str, int] = ("::", port)
    else:
        info = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, found = min(info, key=lambda entry: entry[0] != socket.AF_INET)
        sock = socket.socket(family, kind, protocol)
        address = (str(found[0]), port)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


class SocketListener:
    """Accepts connections within the limits and drops idle ones."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        flush_queue: FlushQueue,
        handler: Callable[[Connection], ConnectionHandler],
        limits: ConnectionLimits,
        tls: ServerTls | None = None,
        pace: Callable[[], int] | None = None,
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._pace = pace
        self._socket = sock
        self._flush_queue = flush_queue
        self._handler = handler
        self._limits = limits
        self.host, self.port = sock.getsockname()[:2]
        self.connections: dict[int, SocketConnection] = {}
        self.accepted_total = 0
        self.refused_total = 0
        self.failed_handshakes_total = 0
        self.failed_accepts_total = 0
        self.lines = PeerLines(logger)
        self.closed_total = 0
        self._per_ip: dict[str, int] = {}
        self._admit: Callable[[str], int] | None = None
        #: The bound that this listener shares with others; None: it has only its own.
        self._slots: Slots | None = None
        self._waits_for_slot = False
        self._last_warning_s = -WARNING_INTERVAL_S
        self._blocked_total_s = 0.0
        self._blocked_since_s: float | None = None
        self._held: set[SocketConnection] = set()
        #: A connection that is accepted and will be served after a pause, in which no other is accepted; None outside of a pause.
        self._delayed: socket.socket | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_due_s = 0.0
        self._accepting = False
        self._closed = False

    def accept(self) -> None:
        """Begin to accept. Connections since `listen` have waited in the kernel's accept queue."""
        if not self._accepting:
            self._accepting = True
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
            self._schedule_sweep()

    def limit(self, connections_max: int, connections_per_ip_max: int, of_addresses: Mapping[str, int]) -> None:
        """Set other bounds, from the next connection on."""
        self._limits = replace(
            self._limits,
            connections_max=connections_max,
            connections_per_ip_max=connections_per_ip_max,
            connections_of_addresses_max=of_addresses,
        )
        self.accept_if_slot()

    def admit_by(self, admit: Callable[[str], int] | None) -> None:
        """Call `admit` with each new connection's address from now on."""
        self._admit = admit

    def share(self, slots: Slots) -> None:
        """Accept connections only within a bound shared with other listeners."""
        self._slots = slots

    def connections_from(self, address: str) -> int:
        """How many connections an address has."""
        return self._per_ip.get(address, 0)

    def _has_slot(self) -> bool:
        return len(self.connections) < self._limits.connections_max and (self._slots is None or self._slots.has_room(self))

    def _wait_for_slot(self) -> None:
        """Stop accepting: new connections wait in the kernel's accept queue, as with Kafka's acceptor."""
        self._waits_for_slot = True
        self._stop_accepting()
        if self._loop.time() - self._last_warning_s > WARNING_INTERVAL_S:
            self._last_warning_s = self._loop.time()
            logger.warning("new connections to port %d wait: max.connections is reached (%d are open)", self.port, len(self.connections))

    def _stop_accepting(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        if self._blocked_since_s is None:
            self._blocked_since_s = self._loop.time()

    @property
    def blocked_s(self) -> float:
        """Total time in which nothing was accepted because of a limit or a shortage."""
        since_s = self._blocked_since_s
        return self._blocked_total_s + (0.0 if since_s is None else self._loop.time() - since_s)

    def open_connections(self) -> list[tuple[float, Connection]]:
        """The open connections, each with the time of its last activity."""
        return [(connection.last_active_s, cast(Connection, connection)) for connection in self.connections.values()]

    def accept_if_slot(self) -> None:
        """Accept again if the listener waits for a slot and one is free."""
        if self._waits_for_slot and self._has_slot():
            self._waits_for_slot = False
            self._loop.call_soon(self._go_on)

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_UP):
            if not self._has_slot():
                self._wait_for_slot()
                return
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._could_not_accept(error)
                return
            if self._pace is not None and (pause_ms := self._pace()) > 0:
                self._delayed = sock
                self._stop_accepting()
                self._loop.call_later(pause_ms / 1000, self._go_on)
                return
            self._take(sock)

    def _could_not_accept(self, error: OSError) -> None:
        """Handle a failed accept: descriptors or memory ran out, or the peer is already gone. After a shortage, pause: the port stays
        readable, so the loop would spin."""
        self.failed_accepts_total += 1
        if self._loop.time() - self._last_warning_s > WARNING_INTERVAL_S:
            self._last_warning_s = self._loop.time()
            logger.warning("cannot accept connections to port %d (%d times so far): %s", self.port, self.failed_accepts_total, error)
        if error.errno in SHORTAGES:
            self._stop_accepting()
            self._loop.call_later(SHORTAGE_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        """End a pause of accepting."""
        if self._closed:
            return
        if not self._has_slot():
            self._wait_for_slot()
            return
        sock, self._delayed = self._delayed, None
        if sock is not None:
            self._take(sock)
        self._blocked_total_s, self._blocked_since_s = self.blocked_s, None
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _take(self, sock: socket.socket) -> None:
        try:
            self._accepted(sock)
        except OSError:
            sock.close()

    def _accepted(self, sock: socket.socket) -> None:
        limits = self._limits
        tls = self._tls
        connection = (
            SocketConnection(self._loop, sock, self._flush_queue, limits)
            if tls is None
            else TlsConnection(self._loop, sock, self._flush_queue, limits, tls.context)
        )
        host = connection.peer_host
        count = self.connections_from(host) if self._slots is None else self._slots.connections_from(host)
        if count >= limits.connections_of_addresses_max.get(host, limits.connections_per_ip_max):
            self.refused_total += 1
            self.lines.warning("refused", host, "refused a connection from %s: max.connections.per.ip is reached", connection)
            connection.close("too many connections")
            return
        if self._admit is not None and (hold_ms := self._admit(host)) > 0:
            self._hold(connection, hold_ms)
            return
        self.accepted_total += 1
        self.connections[connection.fd] = connection
        self._per_ip[host] = self._per_ip.get(host, 0) + 1
        if self._slots is not None:
            self._slots.settle()
        if isinstance(connection, TlsConnection):
            connection.handshake(cast(ServerTls, tls).handshake_timeout_ms, partial(self._handshake_done, connection))
        else:
            self._serve(connection)

    def _hold(self, connection: SocketConnection, hold_ms: int) -> None:
        """Keep a connection that exceeds the rate open but unread, and close it later: a client that is refused at once reconnects at once
        (KIP-612)."""
        self.refused_total += 1
        if len(self._held) >= HELD_MAX:
            connection.close("too many connections")
            return
        self._held.add(connection)
        self._loop.call_later(hold_ms / 1000, self._let_go, connection)

    def _let_go(self, connection: SocketConnection) -> None:
        self._held.discard(connection)
        connection.close("connection_creation_rate")

    def _serve(self, connection: SocketConnection) -> None:
        handler = self._handler(cast(Connection, connection))
        if not connection.closed:
            connection.start(_Tracked(self, connection.fd, handler))
        else:
            self.forget(connection.fd, connection.peer_host)

    def _handshake_done(self, connection: SocketConnection, failure: str) -> None:
        """Serve a connection after its TLS handshake, or count and log the failure."""
        if not failure:
            self._serve(connection)
            return
        self.forget(connection.fd, connection.peer_host)
        self.failed_handshakes_total += 1
        if not failure.startswith(("closed", "the broker", "idle")):
            host = connection.peer_host
            self.lines.warning("handshake", host, "closed the connection from %s to port %d: %s", connection, self.port, failure)

    def forget(self, fd: int, host: str) -> None:
        """A connection has ended."""
        if self.connections.pop(fd, None) is not None:
            self.closed_total += 1
            left = self._per_ip.get(host, 1) - 1
            if left > 0:
                self._per_ip[host] = left
            else:
                self._per_ip.pop(host, None)
            if self._slots is None:
                self.accept_if_slot()
            else:
                self._slots.freed()

    def _schedule_sweep(self) -> None:
        if self._limits.idle_ms > 0:
            after_s = max(self._limits.idle_ms / 4000, 0.05)
            self._sweep_due_s = self._loop.time() + after_s
            self._sweep = self._loop.call_later(after_s, self._drop_idle)

    def _drop_idle(self) -> None:
        # A process that was suspended has not read what came meanwhile: that time makes nobody idle.
        now = min(self._loop.time(), self._sweep_due_s)
        idle_s = self._limits.idle_ms / 1000
        for connection in list(self.connections.values()):
            if connection.last_active_s < now - idle_s:
                connection.close("idle longer than connections.max.idle.ms")
            elif reason := connection.is_stuck(now, idle_s):
                connection.close(reason)
            elif connection.last_active_s < now - idle_s / 8:
                connection.trim()
        self._schedule_sweep()

    def close(self) -> None:
        """Stop accepting and drop the connections."""
        self._closed = True
        self._waits_for_slot = False
        if self._sweep is not None:
            self._sweep.cancel()
        if self._accepting:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self._delayed is not None:
            self._delayed.close()
            self._delayed = None
        for connection in (*self.connections.values(), *self._held):
            connection.close("the broker is stopping")


class _Tracked:
    """Passes frames to the handler and reports the end of the connection to its listener."""

    __slots__ = ("_fd", "_handler", "_listener", "on_frame")

    def __init__(self, listener: SocketListener, fd: int, handler: ConnectionHandler) -> None:
        self._listener = listener
        self._fd = fd
        self._handler = handler
        self.on_frame = handler.on_frame

    def on_closed(self, connection: Connection, reason: str) -> None:
        self._listener.forget(self._fd, connection.peer_host)
        self._handler.on_closed(connection, reason)
