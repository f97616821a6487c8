"""Worker processes that end with the process that started them, and leave Ctrl-C to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def end_with_parent() -> None:
    """In a process of multiprocessing: end it, silently, as soon as its parent has ended. It would work on, and complain in a stack trace
    that nobody takes its result. Ctrl-C in a terminal reaches all processes; what it means here, the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), name="parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
