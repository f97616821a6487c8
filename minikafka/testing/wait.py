"""Waiting on a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

from minikafka.client.errors import ClientError
from minikafka.testing.errors import ClusterError
from wire.errors import WireError

POLL_S = 0.01


def wait_until(condition: Callable[[], object], what: str, timeout_s: float, state: Callable[[], str] | None = None) -> None:
    """Ask again until `condition()` is true; connection and protocol errors count as not yet. Raises ClusterError, with `state()` in it."""
    deadline = time.monotonic() + timeout_s
    last = ""
    while True:
        try:
            if condition():
                return
            last = ""
        except (OSError, WireError, ClientError) as error:
            last = f" (last: {error})"
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {timeout_s:g} s for {what}{last}" + (f"\n{state()}" if state is not None else ""))
        time.sleep(POLL_S)
