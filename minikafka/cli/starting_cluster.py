"""How other commands learn that `cluster up` is still starting at an address, so that they wait instead of giving up.

While it starts, `cluster up` holds a lock (flock(2)) on a file beside its control socket. The kernel releases it, however the process ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def _path(port: int) -> Path:
    from minikafka.cli.control_socket import socket_path

    return socket_path(port).with_suffix(".starting")


class StartingCluster:
    """A context manager around the start of the cluster whose first port this is; 0, a port that nobody knows yet, announces nothing."""

    def __init__(self, first_port: int) -> None:
        self._port = first_port
        self._file: IO[bytes] | None = None

    def __enter__(self) -> StartingCluster:
        if self._port:
            import fcntl

            path = _path(self._port)
            # Not told, other commands only wait for less long.
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                self._file = path.open("ab")
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """The start has ended, well or not."""
        if self._file is not None:
            _path(self._port).unlink(missing_ok=True)
            self._file.close()
            self._file = None


def is_starting(addresses: Iterable[tuple[str, int]]) -> bool:
    """Whether `cluster up` is starting at one of these addresses of this machine."""
    try:
        import fcntl
    except ImportError:
        # Windows: `cluster up` does not run there.
        return False
    for host, port in addresses:
        if host in LOOPBACK:
            with contextlib.suppress(FileNotFoundError, PermissionError), _path(port).open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
    return False
