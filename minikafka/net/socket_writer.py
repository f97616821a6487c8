"""Writes byte strings and file regions to a socket with as few system calls as possible.

Small pieces are joined, `MSG_MORE` is set before a file region, and regions are sent by `os.sendfile`.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Any

from minikafka.net.pieces import send_region

SENDFILE_BYTES_MIN = 24 * 1024
_IN_MEMORY = (memoryview, bytearray)
JOINED_BYTES_MAX = 64 * 1024
MSG_MORE = getattr(socket, "MSG_MORE", 0)


class SocketWriter:
    """The sending half of a connection."""

    __slots__ = ("_out", "_out_bytes", "_region_bytes", "_region_sent", "_regions", "_socket", "fd", "sent_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fd = sock.fileno()
        #: Pieces in the order in which they leave, of `_out_bytes`. `_regions`: file regions, of `_region_bytes`, which take no memory.
        #: `_region_sent`: what left of a first one.
        self._out: deque[Any] = deque()
        self._out_bytes = self._region_bytes = self._region_sent = self._regions = 0
        self.sent_bytes = 0

    def _write(self) -> bool:
        """Write until everything is sent (True) or the socket is full (False)."""
        out = self._out
        try:
            if not self._regions and self._out_bytes <= JOINED_BYTES_MAX and out:
                # Most wake-ups of the loop queue nothing but small byte strings.
                data = out[0] if len(out) == 1 else b"".join(out)
                sent = self._socket.send(data)
                self.sent_bytes += sent
                self._out_bytes -= sent
                out.clear()
                if not self._out_bytes:
                    return True
                out.append(memoryview(data)[sent:])
                return False
            while out:
                piece = out[0]
                if isinstance(piece, (bytes, memoryview, bytearray)):
                    following = out[1] if len(out) > 1 else None
                    if following is None or (
                        not isinstance(following, (bytes, memoryview, bytearray)) and following.size >= SENDFILE_BYTES_MIN
                    ):
                        self._write_head(piece, MSG_MORE if following is not None else 0)
                    else:
                        self._write_bytes()
                elif piece.size < SENDFILE_BYTES_MIN:
                    self._write_bytes()
                else:
                    self._write_region(piece)
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _write_head(self, piece: Any, more: int) -> None:
        """Send one byte string: the one before a file region, or the last of the queue."""
        sent = self._socket.send(piece, more)
        self.sent_bytes += sent
        self._out_bytes -= sent
        if sent == len(piece):
            self._out.popleft()
        else:
            self._out[0] = memoryview(piece)[sent:]

    def _write_bytes(self) -> None:
        """Send the byte strings at the head of the queue, the small ones joined."""
        out = self._out
        run: list[Any] = []
        size = more = 0
        for position, piece in enumerate(out):
            if type(piece) is not bytes and not isinstance(piece, _IN_MEMORY):
                if piece.size >= SENDFILE_BYTES_MIN or size + piece.size > JOINED_BYTES_MAX:
                    more = MSG_MORE
                    break
                # Below this size a copy is cheaper than sendfile, and several pieces share one system call.
                out[position] = data = piece.pread(piece.size, 0)
                self._region_bytes -= piece.size
                self._regions -= 1
                piece.release()
                piece = data
            elif run and size + len(piece) > JOINED_BYTES_MAX:
                break
            run.append(piece)
            size += len(piece)
        data = run[0] if len(run) == 1 else b"".join(run)
        sent = self._socket.send(data, more) if size else 0
        self.sent_bytes += sent
        self._out_bytes -= sent
        if len(run) == len(out):
            out.clear()
        else:
            for _ in run:
                out.popleft()
        if sent < size:
            out.appendleft(memoryview(data)[sent:])

    def _write_region(self, region: Any) -> None:
        if (remaining := region.size - self._region_sent) > 0:
            sent = send_region(self.fd, region, self._region_sent, remaining)
            self._region_sent += sent
            self._region_bytes -= sent
            self.sent_bytes += sent
            self._out_bytes -= sent
            if sent < remaining:
                return
        self._region_sent = 0
        self._regions -= 1
        self._out.popleft()
        region.release()
