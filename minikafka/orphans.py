"""Worker processes that end with the process that started them, and leave Ctrl-C to it."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.context
import os
import signal
import threading
from multiprocessing.connection import wait
from typing import Any


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


class _Quiet:
    """Ends without a word if the process that wants the results has ended, before `_watch` has noticed."""

    def run(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            super().run()  # type: ignore[misc]


class _Forked(_Quiet, multiprocessing.context.ForkProcess):
    pass


class _Served(_Quiet, multiprocessing.context.ForkServerProcess):
    pass


class _ForkedContext(multiprocessing.context.ForkContext):
    Process = _Forked


class _ServedContext(multiprocessing.context.ForkServerContext):
    Process = _Served


def quiet_context(*, has_threads: bool) -> Any:
    """multiprocessing's context of a fork server, or of forks if this process has no threads."""
    return _ServedContext() if has_threads else _ForkedContext()
