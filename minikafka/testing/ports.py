"""Reserves ports of 127.0.0.1 for as long as a cluster needs them.

On Linux a socket that is bound (SO_REUSEADDR) but does not listen reserves its port: the kernel does not hand it out as a free one, but a
broker that asks for exactly this port can listen on it, also after it was killed. On other systems the ports are only free when chosen.
"""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"


class ReservedPorts:
    """`numbers` are the ports; `release` ends the reservation."""

    def __init__(self, count: int, fixed: tuple[int, ...] = ()) -> None:
        """`fixed`: numbers of the first ports; the others are any free ones. Raises OSError, which names the port, if one is taken."""
        self._holders: list[socket.socket] = []
        self.numbers: list[int] = []
        try:
            for number in range(count):
                holder = socket.socket()
                self._holders.append(holder)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._bind(holder, fixed[number] if number < len(fixed) else 0)
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
        """End the reservation. Calling it again does nothing."""
        while self._holders:
            self._holders.pop().close()
