"""Where the control socket of a `cluster up` cluster is."""

from __future__ import annotations

import os
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
