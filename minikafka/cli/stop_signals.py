"""Signals that ask a command to stop in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


def stop_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP, which comes when the terminal is closed. As for Java's, nohup makes it ignored."""
    found = [signal.SIGTERM, signal.SIGINT]
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
        found.append(hang_up)
    return found


@contextlib.contextmanager
def as_interruptions() -> Iterator[None]:
    """All of them raise KeyboardInterrupt meanwhile."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
