"""Ctrl-C that arrives at a moment when Python can only ignore it.

An exception in a destructor or in a callback of the garbage collector is reported and dropped, also the KeyboardInterrupt of a signal
handler. During imports there are many such moments. The interruption is raised once more, a little later.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

AGAIN_S = 0.01


@contextlib.contextmanager
def late_interruptions() -> Iterator[None]:
    """Meanwhile, no interruption is lost. Where there is no interval timer (Windows), it changes nothing."""
    report = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    if hasattr(signal, "setitimer"):
        sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = report


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
