"""The simulated network behind the `Network` protocol: TCP-like connections with delays, cuts and breaks.

Within a connection bytes arrive in order or not at all. A break loses the bytes in flight, and the requesting side cannot know what was
carried out. A cut, possibly in one direction only, holds frames back until it heals, as retransmission does. A killed process closes its
connections, and the close travels like a frame. A machine that loses power closes nothing: a peer that sends to it later gets a reset from
its next life. A connection may fall silent because a middlebox has dropped its state: neither end notices, and a new connection works.
A process may read late, and then handles all frames that have arrived together.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import Callable, Mapping
from math import log
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.net.network import Connection, ConnectionHandler, ConnectionLimits, Slots
from minikafka.net.peer_lines import PeerLines
from minikafka.sim.connection import DELAY_S_MAX, EPHEMERAL_PORT_MIN, RETRANSMIT_S, Link, SimConnection
from minikafka.sim.loop import Handle, ProcessLoop

if TYPE_CHECKING:
    from minikafka.net.tls_settings import ClientTls, ServerTls
    from minikafka.sim.loop import Scheduler


class Fabric:
    """Hosts, links and connections of one world. `digest` is a hash of everything delivered."""

    def __init__(self, scheduler: Scheduler, generator: random.Random) -> None:
        self.scheduler = scheduler
        self._generator = generator
        self.chance = generator.random
        self.default = Link()
        self.links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._next_port: dict[str, int] = {}
        self._ends: dict[str, dict[int, SimConnection]] = {}
        #: Closed ends whose last frames a cut still holds back.
        self._orphans: list[SimConnection] = []
        #: Hosts without power: they do not even refuse a connection.
        self.silent_hosts: set[str] = set()
        #: Mean seconds from the arrival of a frame until the process reads, and handles it together with those that came after it. None:
        #: every frame is handled by itself, when it arrives.
        self.wake_s: float | None = None
        #: A connection with so many requests that are not answered is not read. Apache Kafka's bound is 1.
        self.pending_answers_max = ConnectionLimits().pending_answers_max
        self._count = 0
        self.digest = 0
        self.frames = 0
        self.bytes = 0
        self.breaks = 0
        self.silences = 0
        self._kick = ProcessLoop(scheduler, "network", on_error=_raise)

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another; created on first use."""
        key = (source, target)
        found = self.links.get(key)
        if found is None:
            found = self.links[key] = Link(self.default.delay_min, self.default.delay_mean, self.default.break_probability)
        return found

    def set_all(self, **changes: Any) -> None:
        """Change every link, including future ones."""
        for link in (self.default, *self.links.values()):
            for name, value in changes.items():
                setattr(link, name, value)

    def cut(self, source: str, target: str) -> None:
        """Hold back all frames from `source` to `target`."""
        self.link(source, target).is_cut = True

    def join(self, source: str, target: str) -> None:
        """Undo a cut; held frames are sent."""
        self.link(source, target).is_cut = False
        for connection in self.connections(source):
            connection.flush()
        orphans, self._orphans = self._orphans, []
        for connection in orphans:
            connection.flush()
            if connection.holds_back:
                self._orphans.append(connection)

    def heal(self) -> None:
        """Undo every cut, and let the kernels give up silent connections."""
        for source, target in [key for key, link in self.links.items() if link.is_cut]:
            self.join(source, target)
        for host in list(self._ends):
            for connection in self.connections(host):
                connection.give_up()

    def delay(self, link: Link) -> float:
        """Seconds for one frame."""
        # The same as random.expovariate(1.0), without the call.
        seconds = -log(1.0 - self.chance()) * link.delay_mean
        return link.delay_min + (seconds if seconds < DELAY_S_MAX else DELAY_S_MAX)

    def later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback` after `delay` seconds of the world's time."""
        self.scheduler.at(self.scheduler.now + delay, Handle(callback, arguments, self._kick))

    def network(self, host: str, loop: ProcessLoop) -> SimNetwork:
        """The network as a process on `host` sees it."""
        return SimNetwork(self, host, loop)

    # -- hosts -----------------------------------------------------------------------------------------------------

    def bind(self, listener: SimListener) -> None:
        """Take a port; 0 = any free one. Raises OSError."""
        if listener.port == 0:
            listener.port = self._next_port.get(listener.host, 30_000)
            self._next_port[listener.host] = listener.port + 1
        key = (listener.host, listener.port)
        if key in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host_port(listener.host, listener.port)} is in use")
        self._listeners[key] = listener

    def unbind(self, listener: SimListener) -> None:
        """Free the port."""
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[(listener.host, listener.port)]

    def find(self, host: str, port: int) -> SimListener | None:
        """The listener at an address, or None."""
        return self._listeners.get((host, port))

    def add(self, connection: SimConnection) -> int:
        """Register one end of a connection. Returns its number."""
        self._count += 1
        self._ends.setdefault(connection.host, {})[self._count] = connection
        return self._count

    def remove(self, connection: SimConnection) -> None:
        """Unregister a closed end."""
        self._ends.get(connection.host, {}).pop(connection.number, None)
        if connection.holds_back:
            self._orphans.append(connection)

    def connections(self, host: str) -> list[SimConnection]:
        """Open ends on a host."""
        return list(self._ends.get(host, {}).values())

    def kill(self, host: str, *, silently: bool) -> None:
        """End the process on `host`. Its peers see their connections close, or, if `silently`, only get a reset from its next life."""
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]
        if silently:
            self.silent_hosts.add(host)
        for connection in self.connections(host):
            connection.die(silently)

    def breaks_now(self, link: Link) -> bool:
        """Whether the connection breaks at this frame."""
        return link.break_probability > 0.0 and self._generator.random() < link.break_probability


class SimListener:
    """A listening port; see `minikafka.net.network.Listener`."""

    def __init__(
        self, fabric: Fabric, loop: ProcessLoop, host: str, port: int, handler: Callable[[Connection], ConnectionHandler]
    ) -> None:
        self._fabric = fabric
        self.loop = loop
        self.host = host
        self.port = port
        self._handler = handler
        self.lines = PeerLines(logging.getLogger("minikafka.net"), lambda: fabric.scheduler.now)
        self._accepting = False
        self._backlog: list[SimConnection] = []
        self.connections: list[SimConnection] = []

    def accept(self) -> None:
        """Begin to accept."""
        self._accepting = True
        backlog, self._backlog = self._backlog, []
        for connection in backlog:
            if not connection.closed:
                self.accepted(connection)

    def limit(self, connections_max: int, connections_per_ip_max: int, of_addresses: Mapping[str, int]) -> None:
        """Does nothing: the simulation does not reach such limits."""

    def admit_by(self, admit: Callable[[str], int] | None) -> None:
        """Does nothing: every address is served."""

    def share(self, slots: Slots) -> None:
        """Does nothing: there is no shared bound."""

    def connections_from(self, address: str) -> int:
        """Always 0, because there is no limit per address."""
        return 0

    def open_connections(self) -> list[tuple[float, Connection]]:
        """The connections, all with the same age."""
        return [(0.0, connection) for connection in self.connections]

    def accept_if_slot(self) -> None:
        """Does nothing: no connection waits for a slot."""

    def arrived(self, connection: SimConnection) -> None:
        """A connection has been made."""
        if self._accepting:
            self.accepted(connection)
        else:
            self._backlog.append(connection)

    def accepted(self, connection: SimConnection) -> None:
        """Pass a connection to the broker, with the frames that it has already received."""
        self.connections = [other for other in self.connections if not other.closed]
        self.connections.append(connection)
        connection.start(self._handler(connection))

    def close(self) -> None:
        """Stop accepting and drop the connections."""
        self._fabric.unbind(self)
        for connection in [*self.connections, *self._backlog]:
            connection.close("the broker is stopping")


class SimNetwork:
    """See `minikafka.net.network.Network`: the network of one process."""

    def __init__(self, fabric: Fabric, host: str, loop: ProcessLoop) -> None:
        self._fabric = fabric
        self._host = host
        self._loop = loop
        self._ports = EPHEMERAL_PORT_MIN

    async def listen(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], ConnectionHandler],
        limits: ConnectionLimits,
        tls: ServerTls | None = None,
        pace: Callable[[], int] | None = None,
    ) -> SimListener:
        """Bind a port of this process's host; `host`, `tls` and `pace` are ignored. Raises OSError."""
        listener = SimListener(self._fabric, self._loop, self._host, port, handler)
        self._fabric.bind(listener)
        return listener

    async def connect(self, host: str, port: int, handler: ConnectionHandler, tls: ClientTls | None = None) -> Connection:
        """Connect; hangs while the link is cut or the host has no power. Raises OSError if refused."""
        self._ports += 1
        attempt = _Attempt(self._fabric, self._loop, self._host, self._ports, host, port)
        self._fabric.later(self._fabric.delay(attempt.there), attempt.ask)
        try:
            connection: SimConnection = await attempt.future
        except asyncio.CancelledError:
            future = attempt.future
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close("the caller has given up")
            raise
        connection.start(handler)
        return connection


class _Attempt:
    """One attempt to connect: a request travels there and the response back; each waits while its link is cut."""

    def __init__(self, fabric: Fabric, loop: ProcessLoop, local_host: str, local_port: int, host: str, port: int) -> None:
        self._fabric = fabric
        self._loop = loop
        self._local_host = local_host
        self._local_port = local_port
        self._host = host
        self._port = port
        self.there = fabric.link(local_host, host)
        self._back = fabric.link(host, local_host)
        self.future: Any = loop.create_future()

    def ask(self) -> None:
        """The request arrives."""
        fabric = self._fabric
        if self._loop.is_dead or self.future.done():
            return
        if self.there.is_cut:
            # The kernel retries.
            fabric.later(RETRANSMIT_S, self.ask)
            return
        listener = fabric.find(self._host, self._port)
        if listener is None:
            if self._host in fabric.silent_hosts:
                fabric.later(RETRANSMIT_S, self.ask)
                return
            self._answer(None)
            return
        near = SimConnection(fabric, self._loop, self._local_host, self._host, self._port)
        far = SimConnection(fabric, listener.loop, self._host, self._local_host, self._local_port)
        near.peer, far.peer = far, near
        fabric.scheduler.ready(Handle(listener.arrived, (far,), listener.loop))
        self._answer(near)

    def _answer(self, connection: SimConnection | None) -> None:
        fabric = self._fabric
        if self._back.is_cut:
            fabric.later(RETRANSMIT_S, self._answer, connection)
            return
        fabric.later(fabric.delay(self._back), lambda: fabric.scheduler.ready(Handle(self._settle, (connection,), self._loop)))

    def _settle(self, connection: SimConnection | None) -> None:
        if self._loop.is_dead or self.future.done():
            if connection is not None:
                connection.close("the caller has given up")
            return
        if connection is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {host_port(self._host, self._port)}: refused")
            self.future.set_exception(refused)
        else:
            self.future.set_result(connection)


def _raise(name: str, context: dict[str, Any]) -> None:
    raise context.get("exception") or RuntimeError(context.get("message"))
