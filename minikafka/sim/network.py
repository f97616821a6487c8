"""The simulated network behind the `Network` protocol: TCP-like connections with delays, cuts and breaks.

Within a connection bytes arrive in order or not at all. A break loses the bytes in flight, and the requesting side cannot know what was
carried out. A cut, possibly in one direction only, holds frames back until it heals, as retransmission does. A killed process closes its
connections, and the close travels like a frame. A machine that loses power closes nothing: a peer that sends to it later gets a reset from
its next life. A connection may fall silent because a middlebox has dropped its state: neither end notices, and a new connection works.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappush
from math import log
from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from minikafka.net.network import ANONYMOUS, Connection, ConnectionHandler, ConnectionLimits, FramesOneByOne, Slots
from minikafka.net.peer_lines import PeerLines
from minikafka.sim.loop import Handle, ProcessLoop

if TYPE_CHECKING:
    from minikafka.net.tls_settings import ClientTls, ServerTls
    from minikafka.sim.loop import Scheduler

_STAMP = Struct("<dI")
DELAY_S_MAX = 3.0
RETRANSMIT_S = 0.2
RESET_REASON = "connection reset by peer"
#: When the kernel of the connecting side gives up a silent connection (minikafka.net.pieces.notice_dead_peers).
GIVE_UP_S = 20.0
GIVE_UP_REASON = "connection timed out"
#: The connecting sides' ports begin here.
EPHEMERAL_PORT_MIN = 40_000
#: Received buffers are overwritten when the handler returns, as a real receive buffer is by the next bytes.
POISON = b"\xee"


@dataclass(slots=True)
class Link:
    """How one direction between two hosts behaves; times in seconds."""

    delay_min: float = 0.0002
    delay_mean: float = 0.0008
    break_probability: float = 0.0
    is_cut: bool = False


class Fabric:
    """Hosts, links and connections of one world. `digest` is a hash of everything delivered."""

    def __init__(self, scheduler: Scheduler, generator: random.Random) -> None:
        self.scheduler = scheduler
        self._generator = generator
        self._chance = generator.random
        self.default = Link()
        self.links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._next_port: dict[str, int] = {}
        self._ends: dict[str, dict[int, SimConnection]] = {}
        #: Closed ends whose last frames a cut still holds back.
        self._orphans: list[SimConnection] = []
        #: Hosts without power: they do not even refuse a connection.
        self.silent_hosts: set[str] = set()
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
        seconds = -log(1.0 - self._chance()) * link.delay_mean
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
            raise OSError(errno.EADDRINUSE, f"{listener.host}:{listener.port} is in use")
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


class SimConnection(FramesOneByOne):
    """One end of a connection; see `minikafka.net.network.Connection`."""

    __slots__ = (
        "_clear_at", "_early", "_fabric", "_handler", "_head_ticket", "_holds", "_late", "_link", "_next_ticket", "_out", "_ready",
        "closed", "host", "is_forgotten", "is_silent", "loop", "number", "peer", "peer_host", "peer_port", "principal",
    )  # fmt: skip

    def __init__(self, fabric: Fabric, loop: ProcessLoop, host: str, peer_host: str, peer_port: int) -> None:
        self._fabric = fabric
        self.loop = loop
        self._link = fabric.link(host, peer_host)
        self.host = host
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.principal = ANONYMOUS
        self.peer: SimConnection | None = None
        self.closed = False
        self.number = fabric.add(self)
        self._handler: ConnectionHandler | None = None
        self._next_ticket = 0
        self._head_ticket = 0
        self._ready: dict[int, list[Any]] = {}
        #: Frames that a cut holds back; None = the end of the connection.
        self._out: deque[bytearray | None] = deque()
        #: Frames that arrived before `start`.
        self._early: list[bytearray | None] = []
        self._holds = 0
        #: Frames that arrived during a `hold`.
        self._late: deque[bytearray] = deque()
        self._clear_at = 0.0
        #: The host of this end has lost power.
        self.is_silent = False
        #: A middlebox has dropped the connection's state: nothing sent arrives, and neither end notices.
        self.is_forgotten = False

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def holds_back(self) -> bool:
        """Whether a cut keeps frames from leaving."""
        return bool(self._out)

    def start(self, handler: ConnectionHandler) -> None:
        """Pass frames to `handler` from now on."""
        self._handler = handler
        early, self._early = self._early, []
        for frame in early:
            if self.peer is not None:
                self.deliver(frame, self.peer)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, pieces: list[Any]) -> None:
        """See Connection."""
        if self.closed or self.loop.is_dead:
            _release(pieces)
            return
        if len(pieces) == 1 and type(pieces[0]) is bytes and not (self._out or self._link.is_cut or self.is_forgotten):
            if pieces[0]:
                self._transmit(bytearray(pieces[0]))
            return
        try:
            frame = _join(pieces)
        except OSError as error:  # the disk failed to read a file region
            self.close(str(error))
            return
        if frame is not None:
            self._put(frame)

    def begin(self) -> int:
        """See Connection."""
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        return ticket

    def finish(self, ticket: int, pieces: list[Any]) -> None:
        """See Connection."""
        if self.closed:
            _release(pieces)
            return
        if ticket == self._head_ticket and not self._ready:
            self._head_ticket = ticket + 1
            self.send(pieces)
            return
        self._ready[ticket] = pieces
        while self._head_ticket in self._ready:
            following = self._ready.pop(self._head_ticket)
            self._head_ticket += 1
            self.send(following)

    def _put(self, frame: bytearray | None) -> None:
        if self.is_forgotten:
            return
        if self._out or self._link.is_cut:
            self._out.append(frame)
        else:
            self._transmit(frame)

    def flush(self) -> None:
        """Send held frames: the link is no longer cut."""
        while self._out and not self._link.is_cut:
            self._transmit(self._out.popleft())

    def _transmit(self, frame: bytearray | None) -> None:
        fabric = self._fabric
        link = self._link
        if link.break_probability > 0.0 and frame is not None and fabric.breaks_now(link):
            self.break_off()
            return
        scheduler = fabric.scheduler
        # The same as Fabric.delay, without the call.
        seconds = -log(1.0 - fabric._chance()) * link.delay_mean
        at = scheduler.now + (link.delay_min + (seconds if seconds < DELAY_S_MAX else DELAY_S_MAX))
        # In order: not before what was sent before.
        clear_at = self._clear_at
        self._clear_at = at = at if at > clear_at else clear_at
        peer = self.peer
        if peer is None:
            return
        if peer.is_silent:
            # The peer's machine has lost power. After its restart it answers with a reset.
            fabric.later(at - scheduler.now, self._await_reset)
            return
        scheduler._order = order = scheduler._order + 1
        heappush(scheduler._timers, (at, order, Handle(peer.deliver, (frame, self), peer.loop)))

    def _await_reset(self) -> None:
        fabric = self._fabric
        if self.closed or self.loop.is_dead:
            return
        if self.peer_host in fabric.silent_hosts:
            fabric.later(RETRANSMIT_S, self._await_reset)
        else:
            fabric.later(fabric.delay(self._link), self._reset)

    # -- receiving -------------------------------------------------------------------------------------------------

    def deliver(self, frame: bytearray | None, sender: SimConnection) -> None:
        """A frame has arrived, or the end (None)."""
        if self.closed or sender.peer is not self or self.is_forgotten:
            return
        if self._handler is None:
            self._early.append(frame)
            return
        if frame is None:
            self._end("closed by the peer")
        elif self._holds:
            self._late.append(frame)
        else:
            self._take(frame)

    def _take(self, frame: bytearray) -> None:
        fabric, size = self._fabric, len(frame)
        fabric.frames += 1
        fabric.bytes += size
        fabric.digest = crc32(frame, crc32(_STAMP.pack(fabric.scheduler.now, self.number), fabric.digest))
        assert self._handler is not None
        self._handler.on_frame(self, memoryview(frame)[4:])
        if size < 4096:
            frame[:] = POISON * size

    def mute(self, delay_ms: int) -> None:
        """Does nothing: there are no quotas here."""

    def hold(self) -> None:
        """See Connection; frames that arrive wait."""
        self._holds += 1

    def go_on(self) -> None:
        """See Connection."""
        self._holds -= 1
        while self._late and not self._holds and not self.closed:
            self._take(self._late.popleft())

    # -- end -------------------------------------------------------------------------------------------------------

    def close(self, reason: str = "") -> None:
        """See Connection."""
        if self.closed:
            return
        self._put(None)
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._fabric.remove(self)
        for pieces in self._ready.values():
            _release(pieces)
        self._ready.clear()
        if self._handler is not None:
            self._handler.on_closed(self, reason)

    def _reset(self, reason: str = RESET_REASON) -> None:
        if not self.closed and not self.loop.is_dead:
            self._fabric.scheduler.ready(Handle(self._end, (reason,), self.loop))

    def break_off(self) -> None:
        """Break the connection: frames in flight are lost in both directions, and both ends get a reset some time later."""
        fabric = self._fabric
        fabric.breaks += 1
        for end in (self, self.peer):
            if end is not None:
                end.peer = None
                end._out.clear()
                fabric.later(fabric.delay(end._link), end._reset)

    def fall_silent(self) -> None:
        """A middlebox drops the connection's state: frames in flight and later ones are lost in both directions, and neither end notices.
        After GIVE_UP_S the connecting side's kernel gives it up."""
        fabric = self._fabric
        fabric.silences += 1
        for end in (self, self.peer):
            if end is not None and not end.closed:
                end.is_forgotten = True
                end._out.clear()
                fabric.later(GIVE_UP_S, end.give_up)

    def give_up(self) -> None:
        """The connecting side's kernel ends a silent connection; the accepting side's would take hours."""
        if self.is_forgotten and self.peer_port < EPHEMERAL_PORT_MIN:
            self._reset(GIVE_UP_REASON)

    def die(self, silently: bool) -> None:
        """The process of this end has ended."""
        if self.closed:
            return
        self._handler = None
        if silently:
            self.is_silent = True
            self._out.clear()
            self._fabric.remove(self)
            return
        self._put(None)
        self.closed = True
        self._fabric.remove(self)


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
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {self._host}:{self._port}: refused")
            self.future.set_exception(refused)
        else:
            self.future.set_result(connection)


def _raise(name: str, context: dict[str, Any]) -> None:
    raise context.get("exception") or RuntimeError(context.get("message"))


def _join(pieces: list[Any]) -> bytearray | None:
    """The pieces as one new buffer, which the receiver may overwrite; None if there are none."""
    if len(pieces) == 1 and type(pieces[0]) is bytes:
        return bytearray(pieces[0]) or None
    frame = bytearray()
    for piece in pieces:
        if isinstance(piece, (bytes, bytearray, memoryview)):
            frame += piece
        else:
            if piece.size:
                frame += piece.read()
            piece.release()
    return frame or None


def _release(pieces: Any) -> None:
    for piece in pieces:
        release = getattr(piece, "release", None)
        if release is not None and not isinstance(piece, memoryview):
            release()
