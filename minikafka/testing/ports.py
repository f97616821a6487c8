"""Ports of 127.0.0.1 that stay ours for as long as a cluster needs them.

On Linux a socket that is bound (SO_REUSEADDR) but does not listen keeps its port from being given to anybody who asks for a free one, while
a broker that asks for exactly this port may listen on it, and again after it was killed. Elsewhere the ports are only free at the time.
"""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"


class ReservedPorts:
    """`numbers` are the ports; `release` gives them back."""

    def __init__(self, count: int, wanted: tuple[int, ...] = ()) -> None:
        """`wanted` are the first ones. Raises OSError, which names the port, when somebody has one of them."""
        self._holders: list[socket.socket] = []
        self.numbers: list[int] = []
        try:
            for number in range(count):
                holder = socket.socket()
                self._holders.append(holder)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._bind(holder, wanted[number] if number < len(wanted) else 0)
                self.numbers.append(holder.getsockname()[1])
        except OSError:
            self.release()
            raise
        if sys.platform != "linux":
            self.release()

    @staticmethod
    def _bind(holder: socket.socket, port: int) -> None:
        try:
            holder.bind((HOST, port))
        except OSError as error:
            raise OSError(error.errno, f"port {port} of {HOST} is not free ({error.strerror})") from error

    def release(self) -> None:
        """Close the holders. Call it twice and nothing happens."""
        while self._holders:
            self._holders.pop().close()
