"""A framed connection over a non-blocking socket.

It does not use asyncio's transports: they copy what they receive and hide the socket that `os.sendfile` needs. Each connection has one
receive buffer; handlers get frames as views of it. Everything queued in one wake-up of the loop is sent together.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from minikafka.addresses import host_port
from minikafka.net.flush_queue import Flushable, FlushQueue
from minikafka.net.memory_budget import MemoryBudget
from minikafka.net.network import ANONYMOUS, ConnectionHandler, ConnectionLimits
from minikafka.net.pieces import bad_size, closed_by_peer, is_slow, memory_of, release
from minikafka.net.socket_writer import SocketWriter
from minikafka.wire.message import Piece

RECEIVE_BYTES_INITIAL = 16 * 1024
RECEIVE_BYTES_GROWN = 256 * 1024
RECEIVE_BYTES_KEPT = 16 << 20
#: A large buffer shrinks after this many wake-ups in a row that needed less than a quarter of it: new memory costs more than a copy.
SMALL_RECEIVES = 64
#: Requests of at least this size count for the memory budget while they are served; of Produce only those that are kept (`count_memory`).
PENDING_BYTES_MIN = 512
PRODUCE_KEY = 0
#: A connection is served for at most this long in a turn of the loop; it checks the clock after this many frames of 256 bytes. A frame
#: whose records begin a segment takes as long as dozens of others.
TURN_S_MAX = 0.008
FRAMES_BETWEEN_CLOCK_READS = 8
_SIZE = struct.Struct(">i")


class SocketConnection(SocketWriter):
    """See `minikafka.net.network.Connection`."""

    __slots__ = (
        "_after_frames", "_budget", "_buffer", "_buffer_bytes", "_charged", "_end", "_flush_queue", "_flush_wanted", "_frame_since",
        "_head_ticket", "_held_bytes", "_holds", "_keeps_frame", "_limits", "_loop", "_muted", "_next_ticket", "_pending",
        "_pending_bytes", "_ready", "_small_receives", "_start", "_turn_s", "_usual_end", "_view", "_waits", "_writing", "_writing_since",
        "bytes_behind", "closed", "handler", "last_active_s", "paused", "peer_host", "peer_port", "principal", "received_bytes", "state",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, flush_queue: FlushQueue, limits: ConnectionLimits) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = sock.getpeername()
        self.peer_host: str = peer[0].removeprefix("::ffff:") if isinstance(peer, tuple) else "local"
        self.peer_port: int = peer[1] if isinstance(peer, tuple) else 0
        super().__init__(sock)
        self._loop = loop
        self._flush_queue = flush_queue
        self._limits = limits
        self.handler: ConnectionHandler | None = None
        self.state: Any = None
        self.principal = ANONYMOUS
        #: `_buffer[_start:_end]` has arrived and was not served; `_view` is a view of the whole buffer.
        self._buffer = bytearray(RECEIVE_BYTES_INITIAL)
        self._view = memoryview(self._buffer)
        self._start = self._end = self._small_receives = 0
        #: How much more than at first the buffer takes. Filled to below `_usual_end`, it can be used again when all of it is served: that
        #: is 0 for a large buffer, one that others use, and while a frame is unfinished.
        self._buffer_bytes, self._usual_end = 0, RECEIVE_BYTES_INITIAL
        #: Whether this turn's end sends; and whether the socket is full, so that its writability sends. Never both.
        self._flush_wanted = self._writing = False
        #: Tickets from `_head_ticket` to before `_next_ticket` have no queued response; that of the first one leaves next.
        self._next_ticket = self._head_ticket = 0
        self._ready: dict[int, list[Piece]] = {}
        #: Bytes in `_ready`: responses that wait for an earlier one.
        self._held_bytes = 0
        #: Ticket -> size of a request that is still being served, if it counts for the budget.
        self._pending: dict[int, int] = {}
        self._pending_bytes = 0
        self._budget = MemoryBudget(sys.maxsize) if limits.budget is None else limits.budget
        self._charged = 0
        #: (time when the unfinished frame began, bytes received by then), and the same for unfinished sending; None if finished.
        self._frame_since: tuple[float, int] | None = None
        self._writing_since: tuple[float, int] | None = None
        self._muted: asyncio.TimerHandle | None = None
        #: How many others keep this connection from reading.
        self._holds = 0
        #: Whether others use the frame that is being served, and so the buffer, after the call.
        self._keeps_frame = False
        self._turn_s = 0.0
        #: Whether it waits for a later turn, because others have used up this one.
        self._waits = False
        self._after_frames: Callable[[], None] | None = None
        self.bytes_behind = 0
        self.paused = self.closed = False
        self.last_active_s = loop.time()
        self.received_bytes = 0

    def __repr__(self) -> str:
        return host_port(self.peer_host, self.peer_port)

    def start(self, handler: ConnectionHandler) -> None:
        """Begin to read; `handler` gets the frames."""
        self.handler = handler
        self._loop.add_reader(self.fd, self._readable)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Set other limits. They hold from the next frame on, which may already be in the buffer: so reading stops and restarts."""
        self._limits = limits
        self._pause()
        self._loop.call_soon(self._maybe_resume)

    def memory_is_free(self) -> None:
        """See MemoryBudget."""
        self._loop.call_soon(self._maybe_resume)

    def is_stuck(self, now_s: float, timeout_s: float) -> str:
        """Why to give up on a peer that has been slow for `timeout_s` in finishing a request or reading its responses; "" if it was not."""
        if is_slow(self._frame_since, self.received_bytes, now_s, timeout_s):
            return "a request was not finished within connections.max.idle.ms"
        is_unread = is_slow(self._writing_since, self.sent_bytes, now_s, timeout_s)
        return "answers were not read within connections.max.idle.ms" if is_unread else ""

    # -- receiving -------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        # Not the loop's time, which may be constant within a turn: request queue times are measured from it.
        now_s, queue, end = monotonic(), self._flush_queue, self._end
        if now_s >= queue.turns.over_s and self._must_wait(now_s):
            return
        try:
            count = self._socket.recv_into(self._view[end:] if end else self._view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error))
            return
        if not count:
            self.close(closed_by_peer(bytes(self._view[self._start : min(end, self._start + 5)])))
            return
        self.received_bytes += count
        self._turn_s = self.last_active_s = now_s
        self._end = end + count
        queue.depth += 1
        try:
            self._parse()
        finally:
            queue.depth -= 1
            queue.flush()

    def _must_wait(self, now_s: float) -> bool:
        """Whether other connections have used up this turn of the loop. This one is then served in a later one."""
        turns = self._flush_queue.turns
        if turns.admits(now_s) or self._limits.is_outgoing:
            return False
        if not self._waits:
            self._waits = True
            turns.wait(self._serve)
        return True

    def _serve(self) -> None:
        """Go on after a wait for a later turn."""
        self._waits = False
        if self._start != self._end:
            self._parse_rest()
        if not self.closed and not self.paused:
            self._readable()

    def _parse(self) -> None:
        """Pass the whole frames to the handler, until the connection must wait."""
        view, before, end, frames = self._view, self._start, self._end, 0
        limits, unpack, start = self._limits, _SIZE.unpack_from, before
        on_frame = self.handler.on_frame  # type: ignore[union-attr]  # `start` has set it
        while end - start >= 4:
            (size,) = unpack(view, start)
            if not 0 < size <= limits.frame_bytes_max:
                self.close(bad_size(size, bytes(view[start : start + 8])))
                break
            after = start + 4 + size
            if after > end:
                break
            ticket = self._next_ticket
            self.bytes_behind = end - after
            on_frame(self, view[start + 4 : after])
            if self.closed:
                break
            start = after
            head, following = self._head_ticket, self._next_ticket
            if head != following or self._out_bytes > limits.queued_bytes_max:
                if size >= PENDING_BYTES_MIN and head <= ticket < following and view[after - size + 1] != PRODUCE_KEY:
                    self.count_memory(ticket, size)
                if following - head >= limits.pending_answers_max or self._out_bytes + self._held_bytes > limits.queued_bytes_max:
                    self._end_frames_if_full()
            if start == end or self.paused:
                break
            # A large frame may take as long as many small ones.
            frames += 1 + (size >> 8)
            if frames >= FRAMES_BETWEEN_CLOCK_READS:
                frames = 0
                if monotonic() - self._turn_s >= TURN_S_MAX:
                    self._pause()
                    self._loop.call_soon(self._maybe_resume)  # in the next turn
                    break
        self._start = start
        if self._after_frames is not None:
            self._end_frames()
        if start == end < self._usual_end:
            self._start = self._end = 0
        elif not self.closed:
            self._note_frame(is_served=start != before)
            self._make_room()
        if self._charged != self._buffer_bytes or self._pending_bytes:
            self._account()
        # Every request was followed by a look at how many wait. Bytes may have been queued since.
        budget = self._budget
        if budget.used >= budget.bytes_max or self._out_bytes + self._held_bytes > limits.queued_bytes_max:
            self._pause_unless_free()

    def _pause_unless_free(self) -> None:
        """Stop reading if too much is waiting."""
        if not (self.paused or self.closed) and (self._is_full() or not self._may_read()):
            self._pause()

    def after_frames(self, callback: Callable[[], None]) -> None:
        """See Connection."""
        self._after_frames = callback

    def _end_frames(self) -> None:
        """Let the handler finish what it has put off until the frames that arrived together were served."""
        callback, self._after_frames = self._after_frames, None
        if callback is not None:
            callback()

    def _end_frames_if_full(self) -> None:
        """Too much is waiting to serve another frame: do now what was put off, and stop reading if that is not enough."""
        if self._is_full():
            self._end_frames()
            if self._is_full():
                self._pause()

    def _is_full(self) -> bool:
        """Whether so many requests or bytes are waiting that this connection must not read more."""
        limits = self._limits
        return (
            self._next_ticket - self._head_ticket >= limits.pending_answers_max
            or self._out_bytes + self._held_bytes > limits.queued_bytes_max
        )

    def _note_frame(self, *, is_served: bool) -> None:
        """Keep track of when an unfinished frame began. `is_served`: a whole one has been passed on."""
        budget = self._budget
        if is_served and (budget.waiting or budget.exempt is self):
            budget.received(self, is_answered=not self._pending_bytes)
        if (self._start != self._end) is (self._frame_since is None):
            self._frame_since = (self.last_active_s, self.received_bytes) if self._frame_since is None else None
            self._see_usual_end()

    def _see_usual_end(self) -> None:
        capacity = len(self._buffer)
        is_usual = capacity <= RECEIVE_BYTES_GROWN and self._frame_since is None and not self._keeps_frame
        self._usual_end = capacity if is_usual else 0

    def _may_read(self) -> bool:
        """Whether the memory budget allows reading; if not, the budget calls `memory_is_free` later."""
        budget = self._budget
        if budget.admits(self, self._charged):
            return True
        budget.wait(self, mid_request=self._frame_since is not None)
        return budget.admits(self, self._charged)

    def _account(self) -> None:
        """Report to the budget the memory that this connection uses beyond its initial buffer."""
        if not self.closed:
            waiting = self._out_bytes - self._region_bytes + self._held_bytes
            taken = self._buffer_bytes + waiting + self._pending_bytes
            before, self._charged = self._charged, taken
            if taken != before:
                self._budget.charge(taken - before)

    def _make_room(self) -> None:
        """Move the unfinished frame to the front. Grow the buffer only as bytes arrive, never because of an announced size alone."""
        start, end, capacity = self._start, self._end, len(self._buffer)
        held = end - start
        if self._keeps_frame:
            self._resize(max(RECEIVE_BYTES_GROWN, held + RECEIVE_BYTES_INITIAL))
        elif end == capacity and capacity < RECEIVE_BYTES_GROWN:
            # The peer fills this buffer in one go: in a larger one fewer frames are cut off and have to be moved.
            self._resize(RECEIVE_BYTES_GROWN)
        elif start == end:
            self._start = self._end = 0
            if capacity > RECEIVE_BYTES_GROWN:
                self._shrink(end, capacity)
        elif end == capacity and held > capacity // 2:
            if not self._may_read():
                self._pause()
                return
            size = int.from_bytes(self._view[start : start + 4], "big", signed=True)
            grown = min(capacity * 4, max(size + 4, capacity))
            self._resize(max(grown, capacity + RECEIVE_BYTES_INITIAL))
        elif start > 0 and capacity - end < capacity // 4:
            self._view[0:held] = self._view[start:end]
            self._start, self._end = 0, held

    def _shrink(self, used: int, capacity: int) -> None:
        """Replace a large empty buffer by a smaller one if it is no longer needed."""
        self._small_receives = self._small_receives + 1 if used * 4 < capacity else 0
        if capacity > RECEIVE_BYTES_KEPT or self._small_receives >= SMALL_RECEIVES:
            self._small_receives = 0
            self._resize(RECEIVE_BYTES_GROWN)

    def trim(self) -> None:
        """Free the buffer of a connection that has been idle for a while."""
        if self._start == self._end and len(self._buffer) > RECEIVE_BYTES_INITIAL:
            self._resize(RECEIVE_BYTES_INITIAL)

    def _resize(self, capacity: int) -> None:
        # A new buffer, because a bytearray cannot be resized while views of it exist. It is filled through a view, which copies once.
        held = self._end - self._start
        try:
            buffer = bytearray(max(capacity, held))
            memoryview(buffer)[0:held] = self._view[self._start : self._end]
        except MemoryError:
            if capacity > len(self._buffer) or self._keeps_frame:
                self.close("there is no memory for its request")
            return
        self._keeps_frame = False
        self._buffer, self._view, self._start, self._end = buffer, memoryview(buffer), 0, held
        self._buffer_bytes = len(buffer) - RECEIVE_BYTES_INITIAL
        self._see_usual_end()
        self._budget.note(self, is_trimmable=self._buffer_bytes > 0)
        self._account()

    def _pause(self) -> None:
        if not self.paused and not self.closed:
            self.paused = True
            self._loop.remove_reader(self.fd)

    def mute(self, delay_ms: int) -> None:
        """Stop reading for `delay_ms` (KIP-219); responses are still sent. Of two mutes the later end counts."""
        if self.closed:
            return
        until_s = self._loop.time() + delay_ms / 1000
        if self._muted is not None:
            if self._muted.when() >= until_s:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(until_s, self._unmute)
        self._pause()

    def hold(self) -> None:
        """See Connection."""
        self._holds += 1
        self._pause()

    def keep_frame(self) -> None:
        """See Connection."""
        self._keeps_frame, self._usual_end = True, 0

    def go_on(self) -> None:
        """See Connection."""
        self._holds -= 1
        self._maybe_resume()

    def count_memory(self, ticket: int, size: int) -> None:
        """See Connection."""
        more = size - self._pending.get(ticket, 0)
        if more > 0 and not self.closed:
            self._pending[ticket], self._pending_bytes = size, self._pending_bytes + more
            self._account()

    def _unmute(self) -> None:
        self._muted = None
        self.last_active_s = self._loop.time()
        self._maybe_resume()

    def _maybe_resume(self) -> None:
        if (
            self.paused
            and not self.closed
            and self._muted is None
            and not self._holds
            and self._next_ticket - self._head_ticket < self._limits.pending_answers_max // 2 + 1
            and self._out_bytes + self._held_bytes <= self._limits.queued_bytes_max
            and self._may_read()
        ):
            self.paused = False
            self._loop.add_reader(self.fd, self._readable)
            self._loop.call_soon(self._parse_rest)

    def _parse_rest(self) -> None:
        if not self.closed and not self.paused:
            now_s = self._turn_s = monotonic()
            if self._must_wait(now_s):
                return
            queue = self._flush_queue
            queue.depth += 1
            try:
                self._parse()
            finally:
                queue.depth -= 1
                queue.flush()

    # -- sending ---------------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Reserve a place for the next response; returns its ticket."""
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        return ticket

    def finish(self, ticket: int, pieces: list[Piece]) -> None:
        """Queue a response; it leaves after all responses with lower tickets."""
        if self.closed:
            release(pieces)
            return
        if self._pending and ticket in self._pending:
            self._pending_bytes -= self._pending.pop(ticket)
            self._account()
            if not self._pending_bytes:
                self._budget.answered(self)
        if ticket != self._head_ticket:
            self._ready[ticket] = pieces
            self._held_bytes += memory_of(pieces)
            self._account()
            return
        self._head_ticket = ticket + 1
        self._queue(pieces)
        if self._ready:
            self._queue_ready()
        if self.paused:
            self._maybe_resume()

    @property
    def is_sending(self) -> bool:
        """Whether queued bytes wait for the socket to become writable."""
        return self._writing

    def watch_flush(self, watcher: Flushable) -> None:
        """Call `watcher.flush()` at the end of this turn, in the order of registration with the connections that send then."""
        self._flush_queue.add(watcher)

    def _queue_ready(self) -> None:
        """Queue the responses whose predecessors have all been queued."""
        while (following := self._ready.pop(self._head_ticket, None)) is not None:
            self._head_ticket += 1
            self._held_bytes -= memory_of(following)
            self._queue(following)

    def send(self, pieces: list[Piece]) -> None:
        """Queue a frame without a ticket."""
        if self.closed:
            release(pieces)
            return
        self._queue(pieces)

    def _queue(self, pieces: list[Piece]) -> None:
        if not pieces:
            return
        for piece in pieces:
            if type(piece) is bytes or isinstance(piece, (memoryview, bytearray)):
                self._out_bytes += len(piece)
            else:
                size: int = piece.size  # type: ignore[union-attr]
                self._out_bytes += size
                self._region_bytes += size
                self._regions += 1
        self._out += pieces
        if not self._flush_wanted and not self._writing:
            self._flush_wanted = True
            self._flush_queue.add(self)

    def flush(self) -> None:
        """Send as much as the socket accepts; the rest follows when it is writable."""
        self._flush_wanted = False
        if self._writing or self.closed:
            return
        try:
            done = self._write()
        except OSError as error:
            self.close(str(error))
            return
        if not done:
            self._writing = True
            self._writing_since = (self._loop.time(), self.sent_bytes)
            self._loop.add_writer(self.fd, self._writable)
            self._account()
        elif self.paused or self._charged > self._buffer_bytes:
            # What was charged, or stopped the reading, has left completely: there will be no writability event.
            self._account()
            self._maybe_resume()

    def _writable(self) -> None:
        try:
            done = self._write()
        except OSError as error:
            self.close(str(error))
            return
        if done:
            self._writing = False
            self._writing_since = None
            self._loop.remove_writer(self.fd)
        self._account()
        self.last_active_s = self._loop.time()
        self._maybe_resume()

    # -- end -------------------------------------------------------------------------------------------------------

    def close(self, reason: str = "") -> None:
        """Close the connection and drop everything queued. `on_closed` gets the reason."""
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
        if not self.paused and self.handler is not None:
            self._loop.remove_reader(self.fd)
        if self._writing:
            self._loop.remove_writer(self.fd)
        self._socket.close()
        release(self._out)
        self._out.clear()
        for pieces in self._ready.values():
            release(pieces)
        self._ready.clear()
        self._out_bytes = 0
        self._budget.charge(-self._charged)
        self._budget.note(self, is_trimmable=False)
        self._budget.done(self)
        if self.handler is not None:
            self.handler.on_closed(self, reason)
