"""One end of a simulated connection, which carries frames in order, or loses them; see `minikafka.sim.network`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappush
from math import log
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from minikafka.addresses import host_port
from minikafka.net.network import ANONYMOUS, ConnectionHandler
from minikafka.sim.loop import Handle, ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Callable

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
POISONED_BYTES_MAX = 4096
#: How often a piece of another frame has arrived behind the last whole one.
PIECE_SHARE = 0.2
#: How many bytes seem to be behind a frame that is not the last: enough for whoever puts frames off.
BYTES_BEHIND = 1 << 20


@dataclass(slots=True)
class Link:
    """How one direction between two hosts behaves; times in seconds."""

    delay_min: float = 0.0002
    delay_mean: float = 0.0008
    break_probability: float = 0.0
    is_cut: bool = False


class Medium(Protocol):
    """What an end needs of the network around it (`minikafka.sim.network.Fabric`)."""

    scheduler: Scheduler
    #: A random number from 0 to 1.
    chance: Callable[[], float]
    silent_hosts: set[str]
    digest: int
    frames: int
    bytes: int
    breaks: int
    silences: int
    wake_s: float | None
    pending_answers_max: int

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another."""

    def delay(self, link: Link) -> float:
        """Seconds for one frame."""

    def later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback` after `delay` seconds of the world's time."""

    def add(self, connection: SimConnection) -> int:
        """Register one end of a connection. Returns its number."""

    def remove(self, connection: SimConnection) -> None:
        """Unregister a closed end."""

    def breaks_now(self, link: Link) -> bool:
        """Whether the connection breaks at this frame."""


class SimConnection:
    """One end of a connection; see `minikafka.net.network.Connection`."""

    __slots__ = (
        "_after_frames", "_arrived", "_clear_at", "_early", "_fabric", "_handler", "_head_ticket", "_holds", "_is_waking", "_keeps_frame",
        "_link", "_next_ticket", "_out", "_ready", "bytes_behind", "closed", "host", "is_forgotten", "is_silent", "loop", "number", "peer",
        "peer_host", "peer_port", "principal",
    )  # fmt: skip

    def __init__(self, fabric: Medium, loop: ProcessLoop, host: str, peer_host: str, peer_port: int) -> None:
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
        #: Whether others use the frame that is being handled after the call.
        self._keeps_frame = False
        #: Frames that were not read yet, because of a `hold` or because the process has not woken up; None = the end of the connection.
        self._arrived: deque[bytearray | None] = deque()
        self._is_waking = False
        self._after_frames: Callable[[], None] | None = None
        self.bytes_behind = 0
        self._clear_at = 0.0
        #: The host of this end has lost power.
        self.is_silent = False
        #: A middlebox has dropped the connection's state: nothing sent arrives, and neither end notices.
        self.is_forgotten = False

    def __repr__(self) -> str:
        return host_port(self.peer_host, self.peer_port)

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
        was_full = self._is_full
        if ticket == self._head_ticket and not self._ready:
            self._head_ticket = ticket + 1
            self.send(pieces)
        else:
            self._finish_in_order(ticket, pieces)
        if was_full and self._arrived:
            self._fabric.scheduler.ready(Handle(self._read_on, (), self.loop))

    def _finish_in_order(self, ticket: int, pieces: list[Any]) -> None:
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
        seconds = -log(1.0 - fabric.chance()) * link.delay_mean
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
        if self._fabric.wake_s is not None:
            self._arrived.append(frame)
            self._wake_later()
        elif frame is None:
            self._end("closed by the peer")
        elif self._must_wait or self._arrived:
            self._arrived.append(frame)
        else:
            self._take(frame)
            self._overwrite(frame)

    @property
    def _is_full(self) -> bool:
        """Whether so many answers are owed that no more requests are read."""
        return self._next_ticket - self._head_ticket >= self._fabric.pending_answers_max

    @property
    def _must_wait(self) -> bool:
        return self._holds > 0 or self._is_full

    def _wake_later(self) -> None:
        """Let the process read, after all that arrives meanwhile."""
        if self._is_waking:
            return
        self._is_waking = True
        fabric, handle = self._fabric, Handle(self._wake, (), self.loop)
        if fabric.wake_s:
            fabric.scheduler.at(fabric.scheduler.now - log(1.0 - fabric.chance()) * fabric.wake_s, handle)
        else:
            fabric.scheduler.ready(handle)

    def _wake(self) -> None:
        """Handle the frames that have arrived, as SocketConnection does."""
        self._is_waking = False
        arrived, taken = self._arrived, []
        while arrived and arrived[0] is not None and not (self._must_wait or self.closed or self._handler is None):
            frame = arrived.popleft()
            assert frame is not None
            is_followed = (bool(arrived) and arrived[0] is not None) or self._fabric.chance() < PIECE_SHARE
            self.bytes_behind = BYTES_BEHIND if is_followed else 0
            self._take(frame)
            if not self._keeps_frame:
                taken.append(frame)
            self._keeps_frame = False
        callback, self._after_frames = self._after_frames, None
        if callback is not None and not self.loop.is_dead:
            callback()
        if self._keeps_frame:
            self._keeps_frame = False
        else:
            self._overwrite(*taken)
        if arrived and arrived[0] is None and not self._must_wait:
            self._end("closed by the peer")

    def after_frames(self, callback: Callable[[], None]) -> None:
        """See Connection."""
        assert self.bytes_behind, "no frame follows"
        self._after_frames = callback

    def _take(self, frame: bytearray) -> None:
        fabric, size = self._fabric, len(frame)
        fabric.frames += 1
        fabric.bytes += size
        fabric.digest = crc32(frame, crc32(_STAMP.pack(fabric.scheduler.now, self.number), fabric.digest))
        assert self._handler is not None
        self._handler.on_frame(self, memoryview(frame)[4:])

    def mute(self, delay_ms: int) -> None:
        """Does nothing: there are no quotas here."""

    def hold(self) -> None:
        """See Connection; frames that arrive wait."""
        self._holds += 1

    def keep_frame(self) -> None:
        """See Connection. What handles frames together, after them, keeps all of them."""
        self._keeps_frame = True

    def count_memory(self, ticket: int, size: int) -> None:
        """Does nothing: there is no memory budget here."""

    def _overwrite(self, *frames: bytearray) -> None:
        """Overwrite frames that have been handled, unless they are kept."""
        if not self._keeps_frame:
            for frame in frames:
                _poison(frame)
        self._keeps_frame = False

    def go_on(self) -> None:
        """See Connection."""
        self._holds -= 1
        self._read_on()

    def _read_on(self) -> None:
        """Read the frames that had to wait."""
        if self._fabric.wake_s is not None and self._arrived:
            self._wake_later()
            return
        while self._arrived and not self._must_wait and not self.closed:
            frame = self._arrived.popleft()
            assert frame is not None
            self._take(frame)
            self._overwrite(frame)

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


def _poison(frame: bytearray) -> None:
    """Overwrite a received frame that nobody may read any more."""
    if len(frame) < POISONED_BYTES_MAX:
        frame[:] = POISON * len(frame)


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
