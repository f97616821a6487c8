"""Where the control socket of a `cluster up` cluster is, and the end of those that killed clusters leave behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Longest path that the kernel accepts (unix(7), sun_path).
SOCKET_PATH_BYTES_MAX = 107


def socket_path(port: int) -> Path:
    """The control socket of the cluster whose first broker listens on this port."""
    import tempfile
    from pathlib import Path

    name = Path(f"minikafka-{os.getuid()}") / f"{port}.sock"
    usual = tempfile.gettempdir() / name
    return usual if len(os.fsencode(usual)) <= SOCKET_PATH_BYTES_MAX else "/tmp" / name


@contextlib.contextmanager
def tidied(directory: Path) -> Iterator[None]:
    """Remove what killed clusters left in the directory of sockets. Until the end of the context, no other process does: it would take a
    socket that is bound and does not listen yet for one of those."""
    import fcntl

    opened = os.open(directory, os.O_RDONLY)
    try:
        # Without locks, what is left stays.
        with contextlib.suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
            for path in directory.glob("*.sock"):
                if _is_abandoned(path):
                    path.unlink(missing_ok=True)
            for path in directory.glob("*.starting"):
                with path.open("rb") as file, contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink(missing_ok=True)
        yield
    finally:
        os.close(opened)


def _is_abandoned(path: Path) -> bool:
    """Whether nobody listens to a socket."""
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
